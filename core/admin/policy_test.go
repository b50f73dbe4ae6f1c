package admin_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/policies"
)

// The same bytes are one version of a policy whatever it is called, and a policy holds them with one profile.
func TestSameBytesAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	wasm := module(t, "burst")
	f.ok("POST", "/admin/policies?name=one", wasm)
	f.ok("POST", "/admin/policies?name=one", wasm).has(t, "name", "one", "profile", "small")
	f.refused(409, "POST", "/admin/policies?name=one&profile=large", wasm, "with profile small; upload them under another name for profile large")
	f.ok("POST", "/admin/policies?name=two&profile=large", wasm).has(t, "name", "two", "profile", "large")
	if again := f.ok("POST", "/admin/policies?name=two&profile=small", wasm); again.status != 200 || again.at("profile") != "large" {
		t.Errorf("a module of the larger profile again: %d %s", again.status, again.raw)
	}
	before := f.proxy.renewed
	f.ok("POST", "/admin/policies/two/activate", nil)
	if f.proxy.renewed == before {
		t.Error("the proxy is not told that another policy decides")
	}
	f.ok("POST", "/admin/policies/one/activate", nil).has(t, "module", "one")
}

func module(t *testing.T, name string) []byte {
	t.Helper()
	wasm, ok := policies.Shipped(name)
	if !ok {
		t.Fatalf("%s is not shipped", name)
	}
	return bytes.Clone(wasm)
}

// The name of a module that comes with the gateway is for its bytes.
func TestShippedNamesAreReserved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.refused(409, "POST", "/admin/policies?name=default", module(t, "burst"), `"default"`, "comes with the gateway", `"my-default"`)
	f.ok("POST", "/admin/policies/default/activate", nil).has(t, "hash", fmt.Sprintf("%x", sha256.Sum256(module(t, "default"))))
	f.ok("POST", "/admin/policies?name=default", module(t, "default"))
	s := admin.Seed{Policies: []admin.SeedPolicy{{Name: "rules", Wasm: module(t, "burst"), Active: true}}}
	if err := f.api.Seed(t.Context(), s, true); err == nil || !strings.Contains(err.Error(), "comes with the gateway") {
		t.Errorf("a file of a shipped name: %v", err)
	}
	f.ok("GET", "/admin/policies", nil).has(t, "data.0.name", "default", "data.0.versions", 1, "data.1", nil)
	s.Policies[0].Wasm = module(t, "rules")
	f.must(f.api.Seed(t.Context(), s, true))
}

// variant is a module with other bytes and the same behaviour: one more custom section.
func variant(wasm []byte, n byte) []byte {
	return append(bytes.Clone(wasm), 0, 3, 1, 'x', n)
}

func versionOf(hash, params string, onError policy.OnError) string {
	return (&policy.Binding{Module: "m", Hash: hash, Params: []byte(params), OnError: onError}).Version()
}

