package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/config"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/sim"
	"github.com/weir-gateway/weir/core/upstream"
)

// demoFlags are the demo's settings; empty ones are made up.
type demoFlags struct {
	listen, admin, upstream, data, key, adminToken, logLevel string
	json                                                     bool
}

func (a *app) demo() *cobra.Command {
	var f demoFlags
	c := &cobra.Command{Use: "demo", Short: "Gateway, simulated upstream, one org, user and key, in one process", Args: exactly(),
		Long: "Start everything in one process: no configuration, no network. Prints the key, the admin token and three curl\nlines to paste. Ctrl+C drains and prints a summary. With --json it prints both as JSON, one object a line.",
		RunE: func(c *cobra.Command, _ []string) error { return a.runDemo(c.Context(), f) }}
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:3000", "client listener")
	c.Flags().StringVar(&f.admin, "admin", "127.0.0.1:3001", "admin listener")
	c.Flags().StringVar(&f.upstream, "upstream", "127.0.0.1:3009", "simulated upstream")
	c.Flags().StringVar(&f.data, "data", "", "data `folder` (default: a temporary one)")
	c.Flags().StringVar(&f.key, "key", "", "client key, sk-weir-… (default: a new one)")
	c.Flags().StringVar(&f.adminToken, "admin-token", "", "admin token, at least 16 characters (default: a random one)")
	c.Flags().StringVar(&f.logLevel, "log-level", "warn", "debug, info, warn or error")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return c
}

func (a *app) runDemo(ctx context.Context, f demoFlags) error {
	if f.adminToken == "" {
		raw := make([]byte, 20)
		if _, err := io.ReadFull(a.random, raw); err != nil {
			return fmt.Errorf("making an admin token: %w", err)
		}
		f.adminToken = hex.EncodeToString(raw)
	}
	early := f
	if early.data == "" {
		early.data = os.TempDir()
	}
	if _, err := demoConfig(early, "127.0.0.1:1"); err != nil {
		return err // before anything is started
	}
	if f.key != "" {
		if _, err := auth.NewDirectory(make([]byte, 32), a.clock).Adopt(f.key); err != nil {
			return usageError("demo: --key: %v", err)
		}
	}
	if f.data == "" {
		dir, err := os.MkdirTemp("", "weir-demo-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		f.data = dir
	}
	up, err := listenOn("--upstream", f.upstream)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; beside another demo all three need one: --listen 127.0.0.1:0 --admin 127.0.0.1:0 --upstream 127.0.0.1:0", err)
	}
	if err != nil {
		return err
	}
	s := a.startSim(sim.Options{}, up)
	err = a.serveDemo(ctx, f, up.Addr().String())
	if serr := s.stop(); err == nil {
		err = serr
	}
	return err
}

func (a *app) serveDemo(ctx context.Context, f demoFlags, upstreamAddr string) error {
	cfg, err := demoConfig(f, upstreamAddr)
	if err != nil {
		return err
	}
	g, err := a.open(ctx, cfg, nil)
	if err != nil {
		return err
	}
	g.start()
	key, err := a.demoObjects(ctx, g, f)
	if err == nil {
		d := running{Ready: g.proxy.Ready() == nil, GatewayURL: "http://" + g.clients.Addr().String(), AdminURL: "http://" + g.admins.Addr().String(),
			UpstreamURL: "http://" + upstreamAddr, Key: key, AdminToken: f.adminToken, Model: demoModel, QPSLimit: demoQPS, TPMLimit: demoTPM}
		if err = a.printDemo(&d, f.json); err == nil {
			err = errors.Join(g.wait(ctx), g.drained(), a.printSummary(g, f.json))
		}
	}
	return a.drain(g, err)
}

// demoConfig is the configuration file that the demo does not need.
func demoConfig(f demoFlags, upstreamAddr string) (*config.Config, error) {
	text := fmt.Sprintf(`
listen: {address: %q}
admin: {address: %q, token: %q}
data: %q
log: {level: %q}
tiers:
  - {name: free, qps: 2, tpm: 20000}
  - {name: pro, qps: 50, tpm: 1000000}
policies:
  module: default
  header: true
  labels:
    - {name: tier, source: key}
    - {name: soft, source: key}
    - {name: hot, source: model}
    - {name: team, source: key}
`, f.listen, f.admin, f.adminToken, f.data, f.logLevel)
	cfg, err := config.Parse("demo", []byte(text), os.LookupEnv)
	if e, ok := errors.AsType[*config.Error](err); ok {
		return nil, usageError("demo: %s", e.Message)
	}
	if err != nil {
		return nil, err
	}
	cfg.Models = config.KnownModels()
	hot := cfg.Models["gpt-4o"]
	hot.Labels = map[string]string{"hot": "yes"} // for policy priority
	cfg.Models["gpt-4o"] = hot
	for _, provider := range []string{"openai", "anthropic"} {
		cfg.Channels = append(cfg.Channels, upstream.Channel{Name: "sim-" + provider, Provider: provider,
			BaseURL: "http://" + upstreamAddr, Credential: "sk-simulated", State: "enabled"})
	}
	return cfg, nil
}

