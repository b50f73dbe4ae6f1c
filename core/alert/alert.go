package alert

import (
	"context"
	"log/slog"
	"math/bits"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Options say where alerts go. Without a URL there are none.
type Options struct {
	URL    string `yaml:"url"`    // http or https; alerts are POSTed to it
	Secret string `yaml:"secret"` // signs them; at least 16 characters
	At     []int  `yaml:"at"`     // percent of a budget's limit at which each period's alerts are sent, beside the budget's own; absent: 50, 80, 100; none: the budget's own only
}

// DefaultAt are the shares at which alerts are sent where nothing is said.
func DefaultAt() []int { return []int{50, 80, 100} }

const (
	minSecret = 16
	maxAt     = 16
	maxShare  = 1000
)

// Validate names what is wrong with the options by its field.
func (o Options) Validate() error {
	if len(o.At) > maxAt {
		return llm.Invalid("at", "at: %d shares; at most %d", len(o.At), maxAt)
	}
	for i, n := range o.At {
		if n < 1 || n > maxShare {
			return llm.Invalid("at", "at: expected percentages from 1 to %d, got %d", maxShare, n)
		}
		if slices.Contains(o.At[:i], n) {
			return llm.Invalid("at", "at: %d stands twice", n)
		}
	}
	if o.URL == "" {
		return nil
	}
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return llm.Invalid("url", "url: expected an address such as https://example.com/weir, got %q", o.URL)
	case nobodys(u.Hostname()):
		return llm.Invalid("url", "url: %s is no receiver's address; link-local and metadata addresses are never posted to", u.Hostname())
	case len(o.Secret) < minSecret:
		return llm.Invalid("secret", "secret: it has %d characters; at least %d are needed to sign alerts", len(o.Secret), minSecret)
	}
	return nil
}

// metadata are where clouds tell machines about themselves, beside the link-local addresses.
var metadata = [...]netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192")}

// nobodys tells addresses that no webhook has.
func nobodys(host string) bool {
	ip, err := netip.ParseAddr(host)
	ip = ip.WithZone("").Unmap()
	return err == nil && (ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || slices.Contains(metadata[:], ip))
}

// Parts are what a Sender needs of others; all are required.
type Parts struct {
	Clock    llm.Clock
	Log      *slog.Logger
	Currency string // "cny": in the names of amounts
	// Told makes durable how far a key's alerts have come in a period, for the Told of the next process.
	Told func(ctx context.Context, key uint64, label int32, percent int) error
}

// Spending is how a budget stands after a settlement.
type Spending struct {
	Org, User, Key uint64
	Name           string // of the key
	Window         llm.Window
	Label          int32 // its present period
	Limit          llm.Micro
	Used           llm.Micro
	Warn           int // a share of the budget's own, in percent; 0: none
	ResetsAt       time.Time
}

const maxQueue = 1024

// Sender sends alerts in the background. Safe for concurrent use; the zero value is not usable, a nil Sender ignores
// everything.
type Sender struct {
	o      Options
	p      Parts
	client *http.Client
	queue  chan notice
	stop   context.CancelFunc
	ending context.Context // of everything that is still done when life is over; Close bounds it
	over   context.CancelFunc
	done   chan struct{}
	sleep  func(context.Context, time.Duration) error
	counts struct{ delivered, failed, deferred atomic.Int64 }

	mu struct {
		sync.Mutex
		budgets map[budget]progress
		full    bool // the newest alert did not fit
	}
}

// budget names a key's budget of one window.
type budget struct {
	key    uint64
	window llm.Window
}

// progress is how far a budget's alerts have come in its newest period.
type progress struct {
	label int32
	fired int // the largest share that was queued, or told by a process before
}

// notice is one alert in the queue.
type notice struct {
	Spending
	share int
	at    time.Time
}

// New starts a Sender; nil when the options have no URL. They are taken as valid.
func New(o Options, p Parts) *Sender {
	if o.URL == "" {
		return nil
	}
	s := newSender(o, p)
	life, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.run(life)
	return s
}

func newSender(o Options, p Parts) *Sender {
	o.At = slices.Compact(slices.Sorted(slices.Values(o.At)))
	s := &Sender{o: o, p: p, queue: make(chan notice, maxQueue), done: make(chan struct{}), sleep: sleep,
		client: &http.Client{Timeout: postTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	s.ending, s.over = context.WithCancel(context.Background())
	s.mu.budgets = map[budget]progress{}
	return s
}

// Told says how far a key's alerts had come in a period when the process before ended. It is for the time before traffic.
func (s *Sender) Told(key uint64, label int32, percent int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.budgets[budget{key, llm.WindowOf(label)}] = progress{label, percent}
}

// Spent queues an alert for each share that the budget has newly reached. It does not block: what does not fit is left to
// the budget's next settlement, or the next start. A period that is over is past telling.
func (s *Sender) Spent(v Spending) {
	if s == nil || v.Limit <= 0 {
		return
	}
	share := shareOf(v.Used, v.Limit)
	if share < s.next(0, v.Warn) {
		return
	}
	b := budget{v.Key, v.Window}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.mu.budgets[b]
	if v.Label < p.label {
		return
	}
	if v.Label > p.label {
		p = progress{label: v.Label}
	}
	for at := s.next(p.fired, v.Warn); at <= share && s.enqueueLocked(v, at); at = s.next(p.fired, v.Warn) {
		p.fired = at
	}
	s.mu.budgets[b] = p
}

// next is the smallest share to tell beyond told, of the configured ones and the budget's own.
func (s *Sender) next(told, warn int) int {
	least := maxShare + 1
	for _, at := range s.o.At {
		if at > told {
			least = at
			break
		}
	}
	if warn > told {
		least = min(least, warn)
	}
	return least
}

// shareOf is used in percent of a limit, rounded down, at most maxShare.
func shareOf(used, limit llm.Micro) int {
	if used <= 0 || limit <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(used), 100)
	if hi >= uint64(limit) {
		return maxShare
	}
	q, _ := bits.Div64(hi, lo, uint64(limit))
	return int(min(q, maxShare))
}

func (s *Sender) enqueueLocked(v Spending, share int) bool {
	select {
	case s.queue <- notice{v, share, s.p.Clock.Wall()}:
		s.mu.full = false
		return true
	default:
	}
	s.counts.deferred.Add(1)
	if !s.mu.full {
		s.p.Log.Error("alerts wait for the next settlement: too many wait for the receiver", slog.Uint64("key", v.Key), slog.String("window", v.Window.String()), slog.Int("percent", share))
	}
	s.mu.full = true
	return false
}
