package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

// The words of facts and decisions in JSON, by their numbers.
func endpointNames() []string {
	return []string{"", "chat", "completions", "embeddings", "responses", "messages", "count_tokens"}
}

func verdictNames() []string { return []string{"allow", "deny", "shadow_deny"} }

func attributeNames() []string {
	return []string{"model", "key_name", "user_name", "org_name", "end_user", "client_ip", "tier", "provider"}
}

// labelPrefix stands before a label's name in JSON where that is an attribute's, too; elsewhere it may.
const labelPrefix = "label:"

// attributeKeys are the attributes' names in JSON, by their numbers.
func attributeKeys(labels []string) []string {
	own := attributeNames()
	keys := slices.Clone(own)
	for _, name := range labels {
		if slices.Contains(own, name) {
			name = labelPrefix + name
		}
		keys = append(keys, name)
	}
	return keys
}

// KindName is the word for a dimension's kind in JSON and reports.
func KindName(kind uint8) string {
	if kind == abi.KindCustom {
		return "custom"
	}
	names := [...]string{"global", "key", "model", "user", "org", "channel", "ip", "end_user", "key+model", "model+channel"}
	if int(kind) < len(names) {
		return names[kind]
	}
	return fmt.Sprintf("kind %d", kind)
}

// ParseFacts reads facts from JSON whose members are the ABI's field names; absent ones are 0, and others are held to what a
// request can have. The tier is a name of tiers, an index, or "" for none; attributes are keyed by their names, labels by the
// names given; "label:tier" is the label of that name.
func ParseFacts(raw []byte, tiers, labels []string) (*Facts, error) {
	var members map[string]json.RawMessage
	if err := strict(raw, &members); err != nil {
		if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) {
			err = fmt.Errorf("want a JSON object, got %s", wrong.Value)
		} else if err == io.EOF {
			err = errors.New("want a JSON object, got nothing")
		}
		return nil, llm.Invalid("facts", "facts: %v", err)
	}
	f := &Facts{Choices: 1}
	fields := f.fields()
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if err := f.parse(fields, name, members[name], tiers, labels); err != nil {
			return nil, llm.Invalid("facts", "facts.%.64s: %v", name, err)
		}
	}
	return f, nil
}

// fields are the plain members of the facts, by their names.
func (f *Facts) fields() map[string]any {
	return map[string]any{
		"now_ms": &f.NowMS, "entropy": &f.Entropy, "flags": &f.Flags,
		"input_tokens": &f.Input, "output_tokens_max": &f.OutputMax, "choices": &f.Choices, "body_bytes": &f.BodyBytes,
		"key_id": &f.Key, "user_id": &f.User, "org_id": &f.Org,
		"key_qps_limit": &f.QPSLimit, "key_qps_current": &f.QPSCurrent,
		"key_tpm_limit": &f.TPMLimit, "key_tpm_current": &f.TPMCurrent,
		"key_concurrency_limit": &f.ConcurrencyLimit, "key_concurrency_current": &f.ConcurrencyCurrent,
		"quota_limit_micro": &f.QuotaLimit, "quota_used_micro": &f.QuotaUsed,
		"balance_available_micro": &f.BalanceAvailable, "estimated_cost_micro": &f.EstimatedCost,
		"minute_of_week": &f.MinuteOfWeek, "day_of_month": &f.DayOfMonth, "days_in_month": &f.DaysInMonth,
	}
}

func (f *Facts) parse(fields map[string]any, name string, value json.RawMessage, tiers, labels []string) error {
	switch name {
	case "endpoint":
		i, err := nameOrNumber(value, endpointNames())
		f.Endpoint = llm.Endpoint(i)
		return err
	case "tier":
		if string(value) == `""` {
			f.Tier = noTier
			return nil
		}
		i, err := nameOrNumber(value, tiers)
		f.Tier = uint32(i)
		return err
	case "attributes":
		return f.parseAttributes(value, labels)
	}
	if to, known := fields[name]; known {
		return parseWhole(name, value, to)
	}
	names := slices.Sorted(maps.Keys(fields))
	names = append(names, "endpoint", "tier", "attributes")
	return fmt.Errorf("unknown field%s", nearestFact(name, names))
}

// nearestFact is nearest that knows a part of a name, too: "qps".
func nearestFact(name string, names []string) string {
	if near := nearest(name, names); near != "" {
		return near
	}
	var parts []string
	for _, n := range names {
		if len(name) > 2 && strings.Contains("_"+n+"_", "_"+name+"_") {
			parts = append(parts, strconv.Quote(n))
		}
	}
	if len(parts) > 0 {
		return fmt.Sprintf(" (nearest: %s)", strings.Join(parts, " or "))
	}
	return "; known are " + strings.Join(names, ", ")
}

