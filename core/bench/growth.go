package bench

import (
	"fmt"
	"runtime"

	"github.com/weir-gateway/weir/core/load"
)

// What costs are measured at.
var (
	growKeys    = []int{1, 10, 10_000, 1_000_000}
	growStreams = []int{1, 10, 100, 1000, 5000}
	growBodies  = []int{1_000, 10_000, 100_000, 1_000_000}
)

// grow measures how costs grow with the number of keys, of streams, and of bytes in a body.
func (b *bench) grow() error {
	if !b.Growth {
		return nil
	}
	if err := b.growKeys(); err != nil {
		return err
	}
	g, err := b.openGateway(process)
	if err != nil {
		return err
	}
	t := target{name: process, address: g.address, key: g.key, pid: g.pid()}
	if err := b.growDriven("CPU of a request, by bytes of its body", growBodies, t, func(n int) load.Course {
		c := course(t, b.seconds(), false)
		c.Body = chat(model, n, false)
		return c
	}); err != nil {
		return err
	}
	if err := b.growDriven("CPU of a stream of 50 events, by streams at once", growStreams, t, func(n int) load.Course {
		c := course(t, b.seconds(), true)
		c.Connections = n
		return c
	}); err != nil {
		return err
	}
	return b.growHeld()
}

// growKeys measures admission and memory in this process, each key used in turn, so that the caches of the processor help
// as little as they would.
func (b *bench) growKeys() error {
	p, err := newParts(b.ctx, b.Clock, b.Random, b.dir)
	if err != nil {
		return err
	}
	defer p.close()
	took, memory := Growth{What: "an admission of 1 kB, by keys", Unit: "ns"}, Growth{What: "memory of keys, used once", Unit: "MB"}
	empty := heap()
	for _, n := range growKeys {
		b.Tell(fmt.Sprintf("%d keys", n))
		if err := p.mint(b.Random, n); err != nil {
			return err
		}
		for i := range n {
			p.admit(i)
		}
		memory.Points = append(memory.Points, Point{n, max(heap()-empty, 0) / 1e6})
		i := 0
		c := b.timed(0, repeat(func() {
			i = (i + 7919) % n
			p.admit(i)
		}))
		if p.err != nil {
			return fmt.Errorf("with %d keys: %w", n, p.err)
		}
		took.Points = append(took.Points, Point{n, c.NS})
	}
	b.result.Growth = append(b.result.Growth, took, memory)
	return nil
}

// heap is what lives on this process's heap, in bytes.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// growDriven measures the gateway's CPU time of a request.
func (b *bench) growDriven(what string, numbers []int, t target, course func(n int) load.Course) error {
	g := Growth{What: what, Unit: "µs"}
	for _, n := range numbers {
		b.Tell(fmt.Sprintf("%s: %d", what, n))
		f, err := b.lap(t, course(n))
		if err != nil {
			return err
		}
		g.Points = append(g.Points, Point{n, f["cpu_us"]})
	}
	b.result.Growth = append(b.result.Growth, g)
	return nil
}

// growHeld measures the memory of a gateway with open streams, each number in one of its own. What it takes without any is not
// taken off: the first streams find room in it, and the rest would look as if they took more.
func (b *bench) growHeld() error {
	g := Growth{What: "memory of the gateway, by open streams", Unit: "MB"}
	for _, n := range growStreams {
		b.Tell(fmt.Sprintf("%d open streams", n))
		b.stopFrom(1)
		w, err := b.openGateway(process)
		if err != nil {
			return err
		}
		if err := b.once(w, []string{w.key}, 1000); err != nil {
			return err
		}
		held, err := b.hold(w, n)
		if err != nil {
			return err
		}
		g.Points = append(g.Points, Point{n, held / 1e6})
	}
	b.result.Growth = append(b.result.Growth, g)
	b.stopFrom(1)
	return nil
}
