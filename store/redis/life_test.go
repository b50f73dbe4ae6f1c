//go:build unix

package redis

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/store/storetest"
)

func TestDeadGateway(t *testing.T) {
	s := open(t, storetest.Redis(t), Options{})
	s.take(order(1, 0, 0, 2, 0))
	s.take(order(2, 0, 0, 2, 0))
	for range 3 { // only one is heard of
		s.pass(limit.BeatEvery - time.Microsecond)
		s.beat(ending(1, 0))
	}
	if o := s.take(order(3, 0, 0, 2, 0)); o.Admitted || o.Asks[0].Open != 2 {
		t.Fatalf("before a hold's life is over: %+v", o)
	}
	s.pass(3 * time.Microsecond)
	if o := s.take(order(3, 0, 0, 2, 0)); !o.Admitted || o.Asks[0].Open != 1 {
		t.Fatalf("the dead one still counts: %+v", o)
	}
	// The other was only out of reach.
	s.beat(ending(2, 0))
	if o := s.take(order(4, 0, 0, 3, 0)); o.Admitted || o.Asks[0].Open != 3 {
		t.Fatalf("%+v", o)
	}
	s.end(ending(1, 0), ending(2, 0), ending(3, 0))
	if o := s.take(order(4, 0, 0, 1, 0)); !o.Admitted {
		t.Fatalf("%+v", o)
	}
}

func TestEndBeforeBeginning(t *testing.T) {
	s := open(t, storetest.Redis(t), Options{})
	s.end(ending(1, 10)) // its order was given up and overtaken
	s.beat(ending(1, 10))
	s.take(order(1, 1, 100, 1, 50))
	if o := s.take(order(2, 1, 100, 1, 100)); !o.Admitted || o.Asks[0].QPSUsed != 0 || o.Asks[0].TPMUsed != 0 || o.Asks[0].Open != 0 {
		t.Fatalf("%+v", o)
	}
}

func TestLentConcurrency(t *testing.T) {
	s := open(t, storetest.Redis(t), Options{Gateways: 2})
	ask := func(gateway uint64, open, want int64) (most, used int64) {
		e := &limit.Exchange{ID: key, Gateway: gateway, Concurrency: 10, Open: open, WantOpen: want}
		s.borrow(e)
		return e.OpenMost, e.OpenUsed
	}
	for i, c := range []struct {
		gateway              uint64
		open, want           int64
		wantMost, wantOthers int64
		pass                 time.Duration
	}{
		{1, 0, 7, 7, 0, time.Second},
		{2, 0, 7, 3, 7, time.Second},
		{1, 2, 4, 4, 3, time.Second},
		{2, 3, 9, 6, 4, limit.HoldLife - time.Second - time.Microsecond},
		{3, 0, 9, 0, 10, time.Microsecond}, // the first's promise is kept to its last moment
		{3, 0, 9, 4, 6, 0},
		{1, 4, 4, 4, 10, 0}, // what is in use is in use
	} {
		if most, others := ask(c.gateway, c.open, c.want); most != c.wantMost || others != c.wantOthers {
			t.Errorf("%d: %d with %d of others, want %d with %d", i, most, others, c.wantMost, c.wantOthers)
		}
		s.pass(c.pass)
	}
}

func TestDebtOfLoans(t *testing.T) {
	s := open(t, storetest.Redis(t), Options{Gateways: 2})
	e := &limit.Exchange{ID: key, Gateway: 1, Number: 1, TPM: limit.Bound{Most: 100}, QPS: limit.Bound{Most: 3}, DebtTokens: 120, DebtRequests: 3, NeedTokens: 1, NeedRequests: 1}
	s.borrow(e, e)
	if e.Tokens != 0 || e.TPMUsed != 120 || e.TPMWait != time.Minute || e.Requests != 0 || e.QPSUsed != 3 || e.QPSWait != time.Second {
		t.Fatalf("%+v", *e)
	}
	s.pass(time.Second)
	again := &limit.Exchange{ID: key, Gateway: 1, Number: 2, TPM: e.TPM, QPS: e.QPS, NeedRequests: 1, WantRequests: 3}
	s.borrow(again)
	if again.Requests != 1 || again.For != limit.LoanLife {
		t.Fatalf("%+v", *again)
	}
}

// TestCluster: a cluster refuses a script that touches a key it has not named, and keys of two shards in one.
func TestCluster(t *testing.T) {
	server := storetest.RedisCluster(t)
	rules := map[limit.Kind]limit.Windows{limit.User: {QPS: limit.Fixed, TPM: limit.TokenBucket}}
	s := open(t, server, Options{Algorithms: rules})
	for i := range uint64(2) {
		o := order(i, 5, 100, 5, 10)
		o.Asks[0].QPS.Ten, o.Asks[0].TPM.Ten = 10, 500
		o.Asks = append(o.Asks, limit.Ask{ID: limit.ID{Kind: limit.User, Scope: 9}, TPM: limit.Bound{Most: 10, Rate: 1}, Requests: 1, Tokens: 10},
			limit.Ask{ID: limit.ID{Kind: limit.Custom, Scope: 7, Name: "{o8}"}, Requests: 1, Tokens: 10})
		if o = s.take(o); !o.Admitted {
			t.Fatalf("%+v", o)
		}
		s.beat(ending(i, 15))
		s.borrow(&limit.Exchange{ID: key, WantTokens: 5, TPM: limit.Bound{Most: 100, Ten: 500}}, &limit.Exchange{ID: limit.ID{Kind: limit.Model, Name: "}"}, WantRequests: 5})
		everyKeyExpires(t, server, 10)
		s.end(ending(i, 3), ending(i+5, 0))
		s.pass(time.Hour)
		everyKeyExpires(t, server, 8)
	}
}

