package limit

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// TestL01 is five parallel chats of 20 + 100 on TPM 150: one runs, the rest are refused at once.
func TestL01ParallelHoldsNeverExceedTPM(t *testing.T) {
	r := newRig(t, Options{})
	c := claim(20, dim(keyID(3), Limits{TPM: 150}))
	c.Output = 100
	res := r.admit(c)
	for range 4 {
		if d := r.refuse(c); d.Axis != AxisTPM || d.Current != 120 || d.Requested != 120 || d.Limit != 150 {
			t.Fatalf("%+v", d)
		}
	}
	r.clock.Advance(time.Second)
	res.Commit(llm.Usage{InputTokens: 20, OutputTokens: 100}, true)
	if u := r.use(keyID(3)); u.TPM != 120 || u.TPMHeld != 0 {
		t.Fatalf("%+v", u)
	}
}

// TestL02 has no cap in the body and a model that could say more than the limit holds.
func TestL02OutputGivesWayToTheLimit(t *testing.T) {
	r := newRig(t, Options{})
	c := claim(20, dim(keyID(3), Limits{TPM: 500}))
	c.Output, c.SoftOutput = 4096, true
	if g := r.admit(c).Granted(); g != 480 {
		t.Fatalf("granted %d", g)
	}
}

// TestL05 holds one call at concurrency 1, is refused nine times, and has all of its QPS left after.
func TestL05RefusalsUseNoQPS(t *testing.T) {
	r := newRig(t, Options{})
	c := claim(1, dim(keyID(3), Limits{Concurrency: 1, QPS: 10}))
	res := r.admit(c)
	for range 9 {
		if d := r.refuse(c); d.Axis != AxisConcurrency || d.Exact || d.RetryAfterMS != 1000 {
			t.Fatalf("%+v", d)
		}
	}
	if u := r.use(keyID(3)); u.QPS != 1 {
		t.Fatalf("%d requests counted", u.QPS)
	}
	res.Release()
	r.admit(c)
}

// TestL06 sends 100 parallel streams of 500 at TPM 1,000.
func TestL06ParallelStreams(t *testing.T) {
	r := newRig(t, Options{})
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if _, d, _ := r.Reserve(ctx, claim(500, dim(keyID(3), Limits{TPM: 1000}))); d == nil {
				admitted.Add(1)
			}
		})
	}
	wg.Wait()
	if admitted.Load() != 2 {
		t.Fatalf("%d admitted", admitted.Load())
	}
}

// TestL07 is refused five times by a full model window and passes when that is free, in the same second of the key.
func TestL07OtherDimensionsKeepNoTrace(t *testing.T) {
	r := newRig(t, Options{})
	model := dim(ID{Kind: Model, Name: "m"}, Limits{Concurrency: 1})
	blocker := r.admit(claim(1, model))
	c := claim(1, dim(keyID(3), Limits{QPS: 5}), model)
	for range 5 {
		if d := r.refuse(c); d.ID != model.ID {
			t.Fatalf("%+v", d)
		}
	}
	blocker.Release()
	r.admit(c)
}

// TestL08 spends one key and sends another.
func TestL08KeysAreApart(t *testing.T) {
	r := newRig(t, Options{})
	r.admit(claim(100, dim(keyID(1), Limits{TPM: 100})))
	r.refuse(claim(1, dim(keyID(1), Limits{TPM: 100})))
	r.admit(claim(100, dim(keyID(2), Limits{TPM: 100})))
}

