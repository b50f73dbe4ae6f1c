package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

var errCrowded = errors.New("too many large requests are being read")

const (
	// strangerBytes is what is read of a body before the key is known, and what each request may occupy beside the budget.
	strangerBytes = 64 << 10

	lingerTime  = 5 * time.Second
	lingerBytes = 256 << 20
	writeBytes  = 16 << 10 // written under one deadline

	backlogBytes = 64 << 10 // of an answer that the system holds unsent

	openingBytes = len("POST /v1/messages")
	arrivalBytes = 16 << 10
)

// conns are the open client connections: bounded, so that a flood waits in the kernel and not in memory, and known,
// so that Shutdown can cut what does not drain. Deadlines of sockets are real time whatever clock windows run on.
//
// While a client waits for room, answers close their connections, and the one that has been idle longest is closed:
// clients that keep connections and ask nothing must not lock out those that ask. Idle is a connection whose reader waits
// for the first byte of a request; its state word changes by CAS, so that a request that begins to arrive is either
// served or finds its connection closed.
type conns struct {
	clock        *llm.SystemClock
	writeTimeout time.Duration
	headTimeout  time.Duration
	readBuffer   int // of fasthttp, for one connection
	log          *slog.Logger
	budget       atomic.Int64  // bytes that requests may still occupy, beyond strangerBytes each
	short        atomic.Bool   // the system lets no connection be accepted: the listener waits
	room         chan struct{} // one token per open connection
	waiting      atomic.Int32  // clients that are accepted and wait for room

	mu struct {
		sync.Mutex
		open map[*conn]struct{}
		idle chan struct{} // closed when the last connection is gone; nil unless somebody waits
	}
}

func newConns(o Options, log *slog.Logger) *conns {
	cs := &conns{clock: llm.NewSystemClock(), writeTimeout: time.Duration(o.WriteTimeoutMS) * time.Millisecond, headTimeout: time.Duration(o.HeadTimeoutMS) * time.Millisecond, readBuffer: o.HeaderBytes, log: log, room: make(chan struct{}, o.Connections)}
	cs.budget.Store(o.BodiesBytes)
	cs.mu.open = map[*conn]struct{}{}
	return cs
}

// listener accepts connections as conns.
type listener struct {
	net.Listener
	conns *conns
	done  chan struct{}
	once  sync.Once
}

// Accept implements net.Listener. A shortage of the system's passes: it is waited for, as fasthttp would take any error
// for the end of the listener.
func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	told := false
	for wait := acceptFirst; err != nil; wait = min(2*wait, acceptMost) {
		if !passing(err) {
			return nil, err
		}
		if !told && !leftAtOnce(err) {
			told = true
			l.conns.log.Error("no connection can be accepted: the system is short of descriptors or memory", slog.Any("error", err))
		}
		if !l.conns.spare(err, wait, l.done) {
			return nil, err
		}
		nc, err = l.Listener.Accept()
	}
	if told {
		l.conns.log.Info("connections are accepted again")
	}
	if !l.conns.enter(l.done) {
		_ = nc.Close()
		return nil, net.ErrClosed
	}
	return l.conns.add(nc), nil
}

// The first and the longest wait for a shortage to pass.
const (
	acceptFirst = 5 * time.Millisecond
	acceptMost  = time.Second
)

// passing tells a shortage of descriptors or memory, or a client that left at once, from the end of a listener.
func passing(err error) bool {
	for _, e := range [...]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR, syscall.EPROTO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// leftAtOnce tells an accept that failed for reasons of its client.
func leftAtOnce(err error) bool {
	return errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.EPROTO)
}

