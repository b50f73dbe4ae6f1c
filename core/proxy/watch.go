package proxy

import (
	"sync/atomic"
	"time"
)

// watchAfter is how long an upstream may take before the client is watched. Most buffered answers are quicker, and
// then watching costs one timer.
const watchAfter = 2 * time.Millisecond

// lastWord is how long an upstream may take to report its usage to a client that leaves behind the answer's end: what a model
// has thought in secret is in that report alone, and must not be free to whoever hangs up first.
const lastWord = 2 * time.Second

// watch notices that the client has left while the gateway is busy with the upstream and does not read the client's
// socket. It parks on the netpoller, so nothing polls; what it sees there it only peeks at, so the next pipelined
// request is left for fasthttp. A half-closed connection counts as gone.
//
// start and stop are called in turn by the request's goroutine; between stop and the next start nothing of the watch
// runs, so it may be pooled and the socket is fasthttp's again.
type watch struct {
	timer *time.Timer
	done  chan struct{} // one token when a fired watch has ended
	over  chan struct{} // one token when a fired watch shall end
	conn  *conn
	call  *call
	armed bool
	fired atomic.Bool // the client has left; of one request
}

func (w *watch) init(c *call) {
	w.call, w.done, w.over = c, make(chan struct{}, 1), make(chan struct{}, 1)
	w.timer = time.AfterFunc(time.Hour, w.run)
	w.timer.Stop()
}

// start begins to watch nc after watchAfter.
func (w *watch) start(nc *conn) {
	if nc == nil || nc.raw == nil {
		return
	}
	w.conn, w.armed = nc, true
	_ = nc.Conn.SetReadDeadline(time.Time{}) // that of the request; it would end the watch
	w.timer.Reset(watchAfter)
}

// stop ends the watch, waits for it, and reports whether the client had left.
func (w *watch) stop() bool {
	if w.armed && !w.timer.Stop() {
		w.over <- struct{}{}
		_ = w.conn.Conn.SetReadDeadline(time.Unix(1, 0)) // wakes the parked peek; a closed socket has woken it already
		<-w.done
		select {
		case <-w.over:
		default:
		}
		_ = w.conn.Conn.SetReadDeadline(time.Time{}) // fasthttp sets its own before the next request
	}
	w.armed, w.conn = false, nil
	return w.fired.Load()
}

func (w *watch) run() {
	if w.conn.clientGone() {
		w.fired.Store(true)
		if !w.call.finished.Load() || !w.overWithin(lastWord) {
			w.call.cutUpstream()
		}
	}
	w.done <- struct{}{}
}

// overWithin waits for stop.
func (w *watch) overWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.over:
		return true
	case <-t.C:
		return false
	}
}

// clientGone parks until the client has left (true) or the read deadline passes (false).
func (c *conn) clientGone() bool {
	gone := false
	err := c.raw.Read(func(fd uintptr) bool {
		gone = hungUp(int(fd))
		return gone
	})
	return gone || err != nil && !isTimeout(err)
}

// isTimeout tells the watcher's own wake-up from a socket that was closed under it.
func isTimeout(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}