// TestL09 lowers and raises limits 1,000 times under load; what is counted is the sum of what was admitted in the window,
// and a lowered limit refuses at what the raised one let in.
func TestL09LimitsChangeUnderLoad(t *testing.T) {
	r := newRig(t, Options{})
	var limit, tried, admitted, refused atomic.Int64
	var done atomic.Bool
	limit.Store(1 << 40)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for !done.Load() {
				res, d, err := r.Reserve(ctx, claim(3, dim(keyID(3), Limits{TPM: limit.Load()})))
				switch {
				case err != nil:
					t.Error(err)
				case d != nil:
					if refused.Add(1); d.Axis != AxisTPM || d.Limit != 10 || d.Current+d.Requested <= 10 {
						t.Errorf("%+v", d)
					}
				default:
					admitted.Add(1)
					res.Commit(llm.Usage{InputTokens: 3}, true)
				}
				tried.Add(1)
			}
		})
	}
	for i := range 1000 {
		limit.Store([]int64{10, 0, 1 << 40}[i%3]) // 0 is unlimited
		for seen := tried.Load(); tried.Load() < seen+4; {
			runtime.Gosched()
		}
	}
	done.Store(true)
	wg.Wait()
	if admitted.Load() < 100 || refused.Load() < 100 || admitted.Load()+refused.Load() != tried.Load() {
		t.Errorf("of %d, %d admitted and %d refused", tried.Load(), admitted.Load(), refused.Load())
	}
	if u := r.use(keyID(3)); u.TPM != 3*admitted.Load() || u.TPMHeld != 0 || u.Concurrency != 0 || r.Open() != 0 {
		t.Errorf("%+v after %d admissions, %d open", u, admitted.Load(), r.Open())
	}
	r.clock.Advance(time.Minute)
	if u := r.use(keyID(3)); u.TPM != 0 {
		t.Errorf("%d tokens outlive their window", u.TPM)
	}
}

// TestL10 sends a million bogus ids through one key: memory stays, an overflow meter serves the rest, and the key's own
// window is not refilled.
func TestL10BogusIDsAreBounded(t *testing.T) {
	r := newRig(t, Options{})
	key := dim(keyID(3), Limits{TPM: 10})
	r.admit(claim(10, key))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	user := dim(ID{Kind: EndUser, Scope: 1}, Limits{QPS: 1})
	c := claim(0, user)
	denied := 0
	for i := range 1_000_000 {
		c.Dims[0].ID.Name = fmt.Sprint("bogus-", i)
		_, d, err := r.Reserve(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		if d != nil {
			if denied++; d.ID != (ID{Kind: EndUser, Scope: 3}) {
				t.Fatalf("refused by %s, not by the key's overflow", d.ID)
			}
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if denied != 1_000_000-clientIDs-1 {
		t.Errorf("%d denied", denied)
	}
	if n := r.Meters(); n > clientIDs+4 {
		t.Errorf("%d meters", n)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("%d bytes more", grown)
	}
	r.refuse(claim(1, key))
	other := claim(0, dim(ID{Kind: EndUser, Scope: 1, Name: "late"}, Limits{QPS: 1}))
	other.Caller.Key = 4
	r.admit(other).Release()
}

// TestOverflowEndsWhenIDsAreSwept frees the cap with the meters that counted against it.
func TestOverflowEndsWhenIDsAreSwept(t *testing.T) {
	r := newRig(t, Options{})
	c := claim(0, dim(ID{Kind: Custom, Scope: 1}, Limits{QPS: 1}))
	for i := range clientIDs + 1 {
		c.Dims[0].ID.Name = fmt.Sprint(i)
		r.admit(c).Release()
	}
	c.Dims[0].ID.Name = "one more"
	r.refuse(c)
	r.clock.Advance(time.Minute)
	r.sweep()
	if n := r.Meters(); n != 0 {
		t.Fatalf("%d meters are left", n)
	}
	r.admit(c)
	if u := r.use(c.Dims[0].ID); u.QPS != 1 {
		t.Fatalf("still in the overflow: %+v", u)
	}
}

// TestDimensionsThatShareAMeterAreOne: two names past the cap in one claim must not lock their meter twice.
func TestDimensionsThatShareAMeterAreOne(t *testing.T) {
	r := newRig(t, Options{})
	c := claim(0, dim(ID{Kind: Custom, Scope: 1}, Limits{}))
	for i := range clientIDs {
		c.Dims[0].ID.Name = fmt.Sprint(i)
		r.admit(c).Release()
	}
	a, b := dim(ID{Kind: Custom, Scope: 1, Name: "a"}, Limits{QPS: 5}), dim(ID{Kind: Custom, Scope: 1, Name: "b"}, Limits{QPS: 1})
	r.admit(claim(0, a, b))
	if d := r.refuse(claim(0, a, b)); d.Limit != 1 || d.Current != 1 {
		t.Fatalf("%+v", d)
	}
}

// TestL11 jumps the wall clock; no window opens or closes early.
func TestL11WallClockJumps(t *testing.T) {
	for _, a := range []Algorithm{Sliding, Fixed, TokenBucket} {
		r := newRig(t, Options{Algorithms: map[Kind]Windows{Key: {QPS: a, TPM: a}}})
		c := claim(100, dim(keyID(3), Limits{QPS: 1, TPM: 100}))
		r.admit(c)
		for _, jump := range []time.Duration{2 * time.Hour, -4 * time.Hour} {
			r.clock.Jump(jump)
			if d := r.refuse(c); d.RetryAfterMS != 60_000 {
				t.Fatalf("%s: %+v", a, d)
			}
		}
		r.clock.Advance(time.Minute)
		r.admit(c)
	}
}

// TestM01 has a quota for ten calls and sends fifty at once.
func TestM01QuotaIsReservedAtomically(t *testing.T) {
	r := newRig(t, Options{})
	r.LoadBalance(2, 1_000_000, 0)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			c := claim(10)
			c.Money = Money{Price: llm.Price{Request: 100}, Billed: true, Balance: true, Quotas: [llm.Windows]Quota{{Label: 202611, Limit: 1000}}}
			res, d, err := r.Reserve(ctx, c)
			switch {
			case err != nil:
				t.Error(err)
			case d == nil:
				admitted.Add(1)
				res.Commit(llm.Usage{}, true)
			case d.Axis != AxisQuota || d.Limit != 1000 || d.Requested != 100:
				t.Errorf("%+v", d)
			}
		})
	}
	wg.Wait()
	used, held := r.Quota(3, 202611)
	if admitted.Load() != 10 || used != 1000 || held != 0 {
		t.Fatalf("%d admitted, %d used, %d held", admitted.Load(), used, held)
	}
}

