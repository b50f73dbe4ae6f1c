package upstream

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

func TestCatalogRefusesWhatIsWrong(t *testing.T) {
	good := Channel{ID: 1, Name: "openai-main", Provider: "openai", BaseURL: "https://api.openai.com/v1"}
	with := func(change func(*Channel)) []Channel {
		ch := good
		change(&ch)
		return []Channel{ch}
	}
	tests := []struct {
		name     string
		models   []Model
		channels []Channel
		want     string
	}{
		{"two models", []Model{{Name: "a"}, {Name: "a"}}, []Channel{good}, `model "a" is given twice`},
		{"two channels", nil, []Channel{good, good}, `channel "openai-main" is given twice`},
		{"one id", nil, append(with(func(c *Channel) { c.Name = "b" }), good), `both have id 1`},
		{"unknown channel", []Model{{Name: "a", Channels: []string{"openai-mian"}}}, []Channel{good}, `model "a": unknown channel "openai-mian"; did you mean openai-main?`},
		{"nothing near", []Model{{Name: "a", Channels: []string{"zzzzzzzzzz"}}}, []Channel{good}, `there are openai-main`},
		{"channel twice in a model", []Model{{Name: "a", Channels: []string{"openai-main", "openai-main"}}}, []Channel{good}, "listed twice"},
		{"nameless model", []Model{{}}, nil, "model without a name"},
		{"nameless channel", nil, with(func(c *Channel) { c.Name = "" }), "channel without a name"},
		{"quote in a model", []Model{{Name: `a"b`}}, nil, "no control characters"},
		{"escape in a target", []Model{{Name: "a", Target: `a\b`}}, nil, "no control characters"},
		{"provider", nil, with(func(c *Channel) { c.Provider = "anthropc" }), `provider "anthropc"; expected openai or anthropic; did you mean anthropic?`},
		{"no scheme", nil, with(func(c *Channel) { c.BaseURL = "api.openai.com/v1" }), "did you mean https://api.openai.com/v1?"},
		{"other scheme", nil, with(func(c *Channel) { c.BaseURL = "ftp://api.openai.com" }), "did you mean https://api.openai.com?"},
		{"no URL", nil, with(func(c *Channel) { c.BaseURL = "" }), "is empty"},
		{"no host", nil, with(func(c *Channel) { c.BaseURL = "http:///v1" }), "has no host"},
		{"user in the URL", nil, with(func(c *Channel) { c.BaseURL = "https://me:pw@host" }), "has a user"},
		{"port beyond", nil, with(func(c *Channel) { c.BaseURL = "http://host:99999/v1" }), "port 99999; expected 1 to 65535"},
		{"port 0", nil, with(func(c *Channel) { c.BaseURL = "http://host:0" }), "port 0; expected 1 to 65535"},
		{"query", nil, with(func(c *Channel) { c.BaseURL = "https://host/v1?x=1" }), "has a query"},
		{"header injection by credential", nil, with(func(c *Channel) { c.Credential = "a\r\nX: y" }), "credential has a blank"},
		{"weight", nil, with(func(c *Channel) { c.Weight = -1 }), "weight -1; expected 1 to 1000"},
		{"state", nil, with(func(c *Channel) { c.State = "disable" }), "did you mean disabled?"},
		{"negative limit", nil, with(func(c *Channel) { c.QPSLimit = -1 }), "not negative"},
		{"negative price", []Model{{Name: "a", Price: llm.Price{Input: -1}}}, nil, "a price is not negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewCatalog(tt.models, tt.channels)
			e := asError(t, err, llm.KindInvalid)
			contains(t, e.Message, tt.want)
			if strings.Contains(e.Message, "pw") {
				t.Error("the message repeats a password")
			}
		})
	}
}

