package admin_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/store/storetest"
)

// faulty is a module that abstains, and traps on requests of more than 1,000 tokens.
func faulty() []byte {
	vec := func(b []byte) []byte { return append(binary.AppendUvarint(nil, uint64(len(b))), b...) }
	section := func(id byte, n int, parts ...[]byte) []byte {
		return append([]byte{id}, vec(append(binary.AppendUvarint(nil, uint64(n)), slices.Concat(parts...)...))...)
	}
	constant := func(b ...byte) []byte { return append(append([]byte{0x41}, b...), 0x0b) }
	bodies := [][]byte{
		constant(0x80, 0x80, 0x04), // version 1.0
		constant(0x80, 0x20),       // the request at 4096
		constant(0x80, 0xc0, 0x00), // the response at 8192
		{0x41, 0xa0, 0x20, 0x28, 2, 0, 0x41, 0xe8, 0x07, 0x4b, 0x04, 0x40, 0x00, 0x0b, 0x41, 1, 0x0b},
	}
	var exports, code []byte
	exports = append(append(exports, vec([]byte("memory"))...), 2, 0)
	for i, name := range []string{"weir_abi_version", "weir_request", "weir_response", "weir_decide"} {
		exports = append(append(exports, vec([]byte(name))...), 0, byte(i))
		code = append(code, vec(append([]byte{0}, bodies[i]...))...)
	}
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), section(1, 1, []byte{0x60, 0, 1, 0x7f}), section(3, 4, []byte{0, 0, 0, 0}),
		section(5, 1, []byte{1, 1, 16}), section(7, 5, exports), section(10, 4, code))
}

// upset asks for decisions that faulty traps on, until cond holds.
func (f *fixture) upset(org uint64, cond func() bool) {
	f.t.Helper()
	var d policy.Decision
	for range 5000 {
		if cond() {
			f.must(f.api.Idle(f.t.Context())) // the line is written before what it tells is in force
			return
		}
		f.host.Decide(&policy.Facts{Key: 1, Org: org, Input: 5000, Choices: 1}, &d)
		time.Sleep(time.Millisecond) // the host works beside
	}
	f.t.Fatal("what was waited for did not come")
}

func (f *fixture) newest(action string) func() bool {
	return func() bool { return fmt.Sprint(f.ok("GET", "/admin/audit?limit=1", nil).at("data.0.action")) == action }
}

