package proxy_test

import (
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// An id of what the provider keeps reaches no upstream unless the model allows it, whoever presents it: to the provider all
// callers are one account. What is in the body itself passes, ids and all.
func TestReferencesToWhatTheProviderKeepsAreRefused(t *testing.T) {
	up := newTeller(t)
	r := newRig(t, listing(up, map[string]llm.Micro{"file_search": filePrice}, 0))
	chat, responses, messages := everyRoute[0], everyRoute[3], everyRoute[4]
	cases := []struct {
		route        route
		more, member string
	}{
		{responses, `"previous_response_id":"resp_1"`, "previous_response_id"},
		{responses, `"conversation":"conv_1"`, "conversation"},
		{responses, `"prompt":{"id":"pmpt_1"}`, "prompt"},
		{responses, `"tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]`, "tools.vector_store_ids"},
		{route{"/v1/responses", "gpt-4o", `{"model":"gpt-4o","input":[{"type":"item_reference","id":"msg_1"}]}`}, `"stream":false`, "input"},
		{route{"/v1/chat/completions", "gpt-4o", `{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}]}`}, `"n":1`, "file_id"},
		{messages, `"container":"container_1"`, "container"},
		{route{messages.path, messages.model, `{"model":"claude-sonnet-4-5","max_tokens":5,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"f"}}]}]}`}, `"top_k":1`, "file_id"},
	}
	for _, x := range cases {
		f := r.post(x.route.path, x.route.with(","+x.more)).want(t, 400).code(t, "invalid_request_error")
		if f["param"] != x.member || !strings.Contains(f["message"].(string), "stored: allow") {
			t.Errorf("%s: %v", x.more, f)
		}
	}
	for _, part := range []string{`{"type":"input_file","FILE_ID":"f"}`, `{"type":"file","file":{"File_Id":"f"}}`, `{"Type":"item_reference","id":"msg_1"}`, `{"type":"Item_Reference","id":"msg_1"}`} {
		r.post("/v1/responses", `{"model":"gpt-4o","input":[`+part+`]}`).want(t, 400).code(t, "invalid_request_error")
	}
	if _, n := up.took(); n != 0 || len(r.journal.of(llm.EntryReserve)) != 0 {
		t.Errorf("%d requests, %d reserves", n, len(r.journal.of(llm.EntryReserve)))
	}
	for _, x := range []struct {
		route route
		more  string
	}{
		{responses, `"store":true,"previous_response_id":null,"conversation":null`},
		{route{"/v1/responses", "gpt-4o", `{"model":"gpt-4o","input":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"},` +
			`{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"hi"}]}]}`}, `"store":false`},
		{route{"/v1/responses", "gpt-4o", `{"model":"gpt-4o","input":[{"type":"reasoning","id":"rs_1","summary":[]},{"role":"user","content":"and?"}]}`}, `"store":true`},
		{chat, `"store":true`},
	} {
		r.post(x.route.path, x.route.with(","+x.more)).want(t, 200)
	}
	for i := range r.cat.models {
		r.cat.models[i].Stored = "allow"
	}
	r.setCatalog()
	for _, x := range cases {
		r.post(x.route.path, x.route.with(","+x.more)).want(t, 200)
		if sent, _ := up.took(); !strings.Contains(sent, x.more) {
			t.Errorf("forwarded %s", sent)
		}
	}
}
