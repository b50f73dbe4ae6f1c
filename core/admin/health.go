package admin

import (
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/VictoriaMetrics/metrics"
)

// openAPIText describes every route; written by hand.
//
//go:embed openapi.yaml
var openAPIText []byte

func (a *API) openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPIText) // a client that left cannot be told anything
	return nil
}

func (a *API) metrics(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if a.Metrics != nil {
		a.Metrics(w)
	}
	a.writePolicyMetrics(w)
	a.writeSharedMetrics(w)
	return nil
}

// writeSharedMetrics tells how it goes with the windows that gateways share.
func (a *API) writeSharedMetrics(w io.Writer) {
	s := a.Limiter.Shared()
	if !s.Sharing {
		return
	}
	away := uint64(0)
	if s.Away {
		away = 1
	}
	metrics.WriteGaugeUint64(w, "weir_shared_away", away)
	metrics.WriteGaugeUint64(w, "weir_shared_reports_waiting", uint64(s.Reports))
	metrics.WriteCounterUint64(w, "weir_shared_takes_total", s.Takes)
	metrics.WriteCounterUint64(w, "weir_shared_borrows_total", s.Borrows)
	metrics.WriteCounterUint64(w, "weir_shared_failures_total", s.Failed)
	metrics.WriteCounterUint64(w, "weir_shared_reports_lost_total", s.Lost)
}

// windows says how far the rate limits reach.
func (a *API) windows() string {
	switch s := a.Limiter.Shared(); {
	case !s.Sharing:
		return "single-machine limits"
	case s.Away:
		return "shared windows do not answer: this gateway decides alone"
	}
	return "shared"
}

// writePolicyMetrics tells what the policy host has counted since the start.
func (a *API) writePolicyMetrics(w io.Writer) {
	if a.Policy == nil {
		return
	}
	s := a.Policy.Stats()
	for _, counter := range []struct {
		name string
		n    uint64
	}{
		{"calls", s.Calls}, {"abstained", s.Abstained}, {"clamped", s.Clamped}, {"swaps", s.Swaps}, {"quarantined", s.Quarantined},
		{"compared", s.Compared}, {"would_change", s.Changed}, {"candidates_dropped", s.Dropped}, {"events_dropped", s.EventsDropped},
		{"log_lines_dropped", s.LogsDropped}, {"decisions_logged", s.Logged}, {"decisions_log_dropped", s.LoggedDropped},
		{"tenant_builds", s.TenantBuilds}, {"tenant_evictions", s.TenantEvictions}, {"tenant_cold", s.TenantCold}, {"tenant_clamped", s.TenantClamped},
	} {
		metrics.WriteCounterUint64(w, "weir_policy_"+counter.name+"_total", counter.n)
	}
	metrics.WriteMetadataIfNeeded(w, "weir_policy_rollbacks_total", "counter")
	_, _ = fmt.Fprintf(w, "weir_policy_rollbacks_total{owner_kind=\"operator\"} %d\nweir_policy_rollbacks_total{owner_kind=\"org\"} %d\n",
		a.rolledBack.operator.Load(), a.rolledBack.orgs.Load())
	metrics.WriteGaugeUint64(w, "weir_policy_tenants", s.Tenants)
	metrics.WriteGaugeUint64(w, "weir_policy_tenants_live", s.TenantsLive)
	metrics.WriteGaugeUint64(w, "weir_policy_tenants_ailing", uint64(len(a.rules.Load().ailing)))
	metrics.WriteGaugeUint64(w, "weir_policy_tenant_bytes", uint64(max(s.TenantBytes, 0)))
	metrics.WriteMetadataIfNeeded(w, "weir_policy_faults_total", "counter")
	for _, fault := range []struct {
		kind string
		n    uint64
	}{{"trap", s.Traps}, {"out_of_fuel", s.OutOfFuel}, {"bad_response", s.BadResponse}, {"guest_error", s.GuestErrors}, {"exhausted", s.Exhausted}} {
		_, _ = fmt.Fprintf(w, "weir_policy_faults_total{kind=%q} %d\n", fault.kind, fault.n)
	}
}

// healthz says that the process answers; nothing more.
func (a *API) healthz(*call) (answer, error) {
	return ok(object{{"status", "ok"}, {"version", a.o.Version}}), nil
}

// readyz says whether requests can be served, and if not, everything that stands in the way.
func (a *API) readyz(w http.ResponseWriter, _ *http.Request) error {
	reasons := []string{}
	if err := a.Ledger.Healthy(); err != nil {
		reasons = append(reasons, "ledger: "+err.Error())
	}
	if err := a.Live.Ready(); err != nil {
		reasons = append(reasons, strings.Split(err.Error(), "\n")...)
	}
	ans := ok(object{{"status", "ready"}, {"reasons", reasons}, {"windows", a.windows()}})
	if len(reasons) > 0 {
		ans = answer{http.StatusServiceUnavailable, object{{"status", "unready"}, {"reasons", reasons}, {"windows", a.windows()}}}
	}
	writeJSON(w, ans)
	return nil
}
