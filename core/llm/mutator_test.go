package llm_test

import (
	"bytes"
	"math/rand/v2"
	"strings"

	"github.com/weir-gateway/weir/core/llm"
)

// mutator makes bodies that nobody would send but to be read in two ways.
type mutator struct{ *rand.Rand }

// seeds are bodies that work, by endpoint.
var seeds = [...][]string{
	llm.Chat: {
		`{"model":"gpt-4o","messages":[{"role":"user","content":"hello"}],"max_tokens":50,"stream":true,"stream_options":{"include_usage":true}}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:x"}}]}],"n":3,"best_of":4,"max_completion_tokens":900,"model":"org\/m","user":"u"}`,
		`{"model":"m\u00e9","tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":"auto","messages":[{"role":"tool","tool_call_id":"c","content":"42"}],"stream":null}`,
	},
	llm.Completions: {
		`{"model":"a","prompt":"hello","max_tokens":7,"n":2,"best_of":3,"suffix":null}`,
		`{"prompt":["a","b","c"],"stream":false,"model":"a","logit_bias":{"1":-100}}`,
		`{"prompt":[[1,2],[3]],"model":"a"}`,
	},
	llm.Embeddings: {
		`{"model":"e","input":["a","b"],"encoding_format":"float"}`,
		`{"input":[[1,2,3],[4]],"model":"e","user":"u"}`,
	},
	llm.Responses: {
		`{"model":"gpt-5","max_output_tokens":500,"instructions":"be kind","stream":false,"input":"hi","background":false}`,
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}],"model":"m","max_tool_calls":2,"text":{"format":{"type":"text"}}}`,
	},
	llm.Messages: {
		`{"model":"claude","max_tokens":1024,"metadata":{"user_id":"u"},"system":[{"type":"text","text":"sys"}],"messages":[{"role":"user","content":"hi"}],"stream":true}`,
		`{"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","data":"words"}}]}],"thinking":{"type":"enabled","budget_tokens":1024},"max_tokens":2,"model":"claude"}`,
	},
	llm.CountTokens: {
		`{"model":"claude","messages":[{"role":"user","content":"hi"}],"tools":[]}`,
	},
}

// pieces are put where they may or may not belong.
var pieces = strings.Split(`"model":"b",|"MODEL":"b",|"\u006dodel":"b",|"Model":"b",|,"model":"b"|"max_tokens":1,|,"max_tokens":9|"max_to\u212aens":1,|"n":5,|`+
	`"N":5,|"stream":true,|"stream":false,|"\u0073tream":true,|,"stream":1|"max_output_tokens":4,|"max_completion_tokens":8,|"best_of":2,|null|true|false|`+
	`0|-0|-1|1|2147483647|2147483648|1e2|1E+2|1.0|0100|99999999999999999999|1e400|"100"|[]|{}|[[[[|]]]]|{"a":|}|{|[|]|,|:|"|\|/|\u0000|\ud83d\ude00|\ud800|`+
	`\u00|\x41|\"|/**/|//|NaN|Infinity|+1|.5|5.|0x1|'|""|"x":1,|"x":"y",|,"x":[1,2]|"__proto__":{"model":"c"},|"constructor":1,|"messages":[],|"user":"v",|`+
	`"stream_options":{"include_usage":false},|"include_usage":true|"include_usage":null|{"a":1,"a":2}|"toString":1,|"FILE_ID":"f",|"fi\u212ae":{},|"Type":"item_reference",|"\u0069d":"x",|"cont\u0045nt":"c",`+
	"|\x00|\x01|\n|\r\n|\t| |\u00a0|\ufeff|\u2028|\u212a|\u017f|\u0131|\xff|\xc0\xaf|\xed\xa0\x80|\xe4\xb8|\U0001f600|\x7f|\x0b|\x0c", "|")

func (m *mutator) pick(from []string) string { return from[m.IntN(len(from))] }

// body is a seed of an endpoint that was changed up to four times.
func (m *mutator) body(ep llm.Endpoint) []byte {
	b := []byte(m.pick(seeds[ep]))
	for range m.IntN(5) {
		b = m.change(b)
	}
	return b
}

func (m *mutator) change(b []byte) []byte {
	if len(b) == 0 {
		return []byte(m.pick(pieces))
	}
	i := m.IntN(len(b) + 1)
	j := min(len(b), i+m.IntN(12))
	splice := func(i int, piece string, j int) []byte {
		return append(append(bytes.Clone(b[:i]), piece...), b[j:]...)
	}
	switch m.IntN(10) {
	case 0: // a bit
		b = bytes.Clone(b)
		b[min(i, len(b)-1)] ^= 1 << m.IntN(8)
		return b
	case 1: // a piece is lost
		return splice(i, "", j)
	case 2: // and repeated
		return splice(j, string(b[i:j]), j)
	case 3: // and comes from another body
		other := m.pick(seeds[m.IntN(len(seeds)-1)+1])
		k := m.IntN(len(other))
		return splice(i, other[k:min(len(other), k+m.IntN(40))], j)
	case 4, 5: // a member, where members begin or follow
		at := boundary(b, i)
		return splice(at, m.pick(pieces), at)
	case 6, 7: // a value becomes another
		at := boundary(b, i)
		end := at
		for end < len(b) && !strings.ContainsRune(",}]:", rune(b[end])) {
			end++
		}
		return splice(at, m.pick(pieces), end)
	case 8: // deeper than one would
		n := m.IntN(70)
		return splice(boundary(b, i), `"deep":`+strings.Repeat("[", n)+strings.Repeat("]", n)+",", boundary(b, i))
	}
	return splice(i, m.pick(pieces), i)
}

// boundary is the first place from i on where a name or a value may begin.
func boundary(b []byte, i int) int {
	for ; i < len(b); i++ {
		if strings.ContainsRune("{[,:", rune(b[i])) {
			return i + 1
		}
	}
	return 1
}
