package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/postgres"
	"github.com/weir-gateway/weir/store/storetest"
)

func userKey(id byte) []byte { return []byte{'u', 0, 0, 0, 0, 0, 0, 0, id} }

func useKey(id byte) []byte { return []byte{'q', 0, 0, 0, 0, 0, 0, 0, id, 0, 3, 0x17, 0x7f} }

func balance(id byte, credits, posted llm.Micro) ledger.Write {
	return ledger.Write{Key: userKey(id), Value: ledger.Balance{Credits: credits, Posted: posted}.Value()}
}

// Whatever program writes, this one with a mistake in it or another: what was spent is not made unspent.
func TestSpentStaysSpent(t *testing.T) {
	_, url := storetest.Postgres(t)
	s := open(t, url)
	legal := [][]ledger.Write{
		{balance(1, 100, 60), {Key: useKey(7), Value: ledger.UseValue(60)}},
		{balance(1, 100, 160)},                  // a debt
		{balance(1, -50, 160)},                  // a cut below it
		{balance(2, 10, 0)},                     // a top-up,
		{{Key: userKey(2)}},                     // that was not to be
		{balance(1, 0, 1), balance(1, 30, 170)}, // the last counts
	}
	for i, b := range legal {
		if err := s.Apply(b, true); err != nil {
			t.Fatalf("legal batch %d: %v", i, err)
		}
	}
	for name, b := range map[string][]ledger.Write{
		"posted falls":                 {balance(1, 30, 169)},
		"posted falls beside a rise":   {balance(3, 5, 5), balance(1, 30, 1)},
		"posted is negative":           {balance(4, 0, -1)},
		"a spent balance is deleted":   {{Key: userKey(1)}},
		"use falls":                    {{Key: useKey(7), Value: ledger.UseValue(59)}},
		"use is negative":              {{Key: useKey(8), Value: ledger.UseValue(-1)}},
		"use is deleted":               {{Key: useKey(7)}},
		"a balance that does not read": {{Key: userKey(1), Value: []byte("much")}},
	} {
		if err := s.Apply(append(b, put("k", name)...), true); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, ok, _ := s.Get([]byte("k")); ok {
		t.Error("a part of a refused batch is there")
	}
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range []string{
		"UPDATE weir_balance SET posted = posted - 1", "UPDATE weir_balance SET posted = -1", "DELETE FROM weir_balance", "DELETE FROM weir_use",
		"UPDATE weir_balance SET key = '\\x750000000000000009'", "UPDATE weir_use SET node = 'other'", "UPDATE weir_use SET used = 0",
		"INSERT INTO weir_entry SELECT node, key, 'x' FROM weir_balance", "INSERT INTO weir_entry SELECT node, key, 'x' FROM weir_use",
		"INSERT INTO weir_balance SELECT node, key, 1, 1 FROM weir_use",
	} {
		if _, err := conn.Exec(context.Background(), sql); err == nil {
			t.Errorf("%s: taken", sql)
		}
	}
	v, _, err := s.Get(userKey(1))
	if b, _ := ledger.ReadBalance(v); err != nil || b != (ledger.Balance{Credits: 30, Posted: 170}) {
		t.Errorf("%+v, %v", b, err)
	}
}

// A restore that failed is taken back whole.
func TestFailedRestoreIsTakenBack(t *testing.T) {
	_, url := storetest.Postgres(t)
	s := open(t, url)
	if err := s.Apply(append(put("mrestoring", "x"), balance(1, 1, 1)), true); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply([]ledger.Write{{Key: []byte("mrestoring")}, {Key: userKey(1)}}, true); err != nil {
		t.Fatal(err)
	}
	if err := s.Scan(nil, nil, false, func(k, _ []byte) bool { t.Errorf("%q is left", k); return true }); err != nil {
		t.Fatal(err)
	}
}

func TestNewerSchema(t *testing.T) {
	srv, url := storetest.Postgres(t)
	_ = open(t, url).Close()
	_ = open(t, url).Close() // its own it takes
	srv.Exec(t, url, "INSERT INTO weir_schema (version_id, is_applied) VALUES (99, true)")
	_, err := postgres.Open(url, brief)
	refused(t, err, "store_newer", "schema 99", "newer version of weir", "up to 1")
}

// Who only looks makes nothing.
func TestExisting(t *testing.T) {
	srv, url := storetest.Postgres(t)
	o := brief
	o.Existing = true
	_, err := postgres.Open(url, o)
	if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.KindNotFound || !strings.Contains(err.Error(), "no ledger in the database test") {
		t.Fatal(err)
	}
	srv.Exec(t, url, "CREATE TABLE weir_node (x int)") // nothing has that name
	srv.Exec(t, url, "DROP TABLE weir_node")
	_ = open(t, url).Close()
	s, err := postgres.Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

// Neither an URL that does not read nor a server that does not answer has a secret told.
func TestSecretsAreNotTold(t *testing.T) {
	srv, _ := storetest.Postgres(t)
	for _, url := range []string{
		"postgres://weir:hunter2@127.0.0.1:1/weir", "postgres://weir:hunter2@nowhere.invalid/weir?connect_timeout=1", "postgres://weir@127.0.0.1:1/weir?password=hunter2",
		"postgres://weir:hunter2@127.0.0.1:port/weir", "postgres://weir:hun/hunter2@h/weir", "postgres://weir:1#hunter2@h/weir", "postgres://weir:1/hunter2@h/weir",
		"postgres://weir:1?hunter2@h/weir", "postgres://weir:%zzhunter2@h/weir", "postgres://weir:hunter2@h/weir?sslmode=hunter2", "postgres://weir:hunter2@/weir?sslpassword=hunter2&port=hunter2",
		"postgres://weir:hunter2@h", "postgresql://weir:hunter2@127.0.0.1:1/weir", "postgres://weir:hunter2@/nodb?host=" + srv.Folder(),
	} {
		_, err := postgres.Open(url, brief)
		_, err2 := postgres.Examine(t.Context(), url, llm.NewSystemClock())
		for _, err := range []error{err, err2} {
			if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", url, err)
			}
			if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.KindInvalid && e.Kind != llm.KindUnavailable {
				t.Errorf("%s: %#v", url, err)
			}
		}
	}
}

func TestExamine(t *testing.T) {
	_, url := storetest.Postgres(t)
	got, err := postgres.Examine(t.Context(), url, llm.NewSystemClock())
	if err != nil || got.Version < 130000 || got.RoundTrip <= 0 || got.Commit <= 0 || got.Fsync != "off" || got.FullPageWrites != "on" ||
		got.SynchronousCommit != "on" || got.Isolation != "read committed" || got.Standby || got.Bytes == 0 || got.Connections == 0 || got.MaxConnections != 100 || got.Ahead.Abs() > 1e9 {
		t.Errorf("%+v, %v", got, err)
	}
}
