package proxy_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// teller is an upstream whose answers say what they are told to, for 100 input and 10 output tokens, and which keeps what
// it was sent.
type teller struct {
	*httptest.Server
	mu   sync.Mutex
	tier string // of the answer; empty: it says nothing
	tool string // of an item in the output of a response, or a count in the usage of a message
	sent []byte
	n    int
	fail int // so many requests are answered with 500 first
}

func newTeller(t *testing.T) *teller {
	s := new(teller)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.n++
		s.sent, _ = io.ReadAll(q.Body)
		if s.fail > 0 {
			s.fail--
			w.WriteHeader(500)
			return
		}
		var ask struct{ Stream bool }
		_ = json.Unmarshal(s.sent, &ask)
		kind, text := "application/json", s.whole(q.URL.Path)
		if ask.Stream {
			kind, text = "text/event-stream", s.events(q.URL.Path)
		}
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *teller) says(tier, tool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tier, s.tool = tier, tool
}

// took is the body of the latest request, and how many there were.
func (s *teller) took() (string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.sent), s.n
}

func (s *teller) said() string {
	if s.tier == "" {
		return ""
	}
	return `,"service_tier":"` + s.tier + `"`
}

func (s *teller) whole(path string) string {
	switch path {
	case "/v1/messages":
		return `{"type":"message","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":100,"output_tokens":10` + s.counted() + s.said() + `}}`
	case "/v1/messages/count_tokens":
		return `{"input_tokens":100}`
	case "/v1/responses":
		return `{"object":"response","output":[` + s.tool + `]` + s.said() + `,"usage":{"input_tokens":100,"output_tokens":10}}`
	}
	return `{"choices":[]` + s.said() + `,"usage":{"prompt_tokens":100,"completion_tokens":10}}`
}

func (s *teller) counted() string {
	if s.tool == "" {
		return ""
	}
	return `,"server_tool_use":{` + s.tool + `}`
}

func (s *teller) events(path string) string {
	switch path {
	case "/v1/messages":
		return sse(`{"type":"message_start","message":{"usage":{"input_tokens":100,"output_tokens":1`+s.said()+`}}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":10`+s.counted()+`}}`, `{"type":"message_stop"}`)
	case "/v1/responses":
		return sse(`{"type":"response.created","response":{"service_tier":"auto"}}`,
			`{"type":"response.completed","response":`+s.whole(path)+`}`)
	}
	return sse(`{"choices":[{"index":0,"delta":{"content":"hi"}}]`+s.said()+`}`, s.whole(path), `[DONE]`)
}

func sse(data ...string) string {
	return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n"
}

// priced are the tiers of every model of a rig.
func priced(up *teller, tiers map[string]uint32) option {
	return func(s *setup) {
		s.catalog = func(c *catalog) {
			for i := range c.models {
				c.models[i].ServiceTiers = tiers
			}
			for i := range c.channels {
				c.channels[i].BaseURL = up.URL
			}
		}
	}
}

var served = llm.Usage{InputTokens: 100, OutputTokens: 10}