// TestM02 ends calls at every point an upstream can break; then nothing is held and every meter is as used.
func TestM02BrokenCallsHoldNothing(t *testing.T) {
	r := newRig(t, Options{})
	r.LoadBalance(2, 1_000_000, 0)
	ends := map[string]struct {
		end  func(Reservation)
		cost llm.Micro
		tpm  int64
	}{
		"before headers":   {func(s Reservation) { s.Sent("c"); s.Refused(); s.Answered(502); s.Release() }, 0, 0},
		"after first byte": {func(s Reservation) { s.Sent("c"); s.Relayed(4); s.Release() }, 14, 14},
		"never answers":    {func(s Reservation) { s.Sent("c"); s.Answered(504); s.Release() }, 10, 10},
	}
	for name, e := range ends {
		available, _ := r.Balance(2)
		tpm := r.use(keyID(3)).TPM
		for range 100 {
			c := claim(10, dim(keyID(3), Limits{TPM: 1 << 30, Concurrency: 1}))
			c.Output = 20
			c.Money = Money{Price: llm.Price{Input: 1_000_000, Output: 1_000_000}, Billed: true, Balance: true}
			e.end(r.admit(c))
		}
		now, held := r.Balance(2)
		u := r.use(keyID(3))
		if held != 0 || available-now != 100*e.cost || u.TPM-tpm != 100*e.tpm || u.TPMHeld != 0 || u.Concurrency != 0 || r.Open() != 0 {
			t.Errorf("%s: held %d, cost %d, use %+v, %d open", name, held, available-now, u, r.Open())
		}
	}
}

