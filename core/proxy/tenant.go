package proxy

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/llm"
)

// Tenants is what a key with the scope tenant may do for its org; the admin API stands behind it. Answers are JSON,
// errors *llm.Error.
type Tenants interface {
	TenantRules(ctx context.Context, org uint64, rawQuery string) ([]byte, error)
	SetTenantRules(ctx context.Context, org uint64, actor string, body []byte) ([]byte, error)
	TenantDryRun(ctx context.Context, org, key uint64, body []byte) ([]byte, error)
	RollbackTenantRules(ctx context.Context, org uint64, actor string, body []byte) ([]byte, error)
	TryTenantRules(ctx context.Context, org uint64, actor string, body []byte) ([]byte, error)
	TenantTrial(ctx context.Context, org uint64) ([]byte, error)
	TenantUsage(ctx context.Context, org uint64, rawQuery string) ([]byte, error)
}

// ScopeTenant is the scope of a key that may see and tune its org's rules.
const ScopeTenant = "tenant"

// tenantWait is how long a tenant's change may wait for its turn among the operator's.
const tenantWait = 30 * time.Second

// SetTenants gives the tenant routes something to stand on; before Serve. Without it they do not exist.
func (s *Server) SetTenants(t Tenants) { s.tenants = t }

// tenant answers /v1/tenant/…: always for the org of the key that asks, never for another.
func (s *Server) tenant(c *call, who *auth.Caller) error {
	if s.tenants == nil {
		return noRoute("no route %s", llm.Quote(c.ctx.Path(), maxQuoted))
	}
	if !slices.Contains(who.Key.Scopes, ScopeTenant) {
		e := llm.Errorf(llm.KindForbidden, "this key lacks the scope %s; ask the operator for a key that has it", ScopeTenant)
		e.Code = "scope_required"
		return e
	}
	answer, err := s.askTenants(c, who)
	if err == nil {
		c.replyJSON(fasthttp.StatusOK, answer)
	}
	return err
}

func (s *Server) askTenants(c *call, who *auth.Caller) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tenantWait)
	defer cancel()
	org, body := who.Org.ID, c.ctx.Request.Body()
	actor := "key:" + strconv.FormatUint(who.Key.ID, 10)
	switch c.route {
	case routeTenantUsage:
		return s.tenants.TenantUsage(ctx, org, string(c.ctx.URI().QueryString()))
	case routeTenantDryRun:
		return s.tenants.TenantDryRun(ctx, org, who.Key.ID, body)
	case routeTenantRollback:
		return s.tenants.RollbackTenantRules(ctx, org, actor, body)
	case routeTenantTrial:
		if c.ctx.IsPost() {
			return s.tenants.TryTenantRules(ctx, org, actor, body)
		}
		return s.tenants.TenantTrial(ctx, org)
	}
	if c.ctx.IsPut() {
		return s.tenants.SetTenantRules(ctx, org, actor, body)
	}
	return s.tenants.TenantRules(ctx, org, string(c.ctx.URI().QueryString()))
}
