package admin_test

import (
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/weir-gateway/weir/core/admin"
)

func TestTokenIsAskedForEverywhere(t *testing.T) {
	f := newFixture(t)
	key := f.account()
	for _, path := range []string{"/admin/orgs", "/admin/keys/1", "/metrics", "/admin/usage", "/admin/nowhere", "/", "/admin//orgs"} {
		for _, header := range []string{"", "Bearer ", "Bearer wrong", "Bearer " + key, adminToken, "Basic " + adminToken, "Bearer " + adminToken + "x"} {
			f.send("GET", path, nil, "Authorization", header).isError(t, 401, "admin token")
		}
	}
	r := httptest.NewRequest("GET", "/admin/orgs", nil)
	r.Header.Add("Authorization", "Bearer "+adminToken)
	r.Header.Add("Authorization", "Bearer "+adminToken)
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	if w.Code != 401 {
		t.Errorf("two headers: %d", w.Code)
	}
	f.ok("GET", "/admin/orgs", nil, "Authorization", "bearer "+adminToken)
	for _, open := range []string{"/healthz", "/readyz", "/admin/openapi.yaml"} {
		f.ok("GET", open, nil, "Authorization", "")
	}
}

func TestNoTokenConfiguredAdmitsNobody(t *testing.T) {
	f := newFixture(t)
	bare := admin.New(admin.Options{}, admin.Parts{Clock: f.clock, Ledger: f.ledger, Directory: f.dir, Limiter: f.limiter, Policy: f.host, Live: f.proxy})
	f.handler = bare.Handler()
	f.send("GET", "/admin/orgs", nil, "Authorization", "Bearer ").isError(t, 401)
}

func TestLostRoutes(t *testing.T) {
	f := newFixture(t)
	f.refused(404, "GET", "/admin/key", nil, "did you mean GET /admin/keys?")
	f.refused(404, "GET", "/admin/keys/7/usage_window", nil, "GET /admin/keys/7/usage-window")
	f.refused(404, "POST", "/admin/key/7/limits", nil, "POST /admin/keys/7/limits")
	f.refused(404, "GET", "/admin/keys/", nil, "/admin/keys")
	f.refused(404, "GET", "/admin//keys", nil)
	f.refused(404, "GET", "/admin/../metrics", nil)
	f.refused(404, "GET", "/v1/models", nil)
	f.refused(404, "GET", "/completely/different/thing/altogether", nil, "openapi.yaml")
	a := f.refused(405, "PUT", "/admin/keys/7", nil, "PUT", "GET, PATCH, DELETE")
	if a.header.Get("Allow") != "GET, PATCH, DELETE" {
		t.Errorf("Allow: %q", a.header.Get("Allow"))
	}
	f.refused(405, "DELETE", "/admin/limits/global", nil, "GET, PUT").has(t, "error.type", "invalid_request_error", "error.code", "method_not_allowed")
}

