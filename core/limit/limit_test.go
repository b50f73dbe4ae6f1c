package limit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

var (
	ctx   = context.Background()
	start = time.Date(2026, 11, 30, 23, 59, 0, 0, time.UTC)
)

// tape is a journal in memory. Entries are copied, as the contract says.
type tape struct {
	mu struct {
		sync.Mutex
		entries []llm.Entry
		ids     uint64
		fail    error
	}
}

func (j *tape) Append(e *llm.Entry) (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.fail != nil {
		return 0, j.mu.fail
	}
	j.mu.entries = append(j.mu.entries, *e)
	return uint64(len(j.mu.entries)), nil
}

func (j *tape) NextID() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.ids++
	return j.mu.ids
}

func (j *tape) all() []llm.Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]llm.Entry(nil), j.mu.entries...)
}

func (j *tape) last(t *testing.T) llm.Entry {
	t.Helper()
	all := j.all()
	if len(all) == 0 {
		t.Fatal("nothing was recorded")
	}
	return all[len(all)-1]
}

func (j *tape) failWith(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.fail = err
}

// rig is a limiter under a fake clock with a journal that remembers.
type rig struct {
	*Memory
	t       *testing.T
	clock   *llm.FakeClock
	journal *tape
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{t: t, clock: llm.NewFakeClock(start), journal: new(tape)}
	r.Memory = New(o, r.clock, r.journal)
	t.Cleanup(r.Close)
	return r
}

func keyID(n uint64) ID { return ID{Kind: Key, Scope: n} }

func dim(id ID, l Limits) Dim { return Dim{ID: id, Base: l, Effective: l} }

// claim asks for tokens of input on dims, without money.
func claim(tokens llm.Tokens, dims ...Dim) *Claim {
	c := &Claim{Caller: Caller{Org: 1, User: 2, Key: 3}, Input: tokens, N: len(dims)}
	copy(c.Dims[:], dims)
	return c
}

func (r *rig) admit(c *Claim) Reservation {
	r.t.Helper()
	res, d, err := r.Reserve(ctx, c)
	if err != nil || d != nil {
		r.t.Fatalf("refused: %+v, %v", d, err)
	}
	return res
}

func (r *rig) refuse(c *Claim) Denial {
	r.t.Helper()
	_, d, err := r.Reserve(ctx, c)
	if err != nil || d == nil {
		r.t.Fatalf("admitted; error %v", err)
	}
	return *d
}

func (r *rig) use(id ID) Use {
	r.t.Helper()
	u, err := r.Inspect(ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return u
}

func TestAllOrNothing(t *testing.T) {
	r := newRig(t, Options{})
	full := dim(ID{Kind: Model, Name: "m"}, Limits{QPS: 1})
	key := dim(keyID(3), Limits{QPS: 5, TPM: 1000, Concurrency: 5})
	r.admit(claim(10, full)).Commit(llm.Usage{}, true)
	d := r.refuse(claim(100, key, full))
	if d.Axis != AxisQPS || d.ID.String() != "model:m" || d.Limit != 1 || d.Current != 1 || d.RetryAfterMS != 1000 || !d.Exact {
		t.Fatalf("%+v", d)
	}
	if u := r.use(key.ID); u != (Use{}) {
		t.Fatalf("a refusal left %+v", u)
	}
	if r.Open() != 0 {
		t.Fatal("a refusal left an open reservation")
	}
}

func TestReserveIsTakenBackWhenTheJournalFails(t *testing.T) {
	r := newRig(t, Options{})
	r.LoadBalance(2, 1000, 0)
	c := claim(10, dim(keyID(3), Limits{QPS: 5, TPM: 1000, Concurrency: 5}))
	c.Money = Money{Price: llm.Price{Request: 7}, Billed: true, Balance: true, Quotas: [llm.Windows]Quota{{Label: 202611, Limit: 50}}}
	down := errors.New("disk full")
	r.journal.failWith(down)
	_, d, err := r.Reserve(ctx, c)
	if d != nil || !errors.Is(err, down) {
		t.Fatalf("%+v %v", d, err)
	}
	if u := r.use(keyID(3)); u != (Use{}) || r.Open() != 0 {
		t.Fatalf("left %+v, %d open", u, r.Open())
	}
	if a, h := r.Balance(2); a != 1000 || h != 0 {
		t.Fatalf("balance %d held %d", a, h)
	}
	if u, h := r.Quota(3, 202611); u != 0 || h != 0 {
		t.Fatalf("quota %d held %d", u, h)
	}
	r.journal.failWith(nil)
	r.admit(c).Release()
}
