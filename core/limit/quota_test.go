package limit

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// windows are the periods of a day in all three windows, with a limit for each.
func windows(month, week, day llm.Micro) [llm.Windows]Quota {
	return [llm.Windows]Quota{
		llm.Month: {Label: 202611, Limit: month, ResetsAt: time.Unix(30, 0)},
		llm.Week:  {Window: llm.Week, Label: 2026334, Limit: week, ResetsAt: time.Unix(20, 0)},
		llm.Day:   {Window: llm.Day, Label: 20261130, Limit: day, ResetsAt: time.Unix(10, 0)},
	}
}

// Each window refuses for itself, the longest is reported first, and a refusal leaves no trace in the others.
func TestQuotaOfEachWindow(t *testing.T) {
	for _, x := range []struct {
		month, week, day llm.Micro
		window           llm.Window
		limit            int64
	}{
		{250, 1000, 1000, llm.Month, 250},
		{1000, 250, 1000, llm.Week, 250},
		{1000, 1000, 250, llm.Day, 250},
		{1000, 240, 250, llm.Week, 240},
		{200, 240, 250, llm.Month, 200},
		{1000, 1000, 0, llm.Day, 0},
	} {
		r := newRig(t, Options{})
		c := claim(10)
		c.Money = Money{Price: llm.Price{Request: 100}, Billed: true, Quotas: windows(x.month, x.week, x.day)}
		if x.day > 0 {
			r.admit(c).Commit(llm.Usage{}, true)
			r.admit(c)
		}
		d := r.refuse(c)
		if d.Axis != AxisQuota || d.Window != x.window || d.Limit != x.limit || d.ResetsAt != c.Money.Quotas[x.window].ResetsAt {
			t.Errorf("%+v: %+v", x, d)
		}
		for _, q := range c.Money.Quotas {
			used, held := r.Quota(3, q.Label)
			if want := min(x.day, 1) * 100; used != want || held != want {
				t.Errorf("%+v: %d used and %d held in %d", x, used, held, q.Label)
			}
		}
	}
}

// All three are held, raised by what is owed beyond the hold, and settled together, each at the label of the reserve.
func TestWindowsSettleTogether(t *testing.T) {
	r := newRig(t, Options{})
	c := claim(10)
	c.Output = 100
	c.Money = Money{Price: llm.Price{Output: 1_000_000}, Billed: true, Overrun: Debt, Quotas: windows(1000, 1000, 1000)}
	res := r.admit(c)
	c.Money.Quotas[llm.Day].Label = 20261201
	r.admit(c).Release()
	if d, err := res.Extend(ctx, nil, 50); d != nil || err != nil {
		t.Fatal(d, err)
	}
	res.Sent("c")
	res.UsageKnown(llm.Usage{OutputTokens: 700})
	check := func(used, held llm.Micro) {
		t.Helper()
		for _, label := range []int32{202611, 2026334, 20261130} {
			if u, h := r.Quota(3, label); u != used || h != held {
				t.Errorf("%d: %d used, %d held; expected %d and %d", label, u, h, used, held)
			}
		}
	}
	check(0, 700)
	if e := r.journal.all()[0]; e.Labels() != [...]int32{202611, 2026334, 20261130} {
		t.Errorf("recorded %v", e.Labels())
	}
	res.Commit(llm.Usage{OutputTokens: 600}, true)
	check(600, 0)
	if u, h := r.Quota(3, 20261201); u != 0 || h != 0 {
		t.Errorf("the next day has %d used, %d held", u, h)
	}
}

// A day's quota leaves memory two months after it was last asked for, and not while something is open on it.
func TestPastDaysLeaveMemory(t *testing.T) {
	r := newRig(t, Options{})
	c := claim(10)
	c.Money = Money{Price: llm.Price{Request: 100}, Billed: true, Quotas: windows(1000, 1000, 1000)}
	res := r.admit(c)
	left := func() (n int) {
		r.sweep()
		for _, q := range c.Money.Quotas {
			if used, held := r.Quota(3, q.Label); used+held > 0 {
				n++
			}
		}
		return n
	}
	r.clock.Advance(pastAfter + time.Minute)
	res.Sent("c")
	if n := left(); n != 3 {
		t.Errorf("%d quotas are left of three that are open", n)
	}
	res.Commit(llm.Usage{}, true)
	r.clock.Advance(pastAfter)
	if n := left(); n != 3 {
		t.Errorf("%d quotas are left before their time", n)
	}
	r.clock.Advance(time.Minute)
	if used, _ := r.Quota(3, 202611); left() != 1 || used != 100 {
		t.Errorf("%d quotas are left, the month has %d", left(), used)
	}
}

// M01 with three windows: whichever is the smallest, exactly what it pays for is admitted, however many ask at once.
func TestM01WindowsAreReservedAtomically(t *testing.T) {
	for w := range llm.Window(llm.Windows) {
		r := newRig(t, Options{})
		q := windows(5000, 5000, 5000)
		q[w].Limit = 1000
		var wg sync.WaitGroup
		var mu sync.Mutex
		answers := map[string]int{}
		for range 50 {
			wg.Go(func() {
				c := claim(10)
				c.Money = Money{Price: llm.Price{Request: 100}, Billed: true, Quotas: q}
				_, d, err := r.Reserve(ctx, c)
				answer := fmt.Sprint("admitted", err)
				if d != nil {
					answer = d.Window.String()
				}
				mu.Lock()
				answers[answer]++
				mu.Unlock()
			})
		}
		wg.Wait()
		if len(answers) != 2 || answers["admitted<nil>"] != 10 || answers[w.String()] != 40 {
			t.Errorf("%s: %v", w, answers)
		}
	}
}
