package proxy

import (
	"log/slog"
	"net"
	"testing"
	"time"
)

// Where the system lacks what it takes to watch a client, that is tried again until there is enough.
func TestWatchingIsTriedAgain(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var all watches
	defer all.close()
	c := new(call)
	c.watch.init(c, &all)
	all.mu.Lock()
	all.by, all.running = map[int32]*watch{}, all.open()
	all.loop.Go(all.run)
	set := all.hangups.fd
	all.hangups.fd = -1 // nothing can be added
	all.mu.Unlock()
	c.watch.start(newConns(Options{}.withDefaults(), slog.New(slog.DiscardHandler)).add(nc))
	c.watch.timer.Reset(0)
	time.Sleep(10 * time.Millisecond)
	all.mu.Lock()
	all.hangups.fd = set
	all.mu.Unlock()
	_ = client.Close()
	for end := time.Now().Add(10 * shortage); !c.gone(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a client that left is not noticed")
		}
	}
	if !c.watch.stop() {
		t.Error("it is not said that the client has left")
	}
}