// lastMS is the end of the year 9999 in unix milliseconds.
const lastMS = 253_402_300_799_999

// rangeOf is what a number of the facts can be.
func rangeOf(name string, to any) (least int64, most uint64) {
	switch name {
	case "now_ms":
		return 0, lastMS
	case "balance_available_micro":
		return math.MinInt64, math.MaxInt64
	case "minute_of_week":
		return 0, 7*24*60 - 1
	case "day_of_month":
		return 1, 31
	case "days_in_month":
		return 28, 31
	}
	switch to.(type) {
	case *uint64:
		return 0, math.MaxUint64
	case *uint32:
		return 0, math.MaxUint32
	}
	return 0, math.MaxInt64 // modules see at most 4294967295 of those that are 32 bits wide to them, as in traffic
}

// parseWhole reads a whole number within its range.
func parseWhole(name string, value json.RawMessage, to any) error {
	least, most := rangeOf(name, to)
	n, err := strconv.ParseUint(string(value), 10, 64)
	inside := err == nil && n <= most && (least <= 0 || n >= uint64(least))
	if s, err := strconv.ParseInt(string(value), 10, 64); err == nil && s < 0 {
		n, inside = uint64(s), s >= least
	}
	if !inside {
		return fmt.Errorf("%.40s, want a whole number from %d to %d", value, least, most)
	}
	switch to := to.(type) {
	case *uint16:
		*to = uint16(n)
	case *uint32:
		*to = uint32(n)
	case *uint64:
		*to = n
	case *int64:
		*to = int64(n)
	case *llm.Tokens:
		*to = llm.Tokens(n)
	case *llm.Micro:
		*to = llm.Micro(n)
	}
	return nil
}

func (f *Facts) parseAttributes(value json.RawMessage, labels []string) error {
	var attrs map[string]json.RawMessage
	if err := json.Unmarshal(value, &attrs); err != nil {
		return fmt.Errorf("%.40s, want an object of texts", value)
	}
	names := attributeKeys(labels)
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		i := slices.Index(names, name)
		if label, plain := strings.CutPrefix(name, labelPrefix); i < 0 && plain && slices.Contains(labels, label) {
			i = AttrLabel0 + slices.Index(labels, label)
		}
		if i < 0 || i >= NAttr {
			return fmt.Errorf("unknown attribute %.64q%s", name, nearest(name, names))
		}
		if json.Unmarshal(attrs[name], &f.Attr[i]) != nil {
			return fmt.Errorf("%q: %.40s, want a text", name, attrs[name])
		}
	}
	return nil
}

// nameOrNumber reads an index of names given as itself or by name.
func nameOrNumber(value json.RawMessage, names []string) (int, error) {
	if i, err := strconv.Atoi(string(value)); err == nil {
		switch {
		case len(names) == 0:
			return 0, fmt.Errorf("%d, and there are no names it could stand for", i)
		case i < 0 || i >= len(names):
			return 0, fmt.Errorf("%d, want 0 to %d", i, len(names)-1)
		}
		return i, nil
	}
	var name *string
	if json.Unmarshal(value, &name) != nil || name == nil {
		return 0, fmt.Errorf("%.40s, want a name or a number", value)
	}
	i := slices.Index(names, *name)
	if i < 0 {
		return 0, fmt.Errorf("unknown name %.64q%s", *name, nearest(*name, names))
	}
	return i, nil
}

// AppendPolicy appends who decided as X-Weir-Policy says it: "name@version", and ", name@version" of the org's module.
// Nothing when no module took part.
func (d *Decision) AppendPolicy(dst []byte) []byte {
	from := len(dst)
	one := func(module, version string) {
		if module == "" {
			return
		}
		if len(dst) > from {
			dst = append(dst, ", "...)
		}
		dst = append(append(append(dst, module...), '@'), version...)
	}
	if d.Module != d.Tenant.Module || d.Version != d.Tenant.Version {
		one(d.Module, d.Version)
	}
	one(d.Tenant.Module, d.Tenant.Version)
	return dst
}

// maxRule bounds what AppendRule appends, in bytes.
const maxRule = 128

// AppendRule appends which rule of the module that decided fired, as X-Weir-Rule says it: its number and what it says,
// "1 night-discount". Nothing when the module named none or failed, or when the org's module is what denies.
func (d *Decision) AppendRule(dst []byte) []byte {
	if d.Fault != "" || d.Verdict == Deny && d.Tenant.Module != "" {
		return dst
	}
	return appendRule(dst, d.Reason, d.Message)
}

// AppendRule appends which rule of the org's module fired, as X-Weir-Tenant-Rule says it.
func (t *TenantPart) AppendRule(dst []byte) []byte {
	if t.Fault != "" {
		return dst
	}
	return appendRule(dst, t.Reason, t.Message)
}

