package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/alert"
	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/config"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/proxy"
	"github.com/weir-gateway/weir/core/tokens"
	"github.com/weir-gateway/weir/core/upstream"
	"github.com/weir-gateway/weir/policies"
	"github.com/weir-gateway/weir/store"
)

// gateway is one running instance: every part, in the order in which it was made. Its parts are closed in the
// reverse order, so that what settles (proxy) stops before what records (ledger).
type gateway struct {
	cfg   *config.Config // the last one that was applied
	born  *config.Config // the one it was started with
	log   *slog.Logger
	level *slog.LevelVar // of log
	clock llm.Clock

	host    *policy.Host
	client  *upstream.Client
	ledger  *ledger.Ledger
	limiter *limit.Memory
	proxy   *proxy.Server
	api     *admin.API
	alerts  *alert.Sender // nil: there is no receiver

	pairs           certificates
	clients, admins net.Listener
	adminHTTP       *http.Server
	stopped         bool
	closers         []func() error
	serving         sync.WaitGroup
	failed          chan error
	supervisor      *supervisor     // nil: nobody asks
	applies         chan chan error // to who reloads the configuration file; nil: there is none
}

// open builds a gateway and binds its listeners; nothing is accepted before start. Who reloads the configuration file
// answers applies; nil: there is no file. On error everything that was opened is closed again.
func (a *app) open(ctx context.Context, cfg *config.Config, applies chan chan error) (*gateway, error) {
	g := &gateway{cfg: cfg, born: cfg, clock: a.clock, failed: make(chan error, 2), applies: applies}
	g.log, g.level = newLog(a.err, cfg.Log)
	if err := g.build(ctx, a.random); err != nil {
		_ = g.close(ctx)
		return nil, err
	}
	return g, nil
}

func (g *gateway) build(ctx context.Context, random io.Reader) error {
	metrics.ExposeMetadata(true)
	seed, err := seedOf(g.cfg)
	if err != nil {
		return err
	}
	if g.pairs, err = openPairs(g.cfg, g.clock.Wall()); err != nil {
		return err
	}
	state, err := g.openLedger()
	if err != nil {
		return err
	}
	if err := g.openParts(random); err != nil {
		return err
	}
	g.openAlerts(state)
	if err := g.openServers(ctx, random); err != nil {
		return err
	}
	if err := g.api.Restore(ctx, state); err != nil {
		return placedTier(g.cfg, fmt.Errorf("restoring the data folder: %w", err))
	}
	if err := g.api.Seed(ctx, seed, false); err != nil {
		return placed(g.cfg, seed, err)
	}
	g.proxy.Remind()
	return g.listen()
}

func (g *gateway) onClose(f func() error) { g.closers = append(g.closers, f) }

func (g *gateway) openLedger() (ledger.State, error) {
	slog.SetDefault(g.log) // stores warn by it
	st, err := store.Open(g.cfg.Data)
	if err != nil {
		return ledger.State{}, err
	}
	g.onClose(st.Close)
	o := g.cfg.LedgerOptions()
	o.Log = g.log
	l, state, err := ledger.Open(st, o, g.clock)
	if err != nil {
		return state, fmt.Errorf("opening the ledger in %s: %w", config.DataName(g.cfg.Data), err)
	}
	g.ledger = l
	g.onClose(l.Close)
	if state.Recovered > 0 {
		g.log.Warn("settled what the last process left open", "reservations", state.Recovered)
	}
	return state, nil
}

// share opens the windows that this gateway shares with others, if it does. A server that does not answer keeps nobody from
// serving: it is an outage like any other.
func (g *gateway) share(limits *limit.Options, random io.Reader) error {
	at := g.cfg.Limits.Shared.URL
	if at == "" {
		return nil
	}
	var number [8]byte
	if _, err := io.ReadFull(random, number[:]); err != nil {
		return fmt.Errorf("drawing the gateway's number: %w", err)
	}
	server, err := store.OpenWindows(at, limits.Algorithms, g.cfg.Limits.Shared.Gateways)
	if err != nil {
		return g.cfg.At("limits.shared.url", err)
	}
	g.onClose(func() error { server.Close(); return nil })
	limits.Sharing = g.cfg.Sharing()
	limits.Sharing.Server, limits.Sharing.Gateway = server, binary.LittleEndian.Uint64(number[:])
	limits.Sharing.Told = func(err error) {
		if err != nil {
			g.log.Warn("the shared windows do not answer: this gateway decides alone", "why", err)
			return
		}
		g.log.Info("the shared windows answer again")
	}
	return nil
}