func TestStrictBodies(t *testing.T) {
	f := newFixture(t)
	f.account()
	for name, c := range map[string]struct {
		body string
		says []string
	}{
		"unknown":            {`{"userId":1,"name":"k","qpslimit":3}`, []string{`"qpslimit"`, `did you mean "qpsLimit"?`}},
		"unknown far":        {`{"userId":1,"name":"k","zzzzzzzzzzzz":3}`, []string{`"zzzzzzzzzzzz"`, "valid are"}},
		"duplicate":          {`{"userId":1,"name":"k","name":"l"}`, []string{`"name"`, "twice"}},
		"duplicate escaped":  {`{"userId":1,"name":"k","n\u0061me":"l"}`, []string{`"name"`, "twice"}},
		"duplicate in label": {`{"userId":1,"name":"k","labels":{"a":"1","a":"2"}}`, []string{`"a"`, "twice"}},
		"missing":            {`{"userId":1}`, []string{"name", "required"}},
		"nothing":            {``, []string{"required"}},
		"array":              {`[]`, []string{"JSON object", "an array"}},
		"second document":    {`{"userId":1,"name":"k"} {}`, []string{"one JSON document"}},
		"cut":                {`{"userId":1,"name":"k"`, []string{"not valid JSON"}},
		"garbage":            {`{"userId":1,"name":k}`, []string{"not valid JSON"}},
		"not utf-8":          {"{\"userId\":1,\"name\":\"k\xff\"}", []string{"UTF-8"}},
		"deep":               {`{"userId":1,"name":"k","labels":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, []string{"nested deeper"}},
		"string number":      {`{"userId":1,"name":"k","qpsLimit":"100"}`, []string{"qpsLimit", "whole number", "a string"}},
		"fraction":           {`{"userId":1,"name":"k","qpsLimit":1.5}`, []string{"qpsLimit", "1.5"}},
		"exponent":           {`{"userId":1,"name":"k","qpsLimit":1e2}`, []string{"qpsLimit"}},
		"negative":           {`{"userId":1,"name":"k","tpmLimit":-1}`, []string{"tpmLimit", "0 (unlimited)", "-1"}},
		"null name":          {`{"userId":1,"name":null}`, []string{"name", "null"}},
		"huge limit":         {`{"userId":1,"name":"k","tpmLimit":9223372036854775808}`, []string{"tpmLimit"}},
		"negative quota":     {`{"userId":1,"name":"k","monthlyQuotaCny":-1}`, []string{"monthlyQuotaCny", "at least 0"}},
		"seven decimals":     {`{"userId":1,"name":"k","monthlyQuotaCny":0.0000001}`, []string{"monthlyQuotaCny", "six decimals"}},
		"inexact exponent":   {`{"userId":1,"name":"k","monthlyQuotaCny":1e-7}`, []string{"monthlyQuotaCny", "six decimals"}},
		"absurd exponent":    {`{"userId":1,"name":"k","monthlyQuotaCny":1e400}`, []string{"monthlyQuotaCny", "exactly"}},
		"overflow":           {`{"userId":1,"name":"k","monthlyQuotaCny":9223372036855}`, []string{"monthlyQuotaCny"}},
		"too much":           {`{"userId":1,"name":"k","monthlyQuotaCny":"1000000000000.000001"}`, []string{"at most 1000000000000"}},
		"money as bool":      {`{"userId":1,"name":"k","monthlyQuotaCny":true}`, []string{"monthlyQuotaCny", "a boolean"}},
		"money in words":     {`{"userId":1,"name":"k","monthlyQuotaCny":"much"}`, []string{"monthlyQuotaCny", "not an amount"}},
		"other currency":     {`{"userId":1,"name":"k","monthlyQuotaUsd":1}`, []string{`did you mean "monthlyQuotaCny"?`}},
		"empty name":         {`{"userId":1,"name":""}`, []string{"1 to 128"}},
		"long name":          {`{"userId":1,"name":"` + strings.Repeat("x", 129) + `"}`, []string{"1 to 128"}},
		"control in name":    {`{"userId":1,"name":"a\nb"}`, []string{"printable"}},
		"blank at the end":   {`{"userId":1,"name":"a "}`, []string{"blanks"}},
		"name as number":     {`{"userId":1,"name":5}`, []string{"name", "expected a string", "5"}},
		"name null":          {`{"userId":1,"name":null}`, []string{"expected a string", "null"}},
		"user unknown":       {`{"userId":9,"name":"k"}`, []string{"userId", "no user 9"}},
		"user zero":          {`{"userId":0,"name":"k"}`, []string{"userId"}},
		"zone":               {`{"userId":1,"name":"k","timezone":"Mars/Base"}`, []string{"timezone", "IANA", "Mars/Base"}},
		"zone local":         {`{"userId":1,"name":"k","timezone":"Local"}`, []string{"IANA"}},
		"model unknown":      {`{"userId":1,"name":"k","models":["gpt-4o"]}`, []string{"gpt-4o", "trailing *"}},
		"models not a list":  {`{"userId":1,"name":"k","models":"gpt-4o"}`, []string{"array"}},
		"models null inside": {`{"userId":1,"name":"k","models":[null]}`, []string{"null"}},
		"models twice":       {`{"userId":1,"name":"k","models":["a*","a*"]}`, []string{"twice"}},
		"label number":       {`{"userId":1,"name":"k","labels":{"a":1}}`, []string{`labels: label "a": expected a string, got 1`}},
		"label object":       {`{"userId":1,"name":"k","labels":{"a":"x","b":{}}}`, []string{`labels: label "b": expected a string, got an object`}},
		"mistyped name":      {`{"userId":1,"naem":"k"}`, []string{`unknown field "naem"; did you mean "name"?`}},
		"label null":         {`{"userId":1,"name":"k","labels":{"a":null}}`, []string{"labels", "null"}},
		"label name":         {`{"userId":1,"name":"k","labels":{"` + strings.Repeat("x", 65) + `":"1"}}`, []string{"64"}},
		"label value":        {`{"userId":1,"name":"k","labels":{"a":"` + strings.Repeat("x", 257) + `"}}`, []string{"256"}},
		"expiry zero":        {`{"userId":1,"name":"k","expiresInDays":0}`, []string{"expiresInDays", "null for never"}},
		"plaintext":          {`{"userId":1,"name":"k","plaintext":"sk-weir-short"}`, []string{"malformed key"}},
	} {
		t.Run(name, func(t *testing.T) { f.refused(400, "POST", "/admin/keys", c.body, c.says...) })
	}
	labels := j{}
	for i := range 33 {
		labels[strings.Repeat("l", i+1)] = ""
	}
	f.refused(400, "POST", "/admin/keys", j{"userId": 1, "name": "k", "labels": labels}, "at most 32")
	f.refused(413, "POST", "/admin/orgs", `{"name":"`+strings.Repeat("x", 1<<20)+`"}`, "1048576")
	f.ok("GET", "/admin/keys", nil).has(t, "data.1", nil) // none of them left a key
}

func TestQueriesAreStrict(t *testing.T) {
	f := newFixture(t)
	f.refused(400, "GET", "/admin/keys?userid=1", nil, `did you mean "userId"?`)
	f.refused(400, "GET", "/admin/keys?limit=0", nil, "limit", "1 to 1000")
	f.refused(400, "GET", "/admin/keys?limit=5&limit=6", nil, "expected once")
	f.refused(400, "GET", "/admin/keys?cursor=x", nil, "cursor", "nextCursor")
	f.refused(400, "GET", "/admin/users?orgId=x", nil, "orgId")
	f.refused(400, "GET", "/admin/orgs?%zz", nil, "query")
}

func TestOpenAPINamesEveryRoute(t *testing.T) {
	raw, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		OpenAPI string
		Paths   map[string]map[string]any
	}
	if err := yaml.Unmarshal(raw, &spec); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(spec.OpenAPI, "3.1") {
		t.Errorf("openapi: %q", spec.OpenAPI)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	for _, ref := range regexp.MustCompile(`"#/([^"]+)"`).FindAllStringSubmatch(string(raw), -1) {
		var at any = tree
		for _, name := range strings.Split(ref[1], "/") {
			m, _ := at.(map[string]any)
			at = m[name]
		}
		if at == nil {
			t.Errorf("%s leads nowhere", ref[0])
		}
	}
	var described []string
	for path, methods := range spec.Paths {
		for method := range methods {
			if method != "parameters" {
				described = append(described, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(described)
	var served []string
	for _, r := range admin.Routes() {
		served = append(served, strings.ReplaceAll(r, "...}", "}"))
	}
	slices.Sort(served)
	if !slices.Equal(described, served) {
		t.Errorf("openapi.yaml and the mux differ:\n%s\n\n%s", strings.Join(described, "\n"), strings.Join(served, "\n"))
	}
	f := newFixture(t)
	if got := f.ok("GET", "/admin/openapi.yaml", nil); got.raw != string(raw) || got.header.Get("Content-Type") != "application/yaml" {
		t.Error("the served text is another")
	}
}

func TestHealth(t *testing.T) {
	f := newFixture(t)
	f.ok("GET", "/healthz", nil).has(t, "status", "ok", "version", "test")
	f.ok("GET", "/readyz", nil).has(t, "status", "ready", "windows", "single-machine limits")
	f.proxy.unready = os.ErrNotExist
	if a := f.send("GET", "/readyz", nil); a.status != 503 {
		t.Errorf("%d", a.status)
	} else {
		a.has(t, "status", "unready", "reasons.0", os.ErrNotExist)
	}
	if a := f.ok("GET", "/metrics", nil); !strings.Contains(a.raw, "weir_reservations_open 0") {
		t.Errorf("%s", a.raw)
	}
}
