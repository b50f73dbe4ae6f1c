package policy

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

// factsJSON are facts as MarshalFacts writes them; fields has the same names.
type factsJSON struct {
	NowMS              uint64            `json:"now_ms,omitempty"`
	Entropy            uint64            `json:"entropy,omitempty"`
	Flags              uint32            `json:"flags,omitempty"`
	Endpoint           json.RawMessage   `json:"endpoint,omitempty"`
	Input              llm.Tokens        `json:"input_tokens,omitempty"`
	OutputMax          llm.Tokens        `json:"output_tokens_max,omitempty"`
	Choices            uint32            `json:"choices"`
	BodyBytes          uint32            `json:"body_bytes,omitempty"`
	Key                uint64            `json:"key_id,omitempty"`
	User               uint64            `json:"user_id,omitempty"`
	Org                uint64            `json:"org_id,omitempty"`
	QPSLimit           int64             `json:"key_qps_limit,omitempty"`
	QPSCurrent         int64             `json:"key_qps_current,omitempty"`
	TPMLimit           int64             `json:"key_tpm_limit,omitempty"`
	TPMCurrent         int64             `json:"key_tpm_current,omitempty"`
	ConcurrencyLimit   int64             `json:"key_concurrency_limit,omitempty"`
	ConcurrencyCurrent int64             `json:"key_concurrency_current,omitempty"`
	QuotaLimit         llm.Micro         `json:"quota_limit_micro,omitempty"`
	QuotaUsed          llm.Micro         `json:"quota_used_micro,omitempty"`
	BalanceAvailable   llm.Micro         `json:"balance_available_micro,omitempty"`
	EstimatedCost      llm.Micro         `json:"estimated_cost_micro,omitempty"`
	MinuteOfWeek       uint32            `json:"minute_of_week,omitempty"`
	DayOfMonth         uint16            `json:"day_of_month,omitempty"`
	DaysInMonth        uint16            `json:"days_in_month,omitempty"`
	Tier               json.RawMessage   `json:"tier,omitempty"`
	Attributes         map[string]string `json:"attributes,omitempty"`
}

// noTier is the index that facts carry for a key without a tier; in JSON its tier is "".
const noTier = math.MaxUint32

// MarshalFacts writes f as ParseFacts reads it, every member that is not 0. Attributes that are not UTF-8 are left out
// and flagged as cut, as a module would see them.
func MarshalFacts(f *Facts, tiers, labels []string) ([]byte, error) {
	v := factsJSON{
		NowMS: f.NowMS, Entropy: f.Entropy, Flags: f.Flags, Input: f.Input, OutputMax: f.OutputMax, Choices: f.Choices, BodyBytes: f.BodyBytes,
		Key: f.Key, User: f.User, Org: f.Org, QPSLimit: f.QPSLimit, QPSCurrent: f.QPSCurrent, TPMLimit: f.TPMLimit, TPMCurrent: f.TPMCurrent,
		ConcurrencyLimit: f.ConcurrencyLimit, ConcurrencyCurrent: f.ConcurrencyCurrent, QuotaLimit: f.QuotaLimit, QuotaUsed: f.QuotaUsed,
		BalanceAvailable: f.BalanceAvailable, EstimatedCost: f.EstimatedCost, MinuteOfWeek: f.MinuteOfWeek,
		DayOfMonth: f.DayOfMonth, DaysInMonth: f.DaysInMonth, Attributes: map[string]string{},
	}
	if f.Endpoint != 0 {
		v.Endpoint = named(int64(f.Endpoint), endpointNames())
	}
	switch {
	case int64(f.Tier) < int64(len(tiers)):
		v.Tier = named(int64(f.Tier), tiers)
	case f.Tier != 0:
		v.Tier = json.RawMessage(`""`)
	}
	names := attributeKeys(labels)
	for i, s := range f.Attr {
		switch {
		case s == "" || i >= len(names):
		case utf8.ValidString(s):
			v.Attributes[names[i]] = s
		default:
			v.Flags |= abi.FlagCut
		}
	}
	return json.Marshal(v)
}

// named is the JSON of names[i], or of i when it has no name.
func named(i int64, names []string) json.RawMessage {
	var v any = i
	if i < int64(len(names)) {
		v = names[i]
	}
	raw, _ := json.Marshal(v) // a number or a string
	return raw
}

// ParseDecision reads what MarshalDecision wrote; absent members are neutral. Who decided is not part of it.
func ParseDecision(raw []byte, tiers []string) (*Decision, error) {
	v := decisionJSON{QPS: unit, TPM: unit, Quota: unit, Burst: unit, Price: unit, Status: defaultStatus, Verdict: verdictNames()[Allow]}
	if err := strict(raw, &v); err != nil {
		return nil, llm.Invalid("decision", "decision: %v", err)
	}
	d := &Decision{}
	if len(v.Dims) > len(d.Dims) {
		return nil, llm.Invalid("decision", "decision.dims: %d, want at most %d", len(v.Dims), len(d.Dims))
	}
	p := namesParser{tiers: tiers}
	*d = Decision{
		Abstained: v.Abstain, Verdict: Verdict(p.index("verdict", v.Verdict, verdictNames())), NoBill: v.NoBill, NoLimit: v.NoLimit,
		Tier: p.tier("tier", v.Tier), QPS: v.QPS, TPM: v.TPM, Quota: v.Quota, Burst: v.Burst, Price: v.Price, Overdraft: v.Overdraft,
		OutputCap: v.OutputCap, Status: v.Status, Reason: v.Reason, RetryAfterMS: v.RetryAfterMS, Message: v.Message,
		N: len(v.Dims), Fault: v.Fault, Clamped: v.Clamped,
	}
	for i, x := range v.Dims {
		d.Dims[i] = Dimension{Kind: p.kind(x.Kind), CountOnly: x.CountOnly, Shadow: x.Shadow, SkipAbsent: x.SkipAbsent,
			Tier: p.tier("dims.tier", x.Tier), QPS: x.QPS, TPM: x.TPM, Multiplier: x.Multiplier, Burst: x.Burst, Cost: x.Cost, Value: x.Value}
	}
	return d, p.err
}

// namesParser turns words back into numbers; the first that is unknown sticks.
type namesParser struct {
	tiers []string
	err   error
}

func (p *namesParser) index(field, name string, names []string) int {
	i := slices.Index(names, name)
	if i < 0 && p.err == nil {
		p.err = llm.Invalid("decision", "decision.%s: unknown name %q%s", field, name, nearest(name, names))
	}
	return i
}

func (p *namesParser) tier(field, name string) int {
	if name == "" {
		return -1
	}
	if i, err := strconv.Atoi(name); err == nil && i >= 0 && !slices.Contains(p.tiers, name) {
		return i
	}
	return p.index(field, name, p.tiers)
}

func (p *namesParser) kind(name string) uint8 {
	names := make([]string, nKinds)
	for i := range names {
		names[i] = KindName(uint8(i))
	}
	names[nKinds-1] = KindName(abi.KindCustom)
	if i := p.index("dims.kind", name, names); i < nKinds-1 {
		return uint8(i)
	}
	return abi.KindCustom
}
