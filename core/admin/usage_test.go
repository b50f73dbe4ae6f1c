package admin_test

import (
	"encoding/csv"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

// spend makes n finished requests of key 1, a second apart.
func (f *fixture) spend(n int, model string) {
	f.t.Helper()
	f.spendWith(n, model, func(*limit.Money) {})
}

func (f *fixture) spendWith(n int, model string, change func(*limit.Money)) {
	f.t.Helper()
	for range n {
		claim := limit.Claim{Caller: limit.Caller{Org: 1, User: 1, Key: 1}, Input: 10, Output: 20,
			Facts: llm.Entry{Endpoint: llm.Chat, Model: model, RequestID: 0xAB, AtMS: f.clock.Wall().UnixMilli()}}
		claim.Money = limit.Money{Billed: true, Balance: true, Price: llm.Price{Input: 1_000_000, Output: 2_000_000}}
		change(&claim.Money)
		res, denial, err := f.limiter.Reserve(f.t.Context(), &claim)
		if err != nil || denial != nil {
			f.t.Fatal(denial, err)
		}
		res.Sent("main")
		res.Answered(200)
		s := res.Commit(llm.Usage{InputTokens: 5, OutputTokens: 7}, true)
		f.must(f.ledger.Wait(f.t.Context(), s.Seq, time.Minute))
		f.clock.Advance(time.Second)
	}
}

func TestUsage(t *testing.T) {
	f := newFixture(t)
	f.account()
	f.spend(5, "=gpt")
	f.spend(2, "claude")
	a := f.ok("GET", "/admin/usage?limit=3", nil)
	a.has(t, "data.0.model", "=gpt", "data.0.keyId", 1, "data.0.costMicroCny", 19, "data.0.costCny", "0.000019", "data.0.inputTokens", 5,
		"data.0.outputTokens", 7, "data.0.status", "finalized", "data.0.requestId", "00000000000000ab", "data.0.channel", "main",
		"data.0.endpoint", "/v1/chat/completions", "data.0.httpStatus", 200, "data.0.at", "2026-11-05T12:00:00.000Z", "data.3", nil)
	seen, cursor := 3, fmt.Sprint(a.at("nextCursor"))
	for cursor != "<nil>" {
		a = f.ok("GET", "/admin/usage?limit=3&cursor="+cursor, nil)
		seen += len(a.json["data"].([]any))
		cursor = fmt.Sprint(a.at("nextCursor"))
	}
	if seen != 7 {
		t.Errorf("paged through %d of 7", seen)
	}
	for query, want := range map[string]int{"model=claude": 2, "key=1": 7, "key=2": 0, "user=1&org=1": 7, "status=finalized": 7, "status=partial": 0,
		"from=2026-11-05T12:00:05Z": 2, "to=2026-11-05T12:00:05Z": 5, "from=2026-11-06": 0, "newest=true": 7} {
		if n := len(f.ok("GET", "/admin/usage?"+query, nil).json["data"].([]any)); n != want {
			t.Errorf("%s: %d records, want %d", query, n, want)
		}
	}
	f.ok("GET", "/admin/usage?newest=true", nil).has(t, "data.0.model", "claude", "data.6.model", "=gpt")
	for query, says := range map[string]string{"format=xml": "json, ndjson or csv", "from=yesterday": "2026-11-30T08:00:00Z", "status=ok": "finalized",
		"newest=1": "true or false", "keyId=1": "key", "cursor=zz": "cursor", "limit=1001": "1000"} {
		f.refused(400, "GET", "/admin/usage?"+query, nil, says)
	}
}

func TestUsageAsLinesAndTable(t *testing.T) {
	f := newFixture(t)
	f.account()
	header := f.ok("GET", "/admin/usage?format=csv", nil).raw
	if !strings.HasPrefix(header, "id,requestId,startedAt,at,orgId") || strings.Count(header, "\n") != 1 {
		t.Errorf("an empty table is %q", header)
	}
	f.spend(150, "=gpt")
	a := f.ok("GET", "/admin/usage", nil, "Accept", "application/x-ndjson")
	if n := strings.Count(a.raw, "\n"); n != 150 || a.header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%d lines of %s", n, a.header.Get("Content-Type"))
	}
	a = f.ok("GET", "/admin/usage?limit=4", nil, "Accept", "text/csv")
	rows, err := csv.NewReader(strings.NewReader(a.raw)).ReadAll()
	if err != nil || len(rows) != 5 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	byName := map[string]string{}
	for i, name := range rows[0] {
		byName[name] = rows[1][i]
	}
	for name, want := range map[string]string{"model": "'=gpt", "costCny": "0.000019", "costMicroCny": "19", "stream": "false", "keyId": "1"} {
		if byName[name] != want {
			t.Errorf("%s is %q, want %q", name, byName[name], want)
		}
	}
}

func TestAudit(t *testing.T) {
	f := newFixture(t)
	f.account()
	f.ok("POST", "/admin/keys/1/limits", j{"qpsLimit": 5})
	a := f.ok("GET", "/admin/audit", nil)
	a.has(t, "data.0.action", "key.limits", "data.0.target", "key:1", "data.0.actor", "admin", "data.0.before.qpsLimit", 2, "data.0.after.qpsLimit", 5,
		"data.1.action", "key.create", "data.2.action", "user.create", "data.2.after.balanceCny", 100, "data.3.action", "org.create")
	if a.at("data.0.prev") != a.at("data.1.hash") {
		t.Error("the chain is broken")
	}
	p := f.ok("GET", "/admin/audit?limit=2", nil)
	p.has(t, "data.1.action", "key.create", "data.2", nil)
	f.ok("GET", "/admin/audit?limit=2&cursor="+fmt.Sprint(p.at("nextCursor")), nil).has(t, "data.0.action", "user.create", "data.1.action", "org.create")
	f.refused(400, "GET", "/admin/audit?cursor=x", nil, "cursor")
}
