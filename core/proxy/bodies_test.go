package proxy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/valyala/fasthttp"
)

// capName is what a route calls the most that an answer may say; "" where answers have no length.
func capName(x route) string {
	switch x.path {
	case "/v1/responses":
		return "max_output_tokens"
	case "/v1/embeddings", "/v1/messages/count_tokens":
		return ""
	}
	return "max_tokens"
}

// capped is x with another cap, written as it stands.
func capped(x route, value string) string {
	return strings.Replace(x.body, `:50`, `:`+value, 1)
}

// S14: one stated answer, on every route, to each body that could be read in two ways; the field is named where one is
// to blame.
func TestS14Bodies(t *testing.T) {
	r := newRig(t)
	for _, x := range everyRoute {
		model := `"model":"` + x.model + `"`
		bodies := map[string]string{
			"two models":         x.with(`,` + model),
			"MODEL":              strings.Replace(x.body, `"model"`, `"MODEL"`, 1),
			"MODEL beside model": x.with(`,"MODEL":"x"`),
			"escaped name":       strings.Replace(x.body, `"model"`, `"\u006dodel"`, 1),
			"Kelvin sign":        x.with(`,"max_to\u212aens":1`),
			"a second document":  x.body + `{}`,
			"depth 10,000":       x.with(`,"x":` + strings.Repeat(`{"a":`, 10_000) + `1` + strings.Repeat(`}`, 10_000)),
			"invalid UTF-8":      x.with(",\"x\":\"\xff\""),
			"nothing":            "", "an array": "[]", "null": "null",
		}
		if name := capName(x); name != "" {
			for _, value := range []string{`"100"`, `1e2`, `1.0`, `-1`, `0`, `true`, `99999999999999999999`} {
				bodies[name+" "+value] = capped(x, value)
			}
			bodies["two caps"] = x.with(`,"` + name + `":60`)
		}
		for what, body := range bodies {
			f := r.post(x.path, body).want(t, 400).code(t, "invalid_request_error")
			param, _ := f["param"].(string)
			if blamed := strings.Contains(what, "model") || strings.Contains(what, "max_") || strings.Contains(what, "cap"); param == "" || blamed && param == "body" {
				t.Errorf("%s, %s: %v", x.path, what, f)
			}
		}
	}
	if n := r.sim.Stats().Requests; n != 0 {
		t.Errorf("%d requests got through", n)
	}
}

// S14: what is checked is what is forwarded. Odd but unambiguous bodies arrive as they were sent, but for the cap and the
// usage that are asked for; what looks like a field and is none changes nothing.
func TestS14WhatIsCheckedIsForwarded(t *testing.T) {
	arrived := make(chan []byte, 1)
	r := newRig(t, func(s *setup) {
		s.sim.Observe = func(_ string, _ *fasthttp.RequestHeader, body []byte) { arrived <- append([]byte(nil), body...) }
	})
	ours := map[string]bool{"max_tokens": true, "max_completion_tokens": true, "max_output_tokens": true, "stream_options": true}
	members := func(body []byte) (m, caps map[string]any) {
		must(t, json.Unmarshal(body, &m))
		caps = map[string]any{}
		for name := range ours {
			if v, ok := m[name]; ok && name != "stream_options" {
				caps[name] = v
			}
			delete(m, name)
		}
		return m, caps
	}
	for _, x := range everyRoute {
		bodies := map[string]string{
			"whitespace": " \r\n\t" + strings.ReplaceAll(x.body, `,"`, " ,\n\"") + "\n ",
			"decoys":     x.with(`,"metadata":{"model":"other","max_tokens":9999,"n":128,"x":"\",\"model\":\"other\""},"note":"}{\\\",\"max_tokens\":1"`),
			"escapes":    x.with(`,"x":"\u0022model\u0022:\u0022other\u0022","\u0022max_tokens":7`),
			"order":      `{"x":[{"model":"other"},[[]]],` + x.body[1:],
			"numbers":    x.with(`,"x":[1e400,-0.0e-1,123456789012345678901234567890]`),
		}
		if capName(x) != "" {
			bodies["a stream"] = x.with(`,"stream":true`)
		}
		for what, body := range bodies {
			r.post(x.path, body).want(t, 200)
			sent := <-arrived
			if what == "numbers" {
				if !strings.Contains(string(sent), `[1e400,-0.0e-1,123456789012345678901234567890]`) {
					t.Errorf("%s, %s: forwarded %s", x.path, what, sent)
				}
				continue
			}
			want, _ := members([]byte(body))
			got, caps := members(sent)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s, %s: %s", x.path, what, d)
			}
			for name, v := range caps {
				if v != 50.0 {
					t.Errorf("%s, %s: %s is %v upstream", x.path, what, name, v)
				}
			}
			if len(caps) == 0 != (capName(x) == "") {
				t.Errorf("%s, %s: caps %v", x.path, what, caps)
			}
		}
	}
}
