package policy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// goGuest builds the guest in standard Go; with a warm build cache that takes a second.
func goGuest(t *testing.T) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "goguest.wasm")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", out, ".")
	build.Dir = "testdata/goguest"
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if msg, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the guest: %v\n%s", err, msg)
	}
	wasm, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

// TestStandardGoGuest: a module in standard Go is added within 3 s and keeps the ABI. Building one takes half a minute on
// a machine that has not built for its system before, so only -long does; .ci/run has a step for it.
func TestStandardGoGuest(t *testing.T) {
	if !*long {
		return
	}
	var out syncBuffer
	h := addGoGuest(t, goGuest(t), Options{Log: out.logger()})
	began := time.Now()
	mustActivate(t, h, Binding{Module: "go", Params: []byte(`{"a":1}`)}, wide())
	t.Logf("activated in %v", time.Since(began))
	f, d := sampleFacts(), new(Decision)
	decide := func(model string) {
		h.settle(t)
		f.Attr[AttrModel] = model
		h.Decide(f, d)
	}
	decide("seven77")
	if d.Fault != "" || d.QPS != 700 || int(d.RetryAfterMS) != len(`{"tiers":[],"labels":[],"params":{"a":1}}`) {
		t.Errorf("decision %+v", d)
	}
	decide("clock")
	if want := uint32(f.NowMS % 1_000_000); d.Fault != "" || d.RetryAfterMS != want {
		t.Errorf("the guest's clock says %d (fault %q), want %d", d.RetryAfterMS, d.Fault, want)
	}
	for _, c := range []struct{ model, fault string }{{"random", ""}, {"say", ""}, {"again", ""}, {"loop", "out_of_fuel"}, {"again", ""}} {
		began := time.Now()
		if decide(c.model); d.Fault != c.fault {
			t.Errorf("%s: fault %q, want %q", c.model, d.Fault, c.fault)
		}
		t.Logf("%s: %v", c.model, time.Since(began))
	}
	// Go prints a panic at length: whether that ends in proc_exit or with the fuel is not ours to say.
	if decide("panic"); d.Fault != "trap" && d.Fault != "out_of_fuel" {
		t.Errorf("panic: fault %q", d.Fault)
	}
	for deadline := time.Now().Add(5 * time.Second); out.count("a line from the guest") == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what the guest printed is not in the log")
		}
	}
	decide("gpt-4o-mini")
	if n := testing.AllocsPerRun(100, func() { h.Decide(f, d) }); n != 0 || d.Fault != "" {
		t.Errorf("%v allocations per call, fault %q", n, d.Fault)
	}
}

// addGoGuest adds a guest within 3 s of the child's time: it is nice, so on the clock other load comes first. That load makes
// its own time longer, too, so the best of three counts.
func addGoGuest(t *testing.T, wasm []byte, o Options) *Host {
	t.Helper()
	for range 3 {
		h, before, began := newHost(t, o), childrenTime(), time.Now()
		m, err := h.Add(context.Background(), "go", wasm, ProfileLarge)
		if err != nil {
			t.Fatal(err)
		}
		took := childrenTime() - before
		t.Logf("%d bytes, added with %v of the child's time, in %v", m.Size, took, time.Since(began))
		if took <= patience*3*time.Second {
			return h
		}
	}
	t.Fatal("the child took more than 3 s each time")
	return nil
}