func (g *gateway) openParts(random io.Reader) error {
	limits := g.cfg.LimitOptions()
	if err := g.share(&limits, random); err != nil {
		return err
	}
	g.limiter = limit.New(limits, g.clock, g.ledger)
	g.onClose(func() error { g.limiter.Close(); return nil })
	cache, err := cacheDir(g.cfg.Data)
	if err != nil {
		return err
	}
	sink, err := g.decisionLog()
	if err != nil {
		return err
	}
	g.host, err = policy.NewHost(policy.Options{CacheDir: cache, Tiers: g.cfg.TierNames(), Labels: g.cfg.LabelNames(), Log: g.log, Clock: g.clock,
		DefaultDims: g.cfg.DefaultKinds(), TierLimits: g.tierRates, DecisionLog: policy.DecisionLog{Sample: g.cfg.Policies.DecisionLog.Sample, Sink: sink}})
	if err != nil {
		return fmt.Errorf("starting the policy host: %w", err)
	}
	g.onClose(func() error { g.host.Close(); return nil })
	g.client = upstream.NewClient(g.cfg.Upstream, g.clock)
	g.onClose(func() error { g.client.Close(); return nil })
	return nil
}

// openAlerts starts the webhook, if there is one, where the process before left off.
func (g *gateway) openAlerts(state ledger.State) {
	g.alerts = alert.New(g.cfg.Alerts, alert.Parts{Clock: g.clock, Log: g.log, Currency: g.cfg.Currency,
		Told: func(ctx context.Context, key uint64, label int32, percent int) error {
			return g.ledger.Tell(ctx, ledger.Told{Key: key, Label: label, Percent: percent})
		}})
	g.onClose(func() error { g.alerts.Close(); return nil })
	for _, t := range state.Told {
		g.alerts.Told(t.Key, t.Label, t.Percent)
	}
}

// tierRates are the limits of a tier by its index as they are now, for the facts of orgs' modules; 0: unlimited.
func (g *gateway) tierRates(i int) (qps, tpm int64) {
	tiers := g.proxy.Snapshot().Tiers
	if i < 0 || i >= len(tiers) {
		return 0, 0
	}
	return tiers[i].Limits.QPS, tiers[i].Limits.TPM
}

// decisionLog opens the file that the host's log goes to; nil when there is none.
func (g *gateway) decisionLog() (func([]byte) error, error) {
	o := g.cfg.Policies.DecisionLog
	if o.Path == "" {
		return nil, nil
	}
	f, err := policy.OpenLogFile(o.Path, int64(o.MaxMB)<<20)
	if err != nil {
		return nil, g.cfg.At("policies.decision_log.path", err)
	}
	g.onClose(f.Close)
	return f.Append, nil
}

// cacheDir is where compiled modules live: beside the data, where it is a folder; else in the folder that systemd gives a
// unit for its state, or in the user's for caches.
func cacheDir(data string) (string, error) {
	folder := strings.TrimPrefix(data, "badger://")
	state, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
	switch {
	case !strings.Contains(folder, "://"):
	case state != "":
		folder = state
	default:
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("finding a folder for compiled modules: %w", err)
		}
		folder = filepath.Join(user, "weir")
	}
	dir := filepath.Join(folder, "modules")
	return dir, os.MkdirAll(dir, 0o700)
}

func (g *gateway) openServers(ctx context.Context, random io.Reader) error {
	counter, err := tokens.New(g.cfg.Tokens)
	if err != nil {
		return fmt.Errorf("loading the vocabularies: %w", err)
	}
	secret, err := admin.Secret(g.ledger, random)
	if err != nil {
		return err
	}
	directory := auth.NewDirectory(secret, g.clock)
	parts := proxy.Parts{Clock: g.clock, Random: random, Directory: directory, Limiter: g.limiter,
		Money: g.limiter, Ledger: g.ledger, Counter: counter, Policy: g.host, Client: g.client, Log: g.log}
	if g.alerts != nil {
		parts.Alerts = g.alerts
	}
	g.proxy = proxy.New(g.cfg.Listen.Options, parts)
	g.proxy.SetSettings(g.cfg.Settings())
	g.api = admin.New(admin.Options{Token: g.cfg.Admin.Token, Currency: g.cfg.Currency, Envelopes: g.cfg.PolicyEnvelopes(), Version: thisBuild().Version,
		Tiers: g.cfg.TierLimits(), TierNames: g.cfg.TierNames(), Labels: adminLabels(g.cfg)},
		admin.Parts{Clock: g.clock, Random: random, Ledger: g.ledger, Directory: directory, Limiter: g.limiter, Policy: g.host,
			Client: g.client, Live: g.proxy, Log: g.log, Shipped: policies.Shipped, Metrics: g.writeMetrics, Apply: g.applier(ctx)})
	g.onClose(func() error { g.api.Close(); return nil })
	g.proxy.SetTenants(g.api)
	return nil
}

func (g *gateway) writeMetrics(w io.Writer) {
	g.proxy.WriteMetrics(w)
	g.alerts.WriteMetrics(w)
	g.pairs.writeMetrics(w)
	metrics.WriteProcessMetrics(w)
}