func TestCatalogLooksUpWithoutAllocating(t *testing.T) {
	var models []Model
	for i := range 100 {
		models = append(models, Model{Name: fmt.Sprintf("model-%d", 99-i)})
	}
	models = append(models, Model{Name: "org/model"})
	cat := mustCatalog(t, models, []Channel{openai("b", "http://x"), openai("a", "http://y")})
	name := []byte("model-42")
	if n := testing.AllocsPerRun(100, func() {
		if m, ok := cat.Model(name); !ok || m.Name != "model-42" {
			t.Fatal("not found")
		}
	}); n != 0 {
		t.Errorf("%v allocations per look-up", n)
	}
	if m, ok := cat.Model([]byte(`org\/model`)); !ok || m.Name != "org/model" {
		t.Error("an escaped name is the same name")
	}
	if _, ok := cat.Model([]byte("model-100")); ok {
		t.Error("found a model that is not there")
	}
	if got := cat.Models()[0].Name; got != "model-0" || len(cat.Models()) != 101 {
		t.Errorf("first of %d is %s", len(cat.Models()), got)
	}
	if ch := cat.Channels()[0]; ch.Name != "a" || ch.Weight != 1 || ch.State != "enabled" {
		t.Errorf("first channel is %+v", ch)
	}
}

func TestBaseURL(t *testing.T) {
	for _, tt := range []struct {
		in, head, address string
		secure, loopback  bool
	}{
		{"https://api.openai.com", "/v1/messages HTTP/1.1\r\nHost: api.openai.com\r\n", "api.openai.com:443", true, false},
		{"https://api.openai.com/", "/v1/messages HTTP/1.1\r\nHost: api.openai.com\r\n", "api.openai.com:443", true, false},
		{"https://api.openai.com/v1", "/v1/messages HTTP/1.1\r\nHost: api.openai.com\r\n", "api.openai.com:443", true, false},
		{"https://api.openai.com/v1//", "/v1/messages HTTP/1.1\r\nHost: api.openai.com\r\n", "api.openai.com:443", true, false},
		{"http://openrouter.ai:8080/api/v1/", "/api/v1/messages HTTP/1.1\r\nHost: openrouter.ai:8080\r\n", "openrouter.ai:8080", false, false},
		{"http://h/openai%20x", "/openai%20x/v1/messages HTTP/1.1\r\nHost: h\r\n", "h:80", false, false},
		{"http://h/xv1", "/xv1/v1/messages HTTP/1.1\r\nHost: h\r\n", "h:80", false, false},
		{"http://[::1]:3009", "/v1/messages HTTP/1.1\r\nHost: [::1]:3009\r\n", "[::1]:3009", false, true},
		{"http://[::1]", "/v1/messages HTTP/1.1\r\nHost: [::1]\r\n", "[::1]:80", false, true},
		{"http://localhost:1/v1", "/v1/messages HTTP/1.1\r\nHost: localhost:1\r\n", "localhost:1", false, true},
		{"http://127.0.0.9", "/v1/messages HTTP/1.1\r\nHost: 127.0.0.9\r\n", "127.0.0.9:80", false, true},
	} {
		s, err := parseBase(tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		head := string(new(requestOpening(llm.Messages, &Channel{Provider: "anthropic"}, &s, nil)).appendTo(nil, &Model{Name: "m"}))
		if !strings.HasPrefix(head, "POST "+tt.head) {
			t.Errorf("%s: head is %q", tt.in, head)
		}
		if s.address != tt.address || s.secure != tt.secure || s.loopback != tt.loopback {
			t.Errorf("%s: %+v", tt.in, s)
		}
	}
}

// picks counts who gets n turns, when usable says who may.
func picks(rt *route, n int, usable func(*Channel) bool) map[string]int {
	got := map[string]int{}
	for range n {
		seen := make([]bool, rt.channels)
		for _, tier := range rt.tiers {
			if ch := tier.pick(seen, func(*Channel) int64 { return 0 }, usable); ch != nil {
				got[ch.Name]++
				break
			}
		}
	}
	return got
}

// A call that failed on its first channel and goes on to another takes nobody's turn: firsts and seconds are shared each
// for itself.
func TestSecondsTakeNoTurns(t *testing.T) {
	cat := mustCatalog(t, []Model{{Name: "m"}}, []Channel{
		{Name: "a", Provider: "openai", BaseURL: "http://h"},
		{Name: "b", Provider: "openai", BaseURL: "http://h"},
		{Name: "c", Provider: "openai", BaseURL: "http://h"},
	})
	for n := 2; n <= 3; n++ {
		tier := newRoute(cat.Channels()[:n]).tiers[0]
		first, second := map[string]int{}, map[string]int{}
		idle, any := func(*Channel) int64 { return 0 }, func(*Channel) bool { return true }
		for range 60 {
			seen := make([]bool, n)
			ch := tier.pick(seen, idle, any)
			first[ch.Name]++
			if ch.Name == "a" {
				second[tier.pick(seen, idle, any).Name]++
			}
		}
		for name, got := range first {
			if got != 60/n || name != "a" && second[name] != 60/n/(n-1) {
				t.Errorf("of %d: first %v, second %v", n, first, second)
			}
		}
	}
}

func TestTurnsFollowPriorityAndWeight(t *testing.T) {
	cat := mustCatalog(t, []Model{{Name: "m"}}, []Channel{
		{Name: "a", Provider: "openai", BaseURL: "http://h", Weight: 5, Priority: 1},
		{Name: "b", Provider: "openai", BaseURL: "http://h", Weight: 3, Priority: 1},
		{Name: "c", Provider: "openai", BaseURL: "http://h", Weight: 2, Priority: 1},
		{Name: "off", Provider: "openai", BaseURL: "http://h", Weight: 900, Priority: 9, State: "disabled"},
		{Name: "last", Provider: "openai", BaseURL: "http://h"},
		{Name: "other", Provider: "anthropic", BaseURL: "http://h", Priority: 9},
	})
	rt := cat.models["m"].routes[llm.OpenAI]
	all := func(*Channel) bool { return true }
	if got := picks(rt, 100, all); got["a"] != 50 || got["b"] != 30 || got["c"] != 20 {
		t.Errorf("100 turns of 5:3:2 went %v", got)
	}
	without := func(name string) func(*Channel) bool { return func(ch *Channel) bool { return ch.Name != name } }
	if got := picks(rt, 100, without("a")); got["b"] != 60 || got["c"] != 40 {
		t.Errorf("without a, 100 turns of 3:2 went %v", got)
	}
	none := func(ch *Channel) bool { return ch.Priority == 0 }
	if got := picks(rt, 10, none); got["last"] != 10 {
		t.Errorf("with the first tier down, turns went %v", got)
	}
	if got := picks(rt, 10, func(*Channel) bool { return false }); len(got) != 0 {
		t.Errorf("nobody can serve, yet turns went %v", got)
	}
}

func TestTurnsAreSmoothAndBounded(t *testing.T) {
	m := func(weights ...int) (ms []member) {
		for i, w := range weights {
			ms = append(ms, member{&Channel{Weight: w}, i})
		}
		return ms
	}
	if got := fmt.Sprint(smooth(m(1, 1))); got != "[0 1]" {
		t.Errorf("1:1 is %s", got)
	}
	if got := fmt.Sprint(smooth(m(5, 1, 1))); got != "[0 0 1 0 2 0 0]" {
		t.Errorf("5:1:1 is %s; the heavy one's turns should lie apart", got)
	}
	if got := len(smooth(m(1000, 500))); got != 3 {
		t.Errorf("1000:500 needs 3 turns, has %d", got)
	}
	if got := len(smooth(m(1000, 999, 997, 991))); got > maxTurns+4 {
		t.Errorf("%d turns", got)
	}
}

func TestRoutesAreSharedBetweenModels(t *testing.T) {
	cat := mustCatalog(t, []Model{{Name: "a"}, {Name: "b"}, {Name: "c", Channels: []string{"x"}}}, []Channel{openai("x", "http://h"), openai("y", "http://h")})
	if cat.models["a"].routes[llm.OpenAI] != cat.models["b"].routes[llm.OpenAI] {
		t.Error("the same channels should be one route")
	}
	if cat.models["a"].routes[llm.OpenAI] == cat.models["c"].routes[llm.OpenAI] {
		t.Error("other channels are another route")
	}
	if cat.models["a"].routes[llm.Anthropic] != nil {
		t.Error("no channel speaks anthropic")
	}
}

func TestOptions(t *testing.T) {
	if err := (Options{}).Defaults().Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	if o := (Options{Attempts: 2}).Defaults(); o.Attempts != 2 || o.IdleTimeoutMS != 120_000 {
		t.Errorf("%+v", o)
	}
	e := asError(t, Options{Attempts: 4}.Defaults().Validate(), llm.KindInvalid)
	if e.Param != "attempts" || e.Message != "attempts is 4; expected 1 to 3" {
		t.Errorf("%+v", e)
	}
}
