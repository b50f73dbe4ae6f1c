package proxy

import (
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
	turn := w.turn
	time.AfterFunc(lastWord, func() {
		w.all.mu.Lock()
		defer w.all.mu.Unlock()
		if w.turn == turn {
			w.call.cutUpstream()
		}
	})
}

// watches are all of a server's, whose sockets one goroutine waits for.
type watches struct {
	mu   sync.Mutex
	by   map[int32]*watch
	last int32 // id
	hangups
	loop sync.WaitGroup
}

// addLocked begins to wait for w's socket. One that cannot be waited for has been closed under its owner.
func (a *watches) addLocked(w *watch) {
	if a.by == nil {
		a.by = map[int32]*watch{}
		if a.open() {
			a.loop.Go(a.run)
		}
	}
	for a.last++; a.last <= 0 || a.by[a.last] != nil; a.last++ {
		a.last = max(a.last, 0)
	}
	w.id = a.last
	a.by[w.id] = w
	if !a.hangups.add(w.conn, w.id) {
		w.firedLocked()
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
			if w := a.by[id]; w != nil {
				w.firedLocked()
			}
		}
		a.mu.Unlock()
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
	if a.by != nil {
		a.hangups.close()
	}
	a.mu.Unlock()
	a.loop.Wait()
}
