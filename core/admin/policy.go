package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

const (
	maxVersions    = 32 // kept per policy; the oldest that no binding needs makes room
	maxPolicyName  = 64
	minVersionText = 6 // characters of a hash that may stand for it
	maxParamsBytes = 64 << 10
)

// rules are the policies and everybody's bindings: immutable.
type rules struct {
	policies []policyDoc // by name
	bound    map[policy.Owner]bindingDoc
	ailing   map[policy.Owner]string // why an org's bindings are not in force
}

// policyDoc is a named series of modules, oldest first. Stored under "policy"; the bytes of each version are documents
// of their own, under "module".
type policyDoc struct {
	Name     string    `json:"name"`
	Versions []version `json:"versions"`
}

type version struct {
	Hash    string          `json:"hash"`
	Profile string          `json:"profile"`
	Size    int             `json:"size"`
	Cases   int             `json:"cases"`
	Schema  json.RawMessage `json:"schema,omitempty"`
	About   json.RawMessage `json:"about,omitempty"`
	AtMS    int64           `json:"atMs"`
}

func (r *rules) policy(name string) (policyDoc, bool) {
	i, found := slices.BinarySearchFunc(r.policies, name, func(p policyDoc, n string) int { return strings.Compare(p.Name, n) })
	if !found {
		return policyDoc{Name: name}, false
	}
	return r.policies[i], true
}

// with is r with one policy put in.
func (r *rules) with(p policyDoc) *rules {
	next := only(slices.Clone(r.policies), func(old policyDoc) bool { return old.Name != p.Name })
	next = append(next, p)
	slices.SortFunc(next, func(a, b policyDoc) int { return strings.Compare(a.Name, b.Name) })
	return &rules{next, r.bound, r.ailing}
}

// bind is r with one owner's bindings put in, in force.
func (r *rules) bind(owner policy.Owner, d bindingDoc) *rules {
	next := r.unbind(owner)
	next.bound[owner] = d
	return next
}

// unbind is r without an owner.
func (r *rules) unbind(owner policy.Owner) *rules {
	next := &rules{r.policies, map[policy.Owner]bindingDoc{}, maps.Clone(r.ailing)}
	maps.Copy(next.bound, r.bound)
	delete(next.bound, owner)
	delete(next.ailing, owner)
	return next
}

// ails is r with an org whose bindings are not in force.
func (r *rules) ails(owner policy.Owner, why string) *rules {
	next := &rules{r.policies, r.bound, map[policy.Owner]string{owner: why}}
	maps.Copy(next.ailing, r.ailing)
	return next
}

// needs: a binding of somebody leads to a version.
func (r *rules) needs(name, hash string) bool {
	for _, d := range r.bound {
		if d.needs(name, hash) {
			return true
		}
	}
	return false
}

// find resolves a version by hash or its beginning; empty is the newest.
func (p policyDoc) find(text string) (version, error) {
	if text == "" && len(p.Versions) > 0 {
		return p.Versions[len(p.Versions)-1], nil
	}
	var hits []version
	var known []string
	for _, v := range p.Versions {
		known = append(known, short(v.Hash))
		if len(text) >= minVersionText && strings.HasPrefix(v.Hash, strings.ToLower(text)) {
			hits = append(hits, v)
		}
	}
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		return version{}, llm.Invalid("version", "version: policy %q has no version %.64q (a content hash, or its first %d characters or more); it has %s",
			p.Name, text, minVersionText, strings.Join(known, ", "))
	}
	return version{}, llm.Invalid("version", "version: %q fits %d versions of policy %q; give more characters", text, len(hits), p.Name)
}

// zoned gives new params the tables of the time zones that they name.
func (p policyDoc) zoned(b *binding) error {
	v, err := p.find(b.Hash)
	if err == nil {
		b.Params, err = policy.WithZones(v.Schema, b.Params)
	}
	return aboutParams(err)
}

// short is a version for people.
func short(hash string) string { return hash[:min(12, len(hash))] }