// What the host goes back to by itself is written down, counted and served by the next process.
func TestAutomaticRollback(t *testing.T) {
	t.Parallel()
	for _, owner := range []string{"operator", "org:1"} {
		t.Run(owner, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.account()
			var org uint64
			kind := "operator"
			if owner != kind {
				org, kind = 1, "org"
			}
			f.ok("POST", "/admin/policies?name=bad", faulty())
			good := f.ok("POST", "/admin/policies/rules/activate", j{"owner": owner, "params": table("half", j{"qps_permille": 500})})
			bad := f.ok("POST", "/admin/policies/bad/activate", j{"owner": owner})
			f.restart() // the next process knows what to go back to
			f.upset(org, f.newest("policy.rollback"))
			f.ok("GET", "/admin/audit?limit=1", nil).has(t, "data.0.actor", "host", "data.0.target", "binding:"+owner, "data.0.before.module", "bad",
				"data.0.after.module", "rules", "data.0.after.failed.version", bad.at("version"))
			f.ok("GET", "/admin/bindings?owner="+owner, nil).has(t, "data.0.module", "rules", "data.0.version", good.at("version"))
			f.staged("bad", owner, "quarantined 0")
			rows := "/admin/policies/bad/versions?owner=" + owner
			if why := f.ok("GET", rows, nil); !strings.Contains(fmt.Sprint(why.at("data.0.quarantined.reason")), "faults in") || why.at("data.0.quarantined.since") == nil {
				t.Errorf("quarantined without a reason: %s", why.raw)
			}
			if owner == "operator" {
				f.ok("GET", "/admin/policies?name=bad", nil).has(t, "data.0.stage", "quarantined", "data.0.active", false)
			}
			if m := f.ok("GET", "/metrics", nil).raw; !strings.Contains(m, `weir_policy_rollbacks_total{owner_kind="`+kind+`"} 1`) {
				t.Errorf("metrics: %s", m)
			}
			f.restart()
			if p, _ := f.host.PlanOf(policy.Owner(org)); p.Active == nil || p.Active.Module != "rules" || f.ask(org, 1).QPS != 500 {
				t.Errorf("after a restart %+v decides", p.Active)
			}
			// A candidate that fails is withdrawn, and nothing else changes.
			again := f.ok("POST", "/admin/policies/bad/canary", j{"owner": owner, "percent": 100})
			if why := again.at("wasQuarantined.reason"); !strings.Contains(fmt.Sprint(why), "faults in") || again.at("wasQuarantined.since") == nil {
				t.Errorf("it is bound again without a word: %s", again.raw)
			}
			f.ok("POST", "/admin/policies/bad/canary", j{"owner": owner, "percent": 99}).has(t, "wasQuarantined", nil)
			f.ok("GET", rows, nil).has(t, "data.0.stage", "canary", "data.0.quarantined", nil) // it is bound anew
			f.upset(org, f.newest("policy.withdraw"))
			if why := f.ok("GET", "/admin/policies/bad/report?owner="+owner, nil); why.at("quarantined.since") == nil {
				t.Errorf("the report says nothing of the quarantine: %s", why.raw)
			}
			f.ok("GET", "/admin/bindings?owner="+owner, nil).has(t, "data.0.module", "rules", "data.0.candidate", nil)
			f.restart()
			f.ok("GET", "/admin/bindings?owner="+owner, nil).has(t, "data.0.module", "rules", "data.0.candidate", nil)
		})
	}
}

func TestAFaultWithNothingToGoBackTo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ok("POST", "/admin/policies?name=bad", faulty())
	f.ok("POST", "/admin/policies/bad/activate", nil)
	f.upset(0, f.newest("policy.fault"))
	if b := f.ok("GET", "/admin/bindings", nil); b.at("data.0.module") != "bad" || b.at("data.0.quarantined.reason") == nil {
		t.Errorf("what is bound and does not decide: %s", b.raw)
	}
	if p := f.ok("GET", "/admin/policies", nil); p.at("data.0.stage") != "active" || p.at("data.0.quarantined.since") == nil {
		t.Errorf("%s", p.raw)
	}
	f.restart()
	f.ok("GET", "/admin/bindings", nil).has(t, "data.0.module", "bad", "data.0.quarantined", nil) // the next process tries it
	if m := f.ok("GET", "/metrics", nil).raw; !strings.Contains(m, `weir_policy_rollbacks_total{owner_kind="operator"} 0`) {
		t.Errorf("metrics: %s", m)
	}
}

// A change that comes between the host's and its document builds on what the host has.
func TestAChangeAfterAnAutomaticRollback(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ok("POST", "/admin/policies?name=bad", faulty())
	f.ok("POST", "/admin/policies/rules/activate", nil)
	f.ok("POST", "/admin/policies/bad/activate", nil)
	f.store.Before(func(int, []ledger.Write) error { return storetest.ErrInjected })
	f.upset(0, func() bool { b, _ := f.host.Active(); return b.Module == "rules" })
	f.ok("GET", "/admin/bindings", nil).has(t, "data.0.module", "rules")
	f.well()
	f.ok("POST", "/admin/policies/rules/shadow", j{"params": table("half", j{"qps_permille": 500})}).has(t, "module", "rules", "candidate.stage", "shadow")
	f.upset(0, func() bool {
		a := f.ok("GET", "/admin/audit?limit=3", nil)
		return slices.Contains([]any{a.at("data.0.action"), a.at("data.1.action")}, "policy.rollback")
	})
	f.ok("GET", "/admin/bindings", nil).has(t, "data.0.module", "rules", "data.0.candidate.stage", "shadow")
	f.restart()
	f.ok("GET", "/admin/bindings", nil).has(t, "data.0.module", "rules", "data.0.candidate.stage", "shadow")
}
