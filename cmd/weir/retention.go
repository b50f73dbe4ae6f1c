package main

import (
	"context"
	"sync"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
)

// pruneEvery is how often old usage records are looked for.
const pruneEvery = 24 * time.Hour

// startRetention drops usage records that are older than the configuration keeps them, now and once a day, until close.
func (g *gateway) startRetention() {
	days := g.born.Ledger.KeepUsageDays
	if days == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	g.onClose(func() error {
		cancel()
		running.Wait()
		return nil
	})
	running.Go(func() {
		tick := time.NewTicker(pruneEvery)
		defer tick.Stop()
		for {
			g.prune(ctx, days)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

func (g *gateway) prune(ctx context.Context, days int) {
	before := g.clock.Wall().AddDate(0, 0, -days)
	done, err := g.ledger.Prune(ctx, ledger.Change{Actor: "config"}, before)
	switch {
	case err != nil && ctx.Err() == nil:
		g.log.Error("old usage records could not be dropped", "before", before, "error", err)
	case err == nil && done.Entries > 0:
		g.log.Info("dropped old usage records", "before", before, "entries", done.Entries, "first", done.First)
	}
}
