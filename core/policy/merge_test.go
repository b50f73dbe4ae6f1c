package policy

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

// neutral gives dimensions their neutral values.
func neutral(all ...Dimension) []Dimension {
	for i := range all {
		for _, m := range []*uint32{&all[i].Multiplier, &all[i].Burst, &all[i].Cost} {
			if *m == 0 {
				*m = unit
			}
		}
		if all[i].Tier == 0 {
			all[i].Tier = -1
		}
	}
	return all
}

func with(all ...Dimension) func(*Decision) {
	return func(d *Decision) { d.N = copy(d.Dims[:], neutral(all...)) }
}

// loosening is an envelope that lets orgs loosen something of each kind.
func loosening() *bounds {
	return &bounds{Envelope{MaxMultiplier: 1500, MaxBurst: 2000, MaxOverdraft: 50, MaxCustomDims: 1}, []bool{false, true}}
}

// TestMergeFields shows for every field of a decision what an org's module may do to it: with the envelope that allows
// nothing, and with one that allows something.
func TestMergeFields(t *testing.T) {
	type change = func(*Decision)
	strict := &bounds{}
	for _, c := range []struct {
		name            string
		op, org         change
		strict, loose   change // what op becomes
		strictC, looseC bool   // clamped
	}{
		{"nothing", nil, nil, nil, nil, false, false},
		{"abstained", func(d *Decision) { d.Abstained = true }, nil, func(d *Decision) { d.Abstained = false }, func(d *Decision) { d.Abstained = false }, false, false},
		{"qps tighter", func(d *Decision) { d.QPS = 800 }, func(d *Decision) { d.QPS = 500 }, func(d *Decision) { d.QPS = 400 }, func(d *Decision) { d.QPS = 400 }, false, false},
		{"qps looser", func(d *Decision) { d.QPS = 800 }, func(d *Decision) { d.QPS = 9000 }, nil, func(d *Decision) { d.QPS = 1200 }, true, true},
		{"tpm looser within", nil, func(d *Decision) { d.TPM = 1400 }, nil, func(d *Decision) { d.TPM = 1400 }, true, false},
		{"quota looser", nil, func(d *Decision) { d.Quota = 2000 }, nil, func(d *Decision) { d.Quota = 1500 }, true, true},
		{"burst looser", func(d *Decision) { d.Burst = 500 }, func(d *Decision) { d.Burst = 3000 }, nil, func(d *Decision) { d.Burst = 1000 }, true, true},
		{"never below one", func(d *Decision) { d.TPM = 2 }, func(d *Decision) { d.TPM = 1 }, func(d *Decision) { d.TPM = 1 }, func(d *Decision) { d.TPM = 1 }, false, false},
		{"price below one", func(d *Decision) { d.Price = 700 }, func(d *Decision) { d.Price = 10 }, nil, nil, true, true},
		{"price above", func(d *Decision) { d.Price = 700 }, func(d *Decision) { d.Price = 2000 }, func(d *Decision) { d.Price = 1400 }, func(d *Decision) { d.Price = 1400 }, false, false},
		{"overdraft", func(d *Decision) { d.Overdraft = 7 }, func(d *Decision) { d.Overdraft = 80 }, nil, func(d *Decision) { d.Overdraft = 50 }, true, true},
		{"overdraft kept", func(d *Decision) { d.Overdraft = 70 }, func(d *Decision) { d.Overdraft = 3 }, nil, nil, true, false},
		{"output cap", func(d *Decision) { d.OutputCap = 90 }, func(d *Decision) { d.OutputCap = 40 }, func(d *Decision) { d.OutputCap = 40 }, func(d *Decision) { d.OutputCap = 40 }, false, false},
		{"output cap kept", func(d *Decision) { d.OutputCap = 90 }, func(d *Decision) { d.OutputCap = 140 }, nil, nil, false, false},
		{"no bill", nil, func(d *Decision) { d.NoBill = true }, nil, nil, true, true},
		{"no limit", nil, func(d *Decision) { d.NoLimit = true }, nil, nil, true, true},
		{"the operator's flags stay", func(d *Decision) { d.NoBill, d.NoLimit = true, true }, nil, nil, nil, false, false},
		{"tier", nil, func(d *Decision) { d.Tier = 1 }, nil, func(d *Decision) { d.Tier = 1 }, true, false},
		{"tier not given", nil, func(d *Decision) { d.Tier = 0 }, nil, nil, true, true},
		{"tier kept", func(d *Decision) { d.Tier = 0 }, nil, nil, nil, false, false},
		{"deny", func(d *Decision) { d.Module, d.Reason, d.Message = "op", 3, "a" },
			func(d *Decision) {
				d.Verdict, d.Status, d.Reason, d.RetryAfterMS, d.Message, d.Module, d.Version = Deny, 451, 9, 70, "b", "org", "v"
			},
			func(d *Decision) {
				d.Verdict, d.Status, d.Reason, d.RetryAfterMS, d.Message, d.Module, d.Version = Deny, 451, 9, 70, "b", "org", "v"
			},
			func(d *Decision) {
				d.Verdict, d.Status, d.Reason, d.RetryAfterMS, d.Message, d.Module, d.Version = Deny, 451, 9, 70, "b", "org", "v"
			}, false, false},
		{"shadow deny", func(d *Decision) { d.Module, d.Reason = "op", 3 }, func(d *Decision) { d.Verdict, d.Module, d.Reason = ShadowDeny, "org", 9 },
			func(d *Decision) { d.Verdict = ShadowDeny }, func(d *Decision) { d.Verdict = ShadowDeny }, false, false},
		{"deny stays", func(d *Decision) { d.Verdict = Deny }, func(d *Decision) { d.Verdict = ShadowDeny }, nil, nil, false, false},
		{"shadow deny stays", func(d *Decision) { d.Verdict = ShadowDeny }, nil, nil, nil, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, env := range []struct {
				b       *bounds
				want    change
				clamped bool
			}{{strict, c.strict, c.strictC}, {loosening(), c.loose, c.looseC}} {
				var got, org, want Decision
				for _, x := range []struct {
					d *Decision
					f []change
				}{{&got, []change{c.op}}, {&org, []change{c.org}}, {&want, []change{c.op, env.want}}} {
					x.d.reset()
					for _, f := range x.f {
						if f != nil {
							f(x.d)
						}
					}
				}
				ft, clamped := merge(&got, &org, env.b)
				if diff := cmp.Diff(want, got); diff != "" || ft != faultNone || clamped != env.clamped {
					t.Errorf("max %d: fault %q, clamped %v want %v; want -, got +:\n%s", env.b.MaxMultiplier, ft, clamped, env.clamped, diff)
				}
			}
		})
	}
}

