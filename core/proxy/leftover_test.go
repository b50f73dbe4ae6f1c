package proxy_test

import (
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"
)

// What an attack may leave: connections to the upstream that wait for the next request, with a goroutine at their other end, what
// is kept for reuse, and what the rig itself writes down of each request.
const (
	mostOpen   = 32
	mostMemory = 8 << 20
)

// leavesNothing has the test fail when anything of what it does from now on is there at its end: a reservation, a connection, a
// goroutine, a descriptor, or memory.
func (r *rig) leavesNothing() {
	running, files, heap := goroutines(), descriptors(), lives()
	r.t.Cleanup(func() {
		if r.t.Failed() {
			return
		}
		http.DefaultClient.CloseIdleConnections()
		r.idle()
		more := func() bool { return goroutines()-running > mostOpen || descriptors()-files > mostOpen }
		for end := time.Now().Add(20 * time.Second); more() && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		r.log.Reset()
		r.sim.CutConnections() // it keeps the largest body of each
		eventually(r.t, func() bool { return r.sim.Stats().OpenConnections == 0 }, "the upstream keeps a connection")
		if grown := lives() - heap; more() || grown > mostMemory*patience {
			r.t.Errorf("%d goroutines, %d descriptors and %d bytes more than before", goroutines()-running, descriptors()-files, grown)
		}
	})
}

// lives is the memory in use behind what pools still hold for a while.
func lives() int64 {
	for range 2 {
		runtime.GC()
	}
	return heapInUse()
}

// goroutines counts all but fasthttp's that wait for their next connection: they do so for ten seconds.
func goroutines() (n int) {
	all := make([]byte, 16<<20)
	for one := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if _, top, _ := strings.Cut(one, "\n"); !strings.HasPrefix(top, "github.com/valyala/fasthttp.(*workerPool).workerFunc(") {
			n++
		}
	}
	return n
}

// descriptors are how many this process has open; 0 where nobody can tell.
func descriptors() int {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(open)
}
