package limit

import (
	"math"
	"time"
)

// gauge is one rate of a dimension: requests (QPS) or tokens (TPM). long keeps ten windows, coarsely, and exists
// only under the sliding rule and only once a request came with a burst: the promise for ten windows counts from
// there, and a meter that never sees a burst pays nothing for it.
type gauge struct {
	short window
	long  *window
}

// bound is what one request tests a gauge against.
type bound struct {
	limit int64 // the effective limit, before burst
	most  int64 // in one window; 0: unlimited
	ten   int64 // in ten windows; 0: not tested
	rate  int64 // what a token bucket drains per window
}

// terms are the bounds of one ask.
type terms struct {
	qps, tpm    bound
	concurrency int64
}

// post is a charge that may still be adjusted: where it went, and how much of it.
type post struct {
	short, long uint64
	lent        uint64 // the loan it was spent from
	n           int64
}

const (
	qpsSpan = time.Second
	tpmSpan = time.Minute
)

func newQPS(r rule) gauge {
	width := time.Duration(0)
	if r == ruleBucket {
		width = qpsSpan
	}
	return gauge{short: newWindow(r, qpsSpan, width)}
}

func newTPM(r rule) gauge { return gauge{short: newWindow(r, tpmSpan, time.Second)} }

// boundOf is the bound that a limit with a burst comes to under the gauge's rule. A fixed bucket has no burst: it
// would be a raise.
func (g *gauge) boundOf(effective, configured int64, burst uint32) bound {
	if effective <= 0 {
		return bound{rate: max(configured, 0)}
	}
	b := bound{limit: effective, most: Scale(effective, burst), rate: configured}
	if configured <= 0 {
		b.rate = effective
	}
	switch g.short.rule {
	case ruleFixed:
		b.most = min(b.most, effective)
	case ruleSliding:
		if b.most > effective {
			b.ten = tenTimes(effective)
			b.most = min(b.most, b.ten)
		}
	}
	return b
}

func tenTimes(n int64) int64 {
	if n > 1<<59 {
		return 1<<63 - 1
	}
	return 10 * n
}

// left is how much more stays within b; negative where more is in use than b lets in.
func (g *gauge) left(now time.Duration, b bound) int64 {
	if b.most == 0 {
		return math.MaxInt64
	}
	n := b.most - g.short.level(now, b.rate)
	if b.ten > 0 && g.long != nil {
		n = min(n, b.ten-g.long.level(now, 0))
	}
	return n
}

// overrun explains why n more do not fit: the limit that was hit, what is in use, and how long to wait.
// Ten windows are reported as their mean, beside the limit of one.
func (g *gauge) overrun(now time.Duration, b bound, n int64) (limit, current int64, wait time.Duration) {
	limit, current = b.most, g.short.level(now, b.rate)
	if n > b.most {
		return limit, current, g.short.span
	}
	wait = g.short.wait(now, b.rate, b.most-n)
	if b.ten > 0 && g.long != nil {
		if long := g.long.wait(now, 0, b.ten-n); long > 0 {
			if wait == 0 {
				limit, current = b.limit, g.long.level(now, 0)/10
			}
			wait = max(wait, long)
		}
	}
	return limit, current, wait
}

// whole is how long until nothing is in use, if nobody else is admitted.
func (g *gauge) whole(now time.Duration, rate int64) time.Duration {
	w := &g.short
	if w.rule == ruleSliding && w.n > 0 { // the newest slot is the last to go
		return w.at(w.head+w.n-1).last + w.span - now
	}
	return w.wait(now, rate, 0)
}

// charge adds n at now. Nothing charged needs no slot.
func (g *gauge) charge(now time.Duration, b bound, n int64, held bool) post {
	if n <= 0 {
		return post{}
	}
	if b.ten > 0 && g.long == nil {
		g.remember(now)
	}
	p := post{short: g.short.add(now, b.rate, n, held), n: n}
	if g.long != nil {
		p.long = g.long.add(now, 0, n, false)
	}
	return p
}

// remember starts the history of ten windows with what the present one still knows.
func (g *gauge) remember(now time.Duration) {
	w := newWindow(ruleSliding, 10*g.short.span, g.short.span/10)
	g.short.settleTo(now, 0)
	for id := g.short.head; id < g.short.head+g.short.n; id++ {
		s := g.short.at(id)
		w.add(s.last, 0, s.used, false)
	}
	g.long = &w
}

// settle makes a post's tokens used for good and takes back of them out again, where it was made, if that slot lives.
func (g *gauge) settle(now time.Duration, rate int64, p post, back int64) {
	if p.n <= 0 {
		return
	}
	g.short.settleTo(now, rate)
	g.short.settle(p.short, p.n, back)
	if g.long != nil && back > 0 {
		g.long.settleTo(now, 0)
		g.long.settle(p.long, 0, back)
	}
}

// gone tells whether nothing of a post can be taken back any more.
func (g *gauge) gone(p post) bool {
	return !g.short.lives(p.short) && (g.long == nil || !g.long.lives(p.long))
}

// idle tells whether nothing of any charge is left.
func (g *gauge) idle(now time.Duration) bool {
	if g.short.level(now, g.short.rate) > 0 {
		return false
	}
	return g.long == nil || g.long.level(now, 0) == 0
}
