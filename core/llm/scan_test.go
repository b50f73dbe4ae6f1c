package llm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-gateway/weir/core/llm"
)

// facts is a Head with its spans resolved, for comparing.
type facts struct {
	Model, EndUser, StreamOptions, UsageValue string
	Stream, Tools, Files                      bool
	Images, Messages, Names, Attachments      int
	Cap                                       llm.Tokens
	Choices                                   int
	Texts, Raw, Caps                          []string
	TextTokens                                llm.Tokens
	IncludeUsage                              llm.Tri
}

func resolve(h *llm.Head, body []byte) facts {
	f := facts{
		Model: string(h.Model.In(body)), EndUser: string(h.EndUser.In(body)),
		StreamOptions: string(h.StreamOptions.In(body)), UsageValue: string(h.UsageValue.In(body)),
		Stream: h.Stream, Tools: h.Tools, Files: h.Files, Images: h.Images, Messages: h.Messages, Names: h.Names,
		Attachments: h.Attachments, Cap: h.OutputCap, Choices: h.Choices, TextTokens: h.TextTokens,
		IncludeUsage: h.IncludeUsage,
	}
	for _, t := range h.Texts {
		if t.Raw {
			f.Raw = append(f.Raw, string(t.In(body)))
		} else {
			f.Texts = append(f.Texts, string(t.In(body)))
		}
	}
	for _, c := range h.Caps {
		f.Caps = append(f.Caps, string(c.In(body)))
	}
	return f
}

func scan(t *testing.T, ep llm.Endpoint, body string) facts {
	t.Helper()
	var h llm.Head
	if err := llm.ScanHead(ep, []byte(body), &h); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return resolve(&h, []byte(body))
}

func refuse(t *testing.T, ep llm.Endpoint, body string) *llm.Error {
	t.Helper()
	var h llm.Head
	err := llm.ScanHead(ep, []byte(body), &h)
	var e *llm.Error
	if !errors.As(err, &e) {
		t.Fatalf("%.200s: accepted (%v)", body, err)
	}
	if e.Kind != llm.KindInvalid || e.Message == "" || strings.Contains(e.Message, "\n") {
		t.Fatalf("%.200s: %+v", body, e)
	}
	return e
}