func TestPolicyLife(t *testing.T) {
	f := newFixture(t)
	f.ok("GET", "/admin/bindings", nil).has(t, "data.0.owner", "operator", "data.0.module", nil)
	one := module(t, "default")
	two := variant(one, 2)
	a := f.ok("POST", "/admin/policies?name=mine", one)
	a.has(t, "name", "mine", "profile", "small", "size", len(one), "active", false)
	if a.status != 201 {
		t.Errorf("%d", a.status)
	}
	if again := f.ok("POST", "/admin/policies?name=mine", one); again.status != 200 || again.at("hash") != a.at("hash") {
		t.Errorf("%d %s", again.status, again.raw)
	}
	f.refused(409, "POST", "/admin/policies?name=mine&profile=large", one, "profile small")
	first := fmt.Sprint(a.at("hash"))
	second := fmt.Sprint(f.ok("POST", "/admin/policies?name=mine", two).at("hash"))
	if _, active := f.host.Active(); active {
		t.Error("an upload is active")
	}

	f.ok("POST", "/admin/policies/mine/activate", j{"version": first[:12], "onError": "deny"}).has(t, "hash", first, "onError", "deny", "version", versionOf(first, `{}`, "deny"))
	if b, ok := f.host.Active(); !ok || b.Hash != first {
		t.Errorf("the host has %+v", b)
	}
	f.ok("POST", "/admin/policies/mine/activate", nil).has(t, "hash", second, "onError", "deny") // the newest, onError stays
	f.ok("GET", "/admin/policies/mine/versions", nil).has(t, "data.0.hash", second, "data.0.active", true, "data.1.hash", first, "data.1.active", false)
	f.ok("GET", "/admin/policies?name=mine", nil).has(t, "data.0.hash", second, "data.0.active", true, "data.0.versions", 2, "data.1", nil)

	f.restart()
	if b, ok := f.host.Active(); !ok || b.Hash != second || b.OnError != "deny" {
		t.Errorf("after a restart the host has %+v", b)
	}
	f.ok("POST", "/admin/policies/mine/rollback", j{}).has(t, "hash", first)
	if b, _ := f.host.Active(); b.Hash != first {
		t.Errorf("after a rollback the host has %+v", b)
	}
	f.refused(409, "POST", "/admin/policies/mine/rollback", nil, "no earlier version")
	f.ok("POST", "/admin/policies/priority/activate", nil).has(t, "module", "priority") // shipped: no upload needed
	f.refused(409, "POST", "/admin/policies/mine/rollback", nil, "not active")
	f.ok("PUT", "/admin/bindings", j{"module": "mine", "hash": second}).has(t, "module", "mine", "hash", second, "onError", "deny") // as it was
	f.ok("POST", "/admin/policies/mine/rollback", nil).has(t, "hash", first)
	f.ok("PUT", "/admin/bindings", j{"module": nil}).has(t, "module", nil)
	if _, active := f.host.Active(); active {
		t.Error("still active")
	}
	f.restart()
	f.ok("GET", "/admin/bindings", nil).has(t, "data.0.module", nil)
}

func TestPolicyRefusals(t *testing.T) {
	f := newFixture(t)
	wasm := module(t, "default")
	f.ok("POST", "/admin/policies?name=mine", wasm)
	f.ok("POST", "/admin/policies/mine/activate", nil)
	f.refused(404, "POST", "/admin/policies/mien/activate", nil, `did you mean "mine"?`)
	f.refused(404, "GET", "/admin/policies/other/versions", nil, "no policy")
	f.refused(400, "POST", "/admin/policies/mine/activate", j{"version": "abcdef123"}, "no version", "abcdef123")
	f.refused(400, "POST", "/admin/policies/mine/activate", j{"version": "a"}, "6 characters")
	f.refused(400, "POST", "/admin/policies/mine/activate", j{"version": "abcdef", "hash": "abcdef"}, "either")
	f.refused(400, "POST", "/admin/policies/mine/activate", j{"onError": "panic"}, "default, last_good, deny")
	f.refused(400, "POST", "/admin/policies/mine/activate", j{"params": []int{1}}, "JSON object", "an array")
	f.refused(400, "POST", "/admin/policies/mine/activate", j{"on_error": "deny"}, `did you mean "onError"?`)
	f.refused(400, "POST", "/admin/policies/mine/activate", `{"params":{"a":1,"a":2}}`, "twice")
	f.refused(400, "PUT", "/admin/bindings", j{"module": "mine", "scope": "org:1"}, `"scope"`)
	f.refused(400, "PUT", "/admin/bindings", j{}, "module", "required")
	f.refused(400, "PUT", "/admin/bindings", j{"modul": "mine"}, `unknown field "modul"; did you mean "module"?`)
	f.refused(400, "POST", "/admin/policies/mine/canary", j{"percnt": 10}, `unknown field "percnt"; did you mean "percent"?`)
	f.refused(400, "PUT", "/admin/policies/mine/params", j{"param": j{}}, `unknown field "param"; did you mean "params"?`)
	f.refused(400, "POST", "/admin/policies/mine/rollback", j{"version": "x"}, "version", "keeps no")
	f.refused(400, "POST", "/admin/policies", wasm, "name")
	f.refused(400, "POST", "/admin/policies?name=a/b", wasm, "letters")
	f.refused(400, "POST", "/admin/policies?name=x&profile=huge", wasm, "small, large")
	f.refused(400, "POST", "/admin/policies?name=x", nil, "empty")
	if b, ok := f.host.Active(); !ok || b.Module != "mine" {
		t.Errorf("the host has %+v", b)
	}
}

