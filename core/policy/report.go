package policy

import "encoding/json"

// Report compares two bindings on the same facts.
type Report struct {
	Owner     string `json:"owner,omitempty"`
	Stage     Stage  `json:"stage,omitempty"`
	Percent   int    `json:"percent,omitempty"`
	Active    string `json:"active"`    // name@version; empty: native defaults
	Candidate string `json:"candidate"` // name@version
	SinceMS   int64  `json:"since_ms,omitempty"`

	Compared uint64 `json:"compared"`
	Changed  uint64 `json:"changed"` // of those: something that a request would feel differs
	// Fields counts differences by the decision's JSON member; "dims" stands for any in the dimensions. "reason" and
	// "message" are counted here and do not make a change.
	Fields map[string]uint64 `json:"fields"`
	// Kinds counts decisions whose dimensions of that kind differ.
	Kinds    map[string]uint64 `json:"kinds"`
	Clamped  uint64            `json:"clamped"` // of the candidate's decisions, by the envelope
	Reasons  []ReasonCount     `json:"reasons"` // what the candidate's decisions named, most frequent first; 32 at most
	Faults   map[string]uint64 `json:"faults"`  // of the candidate
	Skipped  uint64            `json:"skipped"` // not compared: no instance was free; of a replay, lines without a module's answer
	Examples []Example         `json:"examples"`
}

// ReasonCount says how often a rule fired.
type ReasonCount struct {
	Reason  uint16 `json:"reason"`
	Message string `json:"message"`
	Count   uint64 `json:"count"`
}

// Example is one request on which two bindings differ: ParseFacts reads Facts, the decisions are MarshalDecision's.
type Example struct {
	Facts     json.RawMessage `json:"facts"`
	Active    json.RawMessage `json:"active"`
	Candidate json.RawMessage `json:"candidate"`
	Fields    []string        `json:"fields"` // that differ
}

// Usage is what an owner's active binding has done since it is in force.
type Usage struct {
	Module    string `json:"module"`
	Version   string `json:"version"`
	Calls     uint64 `json:"calls"`
	Abstained uint64 `json:"abstained"`
	Clamped   uint64 `json:"clamped"` // it asked for more than its envelope
	Faults    uint64 `json:"faults"`
	Live      bool   `json:"live"` // has instances now; orgs' modules get them at first use
	Bytes     int64  `json:"bytes"`

	// Rules of an org's module that fired, most often first: 32 at most, the others are counted together.
	Rules      []ReasonCount `json:"rules"`
	OtherRules uint64        `json:"other_rules"`
}

// Report is what the owner's candidate would change; ok is false if it never had one. After a candidate was dropped,
// activated or replaced the last report stays readable until the next candidate.
func (h *Host) Report(owner Owner) (r Report, ok bool) { return h.ReportOf(owner, "") }

// ReportOf is Report for one module; empty: for any. Its last report stays readable until its next candidate, or until
// maxEnded other modules have been on trial.
func (h *Host) ReportOf(owner Owner, module string) (r Report, ok bool) {
	l := h.lane(owner)
	if l == nil {
		return Report{}, false
	}
	k := l.cur.Load()
	for _, t := range append([]*tally{k.tally}, k.ended...) {
		if t != nil && (module == "" || t.module == module) {
			r = t.report()
			if r.Owner = owner.String(); t == k.tally {
				r.Percent = k.plan.Percent
			}
			return r, true
		}
	}
	return Report{}, false
}

// Usage is what the owner's active binding has done; ok is false without one.
func (h *Host) Usage(owner Owner) (u Usage, ok bool) {
	l := h.lane(owner)
	if l == nil {
		return Usage{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := l.cur.Load()
	if k.want[0] == nil {
		return Usage{}, false
	}
	var sum record
	if l.past.of.same(k.want[0]) {
		sum = l.past
	}
	sum.of = k.want[0]
	if g := k.active; g != nil {
		sum.add(g)
		u.Live, u.Bytes = true, g.bytes.Load()
	}
	u.Module, u.Version = sum.of.Name, sum.of.version
	u.Calls, u.Abstained, u.Clamped, u.Faults = sum.calls, sum.abstained, sum.clamped, sum.faults
	u.Rules, u.OtherRules = sum.fired, sum.others
	return u, true
}
