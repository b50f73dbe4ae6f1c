package sim

import (
	"encoding/json"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// FuzzAsk: any body is answered, and what the walkers read is what encoding/json reads.
func FuzzAsk(f *testing.F) {
	for _, s := range []string{`{"model":"a+out=1","messages":[{"role":"user","content":"x\"\\"}],"n":3}`, `{"model":"\u0061","input":[[1],["2"]]}`,
		` { "stream_options" : { "include_usage" : true } , "prompt":["",{}] } `, `{"":{},"a":[]}`, `[]`, `{"model":1,"model":"b","max_tokens":1e9}`} {
		f.Add(byte(llm.Chat), []byte(s))
	}
	f.Add(byte(llm.Completions)-1, []byte(`{"model":"m","prompt":["a","b","c","d"],"n":4611686018427387904}`)) // times 4 it is 0
	f.Fuzz(func(t *testing.T, ep byte, body []byte) {
		a, fail := parseAsk(llm.Endpoint(ep%byte(llm.CountTokens))+1, body)
		if fail != nil {
			return
		}
		var want struct {
			Model *json.RawMessage `json:"model"`
		}
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("accepted %q: %v", body, err)
		}
		if a.input < 0 || a.choices < 1 {
			t.Fatalf("%q: %+v", body, a)
		}
	})
}

// FuzzWalk: the walkers visit the members and elements that encoding/json sees, in their order.
func FuzzWalk(f *testing.F) {
	f.Add([]byte(`{"a":[1,"]",{"b":"}\\\""}],"c":null,"\u0064":-1.5e3}`))
	f.Add([]byte(` [ [ ] , { } , "x" , true ] `))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) == nil && object != nil {
			got := map[string]string{}
			members(raw, func(key string, val []byte) { got[key] = string(val) })
			if len(got) != len(object) {
				t.Fatalf("%q: members %q, want %q", raw, got, object)
			}
			for k, v := range object {
				if got[k] != string(v) {
					t.Fatalf("%q: member %q is %q, want %q", raw, k, got[k], v)
				}
			}
		}
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil && list != nil {
			i := 0
			elements(raw, func(val []byte) {
				if i >= len(list) || string(val) != string(list[i]) {
					t.Fatalf("%q: element %d is %q", raw, i, val)
				}
				i++
			})
			if i != len(list) {
				t.Fatalf("%q: %d elements, want %d", raw, i, len(list))
			}
		}
	})
}
