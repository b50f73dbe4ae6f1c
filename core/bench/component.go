package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/load"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/tokens"
	"github.com/weir-gateway/weir/policies"
)

// The components, in the order of the walk.
const (
	resolve       = "auth.Resolve, one key"
	scanSmall     = "llm.ScanHead, 1 kB"
	scanLarge     = "llm.ScanHead, 32 kB"
	estimate      = "tokens.Estimate, 1 kB, half of it new"
	decide        = "policy.Decide, module default"
	reserveCommit = "limit.Reserve and Commit, three dimensions, balance, month"
	admission     = "all of these, 1 kB"
	settleProcess = "ledger, a settled request of 64, process"
	settlePower   = "ledger, a settled request of 64, power"
	activate      = "policy, a small module from upload to active"
	countEnglish  = "tokens.Text, English"
	countCode     = "tokens.Text, code"
	countJSON     = "tokens.Text, JSON"
	countChinese  = "tokens.Text, Chinese"
	countBase64   = "tokens.Text, base64"
	countWorst    = "tokens.Text, 2,000 dashes"
)

// componentTime is how long each component is called, where laps are a second long or longer.
const componentTime = 200 * time.Millisecond

// components fills the component table.
func (b *bench) components() error {
	b.Tell("components")
	p, err := newParts(b.ctx, b.Clock, b.Random, b.dir)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.mint(b.Random, 1); err != nil {
		return err
	}
	b.direct(p)
	b.counting(p)
	if p.err != nil {
		return fmt.Errorf("a component: %w", p.err)
	}
	if err := b.settling(settleProcess, ledger.Process); err != nil {
		return err
	}
	return b.settling(settlePower, ledger.Power)
}

// direct times the steps of the walk up to the upstream.
func (b *bench) direct(p *parts) {
	large, head := chat(model, 32<<10, false), new(llm.Head)
	b.time(resolve, 0, func() { _, p.err = p.directory.Resolve(p.keys[0]) })
	b.time(scanSmall, len(p.body), func() { p.err = llm.ScanHead(llm.Chat, p.body, head) })
	b.time(estimate, len(p.body), func() { p.counter.Estimate(p.encoding, head, p.renewed()) })
	b.time(scanLarge, len(large), func() { p.err = llm.ScanHead(llm.Chat, large, head) })
	b.time(decide, 0, func() { p.host.Decide(&p.facts, &p.decision) })
	b.time(reserveCommit, 0, p.reserve)
	b.time(admission, len(p.body), func() { p.admit(0) })
	b.result.Components = append(b.result.Components, Component{Name: activate, NS: float64(p.activated)})
}

// counting times the counter on the kinds of text there are.
func (b *bench) counting(p *parts) {
	for _, c := range []struct{ name, text string }{{countEnglish, prose}, {countCode, code}, {countJSON, data},
		{countChinese, chinese}, {countBase64, base64}} {
		text := []byte(strings.Repeat(c.text, 50_000/len(c.text)))
		b.time(c.name, len(text), func() { p.counter.Text(p.encoding, text) })
	}
	dashes := []byte(strings.Repeat("-", 2000)) // the dearest piece known that a budget suffices for: more would not be counted exactly
	b.time(countWorst, len(dashes), func() { p.counter.Text(p.encoding, dashes) })
}

// settling times a reserve and its settlement, each waited for, by 64 callers at once, on a disk.
func (b *bench) settling(name string, d ledger.Durability) error {
	store, err := b.Open(filepath.Join(b.dir, "ledger-"+string(d)))
	if err != nil {
		return err
	}
	l, _, err := ledger.Open(store, ledger.Options{Durability: d}, b.Clock)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	s := &settler{ledger: l}
	c := b.timed(0, s.settle)
	c.Name = name
	b.result.Components = append(b.result.Components, c)
	err = errors.Join(l.Close(), store.Close())
	if first := s.err.Load(); first != nil {
		err = errors.Join(*first, err)
	}
	return err
}

// settler is 64 callers who wait for their entries.
type settler struct {
	ledger *ledger.Ledger
	err    atomic.Pointer[error]
}