// spare waits for a shortage to pass, and helps: the connection that has been idle longest is closed. False when done
// closes first.
func (cs *conns) spare(err error, wait time.Duration, done <-chan struct{}) bool {
	if !leftAtOnce(err) {
		cs.short.Store(true)
		defer cs.short.Store(false) // whether it has passed, the next accept finds out
		cs.closeIdle()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}

// idleFor is how long a connection must have been idle to be closed for another: a client that is about to ask again
// on it is spared.
const idleFor = 100 * time.Millisecond

// enter takes room for one connection; false when done closes first.
func (cs *conns) enter(done <-chan struct{}) bool {
	select {
	case cs.room <- struct{}{}:
		return true
	default:
	}
	cs.waiting.Add(1)
	defer cs.waiting.Add(-1)
	look := time.NewTicker(idleFor / 2)
	defer look.Stop()
	for {
		cs.closeIdle()
		select {
		case cs.room <- struct{}{}:
			return true
		case <-done:
			return false
		case <-look.C:
		}
	}
}

// crowded tells whether a client waits for room.
func (cs *conns) crowded() bool { return cs.waiting.Load() > 0 }

// closeIdle closes the connection that has been idle longest, if there is one. Its reader lets go of it.
func (cs *conns) closeIdle() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var longest *conn
	since := int64(cs.clock.Mono() - idleFor)
	for c := range cs.mu.open {
		if at := c.idle.Load(); at > 0 && at <= since {
			longest, since = c, at
		}
	}
	if longest != nil && longest.idle.CompareAndSwap(since, connClosed) {
		_ = longest.socket.Close()
	}
}

// The states of conn.idle, beside the time since when it is idle.
const (
	connBusy   = 0
	connClosed = -1 // for another
)

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// conn is one client connection. It gives each write its own deadline (fasthttp has one for a whole response), ends
// politely after an answer that left a request body unread, and lends its socket to the watcher.
type conn struct {
	net.Conn
	conns  *conns
	socket net.Conn        // Conn without its TLS
	raw    syscall.RawConn // of the socket; nil: the connection cannot be watched
	addr   netip.Addr      // zero: not an IP connection
	ip     string          // addr as text, for policies and logs
	ipName string          // addr as a dimension
	linger atomic.Bool     // Close first lets the client read the answer
	gone   atomic.Bool     // Close was called
	call   atomic.Pointer[call]
	idle   atomic.Int64 // Mono since when its reader waits for a request, or one of the states

	// Of the goroutine that serves the connection:
	shaken  bool // the handshake of TLS has been tried
	begun   bool // a request has begun to arrive
	starved bool // the budget was spent
	opening [openingBytes]byte
	box     *[arrivalBytes]byte   // what had arrived when the request began
	ahead   []byte                // of it, what fasthttp has not read yet
	arrive  func(fd uintptr) bool // arrived, bound once
	got     int                   // its outcome
	failed  error
	size    int64     // bytes of it that were read
	charged int64     // of them, to the budget of all
	since   time.Time // it was not whole; zero: it has been
	until   time.Time // fasthttp's deadline for all of it; zero: none
}

func (cs *conns) add(nc net.Conn) *conn {
	socket := beneath(nc)
	c := &conn{Conn: nc, conns: cs, socket: socket, raw: rawConn(socket)}
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		c.addr = a.AddrPort().Addr().Unmap()
		c.ip, c.ipName = c.addr.String(), limit.IPName(c.addr)
	}
	c.arrive = c.arrived
	if c.raw != nil && c.addr.IsValid() {
		boundBacklog(c.raw)
	}
	cs.mu.Lock()
	cs.mu.open[c] = struct{}{}
	cs.mu.Unlock()
	return c
}

// beneath is the socket under TLS. To close it is the end of a connection that nobody is to be told of: a farewell under
// TLS could wait for a client that does not read.
func beneath(nc net.Conn) net.Conn {
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return nc
}

