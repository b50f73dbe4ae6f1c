package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/store/postgres"
	"github.com/weir-gateway/weir/store/storetest"
)

// TestServerForgets: a server that crashes loses what it had not flushed, which under "process" is what was applied since the
// last Sync. The process that applied it lives: whatever it does next, it finds, and leaves, all of it.
func TestServerForgets(t *testing.T) {
	srv, url := storetest.Postgres(t)
	srv.Set(t, "wal_writer_delay", "10s") // or it flushes by itself before it dies
	next := map[string]func(s *postgres.Store) error{
		"get":   func(s *postgres.Store) error { want(t, s, "k", "3"); return nil },
		"apply": func(s *postgres.Store) error { return s.Apply(put("m", "later"), false) },
		"sync":  func(s *postgres.Store) error { return s.Sync() },
		"scan": func(s *postgres.Store) error {
			seen := ""
			err := s.Scan([]byte("k"), nil, false, func(_, v []byte) bool { seen += string(v); return true })
			if seen != "3" {
				t.Errorf("a visit sees %q", seen)
			}
			return err
		},
	}
	for name, do := range next {
		t.Run(name, func(t *testing.T) {
			url := url
			if name != "get" {
				url = srv.Database(t)
			}
			s := open(t, url)
			apply(t, s, "k", "0")
			if _, _, err := s.Get([]byte("k")); err != nil { // a connection from before the crash
				t.Fatal(err)
			}
			for i := range 4 {
				b := append(put("k", fmt.Sprint(i)), put(fmt.Sprint("l", i), "x")...)
				if err := s.Apply(append(b, balance(1, 100, 10), ledger.Write{Key: []byte("gone"), Value: nil}), false); err != nil {
					t.Fatal(err)
				}
			}
			srv.Stop(t, true)
			srv.Start(t)
			if n := count(t, url); n != 1 {
				t.Logf("the server kept %d of its keys", n)
				if n == 6 {
					t.Error("it forgot nothing, and nothing was tested")
				}
			}
			if err := do(s); err != nil {
				t.Fatal(err)
			}
			want(t, s, "k", "3")
			if err := s.Sync(); err != nil {
				t.Fatal(err)
			}
			_ = s.Close()
			srv.Stop(t, true)
			srv.Start(t)
			s = open(t, url)
			want(t, s, "k", "3")
			for i := range 4 {
				want(t, s, fmt.Sprint("l", i), "x")
			}
			if name == "apply" {
				want(t, s, "m", "later")
			}
		})
	}
}

// count is how many keys a database has, for who is not its owner.
func count(t *testing.T, url string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(context.Background(), "SELECT count(*) FROM weir_all").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
