package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestPoliciesSwapWhileRequestsFly activates two policies in turn, 300 times, under a storm of requests: each is
// answered as if nothing had happened, by one of the two, and none leaves a reservation open.
func TestPoliciesSwapWhileRequestsFly(t *testing.T) {
	p := serve(t, `policies: {module: default, header: true, labels: [{name: tier, source: key}, {name: soft, source: key}, {name: hot, source: model}]}`)
	f := flight{p: p, key: p.key(), by: map[string]int{}}
	var requests sync.WaitGroup
	for range 4 {
		requests.Go(f.fly)
	}
	admin := remote{app: (&console{}).app(p.env), url: p.env["WEIR_ADMIN_URL"], token: testToken}
	for i := range 300 {
		name := []string{"priority", "default"}[i%2]
		if _, err := admin.do(t.Context(), "POST", "/admin/policies/"+name+"/activate", []byte("{}"), "application/json"); err != nil {
			t.Errorf("activation %d, of %s: %v", i, name, err)
			break
		}
	}
	f.landed.Store(true)
	requests.Wait()
	t.Log(f.by)
	if len(f.by) != 2 || f.by["200 default"] == 0 || f.by["200 priority"] == 0 {
		t.Errorf("answers by status and policy: %v; want only 200, of both", f.by)
	}
	metrics, err := admin.do(t.Context(), "GET", "/metrics", nil, "")
	if err != nil || !strings.Contains(string(metrics), "\nweir_reservations_open 0\n") {
		t.Errorf("a reservation is open when no request is (%v)", err)
	}
	p.kill()
	p.verify()
}

// flight is requests in a loop, counted by their status and by the policy that the answer names.
type flight struct {
	p      *process
	key    string
	landed atomic.Bool
	mu     sync.Mutex
	by     map[string]int
}

func (f *flight) fly() {
	for !f.landed.Load() {
		outcome := f.once()
		f.mu.Lock()
		f.by[outcome]++
		f.mu.Unlock()
	}
}

func (f *flight) once() string {
	req, err := http.NewRequest("POST", f.p.env["WEIR_URL"]+"/v1/chat/completions", strings.NewReader(hello))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+f.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err.Error()
	}
	policy, _, _ := strings.Cut(resp.Header.Get("X-Weir-Policy"), "@")
	return fmt.Sprint(resp.StatusCode, " ", policy)
}
