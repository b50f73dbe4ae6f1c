package postgres

import (
	"testing"

	"github.com/weir-gateway/weir/store/storetest"
)

// A server that would acknowledge before it has flushed does not do so for money.
func TestCommitsAreSynchronous(t *testing.T) {
	srv, url := storetest.Postgres(t)
	srv.Set(t, "synchronous_commit", "off")
	s, err := Open(url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var now string
	if err := s.write.conn.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&now); err != nil || now != "on" {
		t.Errorf("%q, %v", now, err)
	}
}
