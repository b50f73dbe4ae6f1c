package postgres_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/postgres"
	"github.com/weir-gateway/weir/store/storetest"
)

func put(key, value string) []ledger.Write {
	return []ledger.Write{{Key: []byte(key), Value: []byte(value)}}
}

func apply(t testing.TB, s *postgres.Store, key, value string) {
	t.Helper()
	if err := s.Apply(put(key, value), true); err != nil {
		t.Fatalf("Apply: %v", err)
	}
}

func want(t testing.TB, s *postgres.Store, key, value string) {
	t.Helper()
	if v, ok, err := s.Get([]byte(key)); err != nil || !ok || string(v) != value {
		t.Fatalf("%s is %q, %v, %v; want %q", key, v, ok, err, value)
	}
}

// refused wants an error with a code that says all of some words, on one line.
func refused(t testing.TB, err error, code string, says ...string) {
	t.Helper()
	e, ok := errors.AsType[*llm.Error](err)
	if !ok || e.Code != code || strings.Contains(err.Error(), "\n") {
		t.Fatalf("%v; want %s on one line", err, code)
	}
	for _, word := range says {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v; want it to say %q", err, word)
		}
	}
}

// cut ends every session of a database, as a network does that forgets them.
func cut(t testing.TB, srv *storetest.PostgresServer, url string) {
	srv.Exec(t, url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
}

var brief = postgres.Options{LockWait: 50 * time.Millisecond}

func TestOneOwner(t *testing.T) {
	_, url := storetest.Postgres(t)
	s := open(t, url)
	_, err := postgres.Open(url, brief)
	host, _ := os.Hostname()
	refused(t, err, "store_locked", "in use by another process", "weir on "+host, fmt.Sprintf("pid %d", os.Getpid()), "since 20")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, url)
}

// Who lost its connection may write again when nobody else has written, and never when somebody has.
func TestFenced(t *testing.T) {
	srv, url := storetest.Postgres(t)
	a := open(t, url)
	apply(t, a, "k", "a")
	for _, other := range []string{"nobody came", "one who looked"} {
		cut(t, srv, url)
		if other == "one who looked" {
			look := open(t, url)
			want(t, look, "k", "nobody came")
			_, locked := postgres.Open(url, brief)
			refused(t, locked, "store_locked")
			refused(t, a.Apply(put("k", "too early"), true), "store_locked")
			_ = look.Close()
		}
		apply(t, a, "k", other)
		want(t, a, "k", other)
	}
	cut(t, srv, url)
	b := open(t, url)
	apply(t, b, "k", "b")
	refused(t, a.Apply(put("k", "a's"), true), "store_locked") // b has it
	_ = b.Close()
	for range 2 {
		refused(t, a.Apply(put("k", "a's"), true), "store_lost", "taken over by another process", "pid ")
	}
	want(t, a, "k", "b")
}

// A lock that went without its owner's noticing is no lock: the batch itself tells whose the node is.
func TestFencedInTheTransaction(t *testing.T) {
	srv, url := storetest.Postgres(t)
	s := open(t, url)
	apply(t, s, "k", "1")
	srv.Exec(t, url, "UPDATE weir_node SET epoch = epoch + 1, host = 'elsewhere', pid = 4711")
	refused(t, s.Apply(put("k", "2"), true), "store_lost", "weir on elsewhere, pid 4711")
	want(t, s, "k", "1")
}

// A database that went back would get a log with a gap.
func TestWentBack(t *testing.T) {
	srv, url := storetest.Postgres(t)
	s := open(t, url)
	apply(t, s, "k", "1")
	srv.Exec(t, url, "UPDATE weir_node SET batch = batch - 1")
	refused(t, s.Apply(put("k", "2"), true), "store_lost", "has batch 0 where this process wrote 1", "start this process anew")
	want(t, s, "k", "1")
	_ = s.Close()
	s = open(t, url)
	apply(t, s, "k", "2")
}

// between is a proxy on a socket of its own that can lose what comes next.
type between struct {
	dir  string
	lose atomic.Int32 // 1: the next request; 2: its answer
	down atomic.Bool  // nobody is let in
}

func newBetween(t testing.TB, to string) *between {
	b := &between{dir: t.TempDir()}
	ln, err := net.Listen("unix", filepath.Join(b.dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", to)
			if err != nil || b.down.Load() {
				_ = client.Close()
				continue
			}
			go b.carry(client, server, 1)
			go b.carry(server, client, 2)
		}
	}()
	return b
}

func (b *between) carry(from, to net.Conn, loses int32) {
	defer func() { _ = from.Close(); _ = to.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || b.lose.CompareAndSwap(loses, 0) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// When the connection goes in a commit, the batch is there whole or not at all, and is written either way: at once when
// there is another connection, and else when the ledger writes it again, or something else.
func TestOutcomeUnknown(t *testing.T) {
	srv, url := storetest.Postgres(t)
	b := newBetween(t, filepath.Join(srv.Folder(), ".s.PGSQL.5432"))
	through, _, _ := strings.Cut(url, "?")
	s := open(t, through+"?host="+b.dir)
	apply(t, s, "k", "0")
	for i, lose := range []int32{2, 1, 2, 2, 1, 1} {
		before, written := fmt.Sprint(i), fmt.Sprint(i, "?")
		apply(t, s, "k", before)
		b.lose.Store(lose)
		batch := []ledger.Write{{Key: []byte("k"), Value: []byte(written)}, {Key: []byte("l"), Value: []byte(written)}}
		if i%2 == 0 {
			if err := s.Apply(batch, true); err != nil {
				t.Fatal(err)
			}
			want(t, s, "l", written)
			continue
		}
		b.down.Store(true)
		refused(t, s.Apply(batch, true), "store_unavailable")
		refused(t, s.Apply(batch, true), "store_unavailable")
		b.down.Store(false)
		apply(t, s, "m", written) // another batch, after one in doubt
		want(t, s, "m", written)
		if lose == 2 {
			before = written
		}
		want(t, s, "k", before)
		if err := s.Apply(batch, true); err != nil {
			t.Fatal(err)
		}
		want(t, s, "k", written)
	}
}

// A server that hangs gives an error in time, and is written to again when it goes on.
func TestHungServer(t *testing.T) {
	srv, url := storetest.Postgres(t)
	s, err := postgres.Open(url, postgres.Options{Timeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	apply(t, s, "k", "1")
	resume := srv.Pause(t)
	from := time.Now()
	refused(t, s.Apply(put("k", "2"), true), "store_unavailable")
	if _, _, err := s.Get([]byte("k")); err == nil {
		t.Error("a hung server was read")
	}
	refused(t, s.Apply(put("k", "3"), true), "store_unavailable")
	if took := time.Since(from); took > 8*time.Second {
		t.Errorf("three calls to a hung server took %v", took)
	}
	resume()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err = s.Apply(put("k", "4"), true); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	want(t, s, "k", "4")
}