func rawConn(nc net.Conn) syscall.RawConn {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// Read implements net.Conn. fasthttp asks for a request's first byte alone, and takes a buffer for the rest only then, so
// that nobody who is silent, or is only told a stream, occupies one. With that byte comes all that has arrived, and is kept
// ahead. How the request begins is remembered: when one is too large to be read, fasthttp has forgotten its path by the time
// it asks for an answer.
func (c *conn) Read(p []byte) (n int, err error) {
	if !c.begun && len(p) == 1 && len(c.ahead) == 0 {
		return c.begin(p)
	}
	c.begun = true                                       // maybe by bytes that came with the request before
	if len(p) > c.conns.readBuffer && !c.claim(len(p)) { // a body's own buffer
		return 0, errCrowded
	}
	switch {
	case len(c.ahead) > 0:
		n = c.giveAhead(p)
	default:
		if err := c.pace(); err != nil {
			return 0, err
		}
		n, err = c.Conn.Read(p)
	}
	if !c.charge(n) {
		return 0, errCrowded
	}
	return n, err
}

// begin waits for a request.
func (c *conn) begin(p []byte) (int, error) {
	since := max(int64(c.conns.clock.Mono()), 1)
	c.idle.Store(since)
	n, err := c.arrival()
	if !c.idle.CompareAndSwap(since, connBusy) {
		return 0, net.ErrClosed
	}
	if n > 0 {
		c.begun = true
		c.opening = [openingBytes]byte{}
		copy(c.opening[:], c.box[:n])
		c.ahead = c.box[:n]
		n = c.giveAhead(p)
	} else if c.box != nil {
		c.unbox()
	}
	if wrong, ok := errors.AsType[tls.RecordHeaderError](err); ok && wrong.Conn != nil {
		c.refusePlain(wrong.RecordHeader[:])
	}
	return n, err
}

// arrivals are buffers for what has arrived when a request begins. They are held from there until fasthttp has read it.
var arrivals = sync.Pool{New: func() any { return new([arrivalBytes]byte) }}

// arrival reads what there is into a box, once there is something.
func (c *conn) arrival() (int, error) {
	if err := c.shake(); err != nil {
		return 0, err
	}
	if err := c.Conn.SetReadDeadline(c.until); err != nil {
		return 0, err
	}
	if !parks || c.raw == nil || c.Conn != c.socket { // what TLS has read is in a buffer of its own
		c.box = arrivals.Get().(*[arrivalBytes]byte)
		return c.Conn.Read(c.box[:])
	}
	if err := c.raw.Read(c.arrive); err != nil {
		return 0, err
	}
	if c.got == 0 && c.failed == nil {
		return 0, io.EOF
	}
	return c.got, c.failed
}

// arrived reads from a socket, and takes a box for it only when there is something to read.
func (c *conn) arrived(fd uintptr) bool {
	c.box = arrivals.Get().(*[arrivalBytes]byte)
	var again bool
	if c.got, again, c.failed = readNow(int(fd), c.box[:]); again {
		c.unbox()
	}
	return !again
}

func (c *conn) giveAhead(p []byte) int {
	n := copy(p, c.ahead)
	if c.ahead = c.ahead[n:]; len(c.ahead) == 0 {
		c.unbox()
	}
	return n
}

func (c *conn) unbox() {
	llm.Mangle(c.box[:])
	arrivals.Put(c.box)
	c.box, c.ahead = nil, nil
}

// shake does the handshake of TLS, in the time that a request's head has.
func (c *conn) shake() error {
	t, ok := c.Conn.(*tls.Conn)
	if !ok || c.shaken {
		return nil
	}
	c.shaken = true
	due := c.conns.clock.Wall().Add(c.conns.headTimeout)
	if !c.until.IsZero() && c.until.Before(due) {
		due = c.until
	}
	if err := t.SetDeadline(due); err != nil {
		return err
	}
	return t.Handshake()
}

const plainRefusal = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" +
	`{"error":{"type":"invalid_request_error","code":"tls_required","message":"this port speaks TLS; the base URL begins with https://"}}` + "\n"

// refusePlain tells a client that begins to speak plain HTTP, where TLS is spoken, what is wrong.
func (c *conn) refusePlain(opening []byte) {
	for _, method := range [...]string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET"} {
		if string(opening) == method && c.socket.SetWriteDeadline(c.conns.clock.Wall().Add(c.conns.writeTimeout)) == nil {
			_, _ = io.WriteString(c.socket, plainRefusal) // who has left already cannot be told
		}
	}
}