func (s *settler) settle(n int) {
	var left atomic.Int64
	left.Store(int64(n))
	var callers sync.WaitGroup
	for c := range uint64(connections) {
		callers.Go(func() {
			for left.Add(-1) >= 0 {
				id := s.ledger.NextID()
				s.write(&llm.Entry{Kind: llm.EntryReserve, ID: id, OrgID: 1, UserID: c%8 + 1, KeyID: c%16 + 1, Label: 202611, Price: price(), Billed: true, Model: model, Held: 100})
				s.write(&llm.Entry{Kind: llm.EntrySettle, ID: id, Status: llm.StatusFinalized, Cost: 50, Channel: "sim", Usage: usage()})
			}
		})
	}
	callers.Wait()
}

func (s *settler) write(e *llm.Entry) {
	seq, err := s.ledger.Append(e)
	if err == nil {
		err = s.ledger.Wait(context.Background(), seq, time.Minute)
	}
	if err != nil {
		s.err.CompareAndSwap(nil, &err)
	}
}

// time adds a row: what one call of f takes, of so many bytes of input.
func (b *bench) time(name string, size int, f func()) {
	c := b.timed(size, repeat(f))
	c.Name = name
	b.result.Components = append(b.result.Components, c)
}

func repeat(f func()) func(n int) {
	return func(n int) {
		for range n {
			f()
		}
	}
}

// timed is what one of f's n calls takes. It makes more and more of them, until they take long enough to be measured.
func (b *bench) timed(size int, f func(n int)) (c Component) {
	var before, after runtime.MemStats
	enough := time.Duration(float64(componentTime) * min(b.Seconds, 1))
	for n := 1; b.ctx.Err() == nil; {
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := b.Clock.Mono()
		f(n)
		took := b.Clock.Mono() - start
		runtime.ReadMemStats(&after)
		each := func(v uint64) float64 { return float64(v) / float64(n) }
		c = Component{NS: float64(took) / float64(n), Bytes: each(after.TotalAlloc - before.TotalAlloc), Allocs: each(after.Mallocs - before.Mallocs)}
		if size > 0 {
			c.MBs = float64(size) * 1e3 / c.NS
		}
		if took >= enough || n >= 1<<30 {
			break
		}
		n = max(n+1, min(n*100, int(1.2*float64(n)*float64(enough)/float64(max(took, 1)))))
	}
	return c
}

// parts are the gateway's own, called in this process.
type parts struct {
	directory *auth.Directory
	keys      [][]byte
	limiter   *limit.Memory
	counter   *tokens.Counter
	encoding  tokens.Encoding
	host      *policy.Host
	activated time.Duration // what a module took from upload to active
	body      []byte
	stamp     []byte // the number in it
	number    int
	head      llm.Head
	facts     policy.Facts
	decision  policy.Decision
	claim     limit.Claim
	err       error // of the last call
}

// What everything costs and is limited to here: limits that are tested and never met.
func price() llm.Price {
	return llm.Price{Input: 1_080_000, CachedInput: 540_000, CacheWrite: 1_080_000, Output: 4_320_000}
}
func usage() llm.Usage   { return llm.Usage{InputTokens: 200, OutputTokens: 50} }
func wide() limit.Limits { return limit.Limits{QPS: 1 << 40, TPM: 1 << 50, Concurrency: 1 << 30} }
func month() [llm.Windows]limit.Quota {
	return [llm.Windows]limit.Quota{{Label: 202611, Limit: 1 << 60}}
}

