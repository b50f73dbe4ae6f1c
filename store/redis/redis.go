// Package redis keeps the rate windows that several gateways share on a Redis or Valkey server: limit.Shared.
//
// Each call is one Lua script, so it is atomic, and the clock is the server's. The scripts are core/limit's windows over
// again: the same slots, the same rules, to the microsecond. All keys of one script carry the same hash tag (the org of an
// order, the dimension of a loan), so a cluster serves them, too; every key expires once nothing of it counts any more.
//
// Nothing is sent twice, and nothing waits for a server that does not answer: as soon as a connection breaks, or several
// calls in a row come to their deadline, all calls fail at once with ErrDown until a ping of our own is answered. That is
// so for a cluster as a whole, too.
//
// Where this is not memory over again: times are whole microseconds; an exact log of requests stays exact beyond 10,000;
// amounts end at 2^50, and a token bucket is exact to rates of 10^11 per window, its waits to 10^8 (beyond, to 1 us); a
// window begins anew where nothing of it was charged for a minute after all of it was empty.
package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/weir-gateway/weir/core/limit"
)

// ErrDown says that the server does not answer; what it wraps besides says why.
var ErrDown = errors.New("the server of shared windows does not answer")

const (
	pingWait     = 500 * time.Millisecond // for the answer to a ping of our own
	pingKept     = 10_000                 // ms
	pingAgain    = 100 * time.Millisecond // between two of them while the server is down
	silence      = time.Second            // a connection that is silent for so long is tried, and given up after as long again
	lateCalls    = 32                     // so many deadlines in a row, and the server is down
	openCalls    = 2048                   // calls at a time
	ringScale    = 12                     // 4096 commands in flight on a connection, more than openCalls and lateCalls
	bufferBytes  = 64 << 10
	defaultTag   = "weir"
	maxExchanges = openCalls / 2
)

// Options configure Windows.
type Options struct {
	Algorithms map[limit.Kind]limit.Windows // all gateways must have the same
	Gateways   int                          // how many there are at most; no loan is more than half a gateway's share of what is free, unless it is needed. 0 is 1
	Prefix     string                       // of all keys; empty is "weir"
	Now        func() time.Time             // for tests; nil is the server's clock
}

// Windows implements limit.Shared. Safe for concurrent use.
type Windows struct {
	option rueidis.ClientOption
	prefix string
	rules  [256]kindRules
	share  int64
	now    func() time.Time
	calls  sync.Pool // of *call

	client atomic.Pointer[rueidis.Client] // nil before the first connection
	down   atomic.Bool
	cause  atomic.Pointer[error] // why it is down
	late   atomic.Int64          // calls that came to their deadline since the last answer
	open   atomic.Int64
	wake   chan struct{}
	stop   chan struct{}
	once   sync.Once
	done   sync.WaitGroup
}

var _ limit.Shared = (*Windows)(nil)

// Open prepares the windows on the server that a URL names: redis://user:password@host:port/db, rediss:// with TLS, more
// hosts of a cluster by comma or as addr=host:port in the query. A server that does not answer is no error: it is looked
// for until Close. An error means that the URL or an option is wrong.
func Open(url string, o Options) (*Windows, error) {
	option, err := parse(url)
	if err != nil {
		return nil, err
	}
	w := &Windows{option: option, prefix: o.Prefix, share: 2 * max(int64(o.Gateways), 1), now: o.Now,
		wake: make(chan struct{}, 1), stop: make(chan struct{})}
	if w.prefix == "" {
		w.prefix = defaultTag
	}
	if strings.ContainsAny(w.prefix, "{}") {
		return nil, fmt.Errorf("prefix %q: braces would change where the keys of a cluster are", o.Prefix)
	}
	if err := (limit.Options{Algorithms: o.Algorithms}).Validate(); err != nil {
		return nil, err
	}
	for k, a := range o.Algorithms {
		w.rules[k] = kindRules{ruleOf(a.QPS), ruleOf(a.TPM)}
	}
	w.calls.New = func() any { return new(call) }
	w.down.Store(true)
	w.connect()
	w.done.Add(1)
	go w.watch()
	return w, nil
}