func TestScanChat(t *testing.T) {
	got := scan(t, llm.Chat, `{"model":"gpt-4o-mini","stream":true,"stream_options":{"include_usage":true,"x":1},
		"max_tokens":1,"max_completion_tokens":900,"n":3,"user":"u-1","temperature":0.5,"stop":["a"],
		"response_format":{"type":"json_schema","json_schema":{"name":"s"}},
		"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto",
		"prediction":{"type":"content","content":"guess"},
		"messages":[
			{"role":"system","content":"be\nbrief"},
			{"role":"user","name":"ann","content":[{"type":"text","text":"look"},
				{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"high"}},
				{"type":"input_audio","input_audio":{"data":"UklG","format":"wav"}},
				{"type":"file","file":{"file_data":"data:application/pdf;base64,JVBE","filename":"a.pdf"}}]},
			{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function",
				"function":{"name":"f","arguments":"{\"a\":1}"}}]},
			{"role":"tool","tool_call_id":"call_1","content":"42","extra":{"deep":["x"]}}]}`)
	want := facts{
		Model: "gpt-4o-mini", EndUser: "u-1", Stream: true, Tools: true, Files: true,
		Images: 1, Messages: 4, Names: 1, Attachments: 2, Cap: 900, Choices: 3, Caps: []string{"1", "900"},
		IncludeUsage: llm.True, UsageValue: "true", StreamOptions: `{"include_usage":true,"x":1}`,
		Texts: []string{"auto", "guess", "system", `be\nbrief`, "user", "ann", "look", "assistant", "f",
			`{\"a\":1}`, "tool", "42"},
		Raw: []string{`{"type":"json_schema","json_schema":{"name":"s"}}`,
			`[{"type":"function","function":{"name":"f"}}]`, `{"deep":["x"]}`},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestScanCompletions(t *testing.T) {
	for _, c := range []struct {
		name, prompt    string
		prompts, tokens int
		texts           []string
	}{
		{"string", `"abc"`, 1, 0, []string{"abc"}},
		{"strings", `["a","b","c"]`, 3, 0, []string{"a", "b", "c"}},
		{"tokens", `[1,2,3,4]`, 1, 4, nil},
		{"token arrays", `[[1,2],[3]]`, 2, 3, nil},
		{"null", `null`, 1, 0, nil},
	} {
		got := scan(t, llm.Completions, `{"model":"m","prompt":`+c.prompt+`,"n":2,"best_of":5,"max_tokens":7,"suffix":null}`)
		if got.Choices != 5*c.prompts || int(got.TextTokens) != c.tokens || got.Messages != c.prompts ||
			!slices.Equal(got.Texts, c.texts) || got.Cap != 7 {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if got := scan(t, llm.Completions, `{"model":"m"}`); got.Choices != 1 || got.Cap != -1 {
		t.Errorf("%+v", got)
	}
}

// M09: everything that multiplies is multiplied, and bounded.
func TestM09ChoicesAndArrays(t *testing.T) {
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(`"x",`, n), ",") + "]" }
	if got := scan(t, llm.Chat, `{"model":"m","n":128,"messages":[{"role":"user"}]}`); got.Choices != 128 {
		t.Errorf("n: %+v", got)
	}
	got := scan(t, llm.Completions, `{"model":"m","prompt":`+list(2048)+`,"n":2,"best_of":20}`)
	if got.Choices != 2048*20 {
		t.Errorf("prompts: %d", got.Choices)
	}
	got = scan(t, llm.Embeddings, `{"model":"m","input":`+list(2048)+`}`)
	if got.Messages != 2048 || len(got.Texts) != 2048 || got.Choices != 1 {
		t.Errorf("embeddings: %d %d", got.Messages, len(got.Texts))
	}
	for body, param := range map[string]string{
		`{"model":"m","n":129,"messages":[{}]}`:            "n",
		`{"model":"m","n":0,"messages":[{}]}`:              "n",
		`{"model":"m","best_of":1000,"messages":[{}]}`:     "best_of",
		`{"model":"m","messages":[],"n":1}`:                "messages",
		`{"model":"m","messages":["hello"]}`:               "messages",
		`{"model":"m","messages":{"role":"user"}}`:         "messages",
		`{"model":"m","prompt":"there are no messages"}`:   "messages",
		`{"model":"m","messages":[{}],"best_of":"twenty"}`: "best_of",
	} {
		if e := refuse(t, llm.Chat, body); e.Param != param {
			t.Errorf("%s: param %q", body, e.Param)
		}
	}
	for _, input := range []string{list(2049), `[]`, `null`, `7`, `{}`, `["a",1]`, `[1,"a"]`, `[1.5]`, `[-1]`, `[[1],"a"]`, `[[null]]`, `[true]`} {
		if e := refuse(t, llm.Embeddings, `{"model":"m","input":`+input+`}`); e.Param != "input" {
			t.Errorf("%.40s: param %q", input, e.Param)
		}
	}
	if e := refuse(t, llm.Embeddings, `{"model":"m"}`); e.Param != "input" {
		t.Errorf("%+v", e)
	}
}

func TestScanEmbeddings(t *testing.T) {
	got := scan(t, llm.Embeddings, `{"input":[[1,2,3],[4]],"model":"text-embedding-3-small","user":"u","encoding_format":"float"}`)
	if got.TextTokens != 4 || got.Messages != 2 || got.EndUser != "u" {
		t.Errorf("%+v", got)
	}
	if got := scan(t, llm.Embeddings, `{"model":"m","input":[{"text":"hi"},{"image_url":"https://x"}]}`); got.Images != 1 || got.Messages != 2 {
		t.Errorf("%+v", got)
	}
}

// L04: the Responses route has its own cap and its own shapes, and the same accounting.
func TestL04ScanResponses(t *testing.T) {
	got := scan(t, llm.Responses, `{"model":"gpt-5","max_output_tokens":500,"instructions":"be kind","stream":false,
		"text":{"format":{"type":"text"}},"reasoning":{"effort":"low"},
		"input":[{"role":"user","content":[{"type":"input_text","text":"hi"},{"type":"input_image","image_url":"data:image/png;base64,AA"},
			{"type":"input_file","file_data":"JVBE","filename":"x"}]},
			{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
			{"type":"function_call_output","call_id":"c","output":"done"},
			{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,AA"}},
			{"type":"image_generation_call","id":"i","result":"iVBORw0KGgo"},
			{"type":"reasoning","summary":[{"type":"summary_text","text":"because"}]}]}`)
	want := facts{
		Model: "gpt-5", Cap: 500, Choices: 1, Caps: []string{"500"}, Messages: 6, Images: 3, Files: true, Attachments: 1,
		Texts: []string{"be kind", "user", "hi", "x", "f", "{}", "done", "because"},
		Raw:   []string{`{"format":{"type":"text"}}`},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := scan(t, llm.Responses, `{"model":"m","input":"hello"}`); !slices.Equal(got.Texts, []string{"hello"}) || got.Messages != 1 {
		t.Errorf("%+v", got)
	}
}

func TestScanMessages(t *testing.T) {
	got := scan(t, llm.Messages, `{"model":"claude-sonnet-4-5","max_tokens":1024,"user":"not this","metadata":{"user_id":"{\"a\":1}"},
		"system":[{"type":"text","text":"sys","cache_control":{"type":"ephemeral"}}],
		"tools":[],"thinking":{"type":"enabled","budget_tokens":1024},
		"messages":[{"role":"user","content":"hi"},
		{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},
			{"type":"tool_use","id":"t","name":"f","input":{"q":"x"}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"r"},
			{"type":"image","source":{"data":"AAAA","media_type":"image/png","type":"base64"}}]},
			{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBE"}},
			{"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"plain words"}},
			{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}]}]}`)
	want := facts{
		Model: "claude-sonnet-4-5", EndUser: `{\"a\":1}`, Cap: 1024, Choices: 1, Caps: []string{"1024"}, Messages: 3,
		Images: 2, Files: true, Attachments: 1,
		Texts: []string{"sys", "user", "hi", "assistant", "hm", "f", "user", "r", "T", "plain words"},
		Raw:   []string{`[]`, `{"q":"x"}`},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	got = scan(t, llm.CountTokens, `{"model":"claude","messages":[{"role":"user","content":"hi"}]}`)
	if !slices.Equal(got.Texts, []string{"user", "hi"}) || got.Cap != -1 {
		t.Errorf("%+v", got)
	}
}

// Bytes are left out only where every type says they are bytes; text never hides behind them.
func TestScanTextCannotPoseAsBytes(t *testing.T) {
	for _, part := range []string{
		`{"type":"base64","data":"HIDDEN","type":"text"}`,
		`{"type":"document","source":{"type":"text","data":"HIDDEN"}}`,
		`{"type":"document","source":{"type":"base64","type":"text","data":"HIDDEN"}}`,
		`{"type":"document","source":{"type":"base64","data":"HIDDEN","data":"x"}}`,
		`{"type":"text","text":"data:image/png;base64,HIDDEN"}`,
		`{"type":"BASE64","data":"HIDDEN"}`,
		`{"unknown":["HIDDEN"]}`,
		`{"type":"HIDDEN` + strings.Repeat("x", 64) + `"}`,
		`{"id":"HIDDEN` + strings.Repeat("x", 64) + `"}`,
		`{"content":[[["HIDDEN"]]]}`,
		`{"type":"image","text":"HIDDEN"}`,
	} {
		got := scan(t, llm.Chat, `{"model":"m","messages":[{"role":"user","content":[`+part+`]}]}`)
		if !strings.Contains(strings.Join(append(got.Texts, got.Raw...), " "), "HIDDEN") {
			t.Errorf("%s: not counted", part)
		}
	}
}

// S12: a picture is one image whatever its size, and none of it is text.
func TestS12ImageIsFlat(t *testing.T) {
	data := strings.Repeat("iVBORw0KGgoAAAANSUhEUg", 3<<20/22)
	for ep, part := range map[llm.Endpoint]string{
		llm.Chat:     `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + data + `"}}`,
		llm.Messages: `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + data + `"}}`,
	} {
		got := scan(t, ep, `{"model":"m","messages":[{"role":"user","content":[`+part+`]}]}`)
		if got.Images != 1 || !slices.Equal(got.Texts, []string{"user"}) || got.Raw != nil {
			t.Errorf("%d: images %d texts %d", ep, got.Images, len(got.Texts))
		}
	}
}

// S14: one stated answer to each ambiguous body, and the field is named.
func TestS14AmbiguousBodies(t *testing.T) {
	const ok = `"messages":[{"role":"user","content":"x"}]`
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct{ name, body, param string }{
		{"two models", `{"model":"a","model":"b",` + ok + `}`, "model"},
		{"two equal models", `{"model":"a","model":"a",` + ok + `}`, "model"},
		{"MODEL", `{"MODEL":"a",` + ok + `}`, "model"},
		{"Model beside model", `{"model":"a","Model":"b",` + ok + `}`, "model"},
		{"Max_Tokens", `{"model":"a","Max_Tokens":1,` + ok + `}`, "max_tokens"},
		{"Kelvin sign", `{"model":"a","max_to` + "\u212a" + `ens":1,` + ok + `}`, "max_tokens"},
		{"escaped Kelvin sign", `{"model":"a","max_to\u212aens":1,` + ok + `}`, "max_tokens"},
		{"long s", `{"model":"a","me` + "\u017f" + `sages":1,` + ok + `}`, "messages"},
		{"dotless i", `{"model":"a","` + "\u0131" + `nput":1,` + ok + `}`, "input"},
		{"escaped name", `{"\u006dodel":"a",` + ok + `}`, "model"},
		{"wholly escaped name", `{"\u006D\u006f\u0064\u0065\u006c":"a",` + ok + `}`, "model"},
		{"string cap", `{"model":"a","max_tokens":"100",` + ok + `}`, "max_tokens"},
		{"exponent cap", `{"model":"a","max_tokens":1e2,` + ok + `}`, "max_tokens"},
		{"fraction cap", `{"model":"a","max_tokens":1.0,` + ok + `}`, "max_tokens"},
		{"negative cap", `{"model":"a","max_tokens":-1,` + ok + `}`, "max_tokens"},
		{"minus zero", `{"model":"a","max_tokens":-0,` + ok + `}`, "max_tokens"},
		{"zero cap", `{"model":"a","max_tokens":0,` + ok + `}`, "max_tokens"},
		{"huge cap", `{"model":"a","max_tokens":2147483648,` + ok + `}`, "max_tokens"},
		{"absurd cap", `{"model":"a","max_tokens":` + strings.Repeat("9", 400) + `,` + ok + `}`, "max_tokens"},
		{"leading zero", `{"model":"a","max_tokens":0100,` + ok + `}`, "body"},
		{"boolean cap", `{"model":"a","max_completion_tokens":true,` + ok + `}`, "max_completion_tokens"},
		{"array cap", `{"model":"a","max_tokens":[1],` + ok + `}`, "max_tokens"},
		{"foreign cap", `{"model":"a","max_output_tokens":5,` + ok + `}`, "max_output_tokens"},
		{"NaN", `{"model":"a","temperature":NaN,` + ok + `}`, "body"},
		{"Infinity", `{"model":"a","temperature":-Infinity,` + ok + `}`, "body"},
		{"plus", `{"model":"a","temperature":+1,` + ok + `}`, "body"},
		{"bare dot", `{"model":"a","temperature":1.,` + ok + `}`, "body"},
		{"hexadecimal", `{"model":"a","temperature":0x1,` + ok + `}`, "body"},
		{"second document", `{"model":"a",` + ok + `}{"model":"b"}`, "body"},
		{"second brace", `{"model":"a",` + ok + `}}`, "body"},
		{"trailing NUL", `{"model":"a",` + ok + "}\x00", "body"},
		{"depth 10,000", `{"model":"a","x":` + deep(10000) + `,` + ok + `}`, "body"},
		{"depth 65", `{"model":"a","x":` + deep(64) + `,` + ok + `}`, "body"},
		{"long name", `{"model":"a","` + strings.Repeat("k", 257) + `":1,` + ok + `}`, "body"},
		{"long name far in", `{"model":"a","messages":[{"x":{"` + strings.Repeat("k", 257) + `":1}}]}`, "body"},
		{"100,001 tokens", `{"model":"a","messages":[{}],"x":[` + strings.Repeat("0,", 99_992) + `0]}`, "body"},
		{"50,000 members", `{"model":"a","messages":[{}],"x":{` + strings.Repeat(`"":0,`, 50_000) + `"":0}}`, "body"},
		{"deep content", `{"model":"a","messages":[{"content":` + deep(10000) + `}]}`, "body"},
		{"invalid UTF-8", `{"model":"a","x":"` + "\xff" + `",` + ok + `}`, "body"},
		{"overlong UTF-8", `{"model":"a","x":"` + "\xc0\xaf" + `",` + ok + `}`, "body"},
		{"UTF-8 surrogate", `{"model":"a","x":"` + "\xed\xa0\x80" + `",` + ok + `}`, "body"},
		{"cut UTF-8", `{"model":"a","x":"0123456789` + "\xe4\xb8" + `",` + ok + `}`, "body"},
		{"invalid UTF-8 in a name", `{"model":"a","` + "\xff" + `":1,` + ok + `}`, "body"},
		{"control character", `{"model":"a","x":"a` + "\n" + `b",` + ok + `}`, "body"},
		{"control character far in", `{"model":"a","x":"0123456789abcdefghij` + "\x01" + `",` + ok + `}`, "body"},
		{"bad escape", `{"model":"a","x":"\x41",` + ok + `}`, "body"},
		{"short escape", `{"model":"a","x":"\u12",` + ok + `}`, "body"},
		{"comment", `{"model":"a",/* hi */` + ok + `}`, "body"},
		{"trailing comma", `{"model":"a",` + ok + `,}`, "body"},
		{"trailing comma in array", `{"model":"a","x":[1,],` + ok + `}`, "body"},
		{"single quotes", `{'model':'a'}`, "body"},
		{"bare name", `{model:"a"}`, "body"},
		{"no colon", `{"model" "a"}`, "body"},
		{"cut", `{"model":"a",` + ok, "body"},
		{"cut in string", `{"model":"a`, "body"},
		{"cut in escape", `{"model":"a","x":"\`, "body"},
		{"cut in literal", `{"model":"a","stream":tru`, "body"},
		{"empty", ``, "body"},
		{"blank", ` `, "body"},
		{"array", `[{"model":"a"}]`, "body"},
		{"string", `"model"`, "body"},
		{"null", `null`, "body"},
		{"byte order mark", "\ufeff" + `{"model":"a",` + ok + `}`, "body"},
		{"no model", `{` + ok + `}`, "model"},
		{"empty object", `{}`, "model"},
		{"empty model", `{"model":"",` + ok + `}`, "model"},
		{"null model", `{"model":null,` + ok + `}`, "model"},
		{"number model", `{"model":4,` + ok + `}`, "model"},
		{"long model", `{"model":"` + strings.Repeat("m", 257) + `",` + ok + `}`, "model"},
		{"escaped model that is too long", `{"model":"\u0061` + strings.Repeat("a", 6*llm.MaxModelBytes) + `",` + ok + `}`, "model"},
		{"string stream", `{"model":"a","stream":"true",` + ok + `}`, "stream"},
		{"number stream", `{"model":"a","stream":1,` + ok + `}`, "stream"},
		{"two streams", `{"model":"a","stream":true,"stream":false,` + ok + `}`, "stream"},
		{"stream options array", `{"model":"a","stream_options":[],` + ok + `}`, "stream_options"},
		{"two include_usage", `{"model":"a","stream_options":{"include_usage":true,"include_usage":false},` + ok + `}`, "stream_options.include_usage"},
		{"Include_usage", `{"model":"a","stream_options":{"Include_usage":true},` + ok + `}`, "stream_options.include_usage"},
		{"string include_usage", `{"model":"a","stream_options":{"include_usage":"yes"},` + ok + `}`, "stream_options.include_usage"},
		{"two messages", `{"model":"a",` + ok + `,` + ok + `}`, "messages"},
		{"two tools", `{"model":"a","tools":[],"tools":[1],` + ok + `}`, "tools"},
		{"fraction n", `{"model":"a","n":1.5,` + ok + `}`, "n"},
		{"N", `{"model":"a","N":5,` + ok + `}`, "n"},
		{"number user", `{"model":"a","user":5,` + ok + `}`, "user"},
	} {
		if e := refuse(t, llm.Chat, c.body); e.Param != c.param {
			t.Errorf("%s: param %q, want %q (%s)", c.name, e.Param, c.param, e.Message)
		}
	}
	for _, c := range []struct{ name, body, param string }{
		{"two user ids", `{"model":"a",` + ok + `,"metadata":{"user_id":"a","user_id":"b"}}`, "metadata.user_id"},
		{"User_ID", `{"model":"a",` + ok + `,"metadata":{"User_ID":"a"}}`, "metadata.user_id"},
		{"metadata string", `{"model":"a",` + ok + `,"metadata":"a"}`, "metadata"},
		{"foreign cap", `{"model":"a",` + ok + `,"max_completion_tokens":4}`, "max_completion_tokens"},
	} {
		if e := refuse(t, llm.Messages, c.body); e.Param != c.param {
			t.Errorf("%s: param %q, want %q (%s)", c.name, e.Param, c.param, e.Message)
		}
	}
	if e := refuse(t, llm.Embeddings, `{"model":"a","input":"x","max_tokens":4}`); e.Param != "max_tokens" {
		t.Errorf("%+v", e)
	}
}

func TestScanAccepts(t *testing.T) {
	const ok = `"messages":[{"role":"user","content":"x"}]`
	for _, body := range []string{
		"\r\n\t {\"model\" : \"a\" , " + ok + " } \n",
		`{"model":"` + strings.Repeat("m", 256) + `",` + ok + `}`,
		`{"model":"模型/é",` + ok + `}`,
		`{"model":"org\/m\u00e9",` + ok + `}`,
		`{"model":"a","max_tokens":null,"n":null,"stream":null,"stream_options":null,"user":null,"tools":null,` + ok + `}`,
		`{"model":"a","max_tokens":2147483647,` + ok + `}`,
		`{"model":"a","unknown":1,"unknown":2,"Unknown":3,"":4,` + ok + `}`,
		`{"model":"a","x":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `,` + ok + `}`,
		`{"model":"a","` + strings.Repeat("k", 256) + `":1,"messages":[{"` + strings.Repeat("k", 256) + `":1}]}`,
		`{"model":"a","messages":[{}],"x":[` + strings.Repeat("0,", 99_991) + `0]}`,
		`{"model":"a","x":[` + strings.Repeat("[],{},", 1000) + `0],` + ok + `}`,
		`{"model":"a","x":"\ud800\u0000\"\\\/\b\f\n\r\t",` + ok + `}`,
		`{"model":"a","x":[1e400,-0,0.1,1E-7,true,false,null,{}],` + ok + `}`,
		`{"model":"a","max_output_tokens":null,` + ok + `}`,
	} {
		scan(t, llm.Chat, body)
	}
}

// Token numbers are tokens of the model, not of the JSON: an input of many of them is no attack.
func TestScanManyTokenNumbers(t *testing.T) {
	list := "[" + strings.Repeat("15339,", 149_999) + "0]"
	if got := scan(t, llm.Embeddings, `{"model":"e","input":[`+list+`,`+list+`]}`); got.TextTokens != 300_000 || got.Messages != 2 {
		t.Errorf("%d tokens in %d inputs", got.TextTokens, got.Messages)
	}
}

func TestScanNullCaps(t *testing.T) {
	const ok = `,"messages":[{"role":"user","content":"x"}]`
	got := scan(t, llm.Chat, `{"model":"a","max_tokens":null`+ok+`}`)
	if got.Cap != -1 || !slices.Equal(got.Caps, []string{"null"}) {
		t.Errorf("a null cap is absent, and rewritten: %+v", got)
	}
	got = scan(t, llm.Chat, `{"model":"a","max_tokens":null,"max_completion_tokens":5`+ok+`}`)
	if got.Cap != 5 || !slices.Equal(got.Caps, []string{"5"}) {
		t.Errorf("beside a real cap a null stays: %+v", got)
	}
}

// A provider may read members this package does not know; long ones count.
func TestScanOtherMembers(t *testing.T) {
	const ok = `,"messages":[{"role":"user","content":"x"}]`
	long := `"` + strings.Repeat("w ", 200) + `"`
	if got := scan(t, llm.Chat, `{"model":"a","documents":[{"text":`+long+`}],"seed":7`+ok+`}`); len(got.Raw) != 1 {
		t.Errorf("%+v", got)
	}
	if got := scan(t, llm.Chat, `{"model":"a","logit_bias":{"1":`+strings.Repeat("1", 300)+`}`+ok+`}`); got.Raw != nil {
		t.Errorf("%+v", got)
	}
}

func TestScanReusesHead(t *testing.T) {
	body := []byte(chatBody(1000))
	var h llm.Head
	if err := llm.ScanHead(llm.Chat, body, &h); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := llm.ScanHead(llm.Chat, body, &h); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := llm.ScanHead(llm.Messages, []byte(`{"model":"b","messages":[{}]}`), &h); err != nil {
		t.Fatal(err)
	}
	if h.Endpoint != llm.Messages || h.Stream || len(h.Texts) != 0 || h.OutputCap != -1 || h.Messages != 1 {
		t.Errorf("left over from the request before: %+v", h)
	}
}

func TestScanGivesBackMemory(t *testing.T) {
	var h llm.Head
	big := `{"model":"m","input":"` + `","messages":[` + strings.TrimSuffix(strings.Repeat(`{"role":"u"},`, 10000), ",") + `]}`
	if err := llm.ScanHead(llm.Chat, []byte(big), &h); err != nil {
		t.Fatal(err)
	}
	if err := llm.ScanHead(llm.Chat, []byte(`{"model":"m","messages":[{"role":"u"}]}`), &h); err != nil {
		t.Fatal(err)
	}
	if cap(h.Texts) > 4096 {
		t.Errorf("kept %d texts", cap(h.Texts))
	}
}

func FuzzScanHead(f *testing.F) {
	for ep := llm.Chat; ep <= llm.CountTokens; ep++ {
		f.Add(uint8(ep), chatBody(300))
		f.Add(uint8(ep), `{"model":"a","prompt":["x","y"],"input":[[1],[2]],"n":3,"best_of":2,"max_tokens":null}`)
		f.Add(uint8(ep), `{"model":"a","messages":[{"content":[{"type":"image","source":{"type":"base64","data":"A"}}]}],"metadata":{"user_id":"x"}}`)
		f.Add(uint8(ep), `{"model":"a","max_to\u212aens":5,"input":"x","stream_options":{"include_usage":true},"stream":true}`)
	}
	f.Fuzz(func(t *testing.T, ep uint8, body string) {
		var h llm.Head
		e := llm.Endpoint(ep%6 + 1)
		if err := llm.ScanHead(e, []byte(body), &h); err != nil {
			return
		}
		checkAgainstJSON(t, &h, []byte(body))
	})
}

// checkAgainstJSON holds what was scanned against what a server that uses encoding/json would see.
func checkAgainstJSON(t *testing.T, h *llm.Head, body []byte) {
	var seen struct {
		Model         string `json:"model"`
		Stream        bool   `json:"stream"`
		StreamOptions *struct {
			IncludeUsage *bool `json:"include_usage"`
		} `json:"stream_options"`
		MaxTokens           *int64 `json:"max_tokens"`
		MaxCompletionTokens *int64 `json:"max_completion_tokens"`
		MaxOutputTokens     *int64 `json:"max_output_tokens"`
	}
	if err := json.Unmarshal(body, &seen); err != nil {
		t.Fatalf("accepted what encoding/json refuses: %v\n%q", err, body)
	}
	want := llm.Tokens(-1)
	for _, c := range []*int64{seen.MaxTokens, seen.MaxCompletionTokens, seen.MaxOutputTokens} {
		if c != nil {
			want = max(want, llm.Tokens(*c))
		}
	}
	usage := llm.Absent
	if o := seen.StreamOptions; o != nil && o.IncludeUsage != nil {
		usage = map[bool]llm.Tri{false: llm.False, true: llm.True}[*o.IncludeUsage]
	}
	f := resolve(h, body) // panics when a span is outside
	var model string
	if err := json.Unmarshal([]byte(`"`+f.Model+`"`), &model); err != nil {
		t.Fatal(err)
	}
	if model != seen.Model || f.Stream != seen.Stream || f.Cap != want || f.IncludeUsage != usage {
		t.Fatalf("scanned %+v\nencoding/json saw %+v\n%q", f, seen, body)
	}
	for _, x := range h.Texts {
		if v := string(x.In(body)); x.Raw && !json.Valid([]byte(v)) || !x.Raw && !json.Valid([]byte(`"`+v+`"`)) {
			t.Fatalf("text %q is not whole", v)
		}
	}
	if h.Insert < 1 || body[h.Insert-1] != '{' || h.Choices < 1 {
		t.Fatalf("insert %d choices %d", h.Insert, h.Choices)
	}
}

// chatBody is a chat of about n bytes as SDKs send it.
func chatBody(n int) string {
	const line = "The quick brown fox jumps over the lazy dog, and \\\"then\\\" it rests.\\n"
	var b strings.Builder
	b.WriteString(`{"model":"gpt-4o-mini","messages":[{"role":"system","content":"You are a helpful assistant."}`)
	for b.Len() < n-120 {
		left := n - 120 - b.Len()
		fmt.Fprintf(&b, `,{"role":"user","content":"%s"}`, strings.Repeat(line, max(1, min(left, n/3)/len(line))))
	}
	b.WriteString(`],"temperature":0.7,"max_tokens":256,"stream":true,"stream_options":{"include_usage":true},"user":"user-1234"}`)
	return b.String()
}

func BenchmarkScanHead(b *testing.B) {
	chinese := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("水能载舟，亦能覆舟。", 1000) + `"}]}`
	for name, body := range map[string]string{"1kB": chatBody(1000), "32kB": chatBody(32000), "chinese30kB": chinese} {
		b.Run(name, func(b *testing.B) {
			var h llm.Head
			data := []byte(body)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := llm.ScanHead(llm.Chat, data, &h); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