func adminLabels(cfg *config.Config) (labels []admin.Label) {
	for _, l := range cfg.Policies.Labels {
		labels = append(labels, admin.Label(l))
	}
	return labels
}

func (g *gateway) listen() (err error) {
	if g.clients, err = g.pairs.listen("listen", g.cfg.Listen.Address); err != nil {
		return err
	}
	g.onClose(func() error { return ignoreClosed(g.clients.Close()) })
	if g.admins, err = g.pairs.listen("admin", g.cfg.Admin.Address); err != nil {
		return err
	}
	g.onClose(func() error { return ignoreClosed(g.admins.Close()) })
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// start serves both listeners until close.
func (g *gateway) start() {
	head := time.Duration(g.born.Listen.HeadTimeoutMS) * time.Millisecond // as the clients' listener, but for large modules there is more time
	g.adminHTTP = &http.Server{Handler: admin.Steady(g.api.Handler(), g.clock, head, time.Minute), ReadHeaderTimeout: head, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelWarn)}
	g.onClose(func() error {
		g.serving.Wait()
		return nil
	})
	g.serving.Go(func() { g.report(g.proxy.Serve(g.clients)) })
	g.serving.Go(func() { g.report(g.adminHTTP.Serve(g.admins)) })
	g.startRetention()
}

func (g *gateway) report(err error) {
	if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		g.failed <- err
	}
}

// wait returns when ctx ends, or with the error of a listener that failed.
func (g *gateway) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-g.failed:
		return err
	}
}

// stop takes no more requests and lets those that are open end, until ctx ends; then they are cut.
func (g *gateway) stop(ctx context.Context) error {
	if g.adminHTTP == nil || g.stopped {
		return nil
	}
	g.stopped = true
	err := g.proxy.Shutdown(ctx)
	if aerr := g.adminHTTP.Shutdown(ctx); aerr != nil {
		err = errors.Join(err, aerr, g.adminHTTP.Close()) // an export that nobody reads must not outlive the store
	}
	return err
}

// close stops, then closes every part in reverse order.
func (g *gateway) close(ctx context.Context) error {
	errs := []error{g.stop(ctx)}
	for i := len(g.closers) - 1; i >= 0; i-- {
		errs = append(errs, g.closers[i]())
	}
	return errors.Join(errs...)
}

// applier asks whoever reloads, until life ends, to let the file win over the API; nil where there is no file.
func (g *gateway) applier(life context.Context) func(context.Context) error {
	if g.applies == nil {
		return nil
	}
	return func(ctx context.Context) error {
		answer := make(chan error, 1)
		select {
		case g.applies <- answer:
			return <-answer
		case <-ctx.Done():
			return ctx.Err()
		case <-life.Done():
			return llm.Errorf(llm.KindUnavailable, "shutting down")
		}
	}
}

// reload applies a changed configuration: settings, policies, and objects the store lacks; with overwrite also those
// that the API changed. What cannot change in a running process is named in the log. On error nothing changes.
func (g *gateway) reload(ctx context.Context, cfg *config.Config, overwrite bool) error {
	// Policies know tiers and labels by index, and requests in flight hold such indices.
	if now, was := cfg.TierNames(), g.cfg.TierNames(); !slices.Equal(now, was) {
		return cfg.At("tiers", fmt.Errorf("the names of tiers change only with a restart, from %s to %s; limits of a tier change at once", listed(was), listed(now)))
	}
	if !slices.Equal(cfg.Policies.Labels, g.cfg.Policies.Labels) {
		return cfg.At("policies.labels", fmt.Errorf("labels change only with a restart, from %s to %s", listed(g.cfg.LabelNames()), listed(cfg.LabelNames())))
	}
	seed, err := seedOf(cfg)
	if err != nil {
		return err
	}
	settings := cfg.Settings()
	settings.Currency = g.born.Currency
	seed.Then = func() {
		settings.Global = g.proxy.Snapshot().Global // Seed has decided between the file and the API
		g.proxy.SetSettings(settings)
	}
	g.api.SetTiers(cfg.TierLimits())
	g.api.SetEnvelopes(cfg.PolicyEnvelopes())
	if err := g.api.Seed(ctx, seed, overwrite); err != nil {
		g.api.SetTiers(g.cfg.TierLimits())
		g.api.SetEnvelopes(g.cfg.PolicyEnvelopes())
		return placed(cfg, seed, err)
	}
	g.level.Set(cfg.Log.SlogLevel())
	if fixed := cfg.NeedRestart(g.born); len(fixed) > 0 {
		g.log.Warn("these settings change only with a restart: " + strings.Join(fixed, ", "))
	}
	g.cfg = cfg
	return nil
}
