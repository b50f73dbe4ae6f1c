//go:build unix

package redis

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/store/storetest"
)

func TestMain(m *testing.M) {
	if code := m.Run(); code != 0 {
		os.Exit(code)
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// shelf is windows on a server of the test's own, under a clock of the test's own.
type shelf struct {
	*Windows
	t      testing.TB
	server *storetest.Server
	at     atomic.Int64 // us
}

func open(t testing.TB, server *storetest.Server, o Options) *shelf {
	t.Helper()
	s := &shelf{t: t, server: server}
	s.at.Store(1_700_000_000_000_000)
	o.Now = func() time.Time { return time.UnixMicro(s.at.Load()) }
	w, err := Open(server.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	s.Windows = w
	return s
}

func (s *shelf) pass(d time.Duration) { s.at.Add(d.Microseconds()) }

// soon is long enough for a loaded machine.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (s *shelf) take(o limit.Order) limit.Order {
	s.t.Helper()
	if err := s.Take(soon(s.t), &o); err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (s *shelf) end(e ...limit.Ending) {
	s.t.Helper()
	if err := s.End(soon(s.t), e); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shelf) beat(e ...limit.Ending) {
	s.t.Helper()
	if err := s.Beat(soon(s.t), e); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shelf) borrow(e ...*limit.Exchange) {
	s.t.Helper()
	if err := s.Borrow(soon(s.t), e); err != nil {
		s.t.Fatal(err)
	}
}

var key = limit.ID{Kind: limit.Key, Scope: 42}

func hold(n uint64) limit.HoldID { return limit.HoldID{Gateway: 1<<63 + 5, Number: n} }

// order asks for one request and some tokens of one key.
func order(n uint64, qps, tpm, conc, tokens int64) limit.Order {
	return limit.Order{Hold: hold(n), Org: 7, Asks: []limit.Ask{{ID: key, QPS: limit.Bound{Most: qps, Rate: qps},
		TPM: limit.Bound{Most: tpm, Rate: tpm}, Concurrency: conc, Requests: 1, Tokens: tokens}}}
}

func ending(n uint64, tokens int64) limit.Ending {
	return limit.Ending{Hold: hold(n), Org: 7, Dims: []limit.EndingDim{{ID: key, Tokens: tokens}}}
}

func TestTakeAndEnd(t *testing.T) {
	s := open(t, storetest.Redis(t), Options{})
	for i := range uint64(3) {
		if o := s.take(order(i, 3, 100, 0, 30)); !o.Admitted || o.Asks[0].QPSUsed != int64(i) || o.Asks[0].TPMUsed != int64(i)*30 || o.Asks[0].Open != int64(i) {
			t.Fatalf("%d: %+v", i, o)
		}
		s.pass(100 * time.Millisecond)
	}
	o := s.take(order(3, 3, 100, 3, 30))
	if a := o.Asks[0]; o.Admitted || !a.QPSFull || !a.TPMFull || !a.OpenFull || a.QPSWait != 700*time.Millisecond || a.TPMWait != 59900*time.Millisecond {
		t.Fatalf("%+v", o)
	}
	s.end(ending(0, 10), ending(1, 40))
	o = s.take(order(3, 0, 100, 0, 31))
	if a := o.Asks[0]; o.Admitted || a.TPMUsed != 80 || a.Open != 1 {
		t.Fatalf("%+v", o)
	}
	if o = s.take(order(3, 0, 110, 2, 30)); !o.Admitted {
		t.Fatalf("%+v", o)
	}
}

func TestTenWindows(t *testing.T) {
	s := open(t, storetest.Redis(t), Options{})
	for i := range uint64(4) {
		s.take(order(i, 4, 40, 0, 10))
		s.pass(150 * time.Millisecond)
	}
	burst := func(n uint64) limit.Order {
		o := order(n, 8, 80, 0, 10)
		o.Asks[0].QPS.Ten, o.Asks[0].TPM.Ten = 6, 60
		return s.take(o)
	}
	for i := range uint64(2) { // the four before still count
		if o := burst(10 + i); !o.Admitted {
			t.Fatalf("%d: %+v", i, o)
		}
	}
	s.pass(2 * time.Second)
	o := burst(12)
	if a := o.Asks[0]; o.Admitted || !a.QPSFull || a.QPSUsed != 0 || a.QPSWait != 7400*time.Millisecond || !a.TPMFull || a.TPMUsed != 60 {
		t.Fatalf("%+v", o)
	}
	s.pass(58 * time.Second)
	// Tokens of ten windows leave a slot of 6 s at a time, with its last.
	o = burst(12)
	if a := o.Asks[0]; o.Admitted || a.QPSFull || !a.TPMFull || a.TPMUsed != 0 || a.TPMWait != 540*time.Second {
		t.Fatalf("%+v", o)
	}
	s.pass(540 * time.Second)
	if o = burst(12); !o.Admitted {
		t.Fatalf("%+v", o)
	}
}

// TestClockBack: a server's clock may be set back, or another server's be behind. Nothing is forgotten early by it.
func TestClockBack(t *testing.T) {
	s := open(t, storetest.Redis(t), Options{})
	s.take(order(1, 1, 10, 0, 5))
	s.pass(-10 * time.Millisecond)
	s.take(order(2, 2, 10, 0, 5))
	o := s.take(order(3, 2, 10, 0, 5))
	if a := o.Asks[0]; o.Admitted || a.QPSWait != time.Second || a.TPMWait != time.Minute+10*time.Millisecond {
		t.Fatalf("%+v", o)
	}
	s.pass(time.Minute + 10*time.Millisecond)
	if o = s.take(order(3, 2, 10, 0, 5)); !o.Admitted || o.Asks[0].TPMUsed != 0 {
		t.Fatalf("%+v", o)
	}
}

func TestServersClock(t *testing.T) {
	w, err := Open(storetest.Redis(t).URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	o := order(1, 1, 10, 0, 5)
	if err := w.Take(soon(t), &o); err != nil || !o.Admitted {
		t.Fatal(err, o)
	}
	o = order(2, 1, 10, 0, 6)
	if err := w.Take(soon(t), &o); err != nil || o.Admitted || o.Asks[0].TPMWait > time.Minute || o.Asks[0].TPMWait < 50*time.Second || o.Asks[0].QPSWait > time.Second {
		t.Fatal(err, o)
	}
}

// TestForgottenHold: after the server has forgotten everything, the next sign of life makes an open hold count again, and its
// end frees it; a sign of life that comes after the end does not.
func TestForgottenHold(t *testing.T) {
	for _, algorithm := range []limit.Algorithm{limit.Sliding, limit.TokenBucket} {
		server := storetest.Redis(t)
		s := open(t, server, Options{Algorithms: map[limit.Kind]limit.Windows{limit.Key: {QPS: algorithm, TPM: algorithm}}})
		if o := s.take(order(1, 0, 1000, 1, 10)); !o.Admitted {
			t.Fatalf("%+v", o)
		}
		server.Say("FLUSHALL")
		e := ending(1, 10)
		e.Beaten = true
		s.beat(e)
		if o := s.take(order(2, 0, 1000, 1, 10)); o.Admitted || !o.Asks[0].OpenFull {
			t.Fatalf("%s: %+v", algorithm, o)
		}
		if ttl := server.Say("KEYS *"); ttl == "" {
			t.Fatal("nothing is kept")
		}
		s.end(e)
		s.beat(e)
		if o := s.take(order(3, 0, 1000, 1, 10)); !o.Admitted {
			t.Fatalf("%s: %+v", algorithm, o)
		}
	}
}