// TestM06 panics after the reservation: the deferred net settles it.
func TestM06PanicHoldsNothing(t *testing.T) {
	r := newRig(t, Options{})
	r.LoadBalance(2, 1000, 0)
	c := claim(10, dim(keyID(3), Limits{TPM: 100, Concurrency: 1}))
	c.Money = Money{Price: llm.Price{Input: 1_000_000}, Billed: true, Balance: true}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		res := r.admit(c)
		defer res.Release()
		panic("forced")
	}()
	if a, h := r.Balance(2); a != 1000 || h != 0 || r.Open() != 0 || r.use(keyID(3)).TPM != 0 {
		t.Fatalf("available %d, held %d, %d open, %+v", a, h, r.Open(), r.use(keyID(3)))
	}
}

// TestM12 ends a stream in the month after its reservation.
func TestM12ChargedToTheMonthOfTheReservation(t *testing.T) {
	r := newRig(t, Options{})
	c := claim(10)
	c.Money = Money{Price: llm.Price{Request: 100}, Billed: true, Quotas: [llm.Windows]Quota{{Label: 202611, Limit: 1000}}}
	res := r.admit(c)
	r.clock.Advance(24 * time.Hour)
	c.Money.Quotas[llm.Month].Label = 202612
	r.admit(c).Release()
	res.Commit(llm.Usage{}, true)
	old, _ := r.Quota(3, 202611)
	now, _ := r.Quota(3, 202612)
	if old != 100 || now != 0 {
		t.Fatalf("november %d, december %d", old, now)
	}
}

// TestLeakIsEnded: a reservation whose owner is gone is ended by the sweep, at what it owes.
func TestLeakIsEnded(t *testing.T) {
	r := newRig(t, Options{})
	r.LoadBalance(2, 1000, 0)
	c := claim(10, dim(keyID(3), Limits{}))
	c.Money = Money{Price: llm.Price{Input: 1_000_000, Output: 1_000_000}, Billed: true, Balance: true}
	leaked, alive := r.admit(c), r.admit(c)
	leaked.Sent("c")
	leaked.Relayed(5)
	r.clock.Advance(leakAfter - time.Second)
	alive.Answered(200)
	r.sweep()
	if r.Open() != 2 {
		t.Fatal("ended too early")
	}
	r.clock.Advance(time.Second)
	r.sweep()
	if r.Open() != 1 || leaked.Release().First {
		t.Fatal("the leak was not ended")
	}
	if e := r.journal.last(t); e.Status != llm.StatusPartial || e.Usage.OutputTokens != 5 || !e.Estimated || e.Cost != 15 {
		t.Fatalf("%+v", e)
	}
	if !alive.Release().First {
		t.Fatal("the living one was ended")
	}
}

// TestSweepNeverRefills races sweeps with traffic on one id that is idle again and again; a meter that was swept under a
// Reserve would let it through twice.
func TestSweepNeverRefills(t *testing.T) {
	r := newRig(t, Options{})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				r.sweep()
				runtime.Gosched()
			}
		}
	})
	for range 300 {
		r.clock.Advance(time.Hour)
		var admitted atomic.Int64
		var round sync.WaitGroup
		for range 4 {
			round.Go(func() {
				for range 5 {
					res, d, err := r.Reserve(ctx, claim(1, dim(keyID(3), Limits{TPM: 1})))
					if err != nil {
						t.Error(err)
					}
					if d == nil {
						admitted.Add(1)
						res.Commit(llm.Usage{InputTokens: 1}, true)
					}
				}
			})
		}
		round.Wait()
		if admitted.Load() != 1 {
			t.Fatalf("%d admitted at a limit of 1", admitted.Load())
		}
	}
	close(stop)
	wg.Wait()
}