// A tier that the model does not price reaches no upstream and holds nothing, on any route, in either dialect; the standard
// ones pass.
func TestServiceTierWithoutAPriceIsRefused(t *testing.T) {
	up := newTeller(t)
	r := newRig(t, priced(up, map[string]uint32{"flex": 500}))
	for _, x := range everyRoute {
		for _, name := range []string{"priority", "Flex", "pri\\u006frity", "scale"} {
			f := r.post(x.path, x.with(`,"service_tier":"`+name+`"`)).want(t, 400).code(t, "invalid_request_error")
			if msg := f["message"].(string); f["param"] != "service_tier" || !strings.Contains(msg, "flex") || !strings.Contains(msg, "auto, ") {
				t.Errorf("%s %s: %v", x.path, name, f)
			}
		}
		if f := r.post(x.path, x.with(`,"service_tier":2`)).want(t, 400).fields(t); f["param"] != "service_tier" {
			t.Errorf("%s: %v", x.path, f)
		}
	}
	if _, n := up.took(); n != 0 || len(r.journal.of(llm.EntryReserve)) != 0 {
		t.Errorf("%d requests, %d reserves", n, len(r.journal.of(llm.EntryReserve)))
	}
	for _, x := range streams() {
		for _, tier := range []string{`"auto"`, `"default"`, `"standard"`, `"standard_only"`, `null`} {
			r.post(x.path, x.with(`,"service_tier":`+tier)).want(t, 200)
			if sent, _ := up.took(); !strings.Contains(sent, `"service_tier":`+tier) {
				t.Errorf("%s: forwarded %s", x.path, sent)
			}
			if e := r.journal.last(t); e.Cost != price.Cost(served) || e.ServiceTier != "" {
				t.Errorf("%s %s: %+v", x.path, tier, e)
			}
		}
	}
}

// A tier is held and charged at its factor; what the provider served at a cheaper one it prices is charged at that; what
// it says of a dearer or an unknown one changes nothing. The same on every route, streamed or not.
func TestServiceTierIsHeldAndCharged(t *testing.T) {
	up := newTeller(t)
	r := newRig(t, priced(up, map[string]uint32{"flex": 500, "priority": 2500}))
	for _, x := range streams() {
		for _, c := range []struct {
			asks, says string
			held, paid uint32
			tier       string
		}{
			{"priority", "priority", 2500, 2500, "priority"},
			{"priority", "", 2500, 2500, "priority"},
			{"priority", "default", 2500, 1000, ""},
			{"priority", "standard", 2500, 1000, ""},
			{"priority", "flex", 2500, 500, "flex"},
			{"priority", "auto", 2500, 2500, "priority"},
			{"priority", "batch", 2500, 2500, "priority"},
			{"flex", "flex", 500, 500, "flex"},
			{"flex", "default", 500, 500, "flex"},
			{"auto", "priority", 1000, 1000, ""},
		} {
			for _, stream := range []string{"", `,"stream":true`} {
				up.says(c.says, "")
				r.post(x.path, x.with(stream+`,"service_tier":"`+c.asks+`"`)).want(t, 200)
				r.idle()
				all := r.journal.of(llm.EntryReserve)
				held, e := all[len(all)-1], r.journal.last(t)
				if held.Price != price.Scale(c.held) || held.Held != held.Price.Hold(held.Usage.InputTokens, 50) {
					t.Errorf("%s%s asks for %s: held %+v", x.path, stream, c.asks, held)
				}
				if e.Cost != price.Scale(c.paid).Cost(served) || e.ServiceTier != c.tier || e.Usage != served {
					t.Errorf("%s%s asks for %s, gets %q: %+v", x.path, stream, c.asks, c.says, e)
				}
			}
		}
	}
}

// Where the operator's account makes "auto" something else, it has a price too: absence is "auto", and what is served at
// the standard tier is charged at it.
func TestServiceTierAutoMayHaveAPrice(t *testing.T) {
	up := newTeller(t)
	r := newRig(t, priced(up, map[string]uint32{"auto": 2000, "priority": 2000}))
	for more, want := range map[string]uint32{``: 2000, `,"service_tier":null`: 2000, `,"service_tier":"auto"`: 2000, `,"service_tier":"default"`: 1000} {
		r.post("/v1/chat/completions", chat("gpt-4o", more)).want(t, 200)
		if e := r.journal.last(t); e.Cost != price.Scale(want).Cost(served) {
			t.Errorf("%q: %+v", more, e)
		}
	}
	up.says("default", "")
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	if e := r.journal.last(t); e.Cost != price.Cost(served) || e.ServiceTier != "" {
		t.Errorf("%+v", e)
	}
}

