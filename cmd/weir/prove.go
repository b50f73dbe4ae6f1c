package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/config"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/policies"
	"github.com/weir-gateway/weir/sdk/abi"
)

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
	m, err := host.Add(ctx, p.Name, p.Wasm, p.Profile)
	if err != nil {
		return placed(cfg, seed, err)
	}
	if err = host.Activate(ctx, &policy.Binding{Module: m.Name, Hash: m.Hash, Params: p.Params, OnError: p.OnError}, cfg.PolicyEnvelope()); err != nil {
		return paramsRefused(cfg, p.Wasm, err) // of a module that was verified before
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
	case !ok || len(seed.Policies) == 0:
		return fmt.Errorf("applying the configuration: %w", err)
	case refused.Code == "policy_params_refused":
		return paramsRefused(cfg, moduleOf(seed.Policies[0]), refused)
	case refused.Code == "policy_module_refused":
		return cfg.At("policies.module", fmt.Errorf("%s: %w", cfg.Policies.Module, refused))
	}
	return fmt.Errorf("applying the configuration: %w", err)
}

func moduleOf(p admin.SeedPolicy) []byte {
	if p.Wasm != nil {
		return p.Wasm
	}
	wasm, _ := policies.Shipped(p.Name)
	return wasm
}

// schemaPlace is one line of what a schema says against params: a JSON pointer and a reason.
var schemaPlace = regexp.MustCompile(`at '(/[^']*)?': ([^;\n]*)`)

var unknownMember = regexp.MustCompile(`additional properties '([^']*)'`)

// paramsRefused places what a module or its schema says against the params of the file: the field, and the nearest one
// that the schema knows.
func paramsRefused(cfg *config.Config, wasm []byte, err error) error {
	text := strings.TrimPrefix(err.Error(), "policy module refused: ")
	text = strings.TrimPrefix(text, "params: ")
	path, reason := "policies.params", text
	deepest := -1
	for _, m := range schemaPlace.FindAllStringSubmatch(text, -1) {
		if len(m[1]) > deepest {
			deepest, path, reason = len(m[1]), "policies.params"+yamlPath(m[1]), m[2]
		}
	}
	if m := unknownMember.FindStringSubmatch(reason); m != nil {
		schema, _ := splitSection(wasm, abi.SectionSchema)
		path += yamlPath("/" + m[1])
		reason = "the module has no such param"
		if known := schemaNames(schema); len(known) > 0 {
			reason += "; it has " + strings.Join(known, ", ")
			if near := llm.Nearest(m[1], known); near != "" {
				reason = fmt.Sprintf("the module has no such param; did you mean %q?", near)
			}
		}
	}
	return cfg.At(path, errors.New(reason))
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// yamlPath is a JSON pointer as the configuration writes paths: /rules/0/when is .rules[0].when.
func yamlPath(pointer string) string {
	var out strings.Builder
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch {
		case part == "":
		case strings.Trim(part, "0123456789") == "":
			out.WriteString("[" + part + "]")
		case plainName.MatchString(part):
			out.WriteString("." + part)
		default:
			out.WriteString(".'" + part + "'")
		}
	}
	return out.String()
}

// schemaNames are all the names of members that a schema knows, at any depth, in order.
func schemaNames(schema []byte) []string {
	var doc any
	if json.Unmarshal(schema, &doc) != nil {
		return nil
	}
	names := map[string]bool{}
	gatherNames(doc, names)
	return slices.Sorted(maps.Keys(names))
}

func gatherNames(doc any, into map[string]bool) {
	switch doc := doc.(type) {
	case []any:
		for _, x := range doc {
			gatherNames(x, into)
		}
	case map[string]any:
		if properties, ok := doc["properties"].(map[string]any); ok {
			for name := range properties {
				into[name] = true
			}
		}
		for _, x := range doc {
			gatherNames(x, into)
		}
	}
}
