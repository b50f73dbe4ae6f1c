package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Client makes calls over its own connections, so that each can be cut at any moment. Safe for concurrent use. It leaves
// through the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name, trusts the system's certificates and follows no redirect.
type Client struct {
	opt    Options
	idle   time.Duration
	whole  time.Duration // that a buffered answer may take in all, from its head on
	budget budget
	clock  llm.Clock
	timer  func(time.Duration) (over <-chan time.Time, stop func() bool)
	outside
	quit chan struct{}
	done sync.WaitGroup
	mu   struct {
		sync.RWMutex
		newest *Catalog         // of those that were followed
		lanes  map[string]*lane // by channel name; each serves what the newest catalog has by it
		closed bool
	}
}

// NewClient makes a client; fields of o that are 0 take their defaults. Close ends it.
func NewClient(o Options, clock llm.Clock) *Client {
	c := &Client{opt: o.Defaults(), clock: clock, timer: startTimer, quit: make(chan struct{}), outside: newOutside()}
	c.idle = time.Duration(c.opt.IdleTimeoutMS) * time.Millisecond
	c.whole = wholeIdles * c.idle
	c.budget.percent = int64(c.opt.RetryPercent)
	c.mu.newest, c.mu.lanes = new(Catalog), make(map[string]*lane)
	c.done.Go(c.sweep)
	return c
}

// Close closes pooled connections and waits for goroutines. Answers still being read go on; Cancel ends them.
func (c *Client) Close() {
	c.mu.Lock()
	lanes, closed := c.mu.lanes, c.mu.closed
	c.mu.lanes, c.mu.closed = nil, true
	c.mu.Unlock()
	if closed {
		return
	}
	close(c.quit)
	for _, l := range lanes {
		l.close()
	}
	c.done.Wait()
}

// sweep closes connections that nobody used for too long, also when there is no traffic.
func (c *Client) sweep() {
	every := time.Duration(c.opt.IdleConnectionMS) * time.Millisecond / 2
	tick := time.NewTicker(min(max(every, 100*time.Millisecond), 10*time.Second))
	defer tick.Stop()
	for {
		select {
		case <-c.quit:
			return
		case <-tick.C:
		}
		c.mu.RLock()
		lanes := make([]*lane, 0, len(c.mu.lanes))
		for _, l := range c.mu.lanes {
			lanes = append(lanes, l)
		}
		c.mu.RUnlock()
		for _, l := range lanes {
			l.pool.sweep(c.clock.Mono())
		}
	}
}

// Health lists the channels' states, in the catalog's order.
func (c *Client) Health(cat *Catalog) []Health {
	list := make([]Health, 0, len(cat.channels))
	for _, ch := range cat.channels {
		h := Health{Channel: ch.Name, State: "up"}
		c.mu.RLock()
		l := c.mu.lanes[ch.Name]
		c.mu.RUnlock()
		if l != nil && l.serves(ch) {
			h = l.health.report(ch.Name, c.clock.Mono())
			h.InFlight, h.Limit, h.Waiting = l.gate.report()
		}
		if ch.State == "disabled" {
			h.State, h.UntilMS = "disabled", 0
		}
		list = append(list, h)
	}
	return list
}

// Retries tells how often a request has been sent again since the start, and how often the budget of retries did not allow it.
func (c *Client) Retries() (sent, refused uint64) {
	return c.budget.made.Load(), c.budget.refused.Load()
}

// lane finds or makes the lane of a channel, as the newest catalog has it: a request may hold an older one. nil: the channel
// was disabled, removed or given to another provider since, or the client is closed.
func (c *Client) lane(ch *Channel) *lane {
	c.mu.RLock()
	l := c.mu.lanes[ch.Name]
	c.mu.RUnlock()
	if l == nil {
		l = c.makeLane(ch.Name)
	}
	if l == nil || l.channel.Provider != ch.Provider || l.latest.Load().State == "disabled" {
		return nil
	}
	return l
}

func (c *Client) makeLane(name string) *lane {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ch := c.mu.lanes[name], c.mu.newest.named[name]
	if l == nil && ch != nil && !c.mu.closed {
		l = newLane(ch, &c.opt, c.clock, &c.outside)
		c.mu.lanes[name] = l
	}
	return l
}