// The price of the admission is the price of the end: a failover, a new catalog and a policy's multiplier do not lose the
// tier, and a client that leaves pays at it.
func TestServiceTierStaysWithTheRequest(t *testing.T) {
	up := newTeller(t)
	up.fail = 1
	r := newRig(t, priced(up, map[string]uint32{"priority": 2000}), func(s *setup) {
		tiers := s.catalog
		s.catalog = func(c *catalog) {
			tiers(c)
			more := c.channels[0]
			more.ID, more.Name = 3, "openai-2"
			c.channels = append(c.channels, more)
		}
	})
	r.policy.decide = func(_ *policy.Facts, d *policy.Decision) { d.Price = 1500 }
	r.post("/v1/chat/completions", chat("gpt-4o", `,"service_tier":"priority"`)).want(t, 200)
	if e := r.journal.last(t); e.Cost != price.Scale(2000).Scale(1500).Cost(served) || e.ServiceTier != "priority" {
		t.Errorf("%+v", e)
	}
	r.journal.wait = func(e llm.Entry) error {
		if e.Kind == llm.EntryReserve {
			r.cat.models[0].ServiceTiers, r.cat.models[0].Price = nil, llm.Price{}
			r.setCatalog()
		}
		return nil
	}
	r.post("/v1/chat/completions", chat("gpt-4o", `,"service_tier":"priority"`)).want(t, 200)
	if e := r.journal.last(t); e.Cost != price.Scale(2000).Scale(1500).Cost(served) {
		t.Errorf("after a new catalog: %+v", e)
	}
}

// A speed or a place that Anthropic charges more for needs a factor, too; it multiplies that of the tier, and an answer's tier
// does not undo it.
func TestSpeedAndPlaceHaveAPrice(t *testing.T) {
	up := newTeller(t)
	r := newRig(t, priced(up, map[string]uint32{"fast": 6000, "us": 1100, "priority": 2000}))
	x := everyRoute[4]
	for more, param := range map[string]string{`"speed":"ultra"`: "speed", `"inference_geo":"eu"`: "inference_geo", `"speed":1`: "speed", `"Speed":"fast"`: "speed"} {
		if f := r.post(x.path, x.with(","+more)).want(t, 400).code(t, "invalid_request_error"); f["param"] != param {
			t.Errorf("%s: %v", more, f)
		}
	}
	up.says("standard", "")
	for more, want := range map[string]llm.Price{
		`"speed":"standard","inference_geo":"global"`: price,
		`"speed":null`:                        price,
		`"speed":"fast"`:                      price.Scale(6000),
		`"speed":"fast","inference_geo":"us"`: price.Scale(6000).Scale(1100),
		`"inference_geo":"us","service_tier":"priority","speed":"standard"`: price.Scale(1100),
	} {
		r.post(x.path, x.with(","+more)).want(t, 200)
		if e := r.journal.last(t); e.Cost != want.Cost(served) {
			t.Errorf("%s: %+v", more, e)
		}
	}
	r.post("/v1/chat/completions", chat("gpt-4o", `,"speed":"ultra"`)).want(t, 200)
}

// The beta by which Anthropic takes more than 200,000 tokens of input, at another price, is a factor of the model's or refused; other
// betas pass, and in another dialect it says nothing to anybody.
func TestLongContextHasAPrice(t *testing.T) {
	up := newTeller(t)
	r := newRig(t, priced(up, nil))
	chats, messages, count := everyRoute[0], everyRoute[4], everyRoute[5]
	for _, beta := range []string{"context-1m-2025-08-07", "tools-1 , Context-1M-2027-01-01,tools-2", "context-1m"} {
		for _, x := range []route{messages, count} {
			f := r.post(x.path, x.body, "Anthropic-Beta", beta).want(t, 400).code(t, "invalid_request_error")
			if f["param"] != "anthropic-beta" || !strings.Contains(f["message"].(string), `no price for anthropic-beta "context-1m"`) {
				t.Errorf("%s: %v", beta, f)
			}
		}
		r.post(chats.path, chats.body, "Anthropic-Beta", beta).want(t, 200)
	}
	r.post(messages.path, messages.body, "Anthropic-Beta", "context-management-2025-06-27,token-context-1m").want(t, 200)
	if e := r.journal.last(t); e.Cost != price.Cost(served) {
		t.Errorf("%+v", e)
	}
	two := r.request(messages.path, messages.body)
	two.Header["Anthropic-Beta"] = []string{"tools-1", "context-1m-2025-08-07"}
	r.do(two).want(t, 400).code(t, "invalid_request_error")
	dear := newRig(t, priced(up, map[string]uint32{"context-1m": 2000}))
	dear.post(messages.path, messages.body, "Anthropic-Beta", "context-1m-2025-08-07").want(t, 200)
	if e := dear.journal.last(t); e.Cost != price.Scale(2000).Cost(served) {
		t.Errorf("%+v", e)
	}
}