// TestDeadMetersAreLookedUpAgain sweeps between the look-up and the lock of one Reserve.
func TestDeadMetersAreLookedUpAgain(t *testing.T) {
	r := newRig(t, Options{})
	c := claim(1, dim(keyID(3), Limits{TPM: 1}), dim(ID{Kind: Global}, Limits{}))
	s := new(step)
	r.gather(s, c, false)
	r.clock.Advance(time.Minute)
	r.sweep()
	if s.lock() {
		t.Fatal("a dead meter was locked")
	}
	r.admit(c)
	if d := r.refuse(c); d.Current != 1 {
		t.Fatalf("%+v", d)
	}
	if n := r.Meters(); n != 2 {
		t.Fatalf("%d meters", n)
	}
}

// TestOneMeterPerID: two that miss the same id at once get the same meter.
func TestOneMeterPerID(t *testing.T) {
	r := newRig(t, Options{})
	id := keyID(3)
	if first, second := r.index.get(&id, 0, 3, true), r.index.get(&id, 0, 3, true); first != second || r.Meters() != 1 {
		t.Fatal("a second meter was made")
	}
}

// TestMoneyIsNeverSwept: a balance, and a quota that has counted, outlive any pause.
func TestMoneyIsNeverSwept(t *testing.T) {
	r := newRig(t, Options{})
	r.LoadBalance(2, 500, 0)
	r.LoadQuota(3, 202611, 70)
	r.clock.Advance(1000 * time.Hour)
	r.sweep()
	a, _ := r.Balance(2)
	u, _ := r.Quota(3, 202611)
	if a != 500 || u != 70 {
		t.Fatalf("balance %d, quota %d", a, u)
	}
}

func TestEighteenDimensionsAndNoMore(t *testing.T) {
	r := newRig(t, Options{})
	c := claim(1)
	for i := range MaxDims {
		c.Dims[i] = dim(keyID(uint64(i)), Limits{QPS: 1})
	}
	c.N = MaxDims
	res := r.admit(c)
	if d, err := res.Extend(ctx, []Dim{dim(ID{Kind: Channel, Scope: 1}, Limits{QPS: 1}), dim(ID{Kind: ModelChannel, Scope: 1, Name: "m"}, Limits{})}, 0); d != nil || err != nil {
		t.Fatal(d, err)
	}
	if _, err := res.Extend(ctx, make([]Dim, 3), 0); err == nil || !strings.Contains(err.Error(), "at most 22") {
		t.Fatal(err)
	}
	c.N++
	if _, _, err := r.Reserve(ctx, c); err == nil || !strings.Contains(err.Error(), "at most 18") {
		t.Fatal(err)
	}
	bad := claim(1, dim(ID{Kind: kindBalance, Scope: 2}, Limits{}))
	if _, _, err := r.Reserve(ctx, bad); err == nil || !strings.Contains(err.Error(), "unknown dimension kind 253") {
		t.Fatal(err)
	}
	if _, err := r.Peek(ctx, bad); err == nil {
		t.Fatal("peek took an unknown kind")
	}
	if _, err := r.Inspect(ctx, bad.Dims[0].ID); err == nil {
		t.Fatal("inspect took an unknown kind")
	}
	if _, err := res.Extend(ctx, bad.Dims[:1], 0); err == nil {
		t.Fatal("extend took an unknown kind")
	}
}

// TestTightest reports the dimension with the least left, with this request counted.
func TestTightest(t *testing.T) {
	r := newRig(t, Options{Algorithms: map[Kind]Windows{Global: {TPM: Fixed, QPS: TokenBucket}}})
	r.admit(claim(10, dim(ID{Kind: Global}, Limits{})))
	r.clock.Advance(10 * time.Second)
	none := dim(ID{Kind: User, Scope: 2}, Limits{})
	loose := dim(ID{Kind: Org, Scope: 1}, Limits{QPS: 1, TPM: 100})
	loose.CountOnly = true
	q, tok := r.admit(claim(100, dim(keyID(3), Limits{QPS: 5, TPM: 1000}), dim(ID{Kind: Global}, Limits{QPS: 2, TPM: 200}), none, loose)).Tightest()
	if (q != Rate{true, 2, 1, 500}) {
		t.Errorf("requests %+v", q)
	}
	if (tok != Rate{true, 200, 90, 50_000}) {
		t.Errorf("tokens %+v", tok)
	}
	q, tok = r.admit(claim(1, none)).Tightest()
	if q.OK || tok.OK {
		t.Errorf("%+v %+v where nothing is limited", q, tok)
	}
}

