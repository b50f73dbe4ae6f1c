package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/upstream"
)

// count is what a report says; where a number is left out, it is negative. total is that of OpenAI's dialect;
// bare does not name the classes of the input.
type count struct {
	in, read, written, out, thought, total int
	bare                                   bool
}

const absent = -1 // from the report

// zeros is what servers send that report usage they do not know.
var zeros = count{}

func (n count) input() count { n.out, n.thought, n.total = absent, absent, absent; return n }
func (n count) output() count {
	n.in, n.read, n.written, n.total = absent, absent, absent, absent
	return n
}
func (n count) early() count {
	n.out, n.thought = n.out/2, n.thought/2
	if n.total > 0 {
		n.total -= (n.total - n.in) / 2
	}
	return n
}
func (n count) twice() count {
	return count{2 * n.in, 2 * n.read, 2 * n.written, 2 * n.out, 2 * n.thought, 2 * n.total, n.bare}
}

// members writes name and value by turns, without what is left out.
func members(pairs ...any) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == absent || pairs[i+1] == "{}" {
			continue
		}
		fmt.Fprintf(&b, `,"%s":%v`, pairs[i], pairs[i+1])
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

func (n *count) ofOpenAI(in, out string) string {
	classes := members("cached_tokens", n.read, "cache_write_tokens", n.written)
	if n.bare {
		classes = "{}"
	}
	return members(in+"_tokens", n.in, out+"_tokens", n.out, "total_tokens", n.total, in+"_tokens_details", classes, out+"_tokens_details", members("reasoning_tokens", n.thought))
}

func (n *count) ofAnthropic() string {
	in, read, written := n.in, n.read, n.written
	if in > 0 {
		in -= max(read, 0) + max(written, 0)
	}
	if n.bare {
		read, written = absent, absent
	}
	return members("input_tokens", in, "cache_read_input_tokens", read, "cache_creation_input_tokens", written, "output_tokens", n.out)
}

// step is a text, a report, or both; null is a report that is null. start is what Anthropic's message_start reports, and
// what other dialects have no event for.
type step struct {
	start, null, text bool
	report            *count
}

const someText = " hello hello hello hello hello"