func everyKeyExpires(t *testing.T, server *storetest.Server, least int) {
	t.Helper()
	var keys []string
	for _, line := range strings.Split(server.Say("KEYS *"), "\r\n") {
		if line != "" && !strings.HasPrefix(line, "*") && !strings.HasPrefix(line, "$") {
			keys = append(keys, line)
		}
	}
	if len(keys) < least {
		t.Errorf("only %d keys: %q", len(keys), keys)
	}
	for _, k := range keys {
		if ttl := server.Say("PTTL " + k); len(ttl) < len(":10000\r\n") || ttl[1] == '-' || len(ttl) > len(":999999\r\n") {
			t.Errorf("%s expires in %q ms", k, ttl)
		}
	}
}

// TestFrozen: a server that stands still costs no call more than its deadline, holds nothing of those that gave up, and
// is used again as soon as it goes on.
func TestFrozen(t *testing.T) {
	server := storetest.Redis(t)
	w, err := Open(server.URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	until(t, "the first answer", func() bool { return w.Ping(soon(t)) == nil })
	before := runtime.NumGoroutine()
	server.Pause()
	defer server.Resume()
	slowest, most := time.Duration(0), 0
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 50 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
				defer cancel()
				began, o := time.Now(), order(1, 1, 1, 1, 1)
				if err := w.Take(ctx, &o); err == nil || !errors.Is(err, ErrDown) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a frozen server has answered: %v", err)
				}
				mu.Lock()
				slowest = max(slowest, time.Since(began))
				mu.Unlock()
			})
		}
		wg.Wait()
		most = max(most, runtime.NumGoroutine())
		time.Sleep(time.Millisecond)
	}
	if slowest > 50*time.Millisecond {
		t.Errorf("a call with 5 ms took %v", slowest)
	}
	if most > before+200 {
		t.Errorf("%d goroutines, before %d", most, before)
	}
	server.Resume()
	began := time.Now()
	until(t, "an answer after the freeze", func() bool { return w.Ping(soon(t)) == nil })
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("used again after %v", d)
	}
	until(t, "as many goroutines as before", func() bool { return runtime.NumGoroutine() <= before+2 })
}

func TestRestart(t *testing.T) {
	server := storetest.Redis(t)
	s := open(t, server, Options{})
	if o := s.take(order(1, 1, 0, 0, 0)); !o.Admitted {
		t.Fatalf("%+v", o)
	}
	server.Say("SCRIPT FLUSH")
	if o := s.take(order(2, 1, 0, 0, 0)); o.Admitted {
		t.Fatalf("%+v", o)
	}
	server.Say("SCRIPT FLUSH")
	s.end(ending(1, 0), ending(2, 0))
	server.Restart()
	until(t, "an answer after the restart", func() bool { return s.Ping(soon(t)) == nil })
	if o := s.take(order(3, 1, 0, 0, 0)); !o.Admitted {
		t.Fatalf("%+v", o)
	}
	server.Stop()
	o := order(4, 1, 0, 0, 0)
	if err := s.Take(soon(t), &o); err == nil || o.Admitted {
		t.Fatalf("a dead server answers: %v", err)
	}
	until(t, "down", func() bool { return errors.Is(s.Ping(soon(t)), ErrDown) })
}

func TestOpenWithoutServer(t *testing.T) {
	server := storetest.Redis(t)
	server.Stop()
	began := time.Now()
	s := open(t, server, Options{})
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("Open took %v", d)
	}
	if err := s.Ping(soon(t)); !errors.Is(err, ErrDown) {
		t.Fatalf("%v", err)
	}
	server.Restart()
	until(t, "an answer", func() bool { return s.Ping(soon(t)) == nil })
	s.Close()
	s.Close()
	if err := s.Ping(soon(t)); err == nil {
		t.Fatal("an answer after Close")
	}
}

func TestURL(t *testing.T) {
	o, err := parse("rediss://me:a%40b@one:7000,two,three:7001/2?cluster=true")
	if err != nil || strings.Join(o.InitAddress, " ") != "one:7000 two:6379 three:7001" || o.Password != "a@b" || o.SelectDB != 2 || o.TLSConfig == nil {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range []string{"", "http://x", "redis://me:secret@host:port", "redis://me:secret@h/x"} {
		if _, err := Open(bad, Options{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := Open("redis://127.0.0.1:1", Options{Prefix: "a{b"}); err == nil {
		t.Error("a prefix with a brace")
	}
}

// until waits for what happens on its own time.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited for %s", what)
}
