package policy

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/policies"
	"github.com/weir-gateway/weir/sdk/abi"
)

// shipped makes a host with a module that comes with the binary active under its own cases' configuration, and gives
// the facts of the cases.
func shipped(t testing.TB, name string) (*Host, []*Facts) {
	t.Helper()
	wasm, _ := policies.Shipped(name)
	p, err := profileOf(ProfileSmall)
	if err != nil {
		t.Fatal(err)
	}
	m, err := parse(wasm, p)
	if err != nil {
		t.Fatal(err)
	}
	var file caseFile
	if err := json.Unmarshal(m.custom[abi.SectionCases], &file); err != nil {
		t.Fatal(err)
	}
	c := file.Configure
	h := newHost(t, Options{Tiers: c.Tiers, Labels: c.Labels, Clock: llm.NewSystemClock()})
	mustAdd(t, h, name, wasm)
	mustActivate(t, h, Binding{Module: name, Params: c.Params}, wide())
	var facts []*Facts
	for _, one := range file.Cases {
		f, err := ParseFacts(one.Facts, c.Tiers, c.Labels)
		if err != nil {
			t.Fatal(err)
		}
		facts = append(facts, f)
	}
	return h, facts
}

func TestShippedModulesAllocateNothing(t *testing.T) {
	for _, name := range policies.Names() {
		h, facts := shipped(t, name)
		d := new(Decision)
		all := func() {
			for _, f := range facts {
				if h.Decide(f, d); d.Fault != "" {
					t.Fatalf("%s: fault %q", name, d.Fault)
				}
			}
		}
		all()
		if n := testing.AllocsPerRun(100, all); n != 0 {
			t.Errorf("%s: %v allocations in %d calls", name, n, len(facts))
		}
	}
}

// The largest module of profile small is compiled, in its child, within a second; other load is given five attempts.
func TestLargestSmallModule(t *testing.T) {
	a := guest(allow(5))
	work := cat(c32(0x8000), ld32(0x8000), c32(3), []byte{0x6c}, c32(1), []byte{0x6a, 0x36, 2, 0})
	var body []byte
	for len(body) < 31<<10 {
		body = append(body, work...)
	}
	for range 8 {
		a.with(asmFunc{typ: funcType{}, body: body})
	}
	best := time.Hour
	for range 5 {
		h := newHost(t, Options{})
		began := time.Now()
		m, err := h.Add(context.Background(), "m", a.bytes(), "")
		if err != nil {
			t.Fatal(err)
		}
		if best = min(best, time.Since(began)); best <= patience*time.Second {
			t.Logf("%d bytes in %v", m.Size, best)
			return
		}
	}
	t.Errorf("took %v at best, want <= 1s", best)
}

func BenchmarkDecideShipped(b *testing.B) {
	for _, name := range policies.Names() {
		b.Run(name, func(b *testing.B) {
			h, facts := shipped(b, name)
			d := new(Decision)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				h.Decide(facts[i%len(facts)], d)
			}
		})
	}
}