// Betas on several lines are one list, as HTTP has it.
func TestBetasOnSeveralLines(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		got = q.Header["Anthropic-Beta"]
		_, _ = io.WriteString(w, `{"type":"message","content":[],"usage":{"input_tokens":1,"output_tokens":1}}`)
	}))
	t.Cleanup(s.Close)
	r := newRig(t, func(o *setup) {
		o.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[1].BaseURL = s.URL, s.URL }
	})
	messages := everyRoute[4]
	for _, lines := range [][]string{{"a"}, {"a,b", "c"}, {"a", "", "b , c", "d"}, {"", ""}, nil} {
		q := r.request(messages.path, messages.body)
		q.Header["Anthropic-Beta"] = lines
		r.do(q).want(t, 200)
		var want []string
		for _, line := range lines {
			if line != "" {
				want = append(want, line)
			}
		}
		if strings.Join(got, "|") != strings.Join(want, ",") {
			t.Errorf("%q became %q", lines, got)
		}
	}
}

// An answer in sound costs many times what one in words does, and its tokens are not told apart by their price.
func TestModalitiesHaveAPrice(t *testing.T) {
	up := newTeller(t)
	r := newRig(t, priced(up, map[string]uint32{"audio": 16000}))
	for _, more := range []string{`"modalities":["text","image"]`, `"modalities":["\u0061udio"]`, `"modalities":["audio","image"]`, `"modalities":"audio"`, `"modalities":[1]`, `"Modalities":["audio"]`} {
		if f := r.post("/v1/chat/completions", chat("gpt-4o", ","+more)).want(t, 400).code(t, "invalid_request_error"); f["param"] != "modalities" {
			t.Errorf("%s: %v", more, f)
		}
	}
	for more, want := range map[string]llm.Price{`"modalities":["text"]`: price, `"modalities":[]`: price, `"modalities":null`: price, `"modalities":["text","audio"]`: price.Scale(16000)} {
		r.post("/v1/chat/completions", chat("gpt-4o", ","+more)).want(t, 200)
		if e := r.journal.last(t); e.Cost != want.Cost(served) {
			t.Errorf("%s: %+v", more, e)
		}
	}
	plain := newRig(t, priced(up, nil))
	plain.post("/v1/chat/completions", chat("gpt-4o", `,"modalities":["text","audio"]`)).want(t, 400)
}

// A model that is free, or priceless for a caller who pays nothing, refuses a tier nobody has listed just the same.
func TestServiceTierOfAFreeModel(t *testing.T) {
	up := newTeller(t)
	r := newRig(t, priced(up, map[string]uint32{"flex": 500}), func(s *setup) { s.user.Unmetered = true })
	r.post("/v1/chat/completions", chat("priceless", `,"service_tier":"priority"`)).want(t, 400)
	r.post("/v1/chat/completions", chat("priceless", `,"service_tier":"flex"`)).want(t, 200)
	if e := r.journal.last(t); e.Cost != 0 || e.ServiceTier != "flex" {
		t.Errorf("%+v", e)
	}
}
