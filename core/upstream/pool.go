package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

const keepMargin = time.Second // an idle connection is given up so much before its peer says that it will

// lane is what the client keeps of one channel: where it is, its ready request heads, its connections, its health.
type lane struct {
	channel    Channel                 // as it was when the lane was made; a changed URL or credential makes a new lane
	latest     atomic.Pointer[Channel] // as the newest catalog has it
	site       site
	secret     secret
	heads      [llm.CountTokens + 1]opening
	tls        *tls.Config // nil for http
	trust      *tls.Config
	guard      guard
	via        *forward      // the proxy; nil: none
	viaErr     error         // why it cannot be told
	patience   time.Duration // to connect
	clock      llm.Clock
	pool       pool
	health     health
	gate       gate
	headerTime time.Duration
	dialer     net.Dialer
}

func newLane(ch *Channel, o *Options, clock llm.Clock, out *outside) *lane {
	s, _ := parseBase(ch.BaseURL) // the catalog has checked it
	l := &lane{channel: *ch, site: s, secret: newSecret(ch.Credential), clock: clock, dialer: out.dialer, trust: out.trust, guard: newGuard(ch, &s, o.Reach),
		patience:   time.Duration(o.ConnectTimeoutMS) * time.Millisecond,
		headerTime: time.Duration(o.HeaderTimeoutMS) * time.Millisecond}
	l.gate.init(o)
	l.follow(ch)
	l.pool.open, l.pool.keep = o.Connections, o.IdleConnections
	l.pool.expiry = time.Duration(o.IdleConnectionMS) * time.Millisecond
	l.via, l.viaErr = newForward(&s, out.proxy)
	if l.via != nil {
		l.guard.local = true // the proxy's own address is the environment's word
	}
	l.dialer.Control = l.guard.control(l.dialer.Control)
	for ep := llm.Chat; ep <= llm.CountTokens; ep++ {
		l.heads[ep] = requestOpening(ep, &l.channel, &s, l.via)
	}
	if s.secure {
		l.tls = out.trust.Clone()
		l.tls.ServerName = s.name
	}
	return l
}

// outside is how lanes reach the world.
type outside struct {
	trust  *tls.Config
	dialer net.Dialer
	proxy  func(*url.URL) (*url.URL, error) // of a URL; nil: none
}

func newOutside() outside {
	return outside{proxy: fromEnvironment,
		trust: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(64)}}
}

// serves reports that ch is still the channel the lane was made for.
func (l *lane) serves(ch *Channel) bool {
	return l.channel.BaseURL == ch.BaseURL && l.channel.Credential == ch.Credential && l.channel.Provider == ch.Provider &&
		l.channel.APIVersion == ch.APIVersion
}

// follow takes what a newer catalog says of the channel that the lane serves.
func (l *lane) follow(ch *Channel) {
	l.latest.Store(ch)
	l.gate.follow(ch.ConcurrencyLimit, ch.State == "disabled")
}

// close ends a lane that nobody will be given any more.
func (l *lane) close() {
	l.gate.follow(0, true)
	l.pool.close()
}

// refused: the channel answered, but not what was asked for. Where it has too much to do, less is sent from then on, or when
// it wakes.
func (l *lane) refused(t ticket, p *place, now time.Duration, v verdict) {
	v.crowd = v.status == 429 && !t.probe && l.gate.crowded(p)
	u := l.health.fail(t, now, v)
	if u == asleep && v.class.full() {
		l.gate.overloaded(now)
	}
	if v.crowd && u != alone {
		l.gate.thin(p, now)
	}
}

// take gives an idle connection that is still good, or a new one, with the deadline for sending and for the head set.
// fresh asks for a new one.
func (l *lane) take(r *reading, fresh bool) (c *conn, reused bool, err error) {
	for !fresh {
		c := l.pool.pop(l.clock.Mono())
		if c == nil {
			break
		}
		if l.arm(c); c.healthy() { // armed first: a deadline of its last use would make it look dead
			return c, true, nil
		}
		l.pool.drop(c)
	}
	if !l.pool.enter() {
		return nil, false, &fullError{l.channel.Name, l.pool.open}
	}
	ctx, end := r.waits(r.ctx)
	defer end()
	if c, err = l.dial(ctx); err != nil {
		l.pool.leave()
		return nil, false, err
	}
	l.arm(c)
	return c, false, nil
}

func (l *lane) arm(c *conn) { _ = c.sock.SetDeadline(l.clock.Wall().Add(l.headerTime)) }

func (l *lane) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	address := l.site.address
	if l.via != nil {
		address = l.via.address
	}
	if err := cmp.Or(l.viaErr, l.known()); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	sock, err := l.dialer.DialContext(ctx, "tcp", address)
	if shortage(err) {
		return nil, &shortError{err}
	}
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c, err := l.secure(ctx, sock)
	if err != nil {
		sock.Close()
		return nil, err
	}
	return newConn(sock, c), nil
}

