package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/weir-gateway/weir/core/limit"
)

// The rules of a window, as the scripts number them.
const (
	ruleSliding = 0
	ruleFixed   = 1
	ruleBucket  = 2
)

type kindRules struct{ qps, tpm uint8 }

func ruleOf(a limit.Algorithm) uint8 {
	switch a {
	case limit.Fixed:
		return ruleFixed
	case limit.TokenBucket:
		return ruleBucket
	}
	return ruleSliding
}

// errAnswer would be a bug: the scripts are ours.
var errAnswer = errors.New("the server's answer is not one of the script's")

// most is the largest number that is sent: up to here the server's numbers are exact, sums of several included.
const most = 1 << 50

// call is one call of a script: its keys and arguments, cut out of one piece of memory.
type call struct {
	text []byte
	ends []int // of the keys and then of the hold's name, in text; the numbers come last
	keys []string
	args [2]string // the numbers, packed; who calls
	nums []byte
}

func (k *call) reset() { k.text, k.ends, k.nums = k.text[:0], k.ends[:0], k.nums[:0] }

func (k *call) num(v int64) {
	k.nums = binary.LittleEndian.AppendUint64(k.nums, math.Float64bits(float64(max(min(v, most), -most))))
}

func (k *call) flag(v bool) {
	if v {
		k.num(1)
	} else {
		k.num(0)
	}
}

func (k *call) end() { k.ends = append(k.ends, len(k.text)) }

// seal cuts keys and arguments out of what was written: all keys, and last who calls.
func (k *call) seal() {
	n := len(k.text)
	k.text = append(k.text, k.nums...)
	all, from := string(k.text), 0
	k.keys = k.keys[:0]
	for _, end := range k.ends {
		k.keys = append(k.keys, all[from:end])
		from = end
	}
	last := len(k.keys) - 1
	k.args = [2]string{all[n:], k.keys[last]}
	k.keys = k.keys[:last]
}

func (k *call) name(h limit.HoldID) {
	k.text = strconv.AppendUint(k.text, h.Gateway, 36)
	k.text = append(k.text, '-')
	k.text = strconv.AppendUint(k.text, h.Number, 36)
	k.end()
}

// record is the key of a hold.
func (w *Windows) record(k *call, org uint64, h limit.HoldID) {
	w.tag(k, org)
	k.text = append(k.text, "h:"...)
	k.name(h)
}

func (w *Windows) tag(k *call, org uint64) {
	k.text = append(k.text, w.prefix...)
	k.text = append(k.text, ":{o"...)
	k.text = strconv.AppendUint(k.text, org, 10)
	k.text = append(k.text, "}:"...)
}

func (k *call) id(id *limit.ID) {
	k.text = strconv.AppendUint(k.text, uint64(id.Kind), 10)
	k.text = append(k.text, ':')
	k.text = strconv.AppendUint(k.text, id.Scope, 10)
	k.text = append(k.text, ':')
	k.text = append(k.text, id.Name...)
}

// dim is the three keys of a dimension, and its rules.
func (w *Windows) dim(k *call, org uint64, id *limit.ID) {
	for _, part := range [...]byte{'q', 't', 'c'} {
		w.tag(k, org)
		k.text = append(k.text, part, ':')
		k.id(id)
		k.end()
	}
	r := w.rules[id.Kind]
	k.num(int64(r.qps))
	k.num(int64(r.tpm))
}

func (k *call) bound(b *limit.Bound) {
	k.num(b.Most)
	k.num(b.Ten)
	k.num(b.Rate)
}

func (w *Windows) clock(k *call) {
	if w.now == nil {
		k.num(0)
		return
	}
	k.nums = binary.LittleEndian.AppendUint64(k.nums, math.Float64bits(float64(w.now().UnixMicro())))
}

// answer reads a script's numbers one after the other.
type answer string

func (a *answer) num() int64 {
	v := math.Float64frombits(le64((*a)[:8]))
	*a = (*a)[8:]
	return int64(v)
}