// appendRule writes what is safe in any header, with the others as %XX; what is longer than maxRule ends in "...".
func appendRule(dst []byte, number uint16, text string) []byte {
	const ellipsis = "..."
	bound := len(dst) + maxRule
	if number != 0 {
		dst = strconv.AppendUint(dst, uint64(number), 10)
		if text != "" {
			dst = append(dst, ' ')
		}
	}
	cut := len(dst) // where the ellipsis still fits
	for _, r := range text {
		dst = appendSafe(dst, r)
		if len(dst) > bound {
			return append(dst[:cut], ellipsis...)
		}
		if len(dst) <= bound-len(ellipsis) {
			cut = len(dst)
		}
	}
	return dst
}

func appendSafe(dst []byte, r rune) []byte {
	const hex = "0123456789ABCDEF"
	if r >= ' ' && r <= '~' && r != '%' {
		return append(dst, byte(r))
	}
	var raw [utf8.UTFMax]byte
	for _, c := range raw[:utf8.EncodeRune(raw[:], r)] {
		dst = append(dst, '%', hex[c>>4], hex[c&15])
	}
	return dst
}

// decisionJSON is a decision as people read it and as the cases of a module want it.
type decisionJSON struct {
	Abstain      bool            `json:"abstain"`
	Verdict      string          `json:"verdict"`
	NoBill       bool            `json:"no_bill"`
	NoLimit      bool            `json:"no_limit"`
	Tier         string          `json:"tier"`
	QPS          uint32          `json:"qps_permille"`
	TPM          uint32          `json:"tpm_permille"`
	Quota        uint32          `json:"quota_permille"`
	Burst        uint32          `json:"burst_permille"`
	Price        uint32          `json:"price_permille"`
	Overdraft    llm.Micro       `json:"overdraft_micro"`
	OutputCap    llm.Tokens      `json:"output_tokens_cap"`
	Status       int             `json:"status"`
	Reason       uint16          `json:"reason"`
	RetryAfterMS uint32          `json:"retry_after_ms"`
	Message      string          `json:"message"`
	Dims         []dimensionJSON `json:"dims"`
	Fault        string          `json:"fault"`
	Clamped      bool            `json:"clamped"`
}

type dimensionJSON struct {
	Kind       string `json:"kind"`
	CountOnly  bool   `json:"count_only"`
	Shadow     bool   `json:"shadow"`
	SkipAbsent bool   `json:"skip_if_absent"`
	Tier       string `json:"tier"`
	QPS        int64  `json:"qps_limit"`
	TPM        int64  `json:"tpm_limit"`
	Multiplier uint32 `json:"multiplier_permille"`
	Burst      uint32 `json:"burst_permille"`
	Cost       uint32 `json:"cost_permille"`
	Value      string `json:"value"`
}

// MarshalDecision writes d with the tiers' names; the members are those that a case can want.
func MarshalDecision(d *Decision, tiers []string) ([]byte, error) {
	v := decisionJSON{
		Abstain: d.Abstained, Verdict: verdictNames()[min(d.Verdict, ShadowDeny)], NoBill: d.NoBill, NoLimit: d.NoLimit,
		Tier: tierName(d.Tier, tiers), QPS: d.QPS, TPM: d.TPM, Quota: d.Quota, Burst: d.Burst, Price: d.Price,
		Overdraft: d.Overdraft, OutputCap: d.OutputCap, Status: d.Status, Reason: d.Reason,
		RetryAfterMS: d.RetryAfterMS, Message: d.Message, Dims: make([]dimensionJSON, d.N),
		Fault: d.Fault, Clamped: d.Clamped,
	}
	for i, x := range d.Dims[:d.N] {
		v.Dims[i] = dimensionJSON{
			Kind: KindName(x.Kind), CountOnly: x.CountOnly, Shadow: x.Shadow, SkipAbsent: x.SkipAbsent,
			Tier: tierName(x.Tier, tiers), QPS: x.QPS, TPM: x.TPM,
			Multiplier: x.Multiplier, Burst: x.Burst, Cost: x.Cost, Value: x.Value,
		}
	}
	return json.Marshal(v)
}

// MarshalJSON implements json.Marshaler; tiers stand as their indices.
func (d *Decision) MarshalJSON() ([]byte, error) { return MarshalDecision(d, nil) }

func tierName(i int, tiers []string) string {
	switch {
	case i < 0:
		return ""
	case i < len(tiers):
		return tiers[i]
	}
	return fmt.Sprint(i)
}

// strict decodes one JSON document into v: unknown members and anything after it are errors.
func strict(raw []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("something follows the JSON document")
	}
	return nil
}