// flying is how many attempts a channel carries.
func (c *Client) flying(ch *Channel) int64 {
	c.mu.RLock()
	l := c.mu.lanes[ch.Name]
	c.mu.RUnlock()
	if l == nil {
		return 0
	}
	return l.gate.flying.Load()
}

// Follow makes a catalog what channels are taken from, unless a newer one is already: limits count at once, and who waits for
// a place on a channel that is disabled or gone moves on to another. Do follows its own; whoever changes the catalog need not
// wait for that.
func (c *Client) Follow(cat *Catalog) {
	c.mu.RLock()
	known := cat.born <= c.mu.newest.born
	c.mu.RUnlock()
	if known {
		return
	}
	for _, l := range c.follow(cat) {
		l.close()
	}
}

// follow gives the lanes whose channels a newer catalog does not have, or leads elsewhere.
func (c *Client) follow(cat *Catalog) (gone []*lane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cat.born <= c.mu.newest.born {
		return nil
	}
	c.mu.newest = cat
	for name, l := range c.mu.lanes {
		if ch := cat.named[name]; ch != nil && l.serves(ch) {
			l.follow(ch)
		} else {
			gone = append(gone, l)
			delete(c.mu.lanes, name)
		}
	}
	return gone
}

// Do runs up to Options.Attempts attempts over the model's channels, in order of priority, weight and health, and
// returns the first answer that is to be relayed: a success, whole unless it is a stream, or a 4xx caused by the request itself,
// also where its status is that of a success. Otherwise a
// *llm.Error (KindUpstream, with a wait when all cool down; KindTimeout; KindRateLimited with a wait; KindNotFound for no
// channel). When ctx ends, the connection is cut at once, in any phase until Response.Close, and ctx.Err() is returned; that
// never counts as a channel's failure. ctx should be one of package context's own types: others cost a goroutine per call. One that never ends
// costs nothing, and Request.Began is then the way to cut.
func (c *Client) Do(ctx context.Context, cat *Catalog, req *Request, hold Hold) (*Response, error) {
	rt, err := cat.route(req)
	if err != nil {
		return nil, err
	}
	if err := req.checkHeaders(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.Follow(cat)
	r := &Response{reading: reading{client: c, ctx: ctx}}
	if ctx.Done() != nil {
		r.stop = context.AfterFunc(ctx, r.cut)
	}
	if req.Began != nil {
		req.Began(r)
	}
	o := newOutgoing(req)
	answered := false
	defer func() { // also when the hold panics
		o.free()
		if !answered {
			r.Close()
		}
	}()
	d := doing{client: c, req: req, route: rt, hold: hold, r: r, out: o, patience: time.Duration(c.opt.QueueWaitMS) * time.Millisecond}
	if err := d.run(); err != nil {
		return nil, err
	}
	answered = true
	return r, nil
}

// route finds the channels for a request.
func (c *Catalog) route(req *Request) (*route, error) {
	e := c.models[req.Model.Name]
	if e == nil {
		return nil, &llm.Error{Kind: llm.KindNotFound, Code: "model_not_found", Message: fmt.Sprintf("model %q is not in the catalog", req.Model.Name)}
	}
	rt := e.routes[req.Head.Endpoint.Dialect()]
	if rt == nil {
		return nil, &llm.Error{Kind: llm.KindNotFound, Code: "model_not_found",
			Message: fmt.Sprintf("model %q has no channel that serves %s", e.Name, req.Head.Endpoint.Path())}
	}
	return rt, nil
}

// checkHeaders keeps what comes from clients from becoming another header.
func (req *Request) checkHeaders() error {
	for _, h := range [...]struct {
		name  string
		value []byte
	}{{"anthropic-beta", req.Beta}, {"anthropic-version", req.Version}, {"x-sim", req.Sim}} {
		for _, b := range h.value {
			if b < ' ' || b >= 0x7f {
				return llm.Invalid(h.name, "header %s: expected printable ASCII", h.name)
			}
		}
	}
	if strings.ContainsFunc(req.RequestID, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
		return llm.Errorf(llm.KindInternal, "request id is not printable ASCII")
	}
	return nil
}

// doing is one Do under way.
type doing struct {
	client *Client
	req    *Request
	route  *route
	hold   Hold
	r      *Response
	out    *outgoing

	crowded  []*lane       // those that have no place
	patience time.Duration // left, to wait for a place
	later    [maxLater]ripening
	channel  *Channel // of the attempt under way
	lane     *lane
	ticket   ticket
	sent     bool          // an attempt before has sent the request: the next is a retry
	opened   bool          // the body has been read from already
	heard    time.Duration // Mono when the head came, or the first event
	reached  bool          // the attempt has a connection: from here on the request itself may be what fails
	short    bool          // this machine lacks what a connection takes
	gone     bool          // a channel is disabled, removed or given to another provider since the request's catalog was made
	roomless bool          // a channel had no room: the hold refused it, it has no place, or its connections are all in use
	limited  bool          // a channel is rate limited
	wait     time.Duration // the shortest wait of a limited channel
	cools    time.Duration // the shortest wait of a channel that fails, or cools down after failures; 0: none does
	timeouts int           // attempts that ended so
	last     error         // for the log
}

// run makes attempts until one brings an answer.
func (d *doing) run() error {
	var few [16]bool
	seen := few[:]
	if d.route.channels > len(few) {
		seen = make([]bool, d.route.channels)
	}
	d.r.Attempted = d.r.names[:0]
	d.client.budget.ask(d.client.clock.Mono())
	for tries := 0; tries < d.client.opt.Attempts; {
		ch := d.next(seen)
		if ch == nil {
			break
		}
		if d.sent && !d.client.budget.retry(d.client.clock.Mono()) {
			d.lane.health.forget(d.ticket, d.client.clock.Mono())
			d.hold.Refused(ch)
			d.last = fmt.Errorf("%w; not tried again, as retries are at %d %% of the requests", d.last, d.client.opt.RetryPercent)
			break
		}
		tries++
		d.r.Attempted = append(d.r.Attempted, ch.Name)
		h, err := d.attempt()
		if cut := d.r.wasCut(d.r.ctx); cut != nil {
			d.r.discard()
			d.lane.health.forget(d.ticket, d.client.clock.Mono())
			return cut
		}
		if d.judge(h, err) {
			return nil
		}
		d.hold.Refused(ch)
		d.r.place.leave() // behind it: whoever gets the place finds room
	}
	if cut := d.r.wasCut(d.r.ctx); cut != nil {
		return cut
	}
	return d.failure()
}

// admit asks a channel's health, and for a place on it.
func (d *doing) admit(ch *Channel) bool {
	l := d.client.lane(ch)
	if l == nil {
		d.gone = true
		d.last = fmt.Errorf("channel %q was disabled or removed meanwhile, or the client is closed", ch.Name)
		return false
	}
	if !d.awake(l) {
		return false
	}
	now := d.client.clock.Mono()
	var found bool
	if d.r.place, found = l.gate.enter(now, d.ticket.probe); !found {
		l.health.forget(d.ticket, now)
		d.crowded = append(d.crowded, l)
		return false
	}
	return d.room()
}

// room asks the hold for room on the channel that was admitted; without it, the place is given back.
func (d *doing) room() bool {
	ok, wait := d.hold.Attempt(d.channel)
	if !ok {
		now := d.client.clock.Mono()
		d.roomless = true
		d.ripens(d.channel.Name, now, wait)
		d.lane.health.forget(d.ticket, now)
		d.r.place.leave()
	}
	return ok
}

// awake asks a channel's health; when it sleeps, it notes why.
func (d *doing) awake(l *lane) bool {
	now := d.client.clock.Mono()
	t, ok := l.health.admit(now, d.req.Caller)
	if ok {
		d.channel, d.lane, d.ticket = l.latest.Load(), l, t
		return true
	}
	wait, why := l.health.sleeps(now, d.req.Caller)
	d.ripens(l.channel.Name, now, wait)
	if why == limited {
		d.noteLimited(wait)
	} else {
		d.last = fmt.Errorf("channel %q cools down after failures for %d ms", l.channel.Name, ceilMS(wait))
		d.noteFailing(wait)
	}
	return false
}

func (d *doing) noteLimited(wait time.Duration) {
	if !d.limited || wait < d.wait {
		d.wait = wait
	}
	d.limited = true
}

func (d *doing) noteFailing(wait time.Duration) {
	if wait = max(wait, time.Millisecond); d.cools == 0 || wait < d.cools {
		d.cools = wait
	}
}

// attempt makes one try and reads the answer's head. On success r owns the connection. An idle connection that dies under
// its request without a byte of an answer is neither the channel's failure nor a try: the request is sent once more.
func (d *doing) attempt() (h head, err error) {
	c, reused, err := d.connect(false)
	if err != nil {
		return h, err
	}
	d.sent = true
	d.hold.Sent(d.channel)
	err = d.exchange(c, &h)
	if err != nil && reused && !c.got && d.severed(err) {
		d.r.discard()
		if c, _, err = d.connect(true); err != nil {
			return h, err
		}
		err = d.exchange(c, &h)
	}
	if err == nil && h.status < 300 && isPage(h.contentType) {
		err = errors.New("it answered with a web page")
	}
	if err == nil {
		err = d.peek(&h)
	}
	if err == nil {
		err = d.complaint(&h)
	}
	if err != nil {
		if timedOut(err) {
			d.timeouts++
		}
		d.r.discard()
	}
	return h, err
}

// exchange sends the request and reads the head of its answer.
func (d *doing) exchange(c *conn, h *head) error {
	err := d.out.send(c, d.lane)
	switch {
	case err == nil:
		return c.readHead(h)
	case d.severed(err):
		return d.early(c, h, err)
	}
	return err
}

// severed: the peer, not time and not a cut, ended the connection.
func (d *doing) severed(err error) bool { return !timedOut(err) && d.r.wasCut(d.r.ctx) == nil }

// early looks for the answer of a peer that refused a request without reading all of it; sent is why sending ended.
func (d *doing) early(c *conn, h *head, sent error) error {
	d.r.deadline(linger)
	if c.readHead(h) != nil || h.status < 400 {
		return sent
	}
	h.closing = true
	return nil
}

// connect takes a connection and makes it the call's, to be cut from now on.
func (d *doing) connect(fresh bool) (c *conn, reused bool, err error) {
	d.reached = false
	if c, reused, err = d.lane.take(&d.r.reading, fresh); err != nil {
		return nil, false, err
	}
	if !d.r.bind(c) {
		d.lane.pool.drop(c)
		return nil, false, context.Canceled
	}
	d.r.lane, d.r.conn, d.reached = d.lane, c, true
	return c, reused, nil
}

// judge decides what an attempt's end means, for the channel and for the call; true: the answer is relayed.
func (d *doing) judge(h head, err error) bool {
	now, name := d.client.clock.Mono(), d.lane.channel.Name
	switch {
	case err != nil && d.lacks(err):
		d.last = err
		d.lane.health.forget(d.ticket, now)
		return false
	case err != nil:
		d.last = fmt.Errorf("channel %q: %w", name, err)
		d.lane.health.fail(d.ticket, now, verdict{class: failing, unsent: !d.reached})
		d.noteRest(now)
		return false
	}
	why, relay := classify(&h)
	if relay {
		d.lane.health.succeed(d.ticket, now, h.status)
		if h.status < 300 {
			d.lane.gate.answered()
		}
		d.relay(&h)
		return true
	}
	d.r.discard()
	d.last = fmt.Errorf("channel %q answered %d", name, h.status)
	if h.astray {
		d.last = fmt.Errorf("channel %q answered %d, and not as an API does; does its base_url lead to one that serves %s?", name, h.status, d.req.Head.Endpoint.Path())
		if !d.usual() {
			d.lane.health.forget(d.ticket, now)
			return false
		}
	}
	d.lane.refused(d.ticket, &d.r.place, now, verdict{class: why, status: h.status, wait: h.wait(d.client.clock.Wall())})
	if why == limited {
		wait, _ := d.lane.health.sleeps(now, d.req.Caller)
		if wait == 0 {
			wait = placeSoon
		}
		d.noteLimited(wait)
	} else {
		d.noteRest(now)
	}
	return false
}

// usual tells a request of the kind that every server of its dialect answers: that another kind is not there says nothing about
// these.
func (d *doing) usual() bool {
	return d.req.Head.Endpoint == llm.Chat || d.req.Head.Endpoint == llm.Messages
}

// lacks notes that an attempt failed for want of something here, if it did: that is not the channel's failure.
func (d *doing) lacks(err error) bool {
	var full *fullError
	var short *shortError
	d.roomless = errors.As(err, &full) || d.roomless
	d.short = errors.As(err, &short) || d.short
	return full != nil || short != nil
}

// noteRest notes the wait of a channel that has just failed. One that may be tried again at once is given a moment.
func (d *doing) noteRest(now time.Duration) {
	wait, _ := d.lane.health.sleeps(now, d.req.Caller)
	if wait == 0 {
		wait = coolFirst
	}
	d.noteFailing(wait)
}

// classify sorts answers into those to relay and the failures of a channel. 401 to 403 are about the operator's
// credential or account, never the client's; 408 and 3xx are not answers to a request either.
func classify(h *head) (why class, relay bool) {
	switch {
	case h.status == 429:
		return limited, false
	case h.status == 503 || h.status == 529:
		return busy, false
	case h.status >= 401 && h.status <= 403 || h.status == 407:
		return refused, false
	case h.status < 300 && (h.frame.done || h.status == 205): // says nothing: 204, or an empty body
		return failing, false
	case h.coded || h.astray || h.status == 408 || h.status < 200 || h.status >= 300 && h.status < 400 || h.status >= 500:
		return failing, false
	}
	return failing, true
}

// relay fills in the Response.
func (d *doing) relay(h *head) {
	r := d.r
	r.Channel = d.channel
	r.Status, r.ContentType, r.FirstByte = h.status, d.contentType(h), d.heard
	r.Stream = h.status < 300 && isEventStream(r.ContentType)
	r.ticket = d.ticket
	if !d.opened {
		r.open(h)
	}
}

func (d *doing) contentType(h *head) string {
	if h.contentType == "" && d.req.Head.Stream && h.status < 300 {
		return "text/event-stream" // some servers do not say what was asked for
	}
	return h.contentType
}

func isEventStream(contentType string) bool { return isKind(contentType, "text/event-stream") }

// isPage tells what a login page or a load balancer answers, and no API.
func isPage(contentType string) bool {
	return isKind(contentType, "text/html") || isKind(contentType, "application/xhtml+xml")
}

func isKind(contentType, kind string) bool {
	is, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(is), kind)
}