// add is p with one more version, and the hashes that had to make room. Versions that a binding needs stay.
func (p policyDoc) add(v version, r *rules) (next policyDoc, dropped []string) {
	next = policyDoc{p.Name, append(slices.Clone(p.Versions), v)}
	for i := 0; len(next.Versions) > maxVersions && i < len(next.Versions)-1; {
		if old := next.Versions[i]; !r.needs(p.Name, old.Hash) {
			next.Versions = slices.Delete(next.Versions, i, i+1)
			dropped = append(dropped, old.Hash)
			continue
		}
		i++
	}
	return next, dropped
}

func moduleID(name, hash string) string { return name + "/" + hash }

// CheckPolicyName is the one rule for names of policies: they can stand in a path and in a file's name.
func CheckPolicyName(s string) error {
	ok := len(s) >= 1 && len(s) <= maxPolicyName && s[0] != '.' && s[0] != '-'
	for _, c := range []byte(s) {
		ok = ok && (c-'a' < 26 || c-'A' < 26 || c-'0' < 10 || c == '-' || c == '_' || c == '.')
	}
	if !ok {
		return fmt.Errorf("expected 1 to %d letters, digits, dots, dashes or underscores, got %.80q", maxPolicyName, s)
	}
	return nil
}

// versionView shows what was uploaded.
func versionView(v version) object {
	return object{{"profile", v.Profile}, {"size", v.Size}, {"cases", v.Cases},
		{"uploadedAt", moment(v.AtMS)}, {"schema", v.Schema}, {"about", v.About}}
}

// uploadedView is a version that an owner has not bound.
func uploadedView(v version) object {
	return append(object{{"hash", v.Hash}, {"version", short(v.Hash)}, {"stage", "uploaded"}, {"percent", 0}, {"active", false}}, versionView(v)...)
}

// standingView is a version with what it is to its owner; percent is of the keys that it decides for.
func (d bindingDoc) standingView(b binding, v version) object {
	stage, percent := d.standing(b)
	return append(object{{"hash", v.Hash}, {"version", b.version()}, {"stage", stage}, {"percent", percent},
		{"active", stage == stageActive}, {"quarantined", b.Quarantined.view()}, {"params", b.Params}, {"onError", b.OnError}}, versionView(v)...)
}

// viewsOf are a version as everything that it is to its owner: one view for each binding of it, the one in force first,
// else one as uploaded.
func (d bindingDoc) viewsOf(name string, v version) (views []object) {
	for _, b := range d.all(name) {
		if b.Hash == v.Hash {
			views = append(views, d.standingView(b, v))
		}
	}
	if views == nil {
		views = []object{uploadedView(v)}
	}
	return views
}

// listPolicies shows one row per policy: the operator's active version, else its candidate, else the newest.
func (a *API) listPolicies(c *call) (answer, error) {
	q := parseQuery(c.URL, "limit", "cursor", "name")
	r := a.rules.Load()
	name := q.text("name")
	rows := only(slices.Clone(r.policies), func(p policyDoc) bool { return name == "" || p.Name == name })
	d := a.bound(policy.Operator)
	return pageOf(q, rows, func(p policyDoc) string { return p.Name }, parseName, func(p policyDoc) object { return r.policyView(p, d) })
}

func (r *rules) policyView(p policyDoc, d bindingDoc) object {
	row, candidate := d.viewsOf(p.Name, p.Versions[len(p.Versions)-1])[0], any(nil)
	show := func(b *binding) {
		if v, err := p.find(b.Hash); err == nil {
			row = d.standingView(*b, v)
		}
	}
	if d.tries(p.Name) {
		candidate = object{{"version", d.Candidate.version()}, {"stage", d.Stage}, {"percent", d.Percent}}
		show(d.Candidate)
	}
	if d.serves(p.Name) {
		show(d.Current)
	}
	orgs := 0
	for owner, d := range r.bound {
		if owner != policy.Operator && (d.serves(p.Name) || d.tries(p.Name)) {
			orgs++
		}
	}
	return append(append(object{{"name", p.Name}, {"versions", len(p.Versions)}}, row...), object{{"candidate", candidate}, {"orgs", orgs}}...)
}

// policy finds the one in the path.
func (a *API) policy(c *call) (policyDoc, error) { return a.policyNamed(c.PathValue("name")) }

