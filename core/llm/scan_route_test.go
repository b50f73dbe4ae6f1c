package llm

import (
	"errors"
	"testing"
)

// What a router of models behind a channel obeys would run another model than the one that is allowed and priced.
func TestMembersThatRerouteAreRefused(t *testing.T) {
	input := map[Endpoint]string{Chat: `"messages":[{"role":"user","content":"x"}]`, Completions: `"prompt":"x"`, Embeddings: `"input":"x"`,
		Responses: `"input":"x"`, Messages: `"messages":[{"role":"user","content":"x"}]`, CountTokens: `"messages":[{"role":"user","content":"x"}]`}
	for more, refused := range map[string]string{
		`"models":["other"]`:          "models",
		`"models":[]`:                 "models",
		`"fallbacks":[{"model":"o"}]`: "fallbacks",
		`"route":"fallback"`:          "route",
		`"preset":"dear"`:             "preset",
		`"plugins":[{"id":"web"}]`:    "plugins",
		`"plugins":false`:             "plugins",
		`"Models":["other"]`:          "models",
		`"m\u006fdels":["other"]`:     "models",
		`"models":null,"route":null,"plugins":null,"preset":null,"fallbacks":null`: "",
		`"metadata":{"route":"r","models":"m"},"routes":1`:                         "",
	} {
		for ep, in := range input {
			var h Head
			err := ScanHead(ep, []byte(`{"model":"m",`+in+`,`+more+`}`), &h)
			if e, _ := errors.AsType[*Error](err); (refused != "") != (e != nil) || refused != "" && (e.Kind != KindInvalid || e.Param != refused) {
				t.Errorf("%s: %s: %v", ep.Path(), more, err)
			}
		}
	}
}
