package policy

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weir-gateway/weir/sdk/abi"
)

// The fields that are compared, by their bits in a difference.
const (
	fieldVerdict = iota
	fieldNoBill
	fieldNoLimit
	fieldTier
	fieldQPS
	fieldTPM
	fieldQuota
	fieldBurst
	fieldPrice
	fieldOverdraft
	fieldOutputCap
	fieldStatus
	fieldRetryAfter
	fieldDims
	fieldReason // from here on: an explanation, not a change
	fieldMessage
	nFields
)

const feltFields = 1<<fieldReason - 1

// fieldNames are the fields' members in a decision's JSON.
func fieldNames() [nFields]string {
	return [nFields]string{"verdict", "no_bill", "no_limit", "tier", "qps_permille", "tpm_permille", "quota_permille",
		"burst_permille", "price_permille", "overdraft_micro", "output_tokens_cap", "status", "retry_after_ms", "dims", "reason", "message"}
}

// nKinds is the number of kinds of dimensions; custom comes last.
const nKinds = abi.KindModelChannel + 2

func kindIndex(kind uint8) int { return min(int(kind), nKinds-1) }

// difference is where two decisions differ: bits of fields, and bits of kinds of dimensions.
type difference struct{ fields, kinds uint32 }

// differ compares what two decisions do; defaults are the kinds of the configured default dimensions. What only a denial
// uses is compared only between denials.
func differ(a, b *Decision, defaults []uint8) (x difference) {
	note := func(differs bool, field int) {
		if differs {
			x.fields |= 1 << field
		}
	}
	note(a.Verdict != b.Verdict, fieldVerdict)
	note(a.NoBill != b.NoBill, fieldNoBill)
	note(a.NoLimit != b.NoLimit, fieldNoLimit)
	note(a.Tier != b.Tier, fieldTier)
	note(a.QPS != b.QPS, fieldQPS)
	note(a.TPM != b.TPM, fieldTPM)
	note(a.Quota != b.Quota, fieldQuota)
	note(a.Burst != b.Burst, fieldBurst)
	note(a.Price != b.Price, fieldPrice)
	note(a.Overdraft != b.Overdraft, fieldOverdraft)
	note(a.OutputCap != b.OutputCap, fieldOutputCap)
	if a.Verdict == Deny && b.Verdict == Deny {
		note(a.Status != b.Status, fieldStatus)
		note(a.RetryAfterMS != b.RetryAfterMS, fieldRetryAfter)
	}
	x.kinds = differingKinds(a.tested(defaults), b.tested(defaults))
	note(x.kinds != 0, fieldDims)
	note(a.Reason != b.Reason, fieldReason)
	note(a.Message != b.Message, fieldMessage)
	return x
}

// dimSet is what a decision has tested: the entries it picked, and kinds as they are configured.
type dimSet struct {
	picked     []Dimension
	configured []uint8
}

// tested is d's dimensions; without any of its own they are the configured default.
func (d *Decision) tested(defaults []uint8) dimSet {
	s := dimSet{picked: d.Dims[:d.N]}
	if d.N == 0 || d.Defaults {
		s.configured = defaults
	}
	return s
}

// asConfigured is an entry that changes nothing about its kind.
func asConfigured(kind uint8) Dimension {
	return Dimension{Kind: kind, SkipAbsent: true, Tier: -1, Multiplier: unit, Burst: unit, Cost: unit}
}

// alike compares two entries. Of these kinds every request has one, so whether its absence would be skipped says nothing.
func alike(a, b Dimension) bool {
	switch a.Kind {
	case abi.KindGlobal, abi.KindKey, abi.KindModel, abi.KindUser, abi.KindOrg, abi.KindKeyModel:
		a.SkipAbsent = b.SkipAbsent
	}
	return a == b
}

func (s dimSet) has(d Dimension) bool {
	return slices.ContainsFunc(s.picked, func(x Dimension) bool { return alike(x, d) }) ||
		slices.Contains(s.configured, d.Kind) && alike(d, asConfigured(d.Kind))
}

// differingKinds compares dimensions as sets: an entry that moved is no difference, nor is one that says what is
// configured anyway.
func differingKinds(a, b dimSet) (kinds uint32) {
	missing := func(from, in dimSet) {
		for i, d := range from.picked {
			if (i >= len(in.picked) || in.picked[i] != d) && !in.has(d) {
				kinds |= 1 << kindIndex(d.Kind)
			}
		}
		for _, k := range from.configured {
			if !slices.Contains(in.configured, k) && !in.has(asConfigured(k)) {
				kinds |= 1 << kindIndex(k)
			}
		}
	}
	missing(a, b)
	missing(b, a)
	return kinds
}

// maxExamples is how many requests a tally keeps.
const maxExamples = 10

// maxEnded is of how many modules an owner keeps the tally of the last trial, beside the newest.
const maxEnded = 4

// tally counts what a candidate would change. Safe for concurrent use; a lock is taken for an example.
type tally struct {
	module            string    // of the candidate
	names             [2]string // of the active and the candidate
	is                [2]*recipe
	stage             Stage
	sinceMS           int64
	tiers, labels     []string
	defaults          []uint8 // Options.DefaultDims
	compared, changed atomic.Uint64
	clamped, skipped  atomic.Uint64
	fields            [nFields]atomic.Uint64
	kinds             [nKinds]atomic.Uint64
	faults            [nFaults]atomic.Uint64
	fired             firings       // of the candidate
	shown             atomic.Uint32 // fields that examples show; all bits of those that are full
	full              atomic.Bool

	mu struct {
		sync.Mutex
		examples []shownExample
	}
}

