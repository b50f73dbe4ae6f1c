package admin

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/policy"
)

// settleRetry is how long a change that the host made by itself waits for a ledger that cannot write.
const settleRetry = time.Second

// actionFault is the audit's word for a binding that failed with nothing there to go back to.
const actionFault = "policy.fault"

// rollbacks counts what the host took out of service by itself.
type rollbacks struct{ operator, orgs atomic.Uint64 }

func (r *rollbacks) of(owner policy.Owner) *atomic.Uint64 {
	if owner == policy.Operator {
		return &r.operator
	}
	return &r.orgs
}

// watch makes durable what the host changes by itself, until the host or the API is closed.
func (a *API) watch(events <-chan policy.Event) {
	for {
		select {
		case e, open := <-events:
			if !open {
				return
			}
			a.heed(e)
		case <-a.closing:
			select {
			case e, open := <-events: // it came before the end
				if open {
					a.heed(e)
				}
			default:
				return
			}
		}
	}
}

// heed counts, logs and settles one event; a ledger that is down is asked again until it writes.
func (a *API) heed(e policy.Event) {
	action := a.verdict(e)
	if action != actionFault {
		a.rolledBack.of(e.Owner).Add(1)
	}
	a.Log.Warn("the policy host has changed a plan", "action", action, "owner", e.Owner.String(), "policy", e.Binding.Module,
		"version", e.Binding.Version(), "reason", e.Reason)
	for warned := false; ; warned = true {
		err := a.settle(e, action)
		if err == nil {
			return
		}
		if !warned {
			a.Log.Error("what the policy host has changed is not written yet", "owner", e.Owner.String(), "error", err)
		}
		wait := time.NewTimer(settleRetry)
		select {
		case <-wait.C:
		case <-a.closing:
			wait.Stop()
			return // the next process meets the same faults
		}
	}
}

// verdict names what became of the binding that failed.
func (a *API) verdict(e policy.Event) string {
	failed := fromHost(&e.Binding)
	for _, b := range []*policy.Binding{e.Plan.Active, e.Plan.Candidate} {
		if b != nil && same(fromHost(b), failed) {
			return actionFault // nothing was there to go back to
		}
	}
	if same(a.rules.Load().bound[e.Owner].Candidate, failed) {
		return "policy.withdraw"
	}
	return "policy.rollback"
}

// settle writes the audit line of an event, and the owner's document as the host has it now: a later change may have
// replaced what the event told.
func (a *API) settle(e policy.Event, action string) error {
	ctx := context.Background()
	done, err := a.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	r := a.rules.Load()
	was := r.bound[e.Owner]
	to := a.bound(e.Owner).quarantined(*fromHost(&e.Binding), &quarantine{Reason: e.Reason, AtMS: e.AtMS}, action == actionFault)
	var docs []ledger.Doc
	changed := !to.equal(was)
	if changed {
		docs = []ledger.Doc{bindingDocument(e.Owner, to)}
	}
	failed := object{{"module", e.Binding.Module}, {"version", e.Binding.Version()}, {"faults", e.Faults}, {"calls", e.Calls}}
	after := append(auditBinding(e.Owner, to), object{{"failed", failed}, {"reason", e.Reason}}...)
	err = a.put(ctx, nil, change{actor: "host", action: action, target: bindingTarget(e.Owner), before: auditBinding(e.Owner, was),
		after: after, docs: docs}, answer{})
	if err == nil && changed {
		a.rules.Store(r.bind(e.Owner, to))
	}
	return err
}

// Close waits for what the policy host changed by itself to be written. The ledger must still be open.
func (a *API) Close() {
	a.ending.Do(func() { close(a.closing) })
	a.running.Wait()
}
