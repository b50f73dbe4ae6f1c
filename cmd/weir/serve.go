package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/config"
)

func (a *app) serve() *cobra.Command {
	var path string
	c := &cobra.Command{Use: "serve -c weir.yaml", Short: "Run the gateway", Args: exactly(),
		Long: "Run the gateway until SIGINT or SIGTERM, then let open requests end, for listen.drain_ms at most; a second signal cuts them at once.\nSIGHUP or a changed file reloads; a file with an error changes nothing.",
		RunE: func(c *cobra.Command, _ []string) error { return a.runServe(c.Context(), path) }}
	fileFlag(c, &path)
	return c
}

func (a *app) runServe(ctx context.Context, path string) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // from the first moment to the last: unheard, it would end the process
	defer signal.Stop(hup)
	cfg, err := config.Load(path, a.env)
	if err != nil {
		return err
	}
	g, err := a.open(ctx, cfg, make(chan chan error))
	if err != nil {
		return err
	}
	g.supervisor = newSupervisor(a.env, a.clock, g.log)
	defer g.supervisor.close()
	var pacing sync.WaitGroup
	defer pacing.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pacing.Go(func() { paceCollector(ctx, a.env) })
	g.note() // before anything can change the configuration
	watched, err := a.watch(ctx, hup, g, path)
	if err == nil { // from the first answer on no change of a file is missed
		debug.FreeOSMemory() // starting took twice what is left of it: vocabularies as text, entries that were read again
		g.start()
		g.log.Info("serving", "clients", g.pairs.baseURL("listen", g.clients), "admin", g.pairs.baseURL("admin", g.admins), "data", config.DataName(cfg.Data))
		if cfg.Limits.Shared.URL == "" {
			g.log.Info("single-machine limits: limits.shared.url names no server")
		}
		g.pairs.remind(g.log, g.clock.Wall())
		err = g.superviseUntil(ctx)
		cancel()
		<-watched
	}
	return a.drain(g, err)
}

// superviseUntil waits for the end of ctx, or of a listener, and then for open requests to end; meanwhile the supervisor
// hears how the gateway fares.
func (g *gateway) superviseUntil(ctx context.Context) error {
	living, end := context.WithCancel(context.Background())
	var told sync.WaitGroup
	told.Go(func() { g.supervisor.watch(living, g.alive) })
	g.supervisor.ready()
	err := g.wait(ctx)
	g.supervisor.stopping()
	g.log.Info("stopping: open requests may end", "listen.drain_ms", g.born.Listen.DrainMS)
	if serr := g.drained(); err == nil {
		err = serr
	}
	g.log.Info("all requests have ended")
	end()
	told.Wait()
	return err
}

// drain lets the requests of g end, closes it and joins what went wrong. That some had to be cut is told in the log; they
// are settled, so it is no failure.
func (a *app) drain(g *gateway, err error) error {
	if serr := g.drained(); err == nil {
		err = serr
	}
	if cerr := g.close(context.Background()); err == nil {
		err = cerr
	}
	return err
}

// drained lets open requests end. They are cut when listen.drain_ms are over, or at another signal.
func (g *gateway) drained() error {
	again, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	ctx, cancel := context.WithTimeout(again, time.Duration(g.born.Listen.DrainMS)*time.Millisecond)
	defer cancel()
	err := g.stop(ctx)
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	g.log.Warn("requests that had not ended were cut", "listen.drain_ms", g.born.Listen.DrainMS, "at_a_signal", again.Err() != nil)
	return nil
}

// newLog makes a log whose level may change while it is used.
func newLog(w io.Writer, o config.Log) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(o.SlogLevel())
	options := &slog.HandlerOptions{Level: level}
	if o.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), level
	}
	return slog.New(slog.NewTextHandler(w, options)), level
}

// settle is how long a changed file must be quiet before it is read: editors write in several steps, and signal then.
const settle = 100 * time.Millisecond

// watching is a gateway that follows its files.
type watching struct {
	*gateway
	env    func(string) (string, bool)
	files  *fsnotify.Watcher
	path   string // of the configuration
	module string // that it names; also of a refused one, whose module may be what is still to come
}

// watch reloads when hup says so and when the configuration or the module file it names changes. The returned channel
// closes when the watcher has ended, after ctx.
func (a *app) watch(ctx context.Context, hup <-chan os.Signal, g *gateway, path string) (<-chan struct{}, error) {
	files, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", path, err)
	}
	// Folders are watched, not files: an editor that renames a new file into place would end a file's watch.
	if err := files.Add(filepath.Dir(path)); err != nil {
		_ = files.Close()
		return nil, fmt.Errorf("watching %s: %w", path, err)
	}
	w := &watching{gateway: g, env: a.env, files: files, path: path}
	w.follow(g.cfg.Policies.Module)
	for _, dir := range g.pairs.folders() {
		if err := files.Add(dir); err != nil {
			_ = files.Close()
			return nil, fmt.Errorf("watching %s: %w", dir, err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = files.Close() }()
		w.reloads(ctx, hup)
	}()
	return done, nil
}

// follow watches the folder of a module file; module may be a shipped name, or none.
func (w *watching) follow(module string) {
	w.module = module
	if !strings.HasSuffix(module, ".wasm") {
		return
	}
	if err := w.files.Add(filepath.Dir(module)); err != nil {
		w.log.Warn("a change of the module file will not be seen", "file", module, "error", err)
	}
}

func (w *watching) reloads(ctx context.Context, hup <-chan os.Signal) {
	quiet, renewal := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	quiet.Stop()
	renewal.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-w.files.Events:
			if concerns(event.Name, w.path) || concerns(event.Name, w.module) {
				quiet.Reset(settle)
			}
			if w.pairs.have(event.Name) {
				renewal.Reset(settle)
			}
		case err := <-w.files.Errors:
			w.log.Warn("watching files", "error", err)
		case <-hup: // mostly of somebody who has just changed a file, which is then read once
			quiet.Reset(settle)
			renewal.Reset(settle)
		case <-renewal.C:
			w.pairs.renew(w.log, w.clock.Wall())
		case <-quiet.C:
			_ = w.reloadOnce(ctx, false)
		case answer := <-w.applies:
			answer <- w.reloadOnce(ctx, true)
		}
	}
}

// note warns of what the configuration says without effect.
func (g *gateway) note() {
	for _, text := range g.cfg.Notes() {
		g.log.Warn(text)
	}
}

// concerns tells whether a change of the file named may be one of path: of it itself, or of a link beside it, such as
// ..data, by which a mounted folder is exchanged as a whole.
func concerns(name, path string) bool {
	if path == "" {
		return false
	}
	return filepath.Clean(name) == filepath.Clean(path) || filepath.Dir(name) == filepath.Dir(path) && strings.HasPrefix(filepath.Base(name), "..")
}

// reloadOnce logs what it returns: only who asked over the API hears of it.
func (w *watching) reloadOnce(ctx context.Context, overwrite bool) error {
	w.supervisor.reloading()
	defer func() {
		if ctx.Err() == nil {
			w.supervisor.ready()
		}
	}()
	cfg, err := config.Load(w.path, w.env)
	if err == nil {
		w.follow(cfg.Policies.Module)
		err = w.reload(ctx, cfg, overwrite)
	}
	if err != nil {
		w.log.Error("reload refused, the old configuration serves on", "error", err)
		return err
	}
	w.log.Info("reloaded", "file", w.path, "module", w.module, "overwrite", overwrite)
	w.note()
	return nil
}
