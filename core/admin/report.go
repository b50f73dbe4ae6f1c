package admin

import (
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// report tells what a policy's candidate would change, or would have until its trial ended.
func (a *API) report(c *call) (answer, error) {
	q := parseQuery(c.URL, "owner")
	owner := a.ownerOf(q)
	if q.err != nil {
		return answer{}, q.err
	}
	p, err := a.policy(c)
	if err != nil {
		return answer{}, err
	}
	r, found := a.Policy.ReportOf(owner, p.Name)
	if !found {
		return answer{}, llm.Errorf(llm.KindNotFound, "no report of policy %q for %s is kept: it was not on trial since the gateway started, or several others were since; shadow or canary starts a trial", p.Name, owner)
	}
	return ok(reportView(owner, &r, a.bound(owner))), nil
}

func reportView(owner policy.Owner, r *policy.Report, d bindingDoc) object {
	running := d.Candidate != nil && r.Candidate == d.Candidate.Module+"@"+d.Candidate.version()
	var why *quarantine
	for _, b := range d.all("") {
		if b.Quarantined != nil && r.Candidate == b.Module+"@"+b.version() {
			why = b.Quarantined
		}
	}
	return object{{"owner", owner.String()}, {"candidate", r.Candidate}, {"active", orNull(r.Active)}, {"running", running}, {"quarantined", why.view()},
		{"stage", r.Stage}, {"percent", r.Percent}, {"since", moment(r.SinceMS)},
		{"compared", r.Compared}, {"wouldChange", r.Changed}, {"clamped", r.Clamped}, {"skipped", r.Skipped},
		{"fields", r.Fields}, {"dimensions", r.Kinds}, {"faults", r.Faults}, {"reasons", reasonViews(r.Reasons)}, {"examples", list(r.Examples)}}
}

// reasonViews are rules by how often they fired.
func reasonViews(all []policy.ReasonCount) []object {
	views := make([]object, len(all))
	for i, why := range all {
		views[i] = object{{"reason", why.Reason}, {"message", why.Message}, {"count", why.Count}}
	}
	return views
}