// TestUnlimitedClaims are charged everywhere and refused only by money.
func TestUnlimitedClaims(t *testing.T) {
	r := newRig(t, Options{})
	c := claim(100, dim(keyID(3), Limits{QPS: 1, TPM: 10, Concurrency: 1}))
	c.Unlimited = true
	r.admit(c)
	r.admit(c)
	if u := r.use(keyID(3)); u.QPS != 2 || u.TPM != 200 || u.Concurrency != 2 {
		t.Fatalf("%+v", u)
	}
	c.Money = Money{Price: llm.Price{Request: 1}, Billed: true, Balance: true}
	if d := r.refuse(c); d.Axis != AxisBalance {
		t.Fatalf("%+v", d)
	}
}

// TestNotBilledTouchesNoMoney is the other half: limited, not billed.
func TestNotBilledTouchesNoMoney(t *testing.T) {
	r := newRig(t, Options{})
	c := claim(10, dim(keyID(3), Limits{TPM: 10}))
	c.Money = Money{Price: llm.Price{Request: 9}, Balance: true, Quotas: [llm.Windows]Quota{{Label: 202611}}}
	s := r.admit(c).Commit(llm.Usage{InputTokens: 10}, true)
	e := r.journal.all()[0]
	if s.Cost != 0 || s.Status != llm.StatusFinalized || e.Billed || e.Held != 0 || e.Label != 0 {
		t.Fatalf("%+v %+v", s, e)
	}
	r.refuse(c)
}

// TestReserveEntry carries everything known at admission.
func TestReserveEntry(t *testing.T) {
	r := newRig(t, Options{})
	r.LoadBalance(2, 1000, 0)
	c := claim(10)
	c.Output = 5
	c.Facts = llm.Entry{Endpoint: llm.Messages, Stream: true, Model: "m", RequestID: 77}
	price := llm.Price{Input: 1_000_000, CachedInput: 3_000_000, Output: 2_000_000}
	c.Money = Money{Price: price, Billed: true, Balance: true, Quotas: [llm.Windows]Quota{{Label: 202611, Limit: 100}}}
	res := r.admit(c)
	want := llm.Entry{Kind: llm.EntryReserve, Endpoint: llm.Messages, Stream: true, Billed: true, ID: 1, RequestID: 77,
		AtMS: start.UnixMilli(), OrgID: 1, UserID: 2, KeyID: 3, Label: 202611, Model: "m", Price: price, Held: 40,
		Usage: llm.Usage{InputTokens: 10}}
	if got := r.journal.last(t); got != want {
		t.Fatalf("%+v\nwant %+v", got, want)
	}
	if res.ID() != 1 || res.Seq() != 1 || res.Granted() != 5 {
		t.Fatalf("id %d seq %d granted %d", res.ID(), res.Seq(), res.Granted())
	}
	if s := res.Release(); s.Seq != 2 {
		t.Fatalf("%+v", s)
	}
}

// TestProgressIsJournalled every 256 tokens or second, whichever comes first.
func TestProgressIsJournalled(t *testing.T) {
	r := newRig(t, Options{})
	res := r.admit(claim(1))
	res.Sent("c")
	var noted []llm.Tokens
	step := func(total llm.Tokens, wait time.Duration) {
		r.clock.Advance(wait)
		res.Relayed(total)
	}
	step(255, 0)
	step(256, 0)
	step(300, 999*time.Millisecond)
	step(301, time.Millisecond)
	step(301, time.Hour)
	step(600, 0)
	for _, e := range r.journal.all() {
		if e.Kind == llm.EntryProgress {
			noted = append(noted, e.Usage.OutputTokens)
		}
	}
	if fmt.Sprint(noted) != "[256 301 600]" {
		t.Fatal(noted)
	}
}