func TestMergeDimensions(t *testing.T) {
	const key, model, org, channel, custom, global, endUser = abi.KindKey, abi.KindModel, abi.KindOrg, abi.KindChannel, abi.KindCustom, abi.KindGlobal, abi.KindEndUser
	type D = Dimension
	configured := D{Kind: org, SkipAbsent: true}
	for _, c := range []struct {
		name     string
		op, org  []D
		want     []D
		clamped  bool
		defaults bool
	}{
		{"none of the org's", []D{{Kind: key}}, nil, []D{{Kind: key}}, false, false},
		{"a new one", []D{{Kind: key}}, []D{{Kind: endUser, QPS: 5}}, []D{{Kind: key}, {Kind: endUser, QPS: 5}}, false, false},
		{"beside defaults", nil, []D{{Kind: endUser, QPS: 5}}, []D{{Kind: endUser, QPS: 5}}, false, true},
		{"what defaults say", nil, []D{{Kind: key}, {Kind: model}, {Kind: global}, {Kind: org, Multiplier: 500}}, []D{{Kind: org, Multiplier: 500, SkipAbsent: true}}, false, true},
		{"only what defaults say", nil, []D{{Kind: key}, {Kind: model}}, nil, false, false},
		{"a neutral double", []D{{Kind: key, QPS: 9}, {Kind: model}}, []D{{Kind: model}, {Kind: key}}, []D{{Kind: key, QPS: 9}, {Kind: model}}, false, false},
		{"tighter in place", []D{{Kind: model, Multiplier: 2000}}, []D{{Kind: model, Multiplier: 500, Burst: 800}}, []D{{Kind: model, Multiplier: 1000, Burst: 800}}, false, false},
		{"a shared one is not loosened", []D{{Kind: global}}, []D{{Kind: global, Multiplier: 1400, Burst: 1500}}, []D{{Kind: global}}, true, false},
		{"its own within the envelope", []D{{Kind: key}}, []D{{Kind: key, Multiplier: 1400}}, []D{{Kind: key, Multiplier: 1400}}, false, false},
		{"its own beyond", []D{{Kind: org}}, []D{{Kind: org, Multiplier: 9000, Burst: 9000}}, []D{{Kind: org, Multiplier: 1500, Burst: 2000}}, true, false},
		{"limits stand beside", []D{{Kind: key, QPS: 4}}, []D{{Kind: key, QPS: 90}}, []D{{Kind: key, QPS: 4}, {Kind: key, QPS: 90}}, false, false},
		{"count only tightens nothing", []D{{Kind: key}}, []D{{Kind: key, CountOnly: true, Multiplier: 10}}, []D{{Kind: key}}, false, false},
		{"what op only counts is tested", []D{{Kind: model, CountOnly: true}}, []D{{Kind: model, QPS: 3}}, []D{{Kind: model, CountOnly: true}, {Kind: model, QPS: 3}}, false, false},
		{"a price for others", []D{{Kind: key}}, []D{{Kind: model, Cost: abi.MaxMultiplier}}, []D{{Kind: key}, {Kind: model}}, true, false},
		{"no discount on op's", []D{{Kind: key, Cost: 700}}, []D{{Kind: key, Cost: 10}}, []D{{Kind: key, Cost: 700}}, false, false},
		{"a surcharge on its own", []D{{Kind: key, Cost: 700}}, []D{{Kind: key, Cost: 2000}}, []D{{Kind: key, Cost: 1400}}, false, false},
		{"a channel's limit over op's", []D{{Kind: channel, QPS: 5}}, []D{{Kind: channel, QPS: 50, TPM: 5}}, []D{{Kind: channel, QPS: 5}}, true, false},
		{"a channel's limit under op's", []D{{Kind: channel, QPS: 5}}, []D{{Kind: channel, QPS: 2, Multiplier: 500}}, []D{{Kind: channel, QPS: 2, Multiplier: 500}}, false, false},
		{"a channel beside defaults", nil, []D{{Kind: channel, QPS: 5}}, nil, true, false},
		{"a channel beside a list", []D{{Kind: key}}, []D{{Kind: channel, QPS: 5}}, []D{{Kind: key}, {Kind: channel, QPS: 5}}, false, false},
		{"customs beyond", []D{{Kind: key}}, []D{{Kind: custom, Value: "a"}, {Kind: custom, Value: "b"}}, []D{{Kind: key}, {Kind: custom, Value: "a"}}, true, false},
		{"a tier it was given", []D{{Kind: key}}, []D{{Kind: org, Tier: 1}}, []D{{Kind: key}, configured, {Kind: org, Tier: 1}}, false, false},
		{"a tier it was not", []D{{Kind: key}}, []D{{Kind: org, Tier: 2}}, []D{{Kind: key}, configured}, true, false},
		{"the org's own limit stays", nil, []D{{Kind: org, TPM: 900, Cost: 1}}, []D{configured, {Kind: org, TPM: 900, Cost: 1}}, false, true},
		{"and once", []D{{Kind: key}}, []D{{Kind: org, QPS: 5}, {Kind: org, TPM: 900}}, []D{{Kind: key}, configured, {Kind: org, QPS: 5}, {Kind: org, TPM: 900}}, false, false},
		{"no discount on it", nil, []D{{Kind: org, Cost: 1}}, []D{configured}, false, true},
		{"nor on one that op only counts", []D{{Kind: org, CountOnly: true}}, []D{{Kind: org, TPM: 900}}, []D{{Kind: org, CountOnly: true}, configured, {Kind: org, TPM: 900}}, false, false},
		{"to count it changes nothing", []D{{Kind: key}}, []D{{Kind: org, CountOnly: true}}, []D{{Kind: key}, {Kind: org, CountOnly: true}}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var op, tenant Decision
			op.reset()
			tenant.reset()
			with(c.op...)(&op)
			with(c.org...)(&tenant)
			ft, clamped := merge(&op, &tenant, loosening())
			if ft != faultNone || clamped != c.clamped || op.Defaults != c.defaults {
				t.Errorf("fault %q, clamped %v, defaults %v", ft, clamped, op.Defaults)
			}
			if diff := cmp.Diff(neutral(c.want...), append([]D(nil), op.Dims[:op.N]...)); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

func TestMergeLimitsOfTheKeyAreWhatTheOrgWasTold(t *testing.T) {
	var op, org Decision
	op.reset()
	org.reset()
	op.QPS = 2000
	with(Dimension{Kind: abi.KindKey, QPS: 6, TPM: 1})(&org)
	merge(&op, &org, loosening())
	if x := op.Dims[0]; x.QPS != 3 || x.TPM != 1 { // times the 2000 for all of the key's limits it is 6 again
		t.Errorf("entry %+v", x)
	}
}

func TestMergeTooManyDimensions(t *testing.T) {
	orgs := func(n int) (d Decision) {
		d.reset()
		for i := range n {
			d.Dims[i] = neutral(Dimension{Kind: abi.KindOrg, QPS: int64(i + 1)})[0]
		}
		d.N = n
		return d
	}
	for _, c := range []struct {
		op, org int
		want    fault
	}{{4, 12, faultNone}, {5, 12, faultDims}, {16, 0, faultNone}, {0, 7, faultNone}, {0, 8, faultDims}} {
		op, org := orgs(c.op), orgs(c.org)
		org.QPS = 500
		before := op
		ft, _ := merge(&op, &org, loosening())
		if ft != c.want {
			t.Errorf("%d and %d: fault %q, want %q", c.op, c.org, ft, c.want)
		}
		if ft == faultDims && !cmp.Equal(op, before) {
			t.Errorf("%d and %d: half of it was taken over", c.op, c.org)
		}
	}
}

// FuzzMergeIsNeverLooser tries decisions at random: with the envelope that allows nothing no field may be looser than
// the operator's and every entry of its must still be there, no looser.
func FuzzMergeIsNeverLooser(f *testing.F) {
	f.Add(uint64(1))
	f.Add(uint64(0xdeadbeef))
	f.Fuzz(func(t *testing.T, seed uint64) {
		op, org := randomDecision(seed), randomDecision(mix(seed))
		before := op
		if ft, _ := merge(&op, &org, &bounds{}); ft == faultDims {
			return
		}
		if op.QPS > before.QPS || op.TPM > before.TPM || op.Quota > before.Quota || op.Burst > before.Burst || op.Price < before.Price ||
			op.Overdraft != before.Overdraft || op.NoBill != before.NoBill || op.NoLimit != before.NoLimit || op.Tier != before.Tier ||
			before.OutputCap > 0 && (op.OutputCap > before.OutputCap || op.OutputCap == 0) || before.Verdict == Deny && op.Verdict != Deny {
			t.Errorf("looser:\n%+v\n%+v", before, op)
		}
		for i, was := range before.Dims[:before.N] {
			is := op.Dims[i]
			if is.Kind != was.Kind || is.Value != was.Value || is.Multiplier > was.Multiplier || is.Burst > was.Burst || is.Cost < was.Cost ||
				is.CountOnly != was.CountOnly || is.Shadow != was.Shadow || tighter(is.QPS, was.QPS) != is.QPS || tighter(is.TPM, was.TPM) != is.TPM {
				t.Errorf("entry %d was %+v, is %+v", i, was, is)
			}
		}
		for _, x := range op.Dims[before.N:op.N] {
			if shared(x.Kind) && (x.Cost != unit || x.Multiplier > unit || x.Burst > unit || x.Tier >= 0) {
				t.Errorf("on a shared dimension: %+v", x)
			}
		}
		for _, kind := range []uint8{abi.KindUser, abi.KindOrg} {
			asConfigured := func(x Dimension) bool {
				return x.Kind == kind && !loose(&x) && x.QPS == 0 && x.TPM == 0 && x.Tier < 0 && x.Multiplier <= unit && x.Burst <= unit && x.Cost >= unit
			}
			if tests(op.Dims[:op.N], kind) && !tests(before.Dims[:before.N], kind) && !slices.ContainsFunc(op.Dims[:op.N], asConfigured) {
				t.Errorf("the configured limits of kind %d are replaced: %+v", kind, op.Dims[:op.N])
			}
		}
		if before.N == 0 && op.N > 0 && !op.Defaults {
			t.Error("the default dimensions are gone")
		}
	})
}

// randomDecision is one that a module could give.
func randomDecision(seed uint64) (d Decision) {
	next := func(n uint64) uint64 { seed = mix(seed); return seed % n }
	permille := func() uint32 { return []uint32{1, 500, unit, unit, 1500, 9000, abi.MaxMultiplier}[next(7)] }
	d.reset()
	d.QPS, d.TPM, d.Quota, d.Burst, d.Price = permille(), permille(), permille(), permille(), permille()
	d.Verdict, d.NoBill, d.NoLimit, d.Tier = Verdict(next(3)), next(2) == 0, next(2) == 0, int(next(3))-1
	d.Overdraft, d.OutputCap = 100*llm.Micro(next(3)), 50*llm.Tokens(next(3))
	d.N = int(next(9))
	for i := range d.N {
		x := Dimension{Kind: uint8(next(10)), CountOnly: next(4) == 0, Shadow: next(4) == 0, Tier: int(next(3)) - 1,
			QPS: int64(next(3)) * 5, TPM: int64(next(3)) * 700, Multiplier: permille(), Burst: permille(), Cost: permille()}
		if next(4) == 0 {
			x.Kind, x.Value = abi.KindCustom, []string{"a", "b"}[next(2)]
		}
		d.Dims[i] = x
	}
	return d
}