// charge takes n bytes more of what a large request occupies from the budget that all share; false when it is spent.
func (c *conn) charge(n int) bool {
	c.size += int64(n)
	return c.claim(0)
}

// claim is charge before n bytes are read: a body's buffer is there by then, of the length that the head or a chunk claims,
// whatever comes of it.
func (c *conn) claim(n int) bool {
	over := c.size + int64(n) - strangerBytes - c.charged
	if over <= 0 {
		return true
	}
	c.charged += over
	c.starved = c.conns.budget.Add(-over) < 0
	return !c.starved
}

// relieve gives back what the request occupied of the budget.
func (c *conn) relieve() {
	c.conns.budget.Add(c.charged)
	c.charged = 0
}

// answered makes the next read the beginning of a request, and gives back what this one occupied.
func (c *conn) answered() {
	c.relieve()
	c.begun, c.size, c.starved, c.since = false, 0, false, time.Time{}
}

// Write implements net.Conn. Each piece has its own deadline: a client may read slowly, but not stop.
func (c *conn) Write(p []byte) (n int, err error) {
	for {
		if err := c.Conn.SetWriteDeadline(c.conns.clock.Wall().Add(c.conns.writeTimeout)); err != nil {
			return n, err
		}
		k, err := c.Conn.Write(p[n:min(len(p), n+writeBytes)])
		if n += k; err != nil || n == len(p) {
			return n, err
		}
	}
}

// Close implements net.Conn. fasthttp calls it when it is done with the connection.
func (c *conn) Close() error {
	if c.gone.Swap(true) {
		return net.ErrClosed
	}
	if c.linger.Load() {
		c.drain()
	}
	ending := c.Conn
	if c.idle.Load() > 0 {
		ending = c.socket // somebody else ends it, and must not wait
	}
	err := ending.Close()
	c.relieve()
	c.conns.remove(c)
	return err
}

// drain ends our half and reads what the client still sends: a close with unread bytes would reset the connection and
// the client would lose the answer that explains why.
func (c *conn) drain() {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); !ok || w.CloseWrite() != nil {
		return
	}
	if c.Conn.SetReadDeadline(c.conns.clock.Wall().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes) // any end will do
	}
}

func (cs *conns) remove(c *conn) {
	cs.mu.Lock()
	delete(cs.mu.open, c)
	if len(cs.mu.open) == 0 && cs.mu.idle != nil {
		close(cs.mu.idle)
		cs.mu.idle = nil
	}
	cs.mu.Unlock()
	<-cs.room
}

// farewell is how long streams that are ended early have to say so.
const farewell = time.Second

// interrupt ends the streams that are open, each with an event that says why, and waits until that is out, but no longer
// than farewell.
func (cs *conns) interrupt() {
	cs.mu.Lock()
	for c := range cs.mu.open {
		if at := c.call.Load(); at != nil {
			at.cutUpstream()
		}
	}
	cs.mu.Unlock()
	for end := cs.clock.Mono() + farewell; cs.busy() && cs.clock.Mono() < end; {
		time.Sleep(farewell / 100)
	}
}

// busy tells whether a connection has a request.
func (cs *conns) busy() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.mu.open {
		if c.call.Load() != nil {
			return true
		}
	}
	return false
}

// cut closes every socket under its owner; gone is closed when the owners have let go: each open request meets its ending.
func (cs *conns) cut() (gone <-chan struct{}) {
	cs.mu.Lock()
	idle := make(chan struct{})
	if len(cs.mu.open) == 0 {
		close(idle)
	} else {
		cs.mu.idle = idle
	}
	for c := range cs.mu.open {
		_ = c.socket.Close()
	}
	cs.mu.Unlock()
	return idle
}