// known checks an address that stands in the base URL before a proxy is asked for it; what a name leads to, only the proxy
// will know.
func (l *lane) known() error {
	if ip, err := netip.ParseAddr(l.site.name); err == nil && l.via != nil {
		g := newGuard(&l.channel, &l.site, l.guard.reach)
		return g.check(ip)
	}
	return nil
}

// secure is the conversation over sock: through the proxy, under TLS.
func (l *lane) secure(ctx context.Context, sock net.Conn) (net.Conn, error) {
	if l.via != nil {
		var err error
		if sock, err = l.via.reach(ctx, sock, &l.site, l.trust); err != nil {
			return nil, err
		}
	}
	if l.tls == nil {
		return sock, nil
	}
	secure := tls.Client(sock, l.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	if p := secure.ConnectionState().NegotiatedProtocol; p != "" && p != "http/1.1" {
		return nil, fmt.Errorf("TLS handshake: the server chose %q, not http/1.1", p)
	}
	return secure, nil
}

// Connect connects to a channel as calls do, through proxy and TLS, and tells where it arrived. It sends nothing.
func Connect(ctx context.Context, ch Channel, o Options, clock llm.Clock) (address string, err error) {
	if err := ch.check(); err != nil {
		return "", err
	}
	o, out := o.Defaults(), newOutside()
	l := newLane(&ch, &o, clock, &out)
	c, err := l.dial(ctx)
	if err != nil {
		return "", err
	}
	defer c.abort()
	if l.via != nil {
		return l.site.address + " through the proxy " + l.via.address, nil
	}
	return c.sock.RemoteAddr().String(), nil
}

// fullError says that a channel's connections are all in use. It is ours, not the channel's failure.
type fullError struct {
	channel string
	limit   int
}

func (e *fullError) Error() string {
	return fmt.Sprintf("channel %q: all %d connections are in use", e.channel, e.limit)
}

// shortError says that this machine lacks what a connection takes. It is ours too.
type shortError struct{ err error }

func (e *shortError) Error() string {
	return "connect: this machine is short of descriptors, ports or memory: " + e.err.Error()
}

func (e *shortError) Unwrap() error { return e.err }

// shortage tells a dial that failed for want of something here. What resolves names reports its failures as text alone.
func shortage(err error) bool {
	var lookup *net.DNSError
	named := errors.As(err, &lookup)
	for _, e := range [...]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, e) || named && strings.Contains(lookup.Err, e.Error()) {
			return true
		}
	}
	return false
}

// pool keeps one lane's idle connections, newest on top, and counts every open one. The counts change under mu; the
// connections themselves are closed outside of it.
type pool struct {
	open, keep int // limits
	expiry     time.Duration
	mu         struct {
		sync.Mutex
		idle   []*conn
		count  int // open: idle, in use, or being dialled
		closed bool
	}
}

func (p *pool) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.count >= p.open {
		return false
	}
	p.mu.count++
	return true
}

func (p *pool) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.count--
}

// pop takes the newest idle connection that has not expired.
func (p *pool) pop(now time.Duration) *conn {
	p.mu.Lock()
	n := len(p.mu.idle)
	if n == 0 {
		p.mu.Unlock()
		return nil
	}
	c := p.mu.idle[n-1]
	p.mu.idle[n-1] = nil
	p.mu.idle = p.mu.idle[:n-1]
	p.mu.Unlock()
	if now < c.dies {
		return c
	}
	p.drop(c)
	p.sweep(now) // the others are older still
	return nil
}

// put keeps c for reuse, or closes it when there are enough.
func (p *pool) put(c *conn, now time.Duration) {
	c.park()
	c.buf = nil // a larger one is not kept
	c.r, c.w, c.got, c.dies = 0, 0, false, now+p.lasts(c)
	p.mu.Lock()
	keep := !p.mu.closed && len(p.mu.idle) < p.keep
	if keep {
		p.mu.idle = append(p.mu.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		p.drop(c)
	}
}

// lasts is how long c may be kept: less than its peer does, so that it is not closed in the moment of its next use.
func (p *pool) lasts(c *conn) time.Duration {
	if c.keep == 0 {
		return p.expiry
	}
	return min(p.expiry, max(c.keep-keepMargin, c.keep/2))
}

// drop closes a connection that its caller owns.
func (p *pool) drop(c *conn) {
	c.abort()
	p.leave()
}

// sweep closes connections that were idle for too long; they are the oldest, at the bottom.
func (p *pool) sweep(now time.Duration) {
	var expired []*conn
	p.mu.Lock()
	n := 0
	for n < len(p.mu.idle) && now >= p.mu.idle[n].dies {
		n++
	}
	if n > 0 {
		expired = append(expired, p.mu.idle[:n]...)
		p.mu.idle = append(p.mu.idle[:0], p.mu.idle[n:]...)
	}
	p.mu.Unlock()
	for _, c := range expired {
		p.drop(c)
	}
}

// close drops what is idle; what is in use is dropped when it comes back.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.mu.idle
	p.mu.idle, p.mu.closed = nil, true
	p.mu.Unlock()
	for _, c := range idle {
		p.drop(c)
	}
}
