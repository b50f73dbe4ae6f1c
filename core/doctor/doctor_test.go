package doctor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/doctor"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// examine runs the doctor on a configuration with one channel.
func examine(t *testing.T, yaml string, clock llm.Clock) map[string]doctor.Check {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return examineWith(t, path, clock, errors.New("the store is torn"))
}

// examineWith runs the doctor on a file, where the store fails to open with err.
func examineWith(t *testing.T, path string, clock llm.Clock, err error) map[string]doctor.Check {
	t.Helper()
	found := map[string]doctor.Check{}
	for _, c := range doctor.Run(t.Context(), doctor.Options{Path: path, Clock: clock, Env: os.LookupEnv,
		Open: func(string) (ledger.Store, error) { return nil, err }}) {
		found[c.Name] = c
	}
	return found
}

func listener(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

func yaml(data, upstream string) string {
	return fmt.Sprintf("admin: {token: f00df00d-5ca1ab1e}\ndata: %q\nlisten: {connections: 10}\nchannels: [{name: c, provider: openai, base_url: \"http://%s\"}]\n", data, upstream)
}

func TestHealthyConfiguration(t *testing.T) {
	found := examine(t, yaml(filepath.Join(t.TempDir(), "new"), listener(t).Addr().String()), llm.NewSystemClock())
	for _, name := range []string{"config", "clock", "open files", "store", "upstream c"} {
		if c, ok := found[name]; !ok || c.Status != doctor.OK {
			t.Errorf("%s: %+v, want ok", name, c)
		}
	}
	if c := found["disk"]; c.Status == doctor.Fail || !strings.Contains(c.Detail, "sync") {
		t.Errorf("disk: %+v", c)
	}
}

func TestEachFaultIsFoundAndHasAFix(t *testing.T) {
	dead := listener(t)
	_ = dead.Close()
	data := t.TempDir() // exists, and the store in it cannot be opened
	found := examine(t, yaml(data, dead.Addr().String()), llm.NewFakeClock(time.Unix(0, 0)))
	for name, want := range map[string]doctor.Status{"clock": doctor.Fail, "store": doctor.Fail, "upstream c": doctor.Fail} {
		if c := found[name]; c.Status != want || c.Fix == "" {
			t.Errorf("%s: %+v, want %v and a fix", name, c, want)
		}
	}
}

// TestChannelsAreReachedAsServeWould: a channel that serve would never connect to is a finding, with its reason.
func TestChannelsAreReachedAsServeWould(t *testing.T) {
	file := "upstream: {reach: public}\n" + yaml(t.TempDir(), listener(t).Addr().String())
	if c := examine(t, file, llm.NewSystemClock())["upstream c"]; c.Status != doctor.Fail || !strings.Contains(c.Detail, "upstream.reach is public") {
		t.Errorf("%+v", c)
	}
	plain := strings.Replace(yaml(t.TempDir(), listener(t).Addr().String()), "http:", "https:", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(plain), 0o600); err != nil {
		t.Fatal(err)
	}
	checks := doctor.Run(ctx, doctor.Options{Path: path, Clock: llm.NewSystemClock(), Env: os.LookupEnv,
		Open: func(string) (ledger.Store, error) { return nil, errors.New("torn") }})
	if c := checks[len(checks)-1]; c.Status != doctor.Fail || !strings.Contains(c.Detail, "TLS handshake") {
		t.Errorf("nobody speaks TLS there: %+v", c)
	}
}

// TestStoreInUse: a store that a living process has is as it should be; one that nobody alive has is not.
func TestStoreInUse(t *testing.T) {
	data, path := t.TempDir(), filepath.Join(t.TempDir(), "weir.yaml")
	locked := &llm.Error{Kind: llm.KindUnavailable, Code: "store_locked", Message: "another process has it"}
	files := map[string]string{path: yaml(data, listener(t).Addr().String())}
	for pid, want := range map[string]doctor.Status{fmt.Sprint(os.Getpid(), "\n"): doctor.OK, "999999999\n": doctor.Warn, "torn": doctor.Warn} {
		files[filepath.Join(data, "LOCK")] = pid
		for name, text := range files {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c := examineWith(t, path, llm.NewSystemClock(), locked)["store"]
		if c.Status != want || (want == doctor.OK) != strings.Contains(c.Detail, fmt.Sprintf("in use by the running gateway, pid %d", os.Getpid())) {
			t.Errorf("with %q as the owner: %+v, want %v", pid, c, want)
		}
	}
}

func TestBrokenFileIsTheOnlyFinding(t *testing.T) {
	found := examine(t, "lsiten: {}\n", llm.NewSystemClock())
	if c := found["config"]; len(found) != 1 || c.Status != doctor.Fail || !strings.Contains(c.Detail, ":1:1: unknown field") {
		t.Errorf("%+v", found)
	}
}

func TestVerdicts(t *testing.T) {
	if w := doctor.Worst([]doctor.Check{{Status: doctor.OK}, {Status: doctor.Fail}, {Status: doctor.Warn}}); w != doctor.Fail {
		t.Errorf("worst is %v", w)
	}
	raw, err := json.Marshal(doctor.Check{Name: "x", Status: doctor.Warn})
	if err != nil || !strings.Contains(string(raw), `"status":"warn"`) {
		t.Errorf("%s, %v", raw, err)
	}
}

// TestRunningGateway: what a gateway says of itself is judged as what is seen from here is.
func TestRunningGateway(t *testing.T) {
	answers := map[string]string{"/readyz": `{"status":"ready","reasons":[]}`, "/admin/ledger/verify": `{"ok":false,"entries":3,"problems":["posted of user 1 is 5, its entries say 4"]}`,
		"/admin/channels?limit=1000": `{"data":[{"name":"up","state":"enabled","health":{"state":"up"}},{"name":"new","state":"enabled","health":null},
			{"name":"off","state":"disabled","health":{"state":"disabled"}},{"name":"tired","state":"enabled","health":{"state":"cooling","coolingMs":1500,"lastStatus":429}},
			{"name":"mute","state":"enabled","health":{"state":"probing","lastStatus":0}}],"nextCursor":null}`}
	o := doctor.Options{Path: filepath.Join(t.TempDir(), "weir.yaml"), Clock: llm.NewSystemClock(), Env: os.LookupEnv, Gateway: "http://there",
		Ask: func(_ context.Context, path string) ([]byte, error) {
			if answers[path] == "" {
				return nil, errors.New("the gateway answered 503")
			}
			return []byte(answers[path]), nil
		}}
	found := map[string]doctor.Check{}
	for _, c := range doctor.Run(t.Context(), o) {
		found[c.Name] = c
	}
	for name, want := range map[string]doctor.Check{"gateway": {Detail: "ready"}, "store": {Status: doctor.Fail, Detail: "posted of user 1"}, "upstream up": {Detail: "up"},
		"upstream new": {Detail: "enabled"}, "upstream off": {Detail: "disabled"}, "upstream tired": {Status: doctor.Warn, Detail: "cooling, for 1500 ms more; its last answer was a 429"},
		"upstream mute": {Status: doctor.Warn, Detail: "it did not answer"}, "config": {Detail: "http://there"}} {
		if c := found[name]; c.Name == "" || c.Status != want.Status || !strings.Contains(c.Detail, want.Detail) || (c.Fix == "") != (c.Status == doctor.OK) {
			t.Errorf("%s: %+v", name, c)
		}
	}
	delete(answers, "/readyz")
	if checks := doctor.Run(t.Context(), o); len(checks) != 2 || checks[1].Name != "gateway" || checks[1].Status != doctor.Fail {
		t.Errorf("%+v", checks)
	}
}
