package upstream

import (
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

func TestTiersOfAModel(t *testing.T) {
	m := Model{Name: "m", ServiceTiers: map[string]uint32{"flex": 500, "auto": 2000}}
	for name, want := range map[string]struct {
		tier     string
		permille uint32
	}{"": {"auto", 2000}, "auto": {"auto", 2000}, "default": {"", 1000}, "standard_only": {"", 1000}, "flex": {"flex", 500}} {
		if tier, permille, ok := m.Asked([]byte(name)); !ok || tier != want.tier || permille != want.permille {
			t.Errorf("%q is %q at %d, %v", name, tier, permille, ok)
		}
	}
	if _, _, ok := m.Asked([]byte("priority")); ok {
		t.Error("priority has a price")
	}
	for names, says := range map[string]map[string]uint32{
		"is the price itself": {"default": 500}, "a-z": {"Flex": 500}, "0.001": {"flex": 0}, "from 0.001 to 1000": {"flex": llm.MaxFactor + 1},
	} {
		_, err := NewCatalog([]Model{{Name: "m", ServiceTiers: says}}, nil)
		if err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("%v: %v", says, err)
		}
	}
}

// What a stream says of its tier is what the whole answer says: the latest word, and no wish.
func TestToldTier(t *testing.T) {
	for _, x := range []struct {
		ep          llm.Endpoint
		whole, want string
		events      []string
	}{
		{llm.Chat, `{"service_tier":"default","choices":[]}`, "default", []string{`{"service_tier":"auto","choices":[]}`, `{"service_tier":"default","choices":[]}`, `{"service_tier":null}`}},
		{llm.Responses, `{"output":[{"service_tier":"x"}],"service_tier":"flex"}`, "flex", []string{`{"type":"response.created","response":{"service_tier":"priority"}}`,
			`{"type":"response.completed","response":{"service_tier":"flex"}}`}},
		{llm.Messages, `{"service_tier":"x","usage":{"input_tokens":1,"service_tier":"priority"}}`, "priority", []string{
			`{"type":"message_start","message":{"usage":{"input_tokens":1,"service_tier":"priority"}}}`, `{"type":"message_delta","usage":{"output_tokens":1}}`}},
		{llm.Chat, `{"service_tier":"` + strings.Repeat("x", 65) + `"}`, "", []string{`{"service_tier":["flex"]}`, `{"choices":[{"service_tier":"flex"}]}`}},
	} {
		if told := Tell(x.ep, []byte(x.whole)); string(told.Tier) != x.want {
			t.Errorf("%s tells %q", x.whole, told.Tier)
		}
		p := NewParser(x.ep)
		p.Parse([]byte("data: "+strings.Join(x.events, "\n\ndata: ")+"\n\n"), func(*Event) {})
		if told := p.Told(); string(told.Tier) != x.want {
			t.Errorf("%s tell %q", x.events, told.Tier)
		}
		if p.Reset(x.ep); len(p.Told().Tier) > 0 {
			t.Error("a reset parser remembers")
		}
	}
}
