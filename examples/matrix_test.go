package examples_test

import (
	"crypto/rand"
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store"
)

const matrixClients = 8

// TestSDKMatrix runs every client of the matrix against a gateway, against one whose data folder the matrix takes away, and
// against the upstream of both; nothing of it stays in either. It needs what TestOpenAINode needs.
func TestSDKMatrix(t *testing.T) {
	if !installed(t, "sdk-matrix") {
		return
	}
	weir, output, upstream := build(t), new(lockedBuffer), ""
	freeAddresses(t, &upstream)
	start(t, output, nil, weir, "upstream-sim", "--listen", upstream)
	env := []string{"WEIR_UPSTREAM_URL=http://" + upstream, "WEIR_ADMIN_TOKEN=" + adminToken}
	gateway := func(folder string) (listen, admin string) {
		freeAddresses(t, &listen, &admin)
		ended := start(t, output, append(env, "WEIR_LISTEN="+listen, "WEIR_ADMIN="+admin, "WEIR_DATA="+folder),
			weir, "serve", "-c", filepath.Join("sdk-matrix", "weir.yaml"))
		if err := ready("http://"+listen+"/readyz", output, ended); err != nil {
			t.Fatal(err)
		}
		return listen, admin
	}
	folder, outageFolder := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "data")
	expired := expiredKeys(t, folder, matrixClients)
	listen, admin := gateway(folder)
	outage, outageAdmin := gateway(outageFolder)
	for _, at := range []string{admin, outageAdmin} {
		defer leavesNothing(t, at)()
	}
	node(t, "sdk-matrix", "matrix.mjs", 425, output, append(env, "WEIR_BASE_URL=http://"+listen, "WEIR_KEY="+demoKey, "WEIR_ADMIN_URL=http://"+admin,
		"WEIR_OUTAGE_URL=http://"+outage, "WEIR_OUTAGE_ADMIN_URL=http://"+outageAdmin, "WEIR_OUTAGE_DATA="+outageFolder,
		"WEIR_EXPIRED_KEYS="+strings.Join(expired, ","))...)
}

// expiredKeys begins a data folder in which there are keys whose time is over. The admin API makes none that lasts less than
// a day.
func expiredKeys(t *testing.T, folder string, n int) (keys []string) {
	t.Helper()
	s, err := store.Open(folder)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	clock := llm.NewSystemClock()
	l, _, err := ledger.Open(s, ledger.Options{}, clock)
	must(t, err)
	defer func() { must(t, l.Close()) }()
	secret, err := admin.Secret(l, rand.Reader)
	must(t, err)
	directory, docs := auth.NewDirectory(secret, clock), []ledger.Doc(nil)
	put := func(kind string, id uint64, v any) {
		data, err := json.Marshal(v)
		must(t, err)
		docs = append(docs, ledger.Doc{Kind: kind, ID: strconv.FormatUint(id, 10), Data: data})
	}
	put("org", 1, auth.Org{ID: 1, Name: "Former"})
	put("user", 1, auth.User{ID: 1, OrgID: 1, Name: "node"})
	for range n {
		plaintext, k, err := directory.Mint(rand.Reader)
		must(t, err)
		keys = append(keys, plaintext)
		k.ID, k.UserID, k.Name, k.ExpiresAtMS = uint64(len(keys)), 1, "expired", clock.Wall().Add(-time.Second).UnixMilli()
		put("key", k.ID, k)
	}
	must(t, l.Put(t.Context(), ledger.Change{Actor: "admin", Action: "key.create", Target: "key:1"}, docs, nil))
	return keys
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