// TestRefusedCannotUnsayOutput: once the client has had a byte, the attempt is owed.
func TestRefusedCannotUnsayOutput(t *testing.T) {
	r := newRig(t, Options{})
	res := r.admit(claim(10))
	res.Sent("c")
	res.Relayed(1)
	res.Refused()
	if s := res.Release(); s.Status != llm.StatusPartial || s.Usage.Total() != 11 {
		t.Fatalf("%+v", s)
	}
}

// TestSettlementChargesMemoryEvenWithoutAJournal: were a settle ever lost, memory must not forget it too.
func TestSettlementChargesMemoryEvenWithoutAJournal(t *testing.T) {
	r := newRig(t, Options{})
	r.LoadBalance(2, 100, 0)
	c := claim(10)
	c.Money = Money{Price: llm.Price{Request: 30}, Billed: true, Balance: true}
	res := r.admit(c)
	r.journal.failWith(context.DeadlineExceeded)
	if s := res.Commit(llm.Usage{}, true); !s.First || s.Seq != 0 || s.Cost != 30 {
		t.Fatalf("%+v", s)
	}
	if a, h := r.Balance(2); a != 70 || h != 0 {
		t.Fatalf("available %d, held %d", a, h)
	}
}

// TestExactLogGoesCoarse above 10,000 requests a second, and still never admits early.
func TestExactLogGoesCoarse(t *testing.T) {
	g := newQPS(ruleSliding)
	b := g.boundOf(15_000, 15_000, 0)
	now := time.Duration(0)
	for range 15_000 {
		now += 50 * time.Microsecond
		if g.left(now, b) < 1 {
			t.Fatal("refused below the limit")
		}
		g.charge(now, b, 1, false)
	}
	if g.short.used != 15_000 || g.short.n > exactSlots+1000 {
		t.Fatalf("%d requests in %d slots", g.short.used, g.short.n)
	}
	if _, current, wait := g.overrun(now, b, 1); current != 15_000 || wait != time.Second-now+50*time.Microsecond {
		t.Fatalf("%d in use, wait %v", current, wait)
	}
	now += 2 * time.Second
	if !g.idle(now) || g.short.ring != nil {
		t.Fatal("the log was kept")
	}
}

func TestPreauth(t *testing.T) {
	clock := llm.NewFakeClock(start)
	p := NewPreauth(clock)
	for range 3 {
		if _, ok := p.Allow("192.0.2.1", 3); !ok {
			t.Fatal("refused below the limit")
		}
	}
	wait, ok := p.Allow("192.0.2.1", 3)
	if ok || wait != 20_000 {
		t.Fatalf("%d %v", wait, ok)
	}
	shared := 0 // places of the table are, by chance
	for i := range 100 {
		if _, ok := p.Allow(fmt.Sprint("192.0.2.", 100+i), 1); !ok {
			shared++
		}
	}
	if shared > 10 {
		t.Errorf("%d of 100 other addresses are refused", shared)
	}
	clock.Advance(time.Duration(wait)*time.Millisecond - time.Millisecond)
	if _, ok := p.Allow("192.0.2.1", 3); ok {
		t.Fatal("a millisecond early")
	}
	clock.Advance(time.Millisecond)
	if _, ok := p.Allow("192.0.2.1", 3); !ok {
		t.Fatal("waiting was not enough")
	}
	if _, ok := p.Allow("192.0.2.1", 0); !ok {
		t.Fatal("0 is unlimited")
	}
	if n := testing.AllocsPerRun(100, func() { p.Allow("198.51.100.1", 1) }); n > 0 {
		t.Fatalf("%v allocations", n)
	}
}