func le64(b answer) uint64 {
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

func (a *answer) wait() time.Duration { return time.Duration(a.num()) * time.Microsecond }

// Take implements limit.Shared. No dimension may be asked twice in one order. Its Full tells of a loose ask what would
// have refused, without a wait.
func (w *Windows) Take(ctx context.Context, o *limit.Order) error {
	o.Admitted = false
	k := w.calls.Get().(*call)
	defer w.calls.Put(k)
	k.reset()
	w.record(k, o.Org, o.Hold)
	w.clock(k)
	k.flag(o.Dry)
	k.num(int64(o.Part))
	for i := range o.Asks {
		a := &o.Asks[i]
		w.dim(k, o.Org, &a.ID)
		k.flag(a.Loose)
		k.bound(&a.QPS)
		k.bound(&a.TPM)
		k.num(a.Concurrency)
		k.num(a.Requests)
		k.num(a.Tokens)
	}
	k.name(o.Hold)
	k.seal()
	s, err := w.run(ctx, takeScript, k)
	if err != nil {
		return err
	}
	r := answer(s)
	if len(r) != 8+48*len(o.Asks) {
		return errAnswer
	}
	o.Admitted = r.num() == 1
	for i := range o.Asks {
		a := &o.Asks[i]
		full := r.num()
		a.QPSFull, a.TPMFull, a.OpenFull = full&1 != 0, full&2 != 0, full&4 != 0
		a.QPSUsed, a.TPMUsed, a.Open = r.num(), r.num(), r.num()
		a.QPSWait, a.TPMWait = r.wait(), r.wait()
	}
	return nil
}

// End implements limit.Shared.
func (w *Windows) End(ctx context.Context, endings []limit.Ending) error {
	return w.runAll(ctx, endScript, len(endings), func(i int, k *call) { w.ending(k, &endings[i], true) }, func(int, string) {})
}

// Beat implements limit.Shared.
func (w *Windows) Beat(ctx context.Context, endings []limit.Ending) error {
	return w.runAll(ctx, beatScript, len(endings), func(i int, k *call) { w.ending(k, &endings[i], false) }, func(int, string) {})
}

func (w *Windows) ending(k *call, e *limit.Ending, last bool) {
	k.reset()
	w.record(k, e.Org, e.Hold)
	w.clock(k)
	if last {
		k.flag(e.Withdraw)
		k.flag(e.Beaten)
	}
	for i := range e.Dims {
		w.dim(k, e.Org, &e.Dims[i].ID)
		k.num(e.Dims[i].Tokens)
	}
	k.name(e.Hold)
	k.seal()
}

// Borrow implements limit.Shared.
func (w *Windows) Borrow(ctx context.Context, exchanges []*limit.Exchange) error {
	bad := false
	err := w.runAll(ctx, borrowScript, len(exchanges), func(i int, k *call) { w.exchange(k, exchanges[i]) }, func(i int, s string) {
		bad = !lent(exchanges[i], answer(s)) || bad
	})
	if err == nil && bad {
		err = errAnswer
	}
	return err
}

func (w *Windows) exchange(k *call, e *limit.Exchange) {
	e.Requests, e.Tokens, e.For = 0, 0, 0
	k.reset()
	k.text = append(k.text, w.prefix...)
	k.text = append(k.text, ":l:{"...)
	k.id(&e.ID)
	k.text = append(k.text, '}')
	k.end()
	w.clock(k)
	k.num(limit.LoanLife.Microseconds())
	k.num(int64(e.Number))
	k.num(w.share)
	r := w.rules[e.ID.Kind]
	k.num(int64(r.qps))
	k.num(int64(r.tpm))
	k.bound(&e.QPS)
	k.bound(&e.TPM)
	k.num(e.Concurrency)
	k.num(e.DebtRequests)
	k.num(e.DebtTokens)
	k.num(e.NeedRequests)
	k.num(e.WantRequests)
	k.num(e.NeedTokens)
	k.num(e.WantTokens)
	k.num(e.Open)
	k.num(e.WantOpen)
	k.num(int64(len(e.Back)))
	for _, b := range e.Back {
		k.flag(b.Tokens)
		k.num(int64(b.Slot))
		k.num(b.N)
	}
	k.text = strconv.AppendUint(k.text, e.Gateway, 36)
	k.end()
	k.seal()
}

// lent reads the answer to an exchange.
func lent(e *limit.Exchange, r answer) bool {
	if len(r) != 88 {
		return false
	}
	e.Requests, e.Tokens = r.num(), r.num()
	e.RequestsSlot, e.TokensSlot = uint64(r.num()), uint64(r.num())
	e.OpenMost = r.num()
	e.QPSUsed, e.TPMUsed, e.OpenUsed = r.num(), r.num(), r.num()
	e.QPSWait, e.TPMWait = r.wait(), r.wait()
	e.For = r.wait()
	return true
}
