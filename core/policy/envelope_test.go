package policy

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/weir-gateway/weir/sdk/abi"
)

func TestEnvelopeClamps(t *testing.T) {
	env := Envelope{MaxMultiplier: 2000, MaxBurst: 3000, MaxOverdraft: 500, MaxCustomDims: 1, MinPrice: 900,
		MayDeny: true, MaySkipBilling: true, MaySkipLimits: true, MayDropKey: true}
	strict := Envelope{}
	type edit func(*Decision)
	for _, c := range []struct {
		name    string
		env     Envelope
		allowed []bool
		asked   edit
		want    edit // nil: as asked, not clamped
	}{
		{"nothing", env, nil, func(*Decision) {}, nil},
		{"within", env, nil, func(d *Decision) { d.QPS, d.Burst, d.Overdraft, d.Price, d.Verdict = 2000, 3000, 500, 900, Deny }, nil},
		{"multipliers", env, nil, func(d *Decision) { d.QPS, d.TPM, d.Quota = 2001, 9000, 5000 }, func(d *Decision) { d.QPS, d.TPM, d.Quota = 2000, 2000, 2000 }},
		{"burst", env, nil, func(d *Decision) { d.Burst = 3001 }, func(d *Decision) { d.Burst = 3000 }},
		{"overdraft", env, nil, func(d *Decision) { d.Overdraft = math.MaxInt64 }, func(d *Decision) { d.Overdraft = 500 }},
		{"price", env, nil, func(d *Decision) { d.Price = 1 }, func(d *Decision) { d.Price = 900 }},
		{"zero envelope", strict, nil, func(d *Decision) {
			d.QPS, d.TPM, d.Quota, d.Burst, d.Price, d.Overdraft = 5000, 5000, 5000, 5000, 500, 1
			d.Verdict, d.NoBill, d.NoLimit = Deny, true, true
		}, func(d *Decision) { d.Verdict = ShadowDeny }},
		{"stricter than configured is free", strict, nil, func(d *Decision) { d.QPS, d.TPM, d.Price = 10, 20, 5000 }, nil},
		{"tier", env, []bool{true, false}, func(d *Decision) { d.Tier = 1 }, func(d *Decision) { d.Tier = -1 }},
		{"allowed tier", env, []bool{true, false}, func(d *Decision) { d.Tier = 0 }, nil},
		{"tier of a dimension", env, []bool{true, false}, dims(Dimension{Kind: abi.KindOrg, Tier: 1}), dims(Dimension{Kind: abi.KindOrg, Tier: -1})},
		{"dimension", env, nil, dims(Dimension{Kind: abi.KindOrg, Multiplier: 9000, Burst: 9000}), dims(Dimension{Kind: abi.KindOrg, Multiplier: 2000, Burst: 3000})},
		{"custom dimensions", env, nil,
			dims(Dimension{Kind: abi.KindKey}, Dimension{Kind: abi.KindCustom, Value: "a"}, Dimension{Kind: abi.KindCustom, Value: "b"}, Dimension{Kind: abi.KindOrg}),
			dims(Dimension{Kind: abi.KindKey}, Dimension{Kind: abi.KindCustom, Value: "a"}, Dimension{Kind: abi.KindOrg})},
		{"two multipliers on the key", env, nil,
			func(d *Decision) { d.QPS = 2000; dims(Dimension{Kind: abi.KindKey, Multiplier: 2000})(d) },
			func(d *Decision) { d.QPS = 2000; dims(Dimension{Kind: abi.KindKey, Multiplier: 1000})(d) }},
		{"limit of the key", env, nil,
			dims(Dimension{Kind: abi.KindKey, QPS: 100, TPM: 100}),
			dims(Dimension{Kind: abi.KindKey, QPS: 20, TPM: 100})}, // QPS 10 configured, TPM 1000
		{"keeps the key", strict, nil, dims(Dimension{Kind: abi.KindOrg}), dims(Dimension{Kind: abi.KindKey, Tier: -1}, Dimension{Kind: abi.KindOrg})},
		{"the key refuses", strict, nil, dims(Dimension{Kind: abi.KindKey, CountOnly: true, Shadow: true}), dims(Dimension{Kind: abi.KindKey})},
		{"may drop the key", env, nil, dims(Dimension{Kind: abi.KindOrg}), nil},
		{"limit of another", env, nil, dims(Dimension{Kind: abi.KindOrg, QPS: 100}), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got, want Decision
			got.reset()
			want.reset()
			c.asked(&got)
			if c.want == nil {
				c.asked(&want)
			} else {
				c.want(&want)
				want.Clamped = true
			}
			q := question{h: new(Host), env: &bounds{c.env, c.allowed}, key: limitsOf(sampleFacts())}
			q.clamp(&got)
			clear(got.Dims[got.N:])
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

// dims sets the dimensions; multipliers of 0 stand for 1000.
func dims(all ...Dimension) func(*Decision) {
	return func(d *Decision) {
		for i, x := range all {
			for _, m := range []*uint32{&x.Multiplier, &x.Burst, &x.Cost} {
				if *m == 0 {
					*m = unit
				}
			}
			d.Dims[i] = x
		}
		d.N = len(all)
	}
}

func TestP06TenTimesTheEnvelope(t *testing.T) {
	h := newHost(t, Options{})
	mustAdd(t, h, "m", guest(allow(20_000)).bytes())
	mustActivate(t, h, Binding{Module: "m"}, Envelope{MaxMultiplier: 2000})
	var d Decision
	if h.Decide(sampleFacts(), &d); d.QPS != 2000 || !d.Clamped || h.Stats().Clamped != 1 {
		t.Errorf("decision %+v, stats %+v", d, h.Stats())
	}
}

func TestEnvelopeLimit(t *testing.T) {
	env := Envelope{MaxMultiplier: 1500}
	for _, c := range []struct{ configured, asked, want int64 }{
		{10, 15, 15}, {10, 16, 15}, {10, 3, 3}, {0, 99, 99}, {10, 0, 0}, {3, 9, 4}, {1 << 40, math.MaxInt64, 3 << 39},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64}, {1 << 62, math.MaxInt64 - 1, 3 << 61},
	} {
		if got := env.Limit(c.configured, c.asked); got != c.want {
			t.Errorf("Limit(%d, %d) = %d, want %d", c.configured, c.asked, got, c.want)
		}
	}
	if tight := (Envelope{MaxMultiplier: 1}); tight.Limit(10, 5) != 1 {
		t.Errorf("a bound below one: %d, and 0 would be no limit", tight.Limit(10, 5))
	}
}
