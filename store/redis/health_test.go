package redis

import (
	"context"
	"testing"
	"time"

	"github.com/weir-gateway/weir/store/storetest"
)

// TestHealth: the server tells its version, clock and what it does when memory is short.
func TestHealth(t *testing.T) {
	s := storetest.Redis(t, "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
	h, err := windows(t, s.URL, Options{}).Health(context.Background(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if h.Version == "" || h.RoundTrip <= 0 || h.Ahead.Abs() > time.Second || h.Eviction != "allkeys-lru" || h.MaxMemory != 64<<20 || h.Cluster || h.Persistent {
		t.Fatalf("%+v", h)
	}
}

// TestPingWrites: a server that answers but takes nothing is as good as away.
func TestPingWrites(t *testing.T) {
	s := storetest.Redis(t)
	w := windows(t, s.URL, Options{})
	s.Say("CONFIG SET maxmemory 1")
	if err := w.Ping(context.Background()); err == nil {
		t.Fatal("a server that is out of memory passes for one that counts")
	}
	s.Say("CONFIG SET maxmemory 0")
	if err := w.Ping(context.Background()); err != nil {
		t.Fatal(err)
	}
}