// TestDuplicatesMergeToTheStricter in every pairing of refusing and counting.
func TestDuplicatesMergeToTheStricter(t *testing.T) {
	strict, wide := dim(keyID(3), Limits{QPS: 1, TPM: 50}), dim(keyID(3), Limits{QPS: 5, Concurrency: 9})
	loose := dim(keyID(3), Limits{QPS: 1})
	loose.CountOnly = true
	shadow := loose
	shadow.CountOnly, shadow.Shadow = false, true
	for name, c := range map[string]struct {
		a, b   Dim
		limit  int64 // requests let in at once
		shadow bool
	}{
		"two limits":       {wide, strict, 1, false},
		"limit and count":  {wide, loose, 5, false},
		"count and limit":  {loose, wide, 5, false},
		"limit and shadow": {wide, shadow, 5, false},
		"shadow and limit": {shadow, wide, 5, false},
		"count and shadow": {loose, shadow, 20, true},
	} {
		r := newRig(t, Options{})
		cl := claim(1, c.a, c.b)
		n := int64(0)
		for range 20 {
			if _, d, err := r.Reserve(ctx, cl); err != nil {
				t.Fatal(err)
			} else if d == nil {
				n++
			}
		}
		if n != c.limit || (len(cl.Shadowed) > 0) != c.shadow {
			t.Errorf("%s: %d let in, shadowed %v", name, n, cl.Shadowed)
		}
	}
}

// TestExtremeNumbers neither panic nor let anything wrap around.
func TestExtremeNumbers(t *testing.T) {
	for _, a := range []Algorithm{Sliding, Fixed, TokenBucket} {
		r := newRig(t, Options{Algorithms: map[Kind]Windows{Key: {QPS: a, TPM: a}}})
		r.LoadBalance(2, 1<<62, 0)
		for _, limit := range []int64{1, 1 << 61, 1<<63 - 1} {
			d := dim(keyID(3), Limits{QPS: limit, TPM: limit, Concurrency: limit})
			d.Burst, d.Cost = 1<<32-1, 1<<32-1
			c := claim(1<<62, d)
			c.Output, c.SoftOutput = 1<<62, true
			c.Money = Money{Price: llm.Price{Input: 1 << 60, Output: 1 << 60}, Billed: true, Balance: true, Overdraft: 1<<63 - 1}
			res, refused, err := r.Reserve(ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			if refused != nil && refused.RetryAfterMS < 0 {
				t.Fatalf("%s at %d: %+v", a, limit, refused)
			}
			r.clock.Advance(200 * 365 * 24 * time.Hour / 3)
			res.UsageKnown(llm.Usage{InputTokens: 1 << 62, OutputTokens: 1 << 61})
			res.Release()
		}
		if u := r.use(keyID(3)); u.TPM < 0 || u.TPMHeld != 0 || u.Concurrency != 0 || r.Open() != 0 {
			t.Fatalf("%s: %+v, %d open", a, u, r.Open())
		}
		if _, held := r.Balance(2); held != 0 {
			t.Fatalf("%s: %d held", a, held)
		}
	}
}

func TestOptionsValidate(t *testing.T) {
	err := Options{Algorithms: map[Kind]Windows{KeyModel: {TPM: "leaky"}}}.Validate()
	if err == nil || err.Error() != `algorithms.key+model.tpm: unknown algorithm "leaky": expected sliding, fixed or token_bucket` {
		t.Fatal(err)
	}
	if err := (Options{Algorithms: map[Kind]Windows{Key: {QPS: Fixed}}}).Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestReserveAllocatesNothing(t *testing.T) {
	r := newRig(t, Options{})
	r.Memory.journal = new(unrecorded)
	r.LoadBalance(2, 1<<60, 0)
	c := benchClaim(8)
	run := func() {
		res, d, err := r.Reserve(ctx, c)
		if d != nil || err != nil {
			t.Fatal(d, err)
		}
		res.Sent("c")
		res.Relayed(3)
		res.Commit(llm.Usage{InputTokens: 3}, true)
	}
	for range 20_000 { // let the logs reach their size
		run()
	}
	if n := testing.AllocsPerRun(1000, run); n > 0 {
		t.Fatalf("%v allocations", n)
	}
}
