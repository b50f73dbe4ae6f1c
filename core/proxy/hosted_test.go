package proxy_test

import (
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

const (
	searchPrice = llm.Micro(70_000)
	filePrice   = llm.Micro(17_500)
)

// listing gives every model of a rig prices for calls of hosted tools.
func listing(up *teller, tools map[string]llm.Micro, most int64) option {
	return func(s *setup) {
		priced(up, map[string]uint32{"flex": 500})(s)
		tiers := s.catalog
		s.catalog = func(c *catalog) {
			tiers(c)
			for i := range c.models {
				c.models[i].HostedTools, c.models[i].MaxToolCalls = tools, most
			}
		}
	}
}

// hostedTool is a tool that the provider runs, as a request has it, and how an answer tells of three calls of it.
type hostedTool struct {
	route      route
	tool, told string
}

var hostedTools = []hostedTool{
	{everyRoute[3], `{"type":"web_search_preview"}`, strings.Repeat(`,{"type":"web_search_call","action":{"type":"search"}}`, 3)[1:] +
		`,{"type":"web_search_call","action":{"type":"open_page"}},{"type":"function_call"},{"type":"custom_tool_call"},{"type":"message"}`},
	{everyRoute[4], `{"type":"web_search_20250305","name":"web_search"}`, `"web_search_requests":3`},
}

// A tool that the provider runs and the model does not list reaches no upstream and holds nothing, in any dialect; tools of
// the client pass.
func TestHostedToolWithoutAPriceIsRefused(t *testing.T) {
	up := newTeller(t)
	r := newRig(t, listing(up, map[string]llm.Micro{"file_search": filePrice}, 0))
	chat, responses, messages := everyRoute[0], everyRoute[3], everyRoute[4]
	for _, x := range []struct {
		route             route
		more, param, says string
	}{
		{responses, `"tools":[{"type":"function","name":"f"},{"type":"web_search"}]`, "tools", "allows file_search"},
		{responses, `"tools":[{"type":"mcp","server_url":"https://x"}]`, "tools", `"mcp"`},
		{responses, `"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`, "tools", "never"},
		{responses, `"tools":[{"type":"image_generation"}]`, "tools", "never"},
		{responses, `"tools":[{"type":"never_heard_of"}]`, "tools", "never_heard_of"},
		{responses, `"tools":[{"type":"web\u005fsearch"}]`, "tools", "allows"},
		{responses, `"tools":[{"type":"file_searching"}]`, "tools", "allows"},
		{responses, `"tools":["web_search"]`, "tools", "allows"},
		{responses, `"tools":[{"type":"function","type":"web_search"}]`, "tools.type", "twice"},
		{responses, `"tools":[{"type":"function","Type":"web_search"}]`, "tools.type", "exactly"},
		{chat, `"web_search_options":{}`, "web_search_options", "web_search"},
		{chat, `"tools":[{"type":"file_search"}]`, "tools", "/v1/responses"},
		{messages, `"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":1}]`, "tools", "web_search_20250305"},
		{messages, `"tools":[{"type":"code_execution_20250825","name":"code_execution"}]`, "tools", "never"},
		{messages, `"mcp_servers":[{"type":"url","url":"https://x"}]`, "mcp_servers", "mcp"},
		{messages, `"tools":[{"type":"bash_code_execution","name":"x"}]`, "tools", "allows"},
	} {
		f := r.post(x.route.path, x.route.with(","+x.more)).want(t, 400).code(t, "invalid_request_error")
		if f["param"] != x.param || !strings.Contains(f["message"].(string), x.says) {
			t.Errorf("%s: %v", x.more, f)
		}
	}
	if _, n := up.took(); n != 0 || len(r.journal.of(llm.EntryReserve)) != 0 {
		t.Errorf("%d requests, %d reserves", n, len(r.journal.of(llm.EntryReserve)))
	}
	for _, x := range []struct {
		route route
		tools string
	}{
		{chat, `"web_search_options":null,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},{"type":"custom"},{"function":{"name":"g"}}]`},
		{responses, `"tools":[{"type":"function","name":"f"},{"type":"custom","name":"g"},{"type":"local_shell"},{"type":"apply_patch"}]`},
		{messages, `"mcp_servers":[],"tools":[{"name":"f","input_schema":{}},{"type":"custom","name":"g"},{"type":"bash_20250124","name":"bash"},` +
			`{"type":"text_editor_20250728","name":"e"},{"type":"computer_20251124","name":"c"},{"type":"memory_20250818","name":"m"}]`},
		{everyRoute[5], `"tools":[{"type":"web_search_20250305","name":"web_search"}]`},
	} {
		r.post(x.route.path, x.route.with(","+x.tools)).want(t, 200)
		if sent, _ := up.took(); !strings.Contains(sent, x.tools) {
			t.Errorf("forwarded %s", sent)
		}
	}
}

// What calls may cost at most is held: the request's own cap, else the model's, which then goes upstream. What the answer
// counts is charged, at any tier; and nothing where it counts none.
func TestHostedToolIsHeldAndCharged(t *testing.T) {
	up := newTeller(t)
	r := newRig(t, listing(up, map[string]llm.Micro{"web_search": searchPrice, "file_search": filePrice}, 7))
	r.policy.decide = func(_ *policy.Facts, d *policy.Decision) { d.Price = 2000 }
	for _, x := range hostedTools {
		for _, c := range []struct {
			capped string // in the request
			calls  llm.Micro
			sent   string
		}{
			{"", 7, map[string]string{"/v1/responses": `{"max_tool_calls":7,`, "/v1/messages": `[{"max_uses":7,"type"`}[x.route.path]},
			{map[string]string{"/v1/responses": `,"max_tool_calls":null`, "/v1/messages": `"max_uses":null,`}[x.route.path], 7, `:7,`},
			{map[string]string{"/v1/responses": `,"max_tool_calls":4`, "/v1/messages": `"max_uses":4,`}[x.route.path], 4, `:4,`},
		} {
			body := x.route.with(`,"service_tier":"flex","tools":[` + x.tool + `]`)
			if x.route.path == "/v1/messages" {
				body = strings.Replace(body, `[{"type"`, `[{`+c.capped+`"type"`, 1)
			} else {
				body = strings.Replace(body, `,"service_tier"`, c.capped+`,"service_tier"`, 1)
			}
			for _, told := range []string{x.told, ""} {
				for _, stream := range []string{"", `,"stream":true`} {
					up.says("", told)
					r.post(x.route.path, strings.TrimSuffix(body, "}")+stream+"}").want(t, 200)
					r.idle()
					if sent, _ := up.took(); !strings.Contains(sent, c.sent) {
						t.Errorf("forwarded %s, want %s", sent, c.sent)
					}
					all, e := r.journal.of(llm.EntryReserve), r.journal.last(t)
					held := all[len(all)-1]
					if want := held.Price.Hold(held.Usage.InputTokens, 50) + 2*c.calls*searchPrice; held.Held != want {
						t.Errorf("%s: %d held, want %d", body, held.Held, want)
					}
					want := price.Scale(500).Scale(2000).Cost(served)
					if told != "" {
						want += 2 * 3 * searchPrice
					}
					if e.Cost != want || e.Usage != served {
						t.Errorf("%s%s told %q: charged %d, want %d", body, stream, told, e.Cost, want)
					}
				}
			}
		}
	}
}

// A chat with web_search_options searches once for each choice.
func TestChatSearchIsChargedForEachChoice(t *testing.T) {
	up := newTeller(t)
	r := newRig(t, listing(up, map[string]llm.Micro{"web_search": searchPrice}, 0))
	r.post("/v1/chat/completions", chat("gpt-4o", `,"n":2,"web_search_options":{"search_context_size":"low"}`)).want(t, 200)
	if e := r.journal.last(t); e.Cost != price.Cost(served)+2*searchPrice {
		t.Errorf("%+v", e)
	}
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	if e := r.journal.last(t); e.Cost != price.Cost(served) {
		t.Errorf("%+v", e)
	}
}

// A balance that does not cover the calls refuses the request before it is sent; what it could pay in tokens does not count.
func TestHostedToolNeedsTheMoney(t *testing.T) {
	up := newTeller(t)
	r := newRig(t, listing(up, map[string]llm.Micro{"web_search": searchPrice}, 10), func(s *setup) { s.balance = 9 * searchPrice })
	for _, x := range hostedTools {
		f := r.post(x.route.path, x.route.with(`,"tools":[`+x.tool+`]`)).want(t, 402).code(t, "insufficient_quota")
		if f["required_micro_cny"].(float64) < float64(10*searchPrice) {
			t.Errorf("%v", f)
		}
	}
	if _, n := up.took(); n != 0 {
		t.Errorf("%d were sent", n)
	}
}

// A client that leaves in mid-stream pays for the calls that were made until then.
func TestHostedToolOfAClientThatLeaves(t *testing.T) {
	for _, x := range hostedTools {
		up := newPlayer(t)
		r := newRig(t, func(s *setup) {
			s.catalog = func(c *catalog) {
				for i := range c.models {
					c.models[i].HostedTools = map[string]llm.Micro{"web_search": searchPrice}
				}
				for i := range c.channels {
					c.channels[i].BaseURL = up.URL
				}
			}
		})
		client, answer := r.chunks(x.route.path, x.route.with(`,"stream":true,"tools":[`+x.tool+`]`)), up.play()
		if x.route.path == "/v1/responses" {
			answer.give([]byte(sse(`{"type":"response.output_item.done","item":{"type":"web_search_call","action":{"type":"search"}}}`,
				`{"type":"response.output_text.delta","delta":"found"}`)))
		} else {
			answer.give([]byte(sse(`{"type":"message_start","message":{"usage":{"input_tokens":100,"output_tokens":1}}}`,
				`{"type":"content_block_start","content_block":{"type":"server_tool_use","name":"web_search","input":{}}}`,
				`{"type":"content_block_delta","delta":{"type":"text_delta","text":"found"}}`)))
		}
		if b, err := client.next(); err != nil || !strings.Contains(string(b), "found") {
			t.Fatalf("%s, %v", b, err)
		}
		_ = client.Close()
		r.idle()
		if e := r.journal.last(t); e.Status != llm.StatusPartial || e.Cost < searchPrice || e.Cost >= 2*searchPrice {
			t.Errorf("%s: %+v", x.route.path, e)
		}
	}
}

// Counts beyond all proportion are cut, so that a provider's mistake takes no fortune; under Clip the house pays what is
// beyond the hold.
func TestHostedToolCountsAreBounded(t *testing.T) {
	up := newTeller(t)
	r := newRig(t, listing(up, map[string]llm.Micro{"web_search": searchPrice}, 2))
	up.says("", `"web_search_requests":1000000000`)
	body := everyRoute[4].with(`,"tools":[` + hostedTools[1].tool + `]`)
	r.post("/v1/messages", body).want(t, 200)
	if e := r.journal.last(t); e.Cost != price.Cost(served)+200*searchPrice {
		t.Errorf("%+v", e)
	}
	clipped := newRig(t, listing(up, map[string]llm.Micro{"web_search": searchPrice}, 2), func(s *setup) {
		s.user = auth.User{ID: idUser, OrgID: idOrg, Overrun: limit.Clip.String()}
	})
	clipped.post("/v1/messages", body).want(t, 200)
	if e, held := clipped.journal.last(t), clipped.journal.of(llm.EntryReserve)[0]; e.Cost != held.Held {
		t.Errorf("%+v of %+v", e, held)
	}
}
