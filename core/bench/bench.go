package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/load"
)

// Options say how long to measure, and bring what this package may not reach itself.
type Options struct {
	Rounds  int
	Seconds float64 // of each lap; below 1 there are also fewer streams and keys
	Growth  bool    // measure how costs grow, too: minutes, and about 4 GB of memory
	Self    string  // the weir binary
	Open    func(dir string) (ledger.Store, error)
	Clock   llm.Clock
	Random  io.Reader
	Tell    func(what string) // is told what is going on; nil: nobody
}

// What is driven.
const (
	connections = 64
	rate        = 500  // requests a second, where what is added to an answer's time is measured
	bodyBytes   = 1000 // of a chat
)

// MaxSeconds is the longest that a lap may be.
const MaxSeconds = 3600

// The kinds of lap.
const (
	buffered = "buffered"
	streamed = "streamed"
	atRate   = "rate"
	delay    = "delay"
)

// What a good answer ends with.
const (
	bufferedEnd = "}"
	streamedEnd = "data: [DONE]\n\n"
)

// bench is one run.
type bench struct {
	Options
	ctx      context.Context
	dir      string // of everything that is written; removed at the end
	looked   int    // ports that free looked at
	children []*child
	sim      *child
	paced    *paced
	result   *Result

	used, ours, elapsed time.Duration // over all laps: CPU of everybody, and of this process and its children
}

// target is one of those that are compared.
type target struct {
	name    string
	address string // host:port
	paced   string // the same, for streams whose upstream is in this process; empty: it takes no part in those
	key     string
	pid     int // whose CPU time is counted
}

// Run measures. It starts everything it needs in a temporary folder, on the loopback, and leaves nothing behind. A run that
// ctx cuts is an error; one that says nothing is not: Result.Void tells why.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Rounds < 1 || !(o.Seconds > 0 && o.Seconds <= MaxSeconds) {
		return nil, fmt.Errorf("rounds (%d) are at least 1, and seconds (%g) more than 0 and at most %d", o.Rounds, o.Seconds, MaxSeconds)
	}
	if o.Tell == nil {
		o.Tell = func(string) {}
	}
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{Options: o, ctx: ctx, dir: dir, result: newResult(o)}
	defer b.close()
	for _, step := range []func() error{b.compare, b.remember, b.components, b.grow} {
		err := step()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
	}
	if b.elapsed > 0 {
		b.result.Others = max(float64(b.used-b.ours)/float64(b.elapsed), 0)
	}
	b.result.judge()
	return b.result, nil
}

func (b *bench) close() {
	b.stopFrom(0)
	if b.paced != nil {
		b.paced.close()
	}
	_ = os.RemoveAll(b.dir)
}

// stopFrom ends the processes, those that ask before those that answer, but the first n; the first of all is the simulation.
func (b *bench) stopFrom(n int) {
	for i := len(b.children) - 1; i >= n; i-- {
		b.children[i].stop()
	}
	b.children = b.children[:min(n, len(b.children))]
}

// compare starts the targets and gives each a lap of every kind in every round.
func (b *bench) compare() error {
	targets, err := b.targets()
	if err != nil {
		return err
	}
	for _, t := range targets { // pools fill and code is touched before anything counts
		if _, err := b.lap(t, course(t, b.seconds()/4, false)); err != nil {
			return err
		}
	}
	for round := range b.Rounds {
		for i := range targets {
			t := targets[(round+i)%len(targets)]
			b.Tell(fmt.Sprintf("round %d of %d: %s", round+1, b.Rounds, t.name))
			if err := b.round(t); err != nil {
				return err
			}
		}
	}
	b.keepLoaded(targets)
	b.stopFrom(1)
	return nil
}