func (a *API) policyNamed(name string) (policyDoc, error) {
	r := a.rules.Load()
	p, found := r.policy(name)
	if found {
		return p, nil
	}
	var names []string
	for _, other := range r.policies {
		names = append(names, other.Name)
	}
	return p, llm.Errorf(llm.KindNotFound, "no policy %.64q%s", name, suggest(name, names))
}

// listVersions shows what an owner can name: every binding that it has or had of the policy, and every upload that it
// never bound; by upload, newest first.
func (a *API) listVersions(c *call) (answer, error) {
	q := parseQuery(c.URL, "owner")
	owner := a.ownerOf(q)
	if q.err != nil {
		return answer{}, q.err
	}
	p, err := a.policy(c)
	if err != nil {
		return answer{}, err
	}
	d := a.bound(owner)
	rows := []object{}
	for _, v := range slices.Backward(p.Versions) {
		rows = append(rows, d.viewsOf(p.Name, v)...)
	}
	return ok(object{{"name", p.Name}, {"owner", owner.String()}, {"data", rows}, {"nextCursor", nil}}), nil
}

// uploadPolicy verifies a module and stores it; nothing is active yet. The compiler runs before the turn is taken.
func (a *API) uploadPolicy(c *call) (answer, error) {
	q := parseQuery(c.URL, "name", "profile")
	name, profile := q.text("name"), q.text("profile")
	if err := CheckPolicyName(name); err != nil {
		q.fail("name", "%s", err.Error())
	}
	if profile == "" {
		profile = "small"
	}
	if err := oneOf("small", "large")(profile); err != nil {
		q.fail("profile", "%s", err.Error())
	}
	if q.err == nil && len(c.body) == 0 {
		q.err = llm.Invalid("", "the body is empty; expected the module's raw .wasm bytes")
	}
	if q.err != nil {
		return answer{}, q.err
	}
	hash := contentHash(c.body)
	if ans, known, err := a.uploaded(name, hash, profile); known {
		return ans, err
	}
	if err := CheckModuleName(name, c.body, a.Shipped); err != nil { // what was stored before the name was shipped stays
		return answer{}, err
	}
	v, err := a.verify(c.Context(), name, c.body, profile)
	if err != nil {
		return answer{}, err
	}
	done, err := a.take(c.Context())
	if err != nil {
		return answer{}, err
	}
	defer done()
	return a.storeModule(c, name, v)
}

// uploaded answers for bytes that are stored already.
func (a *API) uploaded(name, hash, profile string) (answer, bool, error) {
	r := a.rules.Load()
	p, _ := r.policy(name)
	v, err := p.find(hash)
	switch {
	case err != nil:
		return answer{}, false, nil
	case v.Profile != profile && v.Profile != policy.ProfileLarge: // the larger one allows what the other does
		return answer{}, true, llm.Errorf(llm.KindConflict, "policy %q has these bytes already, with profile %s; upload them under another name for profile %s", name, v.Profile, profile)
	}
	return ok(append(object{{"name", name}}, r.bound[policy.Operator].viewsOf(name, v)[0]...)), true, nil
}

// CodeName is the code of an error about a name that a module cannot have.
const CodeName = "policy_name_refused"

// CheckModuleName refuses a name that no policy can have, and keeps those of the modules that come with the gateway for their
// bytes, or activating one could run another. shipped gives such a module by its name; nil: there are none.
func CheckModuleName(name string, wasm []byte, shipped func(name string) ([]byte, bool)) error {
	if err := CheckPolicyName(name); err != nil {
		e := llm.Invalid("name", "name: %s", err.Error())
		e.Code = CodeName
		return e
	}
	if ours := shippedHash(name, shipped); ours == "" || ours == contentHash(wasm) {
		return nil
	}
	e := llm.Errorf(llm.KindConflict, "the name %q is of a module that comes with the gateway, and these are other bytes; use another name, such as \"my-%s\"", name, name)
	e.Code = CodeName
	return e
}

// shippedHash is that of the module of a name that comes with the gateway; empty: none does.
func shippedHash(name string, shipped func(string) ([]byte, bool)) string {
	if shipped == nil {
		return ""
	}
	wasm, found := shipped(name)
	if !found {
		return ""
	}
	return contentHash(wasm)
}