// parse reads a URL. Hosts by comma are a convenience of ours.
func parse(at string) (rueidis.ClientOption, error) {
	scheme, rest, _ := strings.Cut(at, "://")
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	head := ""
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		head, authority = authority[:i+1], authority[i+1:]
	}
	hosts := strings.Split(authority, ",")
	o, err := rueidis.ParseURL(scheme + "://" + head + hosts[0] + tail)
	if err != nil {
		var bad *url.Error
		if errors.As(err, &bad) {
			err = bad.Err // the whole would show the password
		}
		return o, fmt.Errorf("%s:// is not the URL of a Redis server, as in redis://host:6379/0: %w", scheme, err)
	}
	for _, h := range hosts[1:] {
		if !strings.Contains(h, ":") {
			h += ":6379"
		}
		o.InitAddress = append(o.InitAddress, h)
	}
	o.DisableRetry, o.DisableCache, o.AlwaysPipelining = true, true, true
	o.PipelineMultiplex = -1 // one connection a node: an answer then tells that all before it have been answered
	o.RingScaleEachConn, o.ReadBufferEachConn, o.WriteBufferEachConn = ringScale, bufferBytes, bufferBytes
	o.ConnWriteTimeout, o.Dialer.KeepAlive, o.Dialer.Timeout = silence, silence, pingWait
	return o, nil
}

// Close ends all connections. Calls after it, or still on their way, fail.
func (w *Windows) Close() {
	w.once.Do(func() {
		w.down.Store(true)
		close(w.stop)
	})
	w.done.Wait()
	if c := w.client.Load(); c != nil {
		(*c).Close()
	}
}

// Ping implements limit.Shared. It writes, since a server that has no memory left, or is a replica, answers and counts nothing.
func (w *Windows) Ping(ctx context.Context) error {
	c, err := w.enter()
	if err != nil {
		return err
	}
	defer w.open.Add(-1)
	return w.judge(c.Do(ctx, c.B().Set().Key(w.prefix+":ping").Value("").PxMilliseconds(pingKept).Build()).Error())
}

// enter gives a call the client, unless the server is down.
func (w *Windows) enter() (rueidis.Client, error) {
	if w.down.Load() {
		if cause := w.cause.Load(); cause != nil {
			return nil, *cause
		}
		return nil, ErrDown
	}
	if w.open.Add(1) > openCalls {
		w.open.Add(-1)
		return nil, fmt.Errorf("%w: %d calls are waiting", ErrDown, openCalls)
	}
	return *w.client.Load(), nil
}

// judge looks at what became of a call: the server's own word is an answer, whatever it says.
func (w *Windows) judge(err error) error {
	_, answered := rueidis.IsRedisErr(err)
	switch {
	case err == nil || answered:
		if w.late.Load() != 0 {
			w.late.Store(0)
		}
	case errors.Is(err, context.Canceled):
	case errors.Is(err, context.DeadlineExceeded):
		if w.late.Add(1) >= lateCalls {
			w.fall(err)
		}
	default:
		w.fall(err)
	}
	return err
}

// fall makes all calls fail from here on, until a ping is answered.
func (w *Windows) fall(err error) {
	cause := fmt.Errorf("%w: %w", ErrDown, err)
	w.cause.Store(&cause)
	if w.down.CompareAndSwap(false, true) {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// watch looks for the server as long as it is down.
func (w *Windows) watch() {
	defer w.done.Done()
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		for w.down.Load() && !w.connect() {
			again.Reset(pingAgain)
			select {
			case <-w.stop:
				return
			case <-again.C:
			}
		}
		select {
		case <-w.stop:
			return
		case <-w.wake:
		}
	}
}

// connect tells whether the server answers a ping, and knows the scripts from now on.
func (w *Windows) connect() bool {
	c := w.client.Load()
	if c == nil {
		made, err := rueidis.NewClient(w.option)
		if err != nil {
			cause := fmt.Errorf("%w: %w", ErrDown, err)
			w.cause.Store(&cause)
			return false
		}
		c = &made
		w.client.Store(c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), pingWait)
	defer cancel()
	answered := false
	for _, node := range (*c).Nodes() { // of a cluster, one that answers will do: it knows where the others have gone
		err := w.teach(ctx, node)
		if err != nil {
			cause := fmt.Errorf("%w: %w", ErrDown, err)
			w.cause.Store(&cause)
		}
		answered = answered || err == nil
	}
	select {
	case <-w.stop:
		return false
	default:
	}
	if !answered {
		return false
	}
	w.late.Store(0)
	w.down.Store(false)
	return true
}

// teach tells a node the scripts. What it has to say against them is an answer, too.
func (w *Windows) teach(ctx context.Context, node rueidis.Client) error {
	for _, s := range scripts() {
		err := node.Do(ctx, node.B().ScriptLoad().Script(s.text).Build()).Error()
		if _, answered := rueidis.IsRedisErr(err); err != nil && !answered {
			return err
		}
	}
	return nil
}