// demoObjects makes the org, the user and the key through the admin API, as an operator would. On a data folder that
// was used before it takes what is there.
func (a *app) demoObjects(ctx context.Context, g *gateway, f demoFlags) (key string, err error) {
	r := &remote{app: a, url: "http://" + g.admins.Addr().String(), token: f.adminToken, currency: g.cfg.Currency}
	org, err := r.ensure(ctx, "/admin/orgs", map[string]any{"name": "Demo"})
	if err != nil {
		return "", err
	}
	user, err := r.ensure(ctx, "/admin/users", map[string]any{"orgId": org.ID, "name": "alice", "balanceCny": 100})
	if err != nil {
		return "", err
	}
	wanted := map[string]any{"userId": user.ID, "name": "demo " + a.clock.Wall().Format("2006-01-02 15:04:05"), "tier": "free", "labels": map[string]string{"team": "blue"}, "qpsLimit": demoQPS, "tpmLimit": demoTPM, "monthlyQuotaCny": 50}
	if f.key != "" {
		wanted["name"], wanted["plaintext"] = "demo "+f.key[:len("sk-weir-12345678")], f.key // to be found by its id characters
	}
	made, err := r.ensure(ctx, "/admin/keys", wanted)
	if made.Plaintext == "" {
		made.Plaintext = f.key
	}
	return made.Plaintext, err
}

// made is what the admin API says of an object.
type made struct {
	ID              int64
	Name, Plaintext string
}

// ensure finds an object by its name, or makes it.
func (r *remote) ensure(ctx context.Context, path string, object map[string]any) (m made, err error) {
	answer, err := r.do(ctx, "GET", path, nil, "")
	if err != nil {
		return m, err
	}
	var there struct{ Data []made }
	if err := json.Unmarshal(answer, &there); err != nil {
		return m, err
	}
	for _, m := range there.Data {
		if m.Name == object["name"] {
			return m, nil
		}
	}
	raw, err := json.Marshal(object)
	if err != nil {
		return m, err
	}
	if answer, err = r.do(ctx, "POST", path, raw, "application/json"); err != nil {
		return m, err
	}
	return m, json.Unmarshal(answer, &m)
}

// The demo's key has these limits, and its examples this model.
const (
	demoQPS   = 2
	demoTPM   = 20_000
	demoModel = "gpt-4o-mini"
)

// running is what a demo says of itself.
type running struct {
	Ready       bool   `json:"ready"`
	GatewayURL  string `json:"gateway_url"` // OpenAI's SDKs want /v1 behind it
	AdminURL    string `json:"admin_url"`
	UpstreamURL string `json:"upstream_url"`
	Key         string `json:"key"`
	AdminToken  string `json:"admin_token"`
	Model       string `json:"model"` // one that the key may use
	QPSLimit    int64  `json:"qps_limit"`
	TPMLimit    int64  `json:"tpm_limit"`
}

func (a *app) printDemo(d *running, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(a.out).Encode(d)
	}
	chat := fmt.Sprintf(`curl -s %s/v1/chat/completions -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' -d`, d.GatewayURL, d.Key)
	_, err := fmt.Fprintf(a.out, `Weir is running. Ctrl+C stops it.

  gateway      %[1]s/v1 (for Anthropic SDKs: %[1]s)
  admin        %[2]s
  upstream     %[3]s (simulated)
  key          %[4]s (2 requests per second, 20,000 tokens per minute)
  admin token  %[5]s

For a second terminal:
  export WEIR_URL=%[1]s WEIR_KEY=%[4]s WEIR_ADMIN_URL=%[2]s WEIR_ADMIN_TOKEN=%[5]s

An answer:
  %[6]s '{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hello"}]}'

A stream:
  %[6]s '{"model":"gpt-4o-mini","stream":true,"messages":[{"role":"user","content":"hello"}]}' -N

A storm, and the truth about it:
  for i in 1 2 3 4 5; do %[6]s '{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hello"}]}' -w '\n%%{http_code}\n'; done
`, d.GatewayURL, d.AdminURL, d.UpstreamURL, d.Key, d.AdminToken, chat)
	return err
}

// summary is what a demo's ledger recorded.
type summary struct {
	Finalized int    `json:"finalized"`
	Partial   int    `json:"partial"`
	Failed    int    `json:"failed"` // or refunded
	Tokens    int64  `json:"tokens"`
	CostMicro int64  `json:"cost_micro"`
	Currency  string `json:"currency"`
	StillOpen int    `json:"reservations_open"`
}

// summarise reads the ledger once.
func summarise(g *gateway) (s summary, err error) {
	s.Currency, s.StillOpen = g.cfg.Currency, g.limiter.Open()
	for r, err := range g.ledger.Records(ledger.Filter{}) {
		if err != nil {
			return s, fmt.Errorf("reading usage: %w", err)
		}
		switch r.End.Status {
		case llm.StatusFinalized:
			s.Finalized++
		case llm.StatusPartial:
			s.Partial++
		case llm.StatusRefunded, llm.StatusFailed:
			s.Failed++
		}
		s.Tokens += int64(r.End.Usage.Total())
		s.CostMicro += int64(r.End.Cost)
	}
	return s, nil
}

func (a *app) printSummary(g *gateway, asJSON bool) error {
	s, err := summarise(g)
	switch {
	case err != nil:
		return err
	case asJSON:
		return json.NewEncoder(a.out).Encode(s)
	}
	_, err = fmt.Fprintf(a.out, "\n%d requests finalized, %d partial, %d refunded or failed; %d tokens; %d micro-%s charged; %d reservations open\n",
		s.Finalized, s.Partial, s.Failed, s.Tokens, s.CostMicro, s.Currency, s.StillOpen)
	return err
}