// verify lets the host check and compile; the module waits there, inactive.
func (a *API) verify(ctx context.Context, name string, wasm []byte, profile string) (version, error) {
	m, err := a.Policy.Add(ctx, name, wasm, profile)
	if err != nil {
		return version{}, err
	}
	return version{Hash: m.Hash, Profile: profile, Size: len(wasm), Cases: m.Cases, Schema: jsonOrNil(m.Schema),
		About: jsonOrNil(m.About), AtMS: a.Clock.Wall().UnixMilli()}, nil
}

func jsonOrNil(raw []byte) json.RawMessage {
	if !json.Valid(raw) {
		return nil
	}
	return compact(raw)
}

// contentHash is what a module is known by.
func contentHash(wasm []byte) string {
	sum := sha256.Sum256(wasm)
	return hex.EncodeToString(sum[:])
}

// storeModule keeps a verified version. REQUIRES: the turn.
func (a *API) storeModule(c *call, name string, v version) (answer, error) {
	if ans, known, err := a.uploaded(name, v.Hash, v.Profile); known {
		return ans, err
	}
	r := a.rules.Load()
	p, _ := r.policy(name)
	next, docs := grown(r, p, v, c.body)
	ans := created(append(object{{"name", name}}, uploadedView(v)...))
	err := a.put(c.ctx, c, change{action: "policy.upload", target: "policy:" + name, after: ans.value, docs: docs}, ans)
	if err == nil {
		a.rules.Store(r.with(next))
	}
	a.sweep(c.ctx)
	return ans, err
}

// sweep lets the host drop the modules that are not stored: versions that made room, and what was verified for a change that
// failed. Those that come with the binary stay. REQUIRES: the turn.
func (a *API) sweep(ctx context.Context) {
	r := a.rules.Load()
	for _, m := range a.Policy.Modules() {
		p, _ := r.policy(m.Name)
		stored := slices.ContainsFunc(p.Versions, func(v version) bool { return v.Hash == m.Hash })
		if !stored && shippedHash(m.Name, a.Shipped) != m.Hash {
			_ = a.Policy.Remove(ctx, m.Name, m.Hash) // that it never had it is as good
		}
	}
}

// grown is a policy with one more version, and the documents that say so.
func grown(r *rules, p policyDoc, v version, wasm []byte) (policyDoc, []ledger.Doc) {
	next, dropped := p.add(v, r)
	docs := []ledger.Doc{{Kind: "module", ID: moduleID(p.Name, v.Hash), Data: wasm}, named("policy", p.Name, next)}
	for _, hash := range dropped {
		docs = append(docs, named("module", moduleID(p.Name, hash), nil))
	}
	return next, docs
}

// shipped gives a policy that is stored, else one that comes with the binary, which then is to be stored: docs.
func (a *API) shipped(ctx context.Context, p policyDoc) (policyDoc, []ledger.Doc, bool, error) {
	if len(p.Versions) > 0 || a.Shipped == nil {
		return p, nil, len(p.Versions) > 0, nil
	}
	wasm, found := a.Shipped(p.Name)
	if !found {
		return p, nil, false, nil
	}
	v, err := a.verify(ctx, p.Name, wasm, "small")
	if err != nil {
		return p, nil, false, err
	}
	p, docs := grown(a.rules.Load(), p, v, wasm)
	return p, docs, true, nil
}

// params reads a JSON object of at most 64 KiB; null is none.
func (b *body) params(name string, to *json.RawMessage) {
	raw := b.take(name)
	switch {
	case raw == nil:
	case string(raw) == "null":
		*to = nil
	case raw[0] != '{':
		b.fail(name, "expected a JSON object, got %s", jsonKind(raw))
	case len(raw) > maxParamsBytes:
		b.fail(name, "expected at most %d bytes, got %d", maxParamsBytes, len(raw))
	default:
		*to = compact(raw)
	}
}

func compact(raw []byte) []byte {
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		return raw
	}
	return out.Bytes()
}

func checkOnError(s string) error {
	return oneOf(string(policy.OnErrorDefault), string(policy.OnErrorLastGood), string(policy.OnErrorDeny))(s)
}
