package admin_test

import (
	"context"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// atWrite runs look while the next change is being written.
func (f *fixture) atWrite(look func()) {
	f.store.Before(func(int, []ledger.Write) error {
		f.store.Before(nil)
		look()
		return nil
	})
}

// Every prefix of the ledger must be free of overdraft by admission: a cut holds before it is written, a rise after.
func TestCutsAreInMemoryFirstAndRisesDurableFirst(t *testing.T) {
	f := newFixture(t)
	f.account()
	const unit = llm.MicroPerUnit
	for _, c := range []struct {
		path  string
		body  any
		look  func() llm.Micro
		want  llm.Micro // while it is written
		after llm.Micro
	}{
		{"/admin/users/1/balance", j{"deltaCny": -40}, func() llm.Micro { return f.balance(1) }, 60 * unit, 60 * unit},
		{"/admin/users/1/balance", j{"deltaCny": 10}, func() llm.Micro { return f.balance(1) }, 60 * unit, 70 * unit},
		{"/admin/users/1/balance", j{"setCny": 5}, func() llm.Micro { return f.balance(1) }, 5 * unit, 5 * unit},
		{"/admin/keys/1/limits", j{"monthlyQuotaCny": 30}, f.quota, 30 * unit, 30 * unit},
		{"/admin/keys/1/limits", j{"monthlyQuotaCny": 80}, f.quota, 30 * unit, 80 * unit},
		{"/admin/keys/1/limits", j{"monthlyQuotaCny": 0}, f.quota, 80 * unit, 0},
		{"/admin/keys/1/limits", j{"monthlyQuotaCny": 7}, f.quota, 7 * unit, 7 * unit},
	} {
		var seen llm.Micro = -1
		f.atWrite(func() { seen = c.look() })
		f.ok("POST", c.path, c.body)
		if seen != c.want || c.look() != c.after {
			t.Errorf("%v: %s while written, %s after; want %s, %s", c.body, seen, c.look(), c.want, c.after)
		}
	}
}

func (f *fixture) quota() llm.Micro {
	k, _ := f.dir.Key(1)
	return k.MonthlyQuota
}

// A client that sends its body slowly holds nobody up.
func TestSlowBodyDoesNotHoldTheTurn(t *testing.T) {
	f := newFixture(t)
	r, w := io.Pipe()
	done := make(chan int)
	go func() {
		req := httptest.NewRequest("POST", "/admin/orgs", r)
		req.Header.Set("Authorization", "Bearer "+adminToken)
		rec := httptest.NewRecorder()
		f.handler.ServeHTTP(rec, req)
		done <- rec.Code
	}()
	_, _ = io.WriteString(w, `{"name":`)
	f.ok("POST", "/admin/orgs", j{"name": "fast"}).has(t, "id", 1)
	_, _ = io.WriteString(w, `"slow"}`)
	_ = w.Close()
	if code := <-done; code != 201 {
		t.Errorf("%d", code)
	}
	f.ok("GET", "/admin/orgs", nil).has(t, "data.1.name", "slow")
}

// A client that leaves while its change is written gets no answer, but the change is whole; one that waits for its
// turn and leaves changes nothing.
func TestClientThatLeaves(t *testing.T) {
	f := newFixture(t)
	send := func(ctx context.Context, name string) int {
		req := httptest.NewRequestWithContext(ctx, "POST", "/admin/orgs", strings.NewReader(`{"name":"`+name+`"}`))
		req.Header.Set("Authorization", "Bearer "+adminToken)
		rec := httptest.NewRecorder()
		f.handler.ServeHTTP(rec, req)
		return rec.Code
	}
	leaving, leave := context.WithCancel(t.Context())
	waiting, giveUp := context.WithCancel(t.Context())
	written, waited := make(chan int), make(chan int)
	reached, release := make(chan bool), make(chan bool)
	f.atWrite(func() { reached <- true; <-release })
	go func() { written <- send(leaving, "stays") }()
	<-reached
	go func() { waited <- send(waiting, "never") }()
	leave()
	giveUp()
	if code := <-waited; code != 503 {
		t.Errorf("the one that waited got %d", code)
	}
	close(release)
	if code := <-written; code != 201 {
		t.Errorf("the one that was written got %d", code)
	}
	f.ok("GET", "/admin/orgs", nil).has(t, "data.0.name", "stays", "data.1", nil)
}
