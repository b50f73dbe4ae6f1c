package proxy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/upstream"
)

// The JSON writers of some languages escape what need not be: PHP the slash, Python everything beyond ASCII. The model is
// the same, and goes upstream as it came, or under the name the catalogue has for it.
func TestModelNamesMayBeEscaped(t *testing.T) {
	arrived := make(chan []byte, 1)
	r := newRig(t, func(s *setup) {
		s.sim.Observe = func(_ string, _ *fasthttp.RequestHeader, body []byte) { arrived <- append([]byte(nil), body...) }
		s.catalog = func(c *catalog) {
			for _, name := range []string{"org/mod", "modé", "𝄞", "\ufffd"} {
				c.models = append(c.models, upstream.Model{Name: name, Price: price, Priced: true, MaxOutputTokens: 4096})
			}
			c.models = append(c.models, upstream.Model{Name: "a/b", Target: "inner", Price: price, Priced: true})
		}
	})
	for _, x := range everyRoute {
		for written, name := range map[string]string{`org\/mod`: "org/mod", `mod\u00e9`: "modé", `\ud834\udd1e`: "𝄞", `\u006frg/mod`: "org/mod"} {
			r.post(x.path, strings.Replace(x.body, x.model, written, 1)).want(t, 200)
			sent := <-arrived
			var got struct{ Model string }
			must(t, json.Unmarshal(sent, &got))
			if got.Model != name || !strings.Contains(string(sent), `"model":"`+written+`"`) {
				t.Errorf("%s: %s arrived as %s", x.path, written, sent)
			}
		}
		r.post(x.path, strings.Replace(x.body, x.model, `a\/b`, 1)).want(t, 200)
		if sent := <-arrived; !strings.Contains(string(sent), `"model":"inner"`) {
			t.Errorf("%s: %s", x.path, sent)
		}
		for _, written := range []string{`org\/mo`, `\ud834`, `\/`} {
			r.post(x.path, strings.Replace(x.body, x.model, written, 1)).want(t, 404).code(t, "model_not_found")
		}
		r.post(x.path, strings.Replace(x.body, x.model, "\ufffd", 1)).want(t, 200)
		<-arrived
	}
	p := r.post("/v1/chat/completions", strings.Replace(chat("gpt-4o", ""), "gpt-4o", `org\/mop`, 1)).want(t, 404)
	if !strings.Contains(string(p.body), "did you mean org/mod?") {
		t.Errorf("%s", p.body)
	}
}
