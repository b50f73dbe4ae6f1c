package doctor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/doctor"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// TestDatabase: each thing that is not as it should be is found, and nothing else.
func TestDatabase(t *testing.T) {
	const data = "postgres://weir:hunter2@db/weir"
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(yaml(data, listener(t).Addr().String())), 0o600); err != nil {
		t.Fatal(err)
	}
	find := func(d doctor.Database, unreachable, opening error) map[string]doctor.Check {
		found := map[string]doctor.Check{}
		for _, c := range doctor.Run(t.Context(), doctor.Options{Path: path, Clock: llm.NewSystemClock(), Env: os.LookupEnv,
			Open:     func(string) (ledger.Store, error) { return nil, opening },
			Database: func(_ context.Context, at string) (doctor.Database, error) { return d, unreachable }}) {
			if strings.Contains(c.Detail+c.Fix, "hunter2") {
				t.Errorf("%+v", c)
			}
			found[c.Name] = c
		}
		return found
	}
	sound := doctor.Database{Name: "weir at db:5432", Version: 150018, RoundTrip: 300 * time.Microsecond, Commit: 2 * time.Millisecond, Fsync: "on", FullPageWrites: "on",
		SynchronousCommit: "on", Isolation: "read committed", Bytes: 12 << 20, Connections: 3, MaxConnections: 100}
	none := llm.Errorf(llm.KindNotFound, "there is no ledger")
	for name, c := range map[string]struct {
		change func(d *doctor.Database)
		check  string
		want   doctor.Status
		says   string
	}{
		"sound":          {func(*doctor.Database) {}, "database", doctor.OK, "weir at db:5432, PostgreSQL 15.18: round trip 300\u00b5s, commit 2ms"},
		"too old":        {func(d *doctor.Database) { d.Version = 120022 }, "database", doctor.Fail, "PostgreSQL 12.22"},
		"a standby":      {func(d *doctor.Database) { d.Standby = true }, "database", doctor.Fail, "standby"},
		"far":            {func(d *doctor.Database) { d.RoundTrip = 20 * time.Millisecond }, "database", doctor.Warn, "20ms"},
		"a slow disk":    {func(d *doctor.Database) { d.Commit = 30 * time.Millisecond }, "database", doctor.Warn, "30ms"},
		"no fsync":       {func(d *doctor.Database) { d.Fsync = "off" }, "database settings", doctor.Warn, "fsync off"},
		"torn pages":     {func(d *doctor.Database) { d.FullPageWrites = "off" }, "database settings", doctor.Warn, "full_page_writes off"},
		"not flushed":    {func(d *doctor.Database) { d.SynchronousCommit = "off" }, "database settings", doctor.OK, "synchronous_commit off"},
		"a pooler":       {func(d *doctor.Database) { d.Isolation = "serializable" }, "database settings", doctor.Warn, "serializable"},
		"another time":   {func(d *doctor.Database) { d.Ahead = -time.Minute }, "database clock", doctor.Warn, "1m0s"},
		"no connections": {func(d *doctor.Database) { d.Connections = 90 }, "database room", doctor.Warn, "90 of 100"},
	} {
		d := sound
		c.change(&d)
		found := find(d, nil, none)
		if got := found[c.check]; got.Status != c.want || !strings.Contains(got.Detail, c.says) || (got.Fix == "") != (c.want == doctor.OK) {
			t.Errorf("%s: %+v", name, got)
		}
		for _, other := range []string{"database", "database settings", "database clock", "database room", "store"} {
			if got, ok := found[other]; !ok || other != c.check && got.Status != doctor.OK {
				t.Errorf("%s: %s is %+v", name, other, got)
			}
		}
		if _, ok := found["disk"]; ok {
			t.Errorf("%s: a disk of this machine was looked at", name)
		}
	}
	if got := find(sound, errors.New("no route"), errors.New("no route"))["database"]; got.Status != doctor.Fail || got.Fix == "" {
		t.Errorf("unreachable: %+v", got)
	}
	locked := &llm.Error{Kind: llm.KindUnavailable, Code: "store_locked", Message: "in use by weir on a, pid 1"}
	if got := find(sound, nil, locked)["store"]; got.Status != doctor.OK || !strings.Contains(got.Detail, "weir on a, pid 1") {
		t.Errorf("in use: %+v", got)
	}
}
