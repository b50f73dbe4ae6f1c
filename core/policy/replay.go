package policy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/weir-gateway/weir/core/llm"
)

// Logged is one line of the decision log: what one module was asked and answered.
type Logged struct {
	Time       string          `json:"time"`  // RFC 3339, milliseconds
	Owner      string          `json:"owner"` // Owner.String
	Module     string          `json:"module"`
	Version    string          `json:"version"`
	Generation uint32          `json:"generation"` // as the module was told
	Facts      json.RawMessage `json:"facts"`      // ParseFacts reads it; an org's module is told the operator's effective limits
	Decision   json.RawMessage `json:"decision"`   // the module's own answer, before any envelope
	Clamped    bool            `json:"clamped"`    // the envelope changed it
	Fault      string          `json:"fault,omitempty"`
	Fuel       uint64          `json:"fuel"`
}

// DecisionLog asks for a sample of the decisions, a JSON line each, written off every request's path.
type DecisionLog struct {
	Sample int // one request in so many, picked by its entropy; 0: 1000
	// Sink gets one line with its end, of one goroutine; nil: no log. It must not keep line. What it fails to write is
	// counted as dropped.
	Sink func(line []byte) error
}

// maxLine bounds a line that is read; written ones are shorter.
const maxLine = 1 << 20

// replay is one run over a log: each line's two answers are compared, of which the first may be the logged one.
type replay struct {
	h       *Host
	against []*Runner          // none, the second, or both
	own     map[string]*Runner // by owner and title; where against is empty
	t       *tally
	begun   bool // a whole line was read: this is a decision log
}

// Replay runs the facts of a decision log's lines again and compares: with no binding the logged answers with those that
// the same bindings give now (they must be in a plan of the line's owner, or have default params); with one, the logged
// answers with its own; with two, the first's with the second's. Envelopes are left out. A line that is no
// JSON, cut where a process died, is skipped and counted once a whole one was read; any other that does not parse is an
// error with its number.
func (h *Host) Replay(ctx context.Context, lines io.Reader, against ...Binding) (Report, error) {
	if len(against) > 2 {
		return Report{}, llm.Invalid("against", "%d bindings, want at most 2", len(against))
	}
	p := &replay{h: h, own: map[string]*Runner{}, t: &tally{tiers: h.o.Tiers, labels: h.o.Labels, defaults: h.o.DefaultDims, names: [2]string{"as logged", "as logged"}}}
	defer p.close()
	for i, b := range against {
		r, err := h.Open(ctx, b)
		if err != nil {
			return Report{}, err
		}
		p.against = append(p.against, r)
		p.t.names[i+2-len(against)] = r.r.title()
	}
	in := bufio.NewScanner(lines)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	for n := 1; in.Scan(); n++ {
		if len(bytes.TrimSpace(in.Bytes())) == 0 {
			continue
		}
		if err := p.line(ctx, in.Bytes()); err != nil {
			return Report{}, fmt.Errorf("line %d: %w", n, err)
		}
		if err := ctx.Err(); err != nil {
			return Report{}, err
		}
	}
	if err := in.Err(); err != nil {
		return Report{}, fmt.Errorf("policy: read the decision log: %w", err)
	}
	return p.t.report(), nil
}

func (p *replay) close() {
	for _, r := range p.against {
		r.Close()
	}
	for _, r := range p.own {
		r.Close()
	}
}

func (p *replay) line(ctx context.Context, raw []byte) error {
	var l Logged
	if !json.Valid(raw) && p.begun {
		p.t.skipped.Add(1) // cut where a process died; the lines around it are whole
		return nil
	}
	if err := json.Unmarshal(raw, &l); err != nil {
		return llm.Invalid("lines", "not a line of a decision log: %v", err)
	}
	p.begun = true
	f, err := ParseFacts(l.Facts, p.h.o.Tiers, p.h.o.Labels)
	if err != nil {
		return err
	}
	if len(p.against) < 2 && unasked(l.Fault) {
		p.t.skipped.Add(1)
		return nil
	}
	first, second, err := p.runners(ctx, &l)
	if err != nil {
		return err
	}
	var a, b Decision
	if first == nil {
		logged, err := ParseDecision(l.Decision, p.h.o.Tiers)
		if err != nil {
			return err
		}
		a = *logged
	} else {
		first.run(f, &a, l.Generation)
	}
	if _, ft := second.run(f, &b, l.Generation); ft != faultNone {
		p.t.fault(ft)
		if a.Fault == b.Fault {
			return nil // it failed then, too
		}
	}
	p.t.compare(f, &a, &b)
	return nil
}

// unasked: the module itself was not asked, so that its answer is not known.
func unasked(ft string) bool {
	return ft == faultBusy.String() || ft == faultQuarantined.String() || ft == faultCold.String()
}

// runners are what the two answers to a line come from; first nil: the line itself.
func (p *replay) runners(ctx context.Context, l *Logged) (first, second *Runner, err error) {
	switch len(p.against) {
	case 1:
		return nil, p.against[0], nil
	case 2:
		return p.against[0], p.against[1], nil
	}
	id := l.Owner + " " + l.Module + "@" + l.Version
	if r := p.own[id]; r != nil {
		return nil, r, nil
	}
	b, err := p.h.named(l)
	if err != nil {
		return nil, nil, err
	}
	r, err := p.h.Open(ctx, b)
	if err == nil {
		p.own[id] = r
	}
	return nil, r, err
}

// named is the binding that a line names: of a plan, or of a module with default params.
func (h *Host) named(l *Logged) (Binding, error) {
	owner, err := ParseOwner(l.Owner)
	if err != nil {
		return Binding{}, err
	}
	if at := h.lane(owner); at != nil {
		k := at.cur.Load()
		for _, r := range [...]*recipe{k.want[0], k.want[1], k.good} {
			if r != nil && r.Name == l.Module && r.version == l.Version {
				return r.binding, nil
			}
		}
	}
	m := h.find(func(a *added) bool { b := Binding{Hash: a.Hash}; return a.Name == l.Module && b.Version() == l.Version })
	if m == nil {
		return Binding{}, llm.Invalid("lines", "%s@%s is in no plan of %s and no module by default params; name a binding", l.Module, l.Version, l.Owner)
	}
	return Binding{Module: m.Name, Hash: m.Hash}, nil
}