type shownExample struct {
	Example
	fields uint32
}

// begin gives k its tally: the old one while the same two bindings are compared at the same stage.
func (k *fork) begin(h *Host, old *fork) {
	k.tally, k.ended = old.tally, old.ended
	if k.want[1] == nil {
		return
	}
	if t := old.tally; t != nil && old.want[1] != nil && t.stage == k.plan.Stage && sameOrNone(t.is[0], k.want[0]) && t.is[1].same(k.want[1]) {
		return
	}
	k.tally = &tally{module: k.want[1].Name, is: k.want, stage: k.plan.Stage, sinceMS: h.o.Clock.Wall().UnixMilli(), tiers: h.o.Tiers, labels: h.o.Labels, defaults: h.o.DefaultDims,
		names: [2]string{k.want[0].title(), k.want[1].title()}}
	k.ended = nil
	for _, t := range append([]*tally{old.tally}, old.ended...) {
		if t != nil && t.module != k.tally.module && len(k.ended) < maxEnded {
			k.ended = append(k.ended, t)
		}
	}
}

func sameOrNone(a, b *recipe) bool { return a == nil && b == nil || a.same(b) }

// title is name@version; empty for no recipe.
func (r *recipe) title() string {
	if r == nil {
		return ""
	}
	return r.Name + "@" + r.version
}

func (t *tally) fault(ft fault) { t.faults[ft].Add(1) }

// compare counts one request and says whether the candidate would change it.
func (t *tally) compare(f *Facts, active, candidate *Decision) (changed bool) {
	t.compared.Add(1)
	if candidate.Clamped {
		t.clamped.Add(1)
	}
	t.fired.count(candidate.Reason, candidate.Message)
	x := differ(active, candidate, t.defaults)
	if x.fields == 0 {
		return false
	}
	for b := x.fields; b != 0; b &= b - 1 {
		t.fields[bits.TrailingZeros32(b)].Add(1)
	}
	for b := x.kinds; b != 0; b &= b - 1 {
		t.kinds[bits.TrailingZeros32(b)].Add(1)
	}
	if x.fields&feltFields == 0 {
		return false
	}
	t.changed.Add(1)
	if !t.full.Load() || x.fields&feltFields&^t.shown.Load() != 0 {
		t.example(f, active, candidate, x.fields)
	}
	return true
}

// example keeps a request that differs: the first ones, and later one that differs in a field which none shows, in
// the place of one of those that show the same as another.
func (t *tally) example(f *Facts, active, candidate *Decision, fields uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := len(t.mu.examples)
	if at == maxExamples {
		if at = t.spareLocked(); at < 0 {
			t.shown.Store(feltFields)
			return
		}
		if fields&feltFields&^t.shown.Load() == 0 { // another one has come before
			return
		}
	} else {
		t.mu.examples = append(t.mu.examples, shownExample{})
	}
	e := shownExample{fields: fields, Example: Example{Fields: namesOf(fields)}}
	e.Facts, _ = MarshalFacts(f, t.tiers, t.labels) // numbers and strings: always encodable, as are decisions
	e.Active, _ = MarshalDecision(active, t.tiers)
	e.Candidate, _ = MarshalDecision(candidate, t.tiers)
	t.mu.examples[at] = e
	t.shown.Store(t.shown.Load() | fields&feltFields)
	t.full.Store(len(t.mu.examples) == maxExamples)
}

// spareLocked is the index of an example whose fields another one shows too; -1: there is none.
func (t *tally) spareLocked() int {
	for i := range t.mu.examples {
		for j := range t.mu.examples[:i] {
			if t.mu.examples[i].fields == t.mu.examples[j].fields {
				return i
			}
		}
	}
	return -1
}

func namesOf(fields uint32) (out []string) {
	for i, name := range fieldNames() {
		if fields>>i&1 == 1 {
			out = append(out, name)
		}
	}
	return out
}

// report reads the tally.
func (t *tally) report() Report {
	r := Report{Stage: t.stage, Active: t.names[0], Candidate: t.names[1], SinceMS: t.sinceMS, Compared: t.compared.Load(),
		Changed: t.changed.Load(), Clamped: t.clamped.Load(), Skipped: t.skipped.Load(),
		Fields: map[string]uint64{}, Kinds: map[string]uint64{}, Faults: map[string]uint64{}, Reasons: t.fired.list(), Examples: []Example{}}
	put := func(m map[string]uint64, name string, n uint64) {
		if n > 0 {
			m[name] = n
		}
	}
	for i, name := range fieldNames() {
		put(r.Fields, name, t.fields[i].Load())
	}
	for i := range t.kinds {
		kind := uint8(i)
		if i == nKinds-1 {
			kind = abi.KindCustom
		}
		put(r.Kinds, KindName(kind), t.kinds[i].Load())
	}
	for i := range t.faults {
		put(r.Faults, fault(i).String(), t.faults[i].Load())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.mu.examples {
		r.Examples = append(r.Examples, e.Example)
	}
	return r
}
