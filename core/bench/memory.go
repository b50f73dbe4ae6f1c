package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/weir-gateway/weir/core/load"
)

// How much is remembered at once, when laps are a second long or longer.
const (
	heldStreams = 1000
	manyKeys    = 10_000
)

// keepLoaded notes the memory of the gateway after its rounds.
func (b *bench) keepLoaded(targets []target) {
	for _, t := range targets {
		if t.name == process {
			b.result.Memory.set("loaded_mb", resident(t.pid)/1e6)
		}
	}
}

// remember measures the memory of a gateway of its own: idle, then with streams open, then started again with many keys, at
// first idle, then used. A request of each key is compared with as many of one key, so that what many requests leave behind is
// in both.
func (b *bench) remember() error {
	if resident(b.sim.pid()) == 0 {
		b.result.note("CPU and memory of processes are read from /proc, which is not here: not measured")
		return nil
	}
	b.Tell("memory of idle, of streams, of keys")
	g, err := b.openGateway(process)
	if err != nil {
		return err
	}
	idle := resident(g.pid())
	b.result.Memory.set("idle_mb", idle/1e6)
	n, streams := b.scaled(manyKeys), b.scaled(heldStreams)
	if err := b.once(g, []string{g.key}, n); err != nil {
		return err
	}
	one := resident(g.pid())
	held, err := b.hold(g, streams)
	if err != nil {
		return err
	}
	b.result.Memory.set("streams", float64(streams))
	b.result.Memory.set("stream_kb", max(held-one, 0)/1e3/float64(streams))
	keys, err := b.newKeys(g, n)
	if err != nil {
		return err
	}
	if err := g.again(); err != nil {
		return err
	}
	b.result.Memory.set("keys", float64(n))
	b.result.Memory.set("key_bytes", max(resident(g.pid())-idle, 0)/float64(n))
	if err := b.once(g, keys, n); err != nil {
		return err
	}
	b.result.Memory.set("ten_thousand_keys_mb", max(resident(g.pid())-one, 0)/float64(n)*1e4/1e6)
	b.stopFrom(1)
	return nil
}

// scaled is a part of n for laps shorter than a second.
func (b *bench) scaled(n int) int { return max(int(float64(n)*min(b.Seconds, 1)), 20) }

// once sends n requests, one of each key in turn.
func (b *bench) once(g *gateway, keys []string, n int) error {
	c := course(target{address: g.address}, time.Minute, false)
	c.Keys, c.Total = keys, n
	l, err := load.Drive(b.ctx, c, b.Clock)
	if err == nil && l.Failed > 0 {
		b.result.fail(l.Failed, process, l.FirstError)
	}
	return err
}

// newKeys makes keys, a few at a time.
func (b *bench) newKeys(g *gateway, n int) ([]string, error) {
	keys, errs := make([]string, n), make(chan error, 16)
	for w := range cap(errs) {
		go func() {
			var err error
			for i := w; i < n && err == nil; i += cap(errs) {
				keys[i], err = g.newKey(fmt.Sprint("key ", i))
			}
			errs <- err
		}()
	}
	var first error
	for range cap(errs) {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return keys, first
}

// hold opens n streams, each of which has begun and goes on, and gives what the gateway then occupies. They are gone when it
// returns.
func (b *bench) hold(g *gateway, n int) (bytes float64, err error) {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var open sync.WaitGroup
	defer open.Wait()
	defer cancel()
	request := load.Request(g.address, g.key, chat("held", 200, true))
	begun, turn := make(chan error, 2*n), make(chan struct{}, connections)
	for range n {
		turn <- struct{}{}
		open.Go(func() {
			begin := sync.OnceFunc(func() { <-turn })
			err := read(ctx, g.address, request, func() { begin(); begun <- nil })
			if begin(); ctx.Err() == nil {
				begun <- fmt.Errorf("one of %d streams: %w (ulimit -n?)", n, err)
			}
		})
	}
	for range n {
		select {
		case err := <-begun:
			if err != nil {
				return 0, err
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return resident(g.pid()), nil
}

// read asks for a stream and reads until it ends, or ctx does; first is called at the first event.
func read(ctx context.Context, address string, request []byte, first func()) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if _, err := c.Write(request); err != nil {
		return err
	}
	lines := bufio.NewReaderSize(c, 1<<10)
	if status, err := lines.ReadSlice('\n'); err != nil || !bytes.Contains(status, []byte(" 200 ")) {
		return fmt.Errorf("it was answered %.100q: %v", status, err)
	}
	for seen := false; ; {
		line, err := lines.ReadSlice('\n')
		if err != nil && err != bufio.ErrBufferFull {
			return err
		}
		if !seen && bytes.HasPrefix(line, []byte("data: ")) {
			seen = true
			first()
		}
	}
}
