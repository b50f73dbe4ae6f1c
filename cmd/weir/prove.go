package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/config"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/policies"
	"github.com/weir-gateway/weir/store"
)

// prove says what serve would refuse of a file that Load accepts.
func (a *app) prove(ctx context.Context, cfg *config.Config) error {
	if _, err := openPairs(cfg, a.clock.Wall()); err != nil {
		return err
	}
	if err := proveDecisionLog(cfg); err != nil {
		return err
	}
	if err := proveTiers(cfg); err != nil {
		return err
	}
	return a.proveModule(ctx, cfg)
}

// proveTiers compares the file with the tiers of the keys there are. A store that is not there, or that the running
// gateway has, tells nothing.
func proveTiers(cfg *config.Config) error {
	st, err := store.OpenExisting(cfg.Data)
	if err != nil {
		return nil // whether it is fit is the doctor's to say
	}
	defer func() { _ = st.Close() }()
	return placedTier(cfg, admin.CheckTiers(ledger.Docs(st, "key"), cfg.TierLimits()))
}

// placedTier names the place in the file of tiers that keys have and the file has not.
func placedTier(cfg *config.Config, err error) error {
	if lost, ok := errors.AsType[*llm.Error](err); ok && lost.Code == admin.CodeTierLost {
		return cfg.At("tiers", lost)
	}
	return err
}

// proveDecisionLog says what serve would, without leaving a file behind.
func proveDecisionLog(cfg *config.Config) error {
	if path := cfg.Policies.DecisionLog.Path; path != "" {
		if err := policy.CheckLogFile(path); err != nil {
			return cfg.At("policies.decision_log.path", err)
		}
	}
	return nil
}

// proveModule verifies the module that a configuration names, with its params, as serve will: in a child, and in a
// folder that is thrown away.
func (a *app) proveModule(ctx context.Context, cfg *config.Config) error {
	seed, err := seedOf(cfg)
	if err != nil || len(seed.Policies) == 0 {
		return err
	}
	dir, err := os.MkdirTemp("", "weir-check-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	host, err := policy.NewHost(policy.Options{CacheDir: dir, Tiers: cfg.TierNames(), Labels: cfg.LabelNames(), DefaultDims: cfg.DefaultKinds(), Log: slog.New(slog.DiscardHandler), Clock: a.clock})
	if err != nil {
		return err
	}
	defer host.Close()
	p := seed.Policies[0]
	if p.Wasm == nil {
		p.Wasm, _ = policies.Shipped(p.Name)
	}
	if err := admin.CheckModuleName(p.Name, p.Wasm, policies.Shipped); err != nil {
		return placed(cfg, seed, err)
	}
	m, err := host.Add(ctx, p.Name, p.Wasm, p.Profile)
	if err != nil {
		return placed(cfg, seed, err)
	}
	if err = host.Activate(ctx, &policy.Binding{Module: m.Name, Hash: m.Hash, Params: p.Params, OnError: p.OnError}, cfg.PolicyEnvelope()); err != nil {
		return paramsRefused(cfg, err) // of a module that was verified before
	}
	return nil
}

// seedOf collects what the configuration wants to exist, and reads the module file it names.
func seedOf(cfg *config.Config) (admin.Seed, error) {
	seed := admin.Seed{Global: cfg.Settings().Global, Models: cfg.UpstreamModels(), Channels: cfg.Channels}
	p := cfg.Policies
	if p.Module == "" {
		return seed, nil
	}
	sp := admin.SeedPolicy{Name: p.Module, Profile: p.Profile, Params: cfg.PolicyParams(), OnError: p.OnError, Active: true}
	if strings.HasSuffix(p.Module, ".wasm") {
		wasm, err := os.ReadFile(p.Module)
		if err != nil {
			return seed, cfg.At("policies.module", err)
		}
		sp.Name, sp.Wasm = strings.TrimSuffix(filepath.Base(p.Module), ".wasm"), wasm
	} else if _, ok := policies.Shipped(p.Module); !ok {
		text := fmt.Sprintf("%q is neither a .wasm file nor one of the shipped modules: %s", p.Module, strings.Join(policies.Names(), ", "))
		if near := llm.Nearest(p.Module, policies.Names()); near != "" {
			text += fmt.Sprintf("; did you mean %q?", near)
		}
		return seed, cfg.At("policies.module", errors.New(text))
	}
	seed.Policies = []admin.SeedPolicy{sp}
	return seed, nil
}

// placed names the place in the file of what the gateway refuses to seed: the module, or its params.
func placed(cfg *config.Config, seed admin.Seed, err error) error {
	refused, ok := errors.AsType[*llm.Error](err)
	switch {
	case ok && refused.Code == "policy_params_refused":
		return paramsRefused(cfg, refused)
	case ok && slices.Contains([]string{"policy_module_refused", admin.CodeName}, refused.Code) && len(seed.Policies) > 0:
		return cfg.At("policies.module", fmt.Errorf("%s: %w", cfg.Policies.Module, refused))
	}
	return fmt.Errorf("applying the configuration: %w", err)
}

// misfit is what is said against one of the params: where, and what.
var misfit = regexp.MustCompile(`^(\w+(?:\.\w+|\[\d+\])*): (.*)$`)

// paramsRefused places what a module or its schema says against the params of the file at the first of them.
func paramsRefused(cfg *config.Config, err error) error {
	text := strings.TrimPrefix(err.Error(), "policy module refused: ")
	text = strings.TrimPrefix(text, "params: ")
	if m := misfit.FindStringSubmatch(text); m != nil {
		return cfg.At("policies.params."+m[1], errors.New(m[2]))
	}
	return cfg.At("policies.params", errors.New(text))
}
