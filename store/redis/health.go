package redis

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// Health is what an operator should know of a server of windows.
type Health struct {
	Version    string
	RoundTrip  time.Duration // the best of three
	Ahead      time.Duration // the server's clock, compared with this process's; windows go by the server's alone
	Eviction   string        // maxmemory-policy
	MaxMemory  int64         // bytes; 0: no bound
	Cluster    bool
	Persistent bool // keeps its windows over a restart
}

// Health asks the server about itself.
func (w *Windows) Health(ctx context.Context, clock func() time.Time) (h Health, err error) {
	if err := w.Ping(ctx); err != nil {
		return h, err
	}
	c, err := w.enter()
	if err != nil {
		return h, err
	}
	defer w.open.Add(-1)
	for range 3 {
		from := clock()
		t, err := c.Do(ctx, c.B().Time().Build()).AsIntSlice()
		took := clock().Sub(from)
		if err != nil || len(t) != 2 {
			return h, w.judge(err)
		}
		if h.RoundTrip == 0 || took < h.RoundTrip {
			h.RoundTrip, h.Ahead = took, time.Unix(t[0], t[1]*1000).Sub(from.Add(took/2))
		}
	}
	text, err := c.Do(ctx, c.B().Info().Section("server", "memory", "persistence", "cluster").Build()).ToString()
	if err != nil {
		return h, w.judge(err)
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "redis_version", "valkey_version":
			h.Version = value
		case "maxmemory_policy":
			h.Eviction = value
		case "maxmemory":
			h.MaxMemory, _ = strconv.ParseInt(value, 10, 64)
		case "cluster_enabled":
			h.Cluster = value == "1"
		case "aof_enabled":
			h.Persistent = value == "1"
		}
	}
	return h, nil
}
