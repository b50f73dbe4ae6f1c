package admin_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/policies"
)

func module(t *testing.T, name string) []byte {
	t.Helper()
	wasm, ok := policies.Shipped(name)
	if !ok {
		t.Fatalf("%s is not shipped", name)
	}
	return bytes.Clone(wasm)
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
	f.ok("PUT", "/admin/bindings", j{"module": "mine", "hash": second}).has(t, "module", "mine", "hash", second, "onError", "default")
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
	f.refused(400, "POST", "/admin/policies/mine/rollback", j{"version": "x"}, "version", "keeps no")
	f.refused(400, "POST", "/admin/policies", wasm, "name")
	f.refused(400, "POST", "/admin/policies?name=a/b", wasm, "letters")
	f.refused(400, "POST", "/admin/policies?name=x&profile=huge", wasm, "small, large")
	f.refused(400, "POST", "/admin/policies?name=x", nil, "empty")
	if b, ok := f.host.Active(); !ok || b.Module != "mine" {
		t.Errorf("the host has %+v", b)
	}
}

// Broken uploads are 4xx with a reason; nothing is stored and the old module serves.
func TestP03BrokenUploadsChangeNothing(t *testing.T) {
	f := newFixture(t)
	good := module(t, "default")
	f.ok("POST", "/admin/policies?name=mine", good)
	f.ok("POST", "/admin/policies/mine/activate", nil)
	before := f.everything()
	bad := map[string][]byte{"no wasm": []byte("hello"), "header only": good[:8], "half": good[:len(good)/2]}
	for i := 0; i < 40; i++ {
		broken := bytes.Clone(good)
		at := 8 + (len(broken)-12)*i/40
		for k := range 4 {
			broken[at+k] ^= 0xA5
		}
		bad[fmt.Sprintf("overwritten at %d", at)] = broken
	}
	refused := 0
	for name, wasm := range bad {
		a := f.send("POST", "/admin/policies?name=mine", wasm)
		if a.status/100 == 2 && strings.HasPrefix(name, "overwritten") {
			continue // the bytes hit a constant or a custom section: another valid module
		}
		a.isError(t, 400)
		refused++
	}
	if refused < 20 {
		t.Errorf("only %d of %d broken modules were refused", refused, len(bad))
	}
	if b, ok := f.host.Active(); !ok || b.Module != "mine" {
		t.Errorf("the host has %+v", b)
	}
	f.refused(400, "POST", "/admin/policies?name=new", []byte("hello"))
	f.refused(404, "GET", "/admin/policies/new/versions", nil)
	if !strings.Contains(before, `"active":true`) {
		t.Error("nothing was active")
	}
}
