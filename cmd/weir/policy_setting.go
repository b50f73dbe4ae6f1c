package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/config"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/sdk/abi"
)

// setting is what a module is told besides facts: the gateway's tiers and labels. Local commands have no gateway, so they
// are flags; without those, the names that the module's own cases use.
type setting struct {
	tiers, labels []string
	config        string
	set           *cobra.Command
}

func (s *setting) flags(c *cobra.Command) {
	s.set = c
	c.Flags().StringSliceVar(&s.tiers, "tiers", nil, "the gateway's tiers in order, `a,b` (default: those of the module's own cases)")
	c.Flags().StringSliceVar(&s.labels, "labels", nil, "the labels that policies see, in order, `x,y` (default: those of the module's own cases)")
	c.Flags().StringVarP(&s.config, "config", "c", "", "take tiers and labels from this configuration `file`")
}

// settle fills in what was not given: from the configuration, else from a module's cases and the names further met.
func (s *setting) settle(a *app, own *caseFile, met ...string) error {
	given := func(name string) bool { return s.set.Flags().Changed(name) }
	tiers, labels := own.Configure.Tiers, append(slices.Clone(met), own.Configure.Labels...)
	if s.config != "" {
		loaded, err := config.Load(s.config, a.anyEnv)
		if err != nil {
			return err
		}
		tiers, labels = loaded.TierNames(), loaded.LabelNames()
	}
	if !given("tiers") {
		s.tiers = tiers
	}
	if !given("labels") {
		s.labels = labels[:min(len(labels), policy.NAttr-policy.AttrLabel0)]
	}
	return nil
}

// anyEnv stands in for secrets that are not set here: only names are read from the configuration.
func (a *app) anyEnv(name string) (string, bool) {
	if v, ok := a.env(name); ok {
		return v, ok
	}
	return "3f8a1c5e9b2d4f607182a3b4c5d6e7f8", true
}

func (s *setting) options(a *app) policy.Options {
	return policy.Options{Tiers: s.tiers, Labels: s.labels, Clock: a.clock}
}

// host starts a host and adds the modules under their names; their bindings come back in the same order.
func (a *app) host(ctx context.Context, s *setting, of ...*subject) (*policy.Host, []policy.Binding, error) {
	h, err := policy.NewHost(s.options(a))
	if err != nil {
		return nil, nil, err
	}
	bindings := make([]policy.Binding, len(of))
	for i, x := range of {
		m, err := h.Add(ctx, x.name, x.wasm, x.profile)
		if err != nil {
			h.Close()
			return nil, nil, x.explain(err)
		}
		bindings[i] = policy.Binding{Module: m.Name, Hash: m.Hash}
	}
	return h, bindings, nil
}

// explain adds to a refused configuration which tiers and labels it met.
func (s *setting) explain(err error) error {
	if err == nil || !strings.Contains(err.Error(), abi.ExportConfigure) {
		return err
	}
	return fmt.Errorf("%w (tiers here: %s; labels here: %s; --tiers, --labels and -c name the gateway's)", err, listed(s.tiers), listed(s.labels))
}

func listed(names []string) string { return or(strings.Join(names, ", "), "none") }

// caseFile is a file of cases, and a module's section weir.cases.
type caseFile struct {
	Configure struct {
		Tiers  []string        `json:"tiers"`
		Labels []string        `json:"labels"`
		Params json.RawMessage `json:"params,omitempty"`
	} `json:"configure"`
	Cases []oneCase `json:"cases"`
}

type oneCase struct {
	Name  string          `json:"name"`
	Facts json.RawMessage `json:"facts"`
	Want  json.RawMessage `json:"want"`
}

// parseCases reads a file of cases; the host judges what is in it.
func parseCases(name string, raw []byte) (*caseFile, error) {
	f := &caseFile{}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(f); err != nil {
		return nil, jsonError(name, raw, err)
	}
	return f, nil
}

// ownCases are a module's embedded cases; an empty file if it has none that can be read.
func (s *subject) ownCases() *caseFile {
	raw, _ := splitSection(s.wasm, abi.SectionCases)
	if f, err := parseCases(s.name, raw); err == nil {
		return f
	}
	return &caseFile{}
}

// splitSection gives the content of a custom section, and the module without it. A module that is cut short is given
// back as it is: its check is the host's.
func splitSection(wasm []byte, name string) (content, rest []byte) {
	const header = 8
	for at := header; at < len(wasm); {
		size, n := binary.Uvarint(wasm[at+1:])
		body := at + 1 + n
		if n <= 0 || size > uint64(len(wasm)-body) {
			break
		}
		end := body + int(size)
		if long, n := binary.Uvarint(wasm[body:end]); wasm[at] == 0 && n > 0 && long <= uint64(end-body-n) {
			if from := body + n + int(long); string(wasm[body+n:from]) == name {
				return wasm[from:end], slices.Concat(wasm[:at], wasm[end:])
			}
		}
		at = end
	}
	return nil, wasm
}

// withoutCases is the module as it can be tried while its own cases fail.
func (s *subject) withoutCases() *subject {
	bare := *s
	_, bare.wasm = splitSection(s.wasm, abi.SectionCases)
	return &bare
}

// factsDocument are the facts in a file: one object, or an array of them. An object with a member "facts", as a case or a
// line of a decision log is, stands for that member.
func factsDocument(name string, raw []byte) ([]json.RawMessage, error) {
	many := []json.RawMessage{raw}
	if trimmed := bytes.TrimSpace(raw); trimmed[0] == '[' {
		if err := json.Unmarshal(raw, &many); err != nil {
			return nil, jsonError(name, raw, err)
		}
	}
	for i, one := range many {
		if one = bytes.TrimSpace(one); one[0] != '{' {
			return nil, fmt.Errorf("%s: want a JSON object of facts, such as {\"attributes\": {\"model\": \"gpt-4o\"}}, got %.40s", name, one)
		}
		var wrapped struct{ Facts json.RawMessage }
		if json.Unmarshal(one, &wrapped) == nil && wrapped.Facts != nil {
			many[i] = wrapped.Facts
		}
	}
	if len(many) == 0 {
		return nil, errors.New(name + ": want facts, got an empty list")
	}
	return many, nil
}

// parse reads facts under the setting's names; of a name that is not among them it says which flag gives more.
func (s *setting) parse(name string, raw []byte) (*policy.Facts, error) {
	f, err := policy.ParseFacts(raw, s.tiers, s.labels)
	if err == nil {
		return f, nil
	}
	flag := ""
	switch text := err.Error(); {
	case strings.Contains(text, "unknown attribute"):
		flag = "; labels are named with --labels or -c"
	case strings.HasPrefix(text, "facts.tier:"):
		flag = "; tiers are named with --tiers or -c"
	}
	return nil, fmt.Errorf("%s: %w%s", name, err, flag)
}