// writers write a stream in each dialect.
var writers = map[string]func([]step) []string{
	"/v1/chat/completions": func(steps []step) (data []string) {
		for _, s := range steps {
			choices := "[]"
			if s.text {
				choices = `[{"index":0,"delta":{"content":"` + someText + `"}}]`
			}
			if u := s.usage(func(n *count) string { return n.ofOpenAI("prompt", "completion") }); !s.start && (s.text || u != "{}") {
				data = append(data, members("choices", choices, "usage", u))
			}
		}
		return append(data, "[DONE]")
	},
	"/v1/responses": func(steps []step) (data []string) {
		last := `{}`
		for _, s := range steps {
			if s.text {
				last = `{}`
				data = append(data, `{"type":"response.output_text.delta","delta":"`+someText+`"}`)
			}
			if u := s.usage(func(n *count) string { return n.ofOpenAI("input", "output") }); !s.start && u != "{}" {
				last = members("usage", u)
				data = append(data, `{"type":"response.in_progress","response":`+last+`}`)
			}
		}
		return append(data, `{"type":"response.completed","response":`+last+`}`)
	},
	"/v1/messages": func(steps []step) (data []string) {
		for _, s := range steps {
			if s.text {
				data = append(data, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`+someText+`"}}`)
			}
			switch u := s.usage((*count).ofAnthropic); {
			case s.start:
				data = append(data, members("type", `"message_start"`, "message", `{"content":[]`+strings.Replace(members("usage", u), "{", ",", 1)))
			case u != "{}":
				data = append(data, members("type", `"message_delta"`, "delta", `{"stop_reason":null}`, "usage", u))
			}
		}
		return append(data, `{"type":"message_stop"}`)
	},
}

func (s *step) usage(write func(*count) string) string {
	switch {
	case s.null:
		return "null"
	case s.report == nil:
		return "{}"
	}
	return write(s.report)
}

// Every class of usage that streams report, by what kinds of tokens are in it and in each dialect: what the parser makes of it,
// and what is charged. What is reported is charged as it is, and what is not by our own count; tokens of reasoning are output
// tokens, whether a provider counts them among those, beside them, or in the total alone.
func TestUsageClasses(t *testing.T) {
	var body string
	r := sameAnswers(t, &body)
	for _, x := range streams() {
		write := writers[x.path]
		if write == nil {
			continue
		}
		body = "data: " + strings.Join(write([]step{{text: true}, {text: true}}), "\n\ndata: ") + "\n\n"
		counted := r.settled(x)
		if u := counted.Usage; !counted.Estimated || u.InputTokens < 2 || u.InputTokens > 30 || u.OutputTokens < 9 || u.OutputTokens > 12 || u.CachedInputTokens+u.CacheWriteTokens > 0 {
			t.Fatalf("%s: without a report %+v", x.path, counted)
		}
		for kind, n := range map[string]count{
			"plain":                      {100, absent, absent, 40, absent, 140, false},
			"cached":                     {100, 50, absent, 40, absent, 140, false},
			"written to the cache":       {100, 50, 30, 40, absent, 140, false},
			"reasoning":                  {100, 0, 0, 40, 30, 140, false},
			"reasoning, without a total": {100, 0, 0, 40, 30, absent, false},
			"reasoning beside":           {100, 50, 0, 10, 30, 140, false},
			"reasoning beside, no total": {100, 50, 0, 10, 30, absent, false},
			"reasoning in the total":     {100, 50, 0, 10, absent, 140, false},
		} {
			all := llm.Usage{InputTokens: 100, CachedInputTokens: llm.Tokens(max(n.read, 0)), CacheWriteTokens: llm.Tokens(max(n.written, 0)), OutputTokens: 40}
			if n.out < 40 && x.path == "/v1/messages" {
				continue // its output has the thinking in it
			}
			for class, c := range usageClasses(n, all, counted.Usage) {
				body = "data: " + strings.Join(write(c.steps), "\n\ndata: ") + "\n\n"
				e := r.settled(x)
				if e.Usage != c.want || e.Estimated == c.whole {
					t.Errorf("%s, %s, %s: charged %+v, estimated %v, want %+v\n%s", x.path, class, kind, e.Usage, e.Estimated, c.want, body)
				}
				p := upstream.NewParser(map[string]llm.Endpoint{"/v1/chat/completions": llm.Chat, "/v1/responses": llm.Responses, "/v1/messages": llm.Messages}[x.path])
				p.Parse([]byte(body), func(*upstream.Event) {})
				if u, of, last := p.Usage(); of.Whole() != c.whole || c.whole && (last != c.last || last && u != c.want) {
					t.Errorf("%s, %s, %s: read %+v %+v, last %v\n%s", x.path, class, kind, u, of, last, body)
				}
			}
		}
	}
}

// usageClass is a way to report usage. whole: both halves are, last: and no text follows.
type usageClass struct {
	steps       []step
	want        llm.Usage
	whole, last bool
}

func usageClasses(n count, all, counted llm.Usage) map[string]usageClass {
	text, start := step{text: true}, n.input()
	start.out = 1 // a placeholder
	starts := func(n count) step { return step{start: true, report: &n} }
	says := func(n count) step { return step{report: &n} }
	with := func(n count) step { return step{text: true, report: &n} }
	apart, onlyIn, onlyOut := all, all, counted
	if n.thought < 0 {
		apart.OutputTokens = llm.Tokens(n.out) // without the input nobody can tell what else is in the total
	}
	onlyIn.OutputTokens, onlyOut.OutputTokens = counted.OutputTokens, apart.OutputTokens
	null, bare := step{null: true}, n
	bare.bare = true
	return map[string]usageClass{
		"final only":           {[]step{starts(start), text, text, says(n)}, all, true, true},
		"halves apart":         {[]step{starts(start), says(n.input()), text, text, says(n.output())}, apart, true, true},
		"cumulative":           {[]step{starts(start), with(n.early()), with(n)}, all, true, true},
		"repeated":             {[]step{starts(start), text, text, says(n), says(n), says(n)}, all, true, true},
		"shrinking":            {[]step{starts(start.twice()), text, text, says(n.twice()), says(n)}, all, true, true},
		"then zeros":           {[]step{starts(start), text, text, says(n), says(zeros)}, all, true, true},
		"then null":            {[]step{starts(start), text, text, says(n), null}, all, true, true},
		"then without classes": {[]step{starts(start), text, text, says(n), says(bare)}, all, true, true},
		"text after it":        {[]step{starts(start), text, says(n), text}, all, true, false},
		"null":                 {[]step{{start: true, null: true}, {text: true, null: true}, {text: true, null: true}, null}, counted, false, false},
		"absent":               {[]step{text, text}, counted, false, false},
		"input alone":          {[]step{starts(start), text, text, says(n.input())}, onlyIn, false, false},
		"output alone":         {[]step{text, text, says(n.output())}, onlyOut, false, false},
	}
}

// settled asks for a stream and gives how it ended, which is what the balance has moved by.
func (r *rig) settled(x route) llm.Entry {
	r.t.Helper()
	before, _ := r.limits.Balance(idUser)
	r.post(x.path, x.with(`,"stream":true`)).want(r.t, 200)
	e := r.journal.last(r.t.(*testing.T))
	if after, held := r.limits.Balance(idUser); before-after != price.Cost(e.Usage) || e.Cost != before-after || held != 0 || e.Status != llm.StatusFinalized {
		r.t.Errorf("%s: the balance moved by %d for %+v", x.path, before-after, e)
	}
	return e
}