func newParts(ctx context.Context, clock llm.Clock, random io.Reader, dir string) (*parts, error) {
	secret := make([]byte, 32)
	if _, err := io.ReadFull(random, secret); err != nil {
		return nil, err
	}
	p := &parts{directory: auth.NewDirectory(secret, clock), limiter: limit.New(limit.Options{}, clock, nil), body: chat(model, bodyBytes, false)}
	p.stamp = p.body[bytes.Index(p.body, []byte(load.Stamp)):][:len(load.Stamp)]
	var err error
	if p.counter, err = tokens.New(tokens.Options{}); err != nil {
		return nil, err
	}
	p.encoding = p.counter.For(model)
	cache := filepath.Join(dir, "modules")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return nil, err
	}
	if p.host, err = policy.NewHost(policy.Options{CacheDir: cache, Log: slog.New(slog.DiscardHandler), Clock: clock}); err != nil {
		return nil, err
	}
	start := clock.Mono()
	wasm, _ := policies.Shipped("default")
	m, err := p.host.Add(ctx, "default", wasm, policy.ProfileSmall)
	if err == nil {
		err = p.host.Activate(ctx, &policy.Binding{Module: m.Name, Hash: m.Hash, OnError: policy.OnErrorDefault}, policy.Envelope{MaxMultiplier: 2000, MaxBurst: 5000, MinPrice: 1000, MayDeny: true})
	}
	p.activated = clock.Mono() - start
	p.facts = policy.Facts{Endpoint: llm.Chat, Choices: 1, Org: 1, Attr: [policy.NAttr]string{policy.AttrModel: model, policy.AttrKeyName: "first",
		policy.AttrUserName: "alice", policy.AttrOrgName: "Acme", policy.AttrClientIP: "127.0.0.1", policy.AttrProvider: "openai"}}
	p.claim = limit.Claim{Caller: limit.Caller{Org: 1}, N: 3, Facts: llm.Entry{Endpoint: llm.Chat, Model: model}}
	for i, id := range []limit.ID{{Kind: limit.Key}, {Kind: limit.Model, Name: model}, {Kind: limit.Global}} {
		p.claim.Dims[i] = limit.Dim{ID: id, Base: wide(), Effective: wide()}
	}
	p.claim.Money = limit.Money{Price: price(), Billed: true, Balance: true, Quotas: month()}
	return p, err
}

func (p *parts) close() {
	p.host.Close()
	p.limiter.Close()
}

// mint makes keys up to n, each of a user of its own with a balance.
func (p *parts) mint(random io.Reader, n int) error {
	p.directory.SetOrg(auth.Org{ID: 1, Name: "Acme"})
	for id := uint64(len(p.keys)) + 1; len(p.keys) < n; id++ {
		token, k, err := p.directory.Mint(random)
		if err != nil {
			return err
		}
		k.ID, k.UserID, k.Name, k.QPSLimit, k.TPMLimit, k.MonthlyQuota = id, id, "k", wide().QPS, wide().TPM, 1<<60
		p.directory.SetUser(auth.User{ID: id, OrgID: 1, Name: "alice"})
		p.directory.SetKey(k)
		p.limiter.LoadBalance(id, 1<<60, 0)
		p.keys = append(p.keys, []byte(token))
	}
	p.claim.Caller.Key, p.claim.Caller.User, p.claim.Dims[0].ID.Scope = 1, 1, 1
	return nil
}

// admit is one request of the i-th key, from its key to its settlement, with nothing in between.
func (p *parts) admit(i int) {
	caller, err := p.directory.Resolve(p.keys[i])
	if err == nil {
		err = llm.ScanHead(llm.Chat, p.body, &p.head)
	}
	if err != nil {
		p.err = err
		return
	}
	p.claim.Input = p.counter.Estimate(p.encoding, &p.head, p.renewed())
	p.claim.Output, p.claim.SoftOutput = p.counter.OutputBound(&p.head, 0)
	p.facts.Key, p.facts.User, p.facts.Input, p.facts.OutputMax = caller.Key.ID, caller.User.ID, p.claim.Input, p.claim.Output
	p.host.Decide(&p.facts, &p.decision)
	p.claim.Caller.Key, p.claim.Caller.User, p.claim.Dims[0].ID.Scope = caller.Key.ID, caller.User.ID, caller.Key.ID
	p.reserve()
}

// renewed is the body with the next number in it.
func (p *parts) renewed() []byte {
	p.number++
	for i, n := len(p.stamp)-1, p.number; i >= 0; i, n = i-1, n/10 {
		p.stamp[i] = '0' + byte(n%10)
	}
	return p.body
}

// reserve holds and settles.
func (p *parts) reserve() {
	r, denial, err := p.limiter.Reserve(context.Background(), &p.claim)
	if err != nil || denial != nil {
		p.err = fmt.Errorf("refused: %+v, %w", denial, err)
		return
	}
	r.Sent("sim")
	r.Commit(usage(), true)
}