// targets starts everything that is compared.
func (b *bench) targets() (all []target, err error) {
	b.Tell("starting the upstream, the proxies and the gateways")
	if err := b.upstreams(); err != nil {
		return nil, err
	}
	all = append(all, target{name: direct, address: b.sim.address, paced: b.paced.address(), pid: b.sim.pid()})
	proxy, err := b.startNginx(b.sim.address)
	switch {
	case err != nil:
		b.result.note("nginx did not start: %v", err)
	case proxy == nil:
		b.result.note("nginx is not installed: there is nothing to hold the bare proxy against")
	default:
		all = append(all, target{name: nginx, address: proxy.address, pid: proxy.pid()})
	}
	plain, err := b.startBare(b.sim.address)
	if err != nil {
		return nil, err
	}
	pacedBare, err := b.startBare(b.paced.address())
	if err != nil {
		return nil, err
	}
	all = append(all, target{name: bare, address: plain.address, paced: pacedBare.address, pid: plain.pid()})
	for _, durability := range []string{process, power} {
		g, err := b.openGateway(durability)
		if err != nil {
			return nil, err
		}
		all = append(all, target{name: durability, address: g.address, paced: g.address, key: g.key, pid: g.pid()})
	}
	return all, nil
}

// upstreams starts both.
func (b *bench) upstreams() (err error) {
	if b.sim, err = b.startSim(); err != nil {
		return err
	}
	address, err := b.free()
	if err != nil {
		return err
	}
	b.paced, err = newPaced(address, b.Clock)
	return err
}

// round gives one target its lap of each kind.
func (b *bench) round(t target) error {
	if err := b.measure(buffered, t, course(t, b.seconds(), false)); err != nil {
		return err
	}
	if err := b.measure(streamed, t, course(t, b.seconds(), true)); err != nil {
		return err
	}
	paced := course(t, b.seconds(), false)
	paced.Rate = rate
	if err := b.measure(atRate, t, paced); err != nil || t.paced == "" {
		return err
	}
	seen, err := b.paced.follow(b.ctx, t, b.seconds())
	if err != nil {
		return err
	}
	b.result.add(delay, t.name, Figures{"first_us": micros(middle(seen.first)), "event_us": micros(middle(seen.event))})
	return nil
}

func (b *bench) seconds() time.Duration { return time.Duration(b.Seconds * float64(time.Second)) }

// course is a lap at a target, as fast as answers come.
func course(t target, d time.Duration, stream bool) load.Course {
	c := load.Course{Address: t.address, Body: chat(model, bodyBytes, stream), End: []byte(bufferedEnd), Connections: connections, For: d}
	if t.key != "" {
		c.Keys = []string{t.key}
	}
	if stream {
		c.End = []byte(streamedEnd)
	}
	return c
}

// measure gives a target one lap and notes what it came to.
func (b *bench) measure(kind string, t target, c load.Course) error {
	f, err := b.lap(t, c)
	if err == nil {
		b.result.add(kind, t.name, f)
	}
	return err
}

// lap drives, with an eye on everybody's CPU time.
func (b *bench) lap(t target, c load.Course) (Figures, error) {
	before, from := takeSample(), b.Clock.Mono()
	l, err := load.Drive(b.ctx, c, b.Clock)
	if err != nil {
		return nil, fmt.Errorf("driving %s: %w", t.name, err)
	}
	took, after := b.Clock.Mono()-from, takeSample()
	b.elapsed += took
	b.used += after.used(&before)
	b.ours += after.tree(os.Getpid()) - before.tree(os.Getpid())
	if l.Failed > 0 {
		b.result.fail(l.Failed, t.name, l.FirstError)
	}
	if l.Answers == 0 {
		return nil, fmt.Errorf("%s gave no good answer in %v: %s", t.name, took, l.FirstError)
	}
	f := Figures{"rps": float64(l.Answers) / l.Took.Seconds(), "p50_us": micros(l.Percentile(50)), "p99_us": micros(l.Percentile(99))}
	if spent := after.tree(t.pid) - before.tree(t.pid); spent > 0 {
		f["cpu_us"] = micros(spent) / float64(l.Answers)
	}
	return f, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// middle is the median of sorted durations; 0 when there are none.
func middle(sorted []time.Duration) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}

func newResult(o Options) *Result {
	return &Result{Rounds: o.Rounds, Seconds: o.Seconds, Connections: connections,
		Machine: Machine{Cores: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version()},
		Laps:    map[string]map[string][]Figures{}, Memory: Figures{}}
}