// A policy's row and its versions call what was in force the same.
func TestPolicyListStages(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ok("POST", "/admin/policies?name=mine", module(t, "default"))
	f.ok("GET", "/admin/policies", nil).has(t, "data.0.stage", "uploaded")
	for _, c := range []struct{ method, path, stage string }{
		{"POST", "/admin/policies/mine/shadow", "shadow"},
		{"POST", "/admin/policies/mine/activate", "active"},
		{"DELETE", "/admin/bindings?owner=operator", "kept"},
	} {
		f.ok(c.method, c.path, nil)
		f.ok("GET", "/admin/policies", nil).has(t, "data.0.stage", c.stage, "data.0.active", c.stage == "active")
		f.ok("GET", "/admin/policies/mine/versions", nil).has(t, "data.0.stage", c.stage)
	}
}

// Broken uploads are 4xx with a reason; nothing is stored and the old module serves.
func TestP03BrokenUploadsChangeNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	good := module(t, "default")
	f.ok("POST", "/admin/policies?name=mine", good)
	version := f.ok("POST", "/admin/policies/mine/activate", nil).at("version")
	bad := [][]byte{[]byte("hello"), good[:8], good[:len(good)/2]}
	broken := len(bad)
	const places = 200
	for i := range places {
		b := bytes.Clone(good)
		at := 8 + (len(b)-12)*i/places
		for k := range 4 {
			b[at+k] ^= 0xA5
		}
		bad = append(bad, b)
	}
	state := func() string { return f.everything() + f.ok("GET", "/admin/policies/mine/versions", nil).raw }
	refused, before := 0, state()
	for i, wasm := range bad {
		a := f.send("POST", "/admin/policies?name=mine", wasm)
		if a.status/100 == 2 && i >= broken { // the bytes hit a constant or a custom section: another valid module
			before = state()
			continue
		}
		a.isError(t, 400)
		refused++
		if after := state(); after != before {
			t.Fatalf("upload %d was refused and changed\n%s\nto\n%s", i, before, after)
		}
		if d := f.ask(0, 1); d.Module != "mine" || d.Version != version || d.Fault != "" {
			t.Fatalf("after upload %d %+v decides", i, d)
		}
	}
	if refused < places/2 {
		t.Errorf("only %d of %d broken modules were refused", refused, len(bad))
	}
	f.refused(400, "POST", "/admin/policies?name=new", []byte("hello"))
	f.refused(404, "GET", "/admin/policies/new/versions", nil)
	if !strings.Contains(before, `"active":true`) {
		t.Error("nothing was active")
	}
	t.Logf("%d of %d refused", refused, len(bad))
}

// zeros never end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// A body that cannot be a module is refused within a second, however much of it is sent; ten are given to other load.
func TestP03HugeAndEmptyBodies(t *testing.T) {
	t.Parallel()
	const huge = 200 << 20
	f := newFixture(t)
	server := httptest.NewServer(f.handler)
	defer server.Close()
	before := f.everything()
	for _, c := range []struct {
		name            string
		size, announced int64
		status          int
	}{{"huge", huge, huge, 413}, {"huge in chunks", huge, -1, 413}, {"empty", 0, 0, 400}, {"empty in chunks", 0, -1, 400}} {
		t.Run(c.name, func(t *testing.T) {
			r, err := http.NewRequest("POST", server.URL+"/admin/policies?name=x", io.LimitReader(zeros{}, c.size))
			f.must(err)
			r.ContentLength = c.announced
			if c.announced == 0 {
				r.Body = http.NoBody
			}
			r.Header.Set("Authorization", "Bearer "+adminToken)
			began := time.Now()
			res, err := server.Client().Do(r)
			f.must(err)
			defer res.Body.Close()
			took := time.Since(began)
			if said, err := io.ReadAll(res.Body); res.StatusCode != c.status || err != nil || !bytes.Contains(said, []byte(`"invalid_request_error"`)) {
				t.Errorf("%d %s %v, want %d", res.StatusCode, said, err, c.status)
			}
			if took > 10*time.Second {
				t.Errorf("took %v, want <= 1s", took)
			}
			t.Logf("%v", took)
		})
	}
	if after := f.everything(); after != before {
		t.Errorf("changed\n%s\nto\n%s", before, after)
	}
}
