package proxy

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// watchAfter is how long an upstream may take before the client is watched. Many buffered answers are quicker, also where
// all cores are busy, and then watching costs one timer.
const watchAfter = 20 * time.Millisecond

// lastWord is how long an upstream may take to report its usage to a client that leaves behind the answer's end: what a model
// has thought in secret is in that report alone, and must not be free to whoever hangs up first.
const lastWord = 2 * time.Second

// watch notices that the client has left while the gateway is busy with the upstream and does not read the client's
// socket. It reads nothing, so the next pipelined request is left for fasthttp. A half-closed connection counts as gone.
//
// start and stop are called in turn by the request's goroutine; between stop and the next start nothing touches the call,
// so it may be pooled and the socket is fasthttp's again.
type watch struct {
	all   *watches
	timer *time.Timer
	done  chan struct{} // one token when a timer that fired has run
	call  *call
	conn  *conn       // nil: nothing is watched
	id    int32       // among all, under all.mu; 0: not yet, or no more
	turn  uint64      // of start and stop, under all.mu
	fired atomic.Bool // the client has left; of one request
}

func (w *watch) init(c *call, all *watches) {
	w.call, w.all, w.done = c, all, make(chan struct{}, 1)
	w.timer = time.AfterFunc(time.Hour, w.run)
	w.timer.Stop()
}

// start begins to watch nc after watchAfter.
func (w *watch) start(nc *conn) {
	if nc == nil || nc.raw == nil {
		return
	}
	w.conn = nc
	w.timer.Reset(watchAfter)
}

func (w *watch) run() {
	w.all.mu.Lock()
	w.all.addLocked(w)
	w.all.mu.Unlock()
	w.done <- struct{}{}
}

// stop ends the watch and reports whether the client had left.
func (w *watch) stop() bool {
	if w.conn != nil && !w.timer.Stop() {
		<-w.done
		w.all.mu.Lock()
		w.all.removeLocked(w)
		w.turn++
		w.all.mu.Unlock()
	}
	w.conn = nil
	return w.fired.Load()
}

// firedLocked: the client has left.
func (w *watch) firedLocked() {
	w.all.removeLocked(w)
	w.fired.Store(true)
	if !w.call.finished.Load() {
		w.call.cutUpstream()
		return
	}
	w.laterLocked(lastWord, w.call.cutUpstream)
}

// laterLocked does something after d, unless the watch has ended by then.
func (w *watch) laterLocked(d time.Duration, do func()) {
	turn := w.turn
	time.AfterFunc(d, func() {
		w.all.mu.Lock()
		defer w.all.mu.Unlock()
		if w.turn == turn {
			do()
		}
	})
}

// watches are all of a server's, whose sockets one goroutine waits for.
type watches struct {
	mu      sync.Mutex
	by      map[int32]*watch
	last    int32 // id
	running bool  // the goroutine has begun
	hangups
	loop sync.WaitGroup
}

// shortage is how long the system may lack what watching takes before that is tried again.
const shortage = time.Second

// addLocked begins to wait for w's socket.
func (a *watches) addLocked(w *watch) {
	if !a.running && a.open() {
		a.running, a.by = true, map[int32]*watch{}
		a.loop.Go(a.run)
	}
	if !a.running {
		w.laterLocked(shortage, func() { a.addLocked(w) })
		return
	}
	for a.last++; a.last <= 0 || a.by[a.last] != nil; a.last++ {
		a.last = max(a.last, 0)
	}
	w.id = a.last
	a.by[w.id] = w
	switch err := a.hangups.add(w.conn, w.id); {
	case err == nil:
	case errors.Is(err, net.ErrClosed): // under its owner
		w.firedLocked()
	default:
		a.removeLocked(w)
		w.laterLocked(shortage, func() { a.addLocked(w) })
	}
}

func (a *watches) removeLocked(w *watch) {
	if w.id != 0 {
		a.hangups.remove(w.conn)
		delete(a.by, w.id)
		w.id = 0
	}
}

func (a *watches) run() {
	for {
		left, over := a.hangups.wait(a)
		if over {
			return
		}
		a.mu.Lock()
		for _, id := range left {
			spoke := id < 0
			if w := a.by[max(id, -id)]; w != nil && (!spoke || a.hangups.spoke(w.conn, w.id)) {
				w.firedLocked()
			}
		}
		a.mu.Unlock()
	}
}

// interrupt cuts what every client that is watched waits for; they are still there to be told.
func (a *watches) interrupt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.by {
		w.call.cutUpstream()
	}
}

// cut makes every client that is watched one that has left.
func (a *watches) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.by {
		w.firedLocked()
	}
}

// close ends the goroutine. There must be no requests any more.
func (a *watches) close() {
	a.mu.Lock()
	if a.running {
		a.hangups.close()
	}
	a.mu.Unlock()
	a.loop.Wait()
}
