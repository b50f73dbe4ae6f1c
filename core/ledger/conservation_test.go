package ledger_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

// purse is one account as a child would keep it: four piles, and money that moves from one to another.
type purse struct{ credits, available, held, posted llm.Micro }

type pledge struct {
	user   uint64
	amount llm.Micro
	price  llm.Price
	in     llm.Tokens
	out    llm.Tokens
}

// purses is the naive model. It knows nothing of entries, groups or stores.
type purses struct {
	of   map[uint64]*purse
	open map[uint64]*pledge
}

func (n *purses) purse(user uint64) *purse {
	if n.of[user] == nil {
		n.of[user] = &purse{}
	}
	return n.of[user]
}

func (n *purses) credit(user uint64, delta llm.Micro) {
	n.purse(user).credits += delta
	n.purse(user).available += delta
}

func (n *purses) reserve(id uint64, p pledge) {
	n.open[id] = &p
	n.purse(p.user).available -= p.amount
	n.purse(p.user).held += p.amount
}

func (n *purses) relay(id uint64, out llm.Tokens) {
	if p := n.open[id]; p != nil {
		p.out = max(p.out, out)
	}
}

// end reports whether the reservation was open.
func (n *purses) end(id uint64, cost llm.Micro) bool {
	p := n.open[id]
	if p == nil {
		return false
	}
	delete(n.open, id)
	u := n.purse(p.user)
	u.held -= p.amount
	u.available += p.amount - cost
	u.posted += cost
	return true
}

func (n *purses) crash() {
	for id, p := range n.open {
		n.end(id, p.price.Cost(llm.Usage{InputTokens: p.in, OutputTokens: p.out}))
	}
}

// bank drives a ledger and the purses with the same operations.
type bank struct {
	t     *rapid.T
	store *storetest.Memory
	l     *ledger.Ledger
	n     *purses
	ids   []uint64
}

const bankUsers = 4

func (b *bank) start() {
	l, state, err := ledger.Open(b.store, ledger.Options{}, llm.NewFakeClock(noon))
	if err != nil {
		b.t.Fatal(err)
	}
	b.l = l
	for user, balance := range state.Balances {
		available := balance.Available()
		if want := b.n.purse(user).available; available != want {
			b.t.Fatalf("a start finds %d for user %d, want %d", available, user, want)
		}
	}
}

func (b *bank) write(e llm.Entry) error {
	seq, err := b.l.Append(&e)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.l.Wait(context.Background(), seq, time.Minute)
}

// step is one operation, drawn as one number so that a million are affordable. Rapid prefers small numbers, so it is
// mixed first.
func (b *bank) step(draw uint64) {
	draw = (draw ^ draw>>33) * 0xff51afd7ed558ccd
	draw ^= draw >> 29
	take := func(n uint64) uint64 { x := draw % n; draw /= n; return x }
	kind, user := take(20), 1+take(bankUsers)
	var id uint64
	if len(b.ids) > 0 {
		id = b.ids[take(uint64(len(b.ids)))]
	}
	switch {
	case kind == 0 && take(100) == 0:
		b.store = b.store.Clone()
		_ = b.l.Close()
		b.n.crash()
		b.ids = b.ids[:0]
		b.start()
	case kind <= 1:
		delta := llm.Micro(take(2_000)) - 700
		err := b.l.Put(context.Background(), ledger.Change{}, nil, []llm.Entry{{Kind: llm.EntryCredit, UserID: user, Cost: delta}})
		if err != nil {
			b.t.Fatal(err)
		}
		b.n.credit(user, delta)
	case kind <= 8 || id == 0:
		in := llm.Tokens(take(200))
		e := llm.Entry{Kind: llm.EntryReserve, ID: b.l.NextID(), UserID: user, KeyID: 1 + take(3), Label: label, Price: price, Billed: true,
			Usage: llm.Usage{InputTokens: in}, Held: price.Hold(in, llm.Tokens(take(100)))}
		if err := b.write(e); err != nil {
			b.t.Fatal(err)
		}
		if b.ids = append(b.ids, e.ID); len(b.ids) > 40 {
			b.ids = b.ids[1:] // stays open until a crash
		}
		b.n.reserve(e.ID, pledge{user, e.Held, price, in, 0})
	case kind <= 11:
		out := llm.Tokens(take(100))
		_ = b.write(llm.Entry{Kind: llm.EntryProgress, ID: id, Usage: llm.Usage{OutputTokens: out}})
		b.n.relay(id, out)
	default:
		b.finish(id, kind, llm.Micro(take(400)))
	}
}

// finish settles (also beyond what is held), refunds or voids.
func (b *bank) finish(id, kind uint64, cost llm.Micro) {
	e := llm.Entry{Kind: llm.EntrySettle, ID: id, Status: llm.StatusFinalized, Cost: cost}
	switch kind {
	case 12:
		e.Kind, e.Status, cost = llm.EntryVoid, llm.StatusRefunded, 0
	case 13:
		e.Status, cost = llm.StatusFailed, 0
	}
	if err := b.write(e); b.n.end(id, cost) != (err == nil) {
		b.t.Fatalf("ending %d: %v", id, err)
	}
}

// check is the promise.
func (b *bank) check() {
	var sum, all purse
	for user := uint64(1); user <= bankUsers; user++ {
		p := b.n.purse(user)
		credits, posted, held := b.l.Account(user)
		got := purse{credits, credits - posted - held, held, posted}
		if got != *p || p.credits != p.available+p.held+p.posted {
			b.t.Fatalf("user %d: the ledger has %+v, the purse %+v", user, got, *p)
		}
		all = purse{all.credits + got.credits, all.available + got.available, all.held + got.held, all.posted + got.posted}
		sum = purse{sum.credits + p.credits, sum.available + p.available, sum.held + p.held, sum.posted + p.posted}
	}
	if all != sum || all.credits != all.available+all.held+all.posted {
		b.t.Fatalf("in sum: the ledger has %+v, the purses %+v", all, sum)
	}
}

// TestC1Conservation: credits = available + held + posted for every account, and in sum, after every one of 100,000
// random operations (1,000,000 with -long), crashes among them; the log agrees at the end of each run.
func TestC1Conservation(t *testing.T) {
	steps := 1_000 // of each of rapid's 100 runs
	if *ledger.Long {
		steps = 10_000
	}
	rapid.Check(t, func(t *rapid.T) {
		b := &bank{t: t, store: storetest.NewMemory(), n: &purses{map[uint64]*purse{}, map[uint64]*pledge{}}}
		b.start()
		defer func() { _ = b.l.Close() }()
		for i := range steps {
			b.step(uint64(i)<<40 ^ rapid.Uint64().Draw(t, "step"))
			b.check()
		}
		if report, err := ledger.Verify(b.store); err != nil || len(report.Problems) > 0 {
			t.Fatalf("Verify: %v, %q", err, report.Problems)
		}
	})
}