// failure is what a client is told when no channel answered. A rate limit that passes is the most useful news; then
// slowness; else it is unavailable.
func (d *doing) failure() error {
	attempted := append([]string{}, d.r.Attempted...)
	name, ended := d.req.Model.Name, d.ended()
	switch {
	case d.short:
		return &llm.Error{Kind: llm.KindUnavailable, Code: "overloaded", Err: d.last, Message: "the gateway cannot open another connection to an upstream now; try again"}
	case ended: // as for a request that comes now
	case d.limited || d.roomless:
		wait, what := coolFirst, "is at its limit"
		if d.limited && (!d.roomless || d.wait < wait) {
			wait = d.wait
		}
		if d.cools > 0 {
			wait, what = min(wait, d.cools), "is at its limit or fails"
		}
		e := &llm.Error{Kind: llm.KindRateLimited, Code: "upstream_rate_limited", RetryAfterMS: ceilMS(wait), Err: d.last,
			Message: fmt.Sprintf("every channel of model %q %s; try again in %d ms", name, what, ceilMS(wait))}
		if len(attempted) > 0 {
			e.Fields = map[string]any{"attempted_channels": attempted}
		}
		return e
	case d.timeouts > 0 && d.timeouts == len(attempted):
		return &llm.Error{Kind: llm.KindTimeout, Code: "upstream_timeout", Err: d.last, Fields: map[string]any{"attempted_channels": attempted},
			Message: fmt.Sprintf("no channel of model %q answered in time", name)}
	}
	e := &llm.Error{Kind: llm.KindUpstream, Code: "upstream_unavailable", Err: d.last, Fields: map[string]any{"attempted_channels": attempted},
		Message: fmt.Sprintf("no channel of model %q could answer", name)}
	switch {
	case d.route.channels == 0:
		e.Message = fmt.Sprintf("every channel of model %q is disabled", name)
	case ended || len(attempted) == 0 && d.gone && d.cools == 0:
		e.Message = fmt.Sprintf("no channel of model %q is in service any more", name)
	case len(attempted) == 0 && d.cools > 0:
		e.RetryAfterMS = ceilMS(d.cools)
		e.Message = fmt.Sprintf("every channel of model %q cools down after failures; try again in %d ms", name, e.RetryAfterMS)
	}
	return e
}

// ended tells that none of the channels is in service any more.
func (d *doing) ended() bool {
	if !d.gone {
		return false
	}
	for _, t := range d.route.tiers {
		for _, m := range t.members {
			if d.client.lane(m.Channel) != nil {
				return false
			}
		}
	}
	return true
}
