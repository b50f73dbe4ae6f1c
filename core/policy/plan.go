package policy

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-gateway/weir/core/llm"
)

// Owner is whose plan it is: Operator, or an org by its id.
type Owner uint64

// Operator owns the module that every request passes.
const Operator Owner = 0

// String is "operator" or "org:7".
func (o Owner) String() string {
	if o == Operator {
		return "operator"
	}
	return "org:" + strconv.FormatUint(uint64(o), 10)
}

// ParseOwner reads what String wrote.
func ParseOwner(s string) (Owner, error) {
	if s == Operator.String() {
		return Operator, nil
	}
	if id, ok := strings.CutPrefix(s, "org:"); ok {
		if n, err := strconv.ParseUint(id, 10, 64); err == nil && n > 0 {
			return Owner(n), nil
		}
	}
	return 0, llm.Invalid("owner", "unknown owner %q: want %q or \"org:ID\"", s, Operator)
}

// Stage is how far a candidate has come.
type Stage string

// The stages. In both the report compares the candidate's decisions with the active binding's.
const (
	StageShadow Stage = "shadow" // decides every request, nothing of it is enforced
	StageCanary Stage = "canary" // decides for Percent of the keys
)

// Plan says what decides for an owner. The zero plan: no module.
type Plan struct {
	Active    *Binding `json:"active"`
	Candidate *Binding `json:"candidate,omitempty"`
	Stage     Stage    `json:"stage,omitempty"`   // of Candidate
	Percent   int      `json:"percent,omitempty"` // of the keys, 1..100; StageCanary only
	// Previous is what an automatic rollback goes back to; nil: the binding that was active before and was good. To
	// be given after a restart.
	Previous *Binding `json:"previous,omitempty"`
}

// OwnerPlan is a plan with its owner.
type OwnerPlan struct {
	Owner Owner
	Plan  Plan
}

// Envelopes bound what decisions may do.
type Envelopes struct {
	// Operator bounds the operator's module, and the chain as a whole.
	Operator Envelope
	// Tiers stand in for Operator, as a whole, for keys whose configured tier has one.
	Tiers map[string]Envelope
	// Tenant is what orgs' modules may loosen, relative to what the operator's left them. The zero value: nothing.
	// Its Tiers are the tiers that orgs may pick; empty: none. MayDeny, MinPrice, MaySkipBilling, MaySkipLimits and
	// MayDropKey mean nothing here: an org may always refuse its own requests, and never do the others.
	Tenant Envelope
}

// Event is a plan that the host changed by itself, because a module failed too often.
type Event struct {
	Owner   Owner
	Binding Binding  // what failed
	To      *Binding // what decides instead; nil: nothing was there to go back to, Binding's OnError decides
	Reason  string
	Faults  uint64
	Calls   uint64
	AtMS    int64
	Plan    Plan // in force now
}

// Version names a binding's identity (hash, params, on_error) in 12 or 21 characters: the short content hash, and a
// hash of the rest unless that is all default. Together with Module it is what X-Weir-Policy says.
func (b *Binding) Version() string { return b.Hash[:min(12, len(b.Hash))] }

// Plan verifies a plan, makes its instances ready and puts it in force with one swap; calls in flight finish on the
// old one, and on an error the old one stays. An org's modules are instantiated at first use.
func (h *Host) Plan(ctx context.Context, owner Owner, p Plan) error { return errUnfinished }

// PlanAll is Plan for many owners at once, as at a start: their params are verified together. The errors are in the
// order of the plans; nil: in force.
func (h *Host) PlanAll(ctx context.Context, plans []OwnerPlan) []error { return []error{errUnfinished} }

// PlanOf is the plan in force; ok is false when the owner has none.
func (h *Host) PlanOf(owner Owner) (p Plan, ok bool) { return Plan{}, false }

// Owners lists who has a plan, the operator first.
func (h *Host) Owners() []Owner { return nil }

// SetEnvelopes puts envelopes in force from the next call on; an unknown tier's name is an error and changes nothing.
func (h *Host) SetEnvelopes(e Envelopes) error { return errUnfinished }

// Events gives what the host changed by itself; closed by Close. The queue holds 64; beyond it events are dropped and
// counted. Its one reader audits them and stores Event.Plan.
func (h *Host) Events() <-chan Event { return nil }

// errUnfinished is the answer of what is declared and not built.
var errUnfinished = fmt.Errorf("policy: not built")
