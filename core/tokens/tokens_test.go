package tokens

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

func estimate(t testing.TB, ep llm.Endpoint, model, body string) llm.Tokens {
	t.Helper()
	var h llm.Head
	if err := llm.ScanHead(ep, []byte(body), &h); err != nil {
		t.Fatal(err)
	}
	c := counter()
	return c.Estimate(c.For(model), &h, []byte(body))
}

func TestEstimate(t *testing.T) {
	for _, c := range []struct {
		name  string
		ep    llm.Endpoint
		model string
		body  string
		want  llm.Tokens
	}{
		{"hello", llm.Chat, "gpt-4o-mini", `{"model":"m","messages":[{"role":"user","content":"hello"}]}`, 8},
		{"a name", llm.Chat, "gpt-4o-mini", `{"model":"m","messages":[{"role":"user","name":"hello","content":"hello"}]}`, 10},
		{"two messages", llm.Chat, "gpt-4", `{"model":"m","messages":[{"role":"user","content":"hello"},{"role":"user","content":"hello"}]}`, 13},
		{"unknown model", llm.Chat, "mystery", `{"model":"m","messages":[{"role":"user","content":"hello"}]}`, 9},
		{"claude", llm.Messages, "claude-sonnet-4-5", `{"model":"m","messages":[{"role":"user","content":"hello"}]}`, 9},
		{"claude with tools", llm.Messages, "claude-sonnet-4-5", `{"model":"m","tools":[{}],"messages":[{"role":"user","content":"hello"}]}`, 346 + 6 + 6},
		{"tools", llm.Chat, "gpt-4o", `{"model":"m","tools":[{}],"messages":[{"role":"user","content":"hello"}]}`, 8 + 12 + 3},
		{"image", llm.Chat, "gpt-4o", `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}]}`, 7 + 765},
		{"file", llm.Responses, "gpt-4o", `{"model":"m","input":[{"type":"input_file","file_data":"AA"}]}`, 6 + 2000},
		{"responses", llm.Responses, "gpt-4o", `{"model":"m","input":"hello"}`, 7},
		{"completions", llm.Completions, "davinci-002", `{"model":"m","prompt":["hello","hello hello"]}`, 3},
		{"token arrays", llm.Embeddings, "text-embedding-3-small", `{"model":"m","input":[[1,2,3],[4]]}`, 4},
		{"embeddings", llm.Embeddings, "text-embedding-3-small", `{"model":"m","input":["hello","hello"]}`, 2},
		{"escapes are undone", llm.Chat, "gpt-4o", `{"model":"m","messages":[{"role":"user","content":"\u0068ello"}]}`, 8},
	} {
		if got := estimate(t, c.ep, c.model, c.body); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// M09: 2,048 inputs are counted, each.
func TestM09EmbeddingsArray(t *testing.T) {
	list := strings.TrimSuffix(strings.Repeat(`"hello world",`, 2048), ",")
	if got := estimate(t, llm.Embeddings, "text-embedding-3-small", `{"model":"m","input":[`+list+`]}`); got != 2*2048 {
		t.Errorf("%d", got)
	}
}

// L03, L04, M09: the largest cap, times the choices; without one the model's, else the default, and soft.
func TestL03OutputBound(t *testing.T) {
	c := counter()
	for _, x := range []struct {
		name     string
		ep       llm.Endpoint
		body     string
		modelMax llm.Tokens
		want     llm.Tokens
		soft     bool
	}{
		{"largest", llm.Chat, `"max_tokens":1,"max_completion_tokens":900,"messages":[{}]`, 0, 900, false},
		{"times n", llm.Chat, `"max_tokens":10,"n":128,"messages":[{}]`, 0, 1280, false},
		{"responses", llm.Responses, `"max_output_tokens":500,"input":"x"`, 100, 500, false},
		{"best_of and prompts", llm.Completions, `"max_tokens":10,"n":2,"best_of":5,"prompt":["a","b","c"]`, 0, 150, false},
		{"model's cap", llm.Chat, `"messages":[{}],"n":2`, 8192, 16384, true},
		{"default", llm.Chat, `"messages":[{}]`, 0, 4096, true},
		{"a completion's default", llm.Completions, `"prompt":["a","b"],"n":2`, 8192, 64, true},
		{"a completion's default of a small model", llm.Completions, `"prompt":"a"`, 7, 7, true},
		{"null is none", llm.Chat, `"max_tokens":null,"messages":[{}]`, 100, 100, true},
		{"embeddings generate nothing", llm.Embeddings, `"input":"x"`, 100, 0, false},
		{"counting generates nothing", llm.CountTokens, `"messages":[{}]`, 100, 0, false},
		{"saturates", llm.Chat, `"n":128,"messages":[{}]`, math.MaxInt64 / 2, math.MaxInt64, true},
	} {
		var h llm.Head
		if err := llm.ScanHead(x.ep, []byte(`{"model":"m",`+x.body+`}`), &h); err != nil {
			t.Fatal(err)
		}
		if got, soft := c.OutputBound(&h, x.modelMax); got != x.want || soft != x.soft {
			t.Errorf("%s: %d %v, want %d %v", x.name, got, soft, x.want, x.soft)
		}
	}
}

func TestFor(t *testing.T) {
	c, err := New(Options{Encodings: map[string]string{"qwen": "cl100k", "qwen-max": "o200k", "gpt-4-special": "o200k"}})
	if err != nil {
		t.Fatal(err)
	}
	for encoding, models := range map[string]string{
		"o200k": `gpt-4o gpt-4o-mini gpt-4o-2024-05-13 gpt-4.1 gpt-4.1-nano gpt-4.5-preview gpt-5 gpt-5.2-pro o1 o1-mini o3 o3-pro
			o4-mini chatgpt-4o-latest gpt-oss-120b openai/gpt-4o ft:gpt-4o-mini:acme::x qwen-max gpt-4-special-x`,
		"cl100k": `gpt-4 gpt-4-turbo gpt-4-0613 gpt-4-32k gpt-3.5-turbo gpt-3.5-turbo-16k gpt-35-turbo text-embedding-3-small
			text-embedding-3-large text-embedding-ada-002 azure/gpt-4 ft:gpt-3.5-turbo:acme qwen-7b`,
		"": `claude-sonnet-4-5 deepseek-chat gemini-2.5-pro llama-3 o1x gpt-4oo gpt-6 gpt omni / ft:`,
	} {
		for _, model := range strings.Fields(models) {
			e := c.For(model)
			name, scaled := "cl100k", e.permille != permille
			if e.v == c.o200k {
				name = "o200k"
			}
			if scaled != (encoding == "") || !scaled && name != encoding {
				t.Errorf("%s: %s times %d, want %q", model, name, e.permille, encoding)
			}
		}
	}
	if e := c.For(""); e.v == nil {
		t.Error("an empty name has no encoding")
	}
	if n := c.Text(Encoding{}, []byte("hello")); n != 5 {
		t.Errorf("no encoding: %d", n)
	}
}

func TestOptions(t *testing.T) {
	var o Options
	o.Defaults()
	if err := o.Validate(); err != nil || o.DefaultOutput != 4096 || o.ImageTokens != 765 || o.UnknownPermille != 1150 {
		t.Errorf("%+v %v", o, err)
	}
	for field, bad := range map[string]Options{
		"default_output_tokens": {DefaultOutput: -1},
		"image_tokens":          {ImageTokens: 1 << 40},
		"file_tokens":           {FileTokens: -5},
		"stored_tokens":         {StoredTokens: -5},
		"unknown_permille":      {UnknownPermille: 900},
		"encodings":             {Encodings: map[string]string{"x": "p50k"}},
	} {
		if _, err := New(bad); err == nil || !strings.Contains(err.Error(), "tokens."+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Text that looks like a special token is text.
func TestSpecialTokensAreText(t *testing.T) {
	for _, s := range []string{"<|endoftext|>", "<|im_start|>system<|im_end|>", "a<|endofprompt|>b", "<|fim_prefix|><|fim_middle|>"} {
		compare(t, s)
		if got := counter().Text(counter().For("gpt-4o"), []byte(s)); got < 5 {
			t.Errorf("%s: %d tokens", s, got)
		}
	}
}

func TestInvalidUTF8Counts(t *testing.T) {
	c := counter()
	e := c.For("gpt-4o")
	for _, s := range []string{"\xff", "abc\xe4\xb8", "\xc0\xaf\xc0\xaf", "ok \xed\xa0\x80 ok"} {
		if got, want := c.Text(e, []byte(s)), len(oracle()["o200k"].EncodeOrdinary(s)); int(got) != want {
			t.Errorf("%q: %d, want %d", s, got, want)
		}
	}
}

// Escaped counts what a JSON reader would see.
func TestEscaped(t *testing.T) {
	c := counter()
	e := c.For("gpt-4o")
	r := rand.New(rand.NewPCG(5, 6))
	parts := []string{`\n`, `\"`, `\\`, `\/`, `\b\f\r\t`, `\u00e9`, `\ud83d\ude00`, `\ud800`, `\udc00x`, `\ud83d\u0041`, "word ", "漢字", `\u6f22`}
	for range 2000 {
		var b strings.Builder
		for range 1 + r.IntN(8) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		var plain string
		if err := json.Unmarshal([]byte(`"`+b.String()+`"`), &plain); err != nil {
			t.Fatal(err)
		}
		if got := string(unescape(nil, []byte(b.String()))); got != plain {
			t.Fatalf("%s: %q, want %q", b.String(), got, plain)
		}
		if got, want := c.Escaped(e, []byte(b.String())), c.Text(e, []byte(plain)); got != want {
			t.Fatalf("%s: %d, want %d", b.String(), got, want)
		}
	}
	for _, broken := range []string{`\`, `a\`, `\u`, `\u12`, `\uzzzz`, `\ud83d\`, `\ud83d\u`, `\x`} {
		c.Escaped(e, []byte(broken)) // must not panic
	}
}

// The bound that ends exact counting is an upper bound.
func TestBoundIsAbove(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	texts := corpora(3000)
	for range 3000 {
		var b strings.Builder
		for range 1 + r.IntN(30) {
			b.WriteString(randomRune(r))
		}
		texts[b.String()] = b.String()
	}
	for _, encoding := range encodingNames {
		v := vocabOf(encoding)
		for name, s := range texts {
			if n, bound := exact(v, s), v.bound([]byte(s)); n > bound || bound > len(s) {
				t.Fatalf("%s: %.80q: %d tokens, bound %d", encoding, name, n, bound)
			}
		}
	}
}

// overdraft is the most units that a budget may be overdrawn by: the last step, or the last piece of up to 16 bytes.
const overdraft = 1500

// S11: whatever the input, work is bounded by the budget, and what is not counted exactly is bounded from above.
func TestS11WorkIsBounded(t *testing.T) {
	for name, text := range hostile(2 << 20) {
		for _, encoding := range encodingNames {
			w := borrow(len(text))
			budget := w.left
			n := w.text(vocabOf(encoding), []byte(text))
			spent := budget - w.left
			w.giveBack()
			if limit := workPer100kB * (1 + len(text)/workSpan); spent > limit+overdraft {
				t.Errorf("%s, %s: %d units of work, allowed %d", name, encoding, spent, limit)
			}
			if n < 1 || int(n) > len(text) {
				t.Errorf("%s, %s: %d tokens for %d bytes", name, encoding, n, len(text))
			}
		}
	}
}

// A count that the budget ends is the same whatever its scratch was used for before, and when calls are numbered anew.
func TestCountDependsOnItsTextAlone(t *testing.T) {
	texts := hostile(1000)
	count := func(c *counting, v *vocab, text string) int {
		c.next()
		c.left = workPer100kB
		return int(c.any(v, []byte(text)))
	}
	used := new(counting)
	used.met.call = 1<<(32-idBits) - 20 // soon numbered anew
	for range 2 {
		for name, text := range texts {
			for _, encoding := range encodingNames {
				v := vocabOf(encoding)
				if got, want := count(used, v, text), count(new(counting), v, text); got != want {
					t.Fatalf("%s, %s: %d tokens, %d with new scratch", name, encoding, got, want)
				}
			}
		}
	}
}

// A body of one letter is exact within its budget.
func TestOneLetter(t *testing.T) {
	c := counter()
	if got := c.Text(c.For("gpt-4o"), []byte(strings.Repeat("a", 40_000))); got != 5_000 {
		t.Errorf("%d tokens", got)
	}
}

func TestCountingIsExactAtSize(t *testing.T) {
	c := counter()
	for _, name := range []string{"english", "code", "json"} {
		text := corpora(100_000)[name]
		if got, want := int(c.Text(c.For("gpt-4o"), []byte(text))), exact(c.o200k, text); got != want {
			t.Errorf("%s: %d tokens within the budget, %d without one", name, got, want)
		}
	}
	text := corpora(30_000)["chinese"]
	if got, want := int(c.Text(c.For("gpt-4o"), []byte(text))), exact(c.o200k, text); got != want {
		t.Errorf("chinese: %d tokens within the budget, %d without one", got, want)
	}
}

// S12: a picture costs its flat price, and no work.
func TestS12Image(t *testing.T) {
	body := `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
		strings.Repeat("iVBORw0KGgoAAAANSUhEUg", 3<<20/22) + `"}}]}]}`
	if got := estimate(t, llm.Chat, "gpt-4o", body); got != 765+7 {
		t.Errorf("%d", got)
	}
}

func TestConcurrentUse(t *testing.T) {
	c := counter()
	texts := corpora(2000)
	var wg sync.WaitGroup
	for _, encoding := range encodingNames {
		for name, text := range texts {
			want := exact(vocabOf(encoding), text)
			wg.Go(func() {
				e := Encoding{vocabOf(encoding), permille}
				for range 20 {
					if got := c.Text(e, []byte(text)); int(got) != want {
						t.Errorf("%s %s: %d, want %d", encoding, name, got, want)
					}
				}
			})
		}
	}
	wg.Wait()
}

func TestVocabularyRefusesBrokenFiles(t *testing.T) {
	lines := make([]string, 256)
	for i := range lines {
		lines[i] = fmt.Sprintf("%s %d", b64(string([]byte{byte(i)})), i)
	}
	whole := strings.Join(lines, "\n")
	for name, file := range map[string]string{
		"empty":       "",
		"bad base64":  whole + "\n!! 256",
		"bad rank":    whole + "\n" + b64("ab") + " 300",
		"no rank":     whole + "\n" + b64("ab"),
		"empty token": whole + "\n 256",
		"long token":  whole + "\n" + b64(strings.Repeat("x", 200)) + " 256",
		"odd key":     whole + "\n" + b64("abcdefg\x03") + " 256",
	} {
		if err := new(vocab).parse([]byte(file)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	v := new(vocab)
	if err := v.parse([]byte(whole + "\n" + b64("abcd") + " 256")); err != nil {
		t.Fatal(err)
	}
	v.index()
	if err := v.findHalves(); err == nil {
		t.Error("a token that no merge makes was accepted")
	}
	if _, err := loadVocab("nowhere"); err == nil {
		t.Error("a vocabulary that is not there was loaded")
	}
}

// A request of one word that points at a conversation is not one word.
func TestStoredInputCountsFlat(t *testing.T) {
	var stored, plain llm.Head
	body := []byte(`{"model":"gpt-4o","input":"x"}`)
	if err := llm.ScanHead(llm.Responses, body, &plain); err != nil {
		t.Fatal(err)
	}
	with := []byte(`{"model":"gpt-4o","input":"x","previous_response_id":"resp_1"}`)
	if err := llm.ScanHead(llm.Responses, with, &stored); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ option, more llm.Tokens }{{0, 8192}, {100, 100}} {
		c, err := New(Options{StoredTokens: x.option})
		if err != nil {
			t.Fatal(err)
		}
		e := c.For("some-other-vocabulary") // its factor is for text, not for what is flat
		if more := c.Estimate(e, &stored, with) - c.Estimate(e, &plain, body); more != x.more {
			t.Errorf("stored_tokens %d adds %d", x.option, more)
		}
	}
}
