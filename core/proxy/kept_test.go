package proxy_test

import (
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// What Anthropic keeps in its cache for an hour costs twice the input, not what a write for five minutes costs; a report that
// only says for how long each token is kept says how many are.
func TestKeptForAnHour(t *testing.T) {
	var body string
	r := sameAnswers(t, &body)
	x := everyRoute[4]
	asks := strings.Replace(x.body, `"messages"`, `"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral","ttl":"1h"}}],"messages"`, 1)
	for _, tt := range []struct {
		split string
		total string
		hour  llm.Tokens
		all   llm.Tokens
	}{
		{`{"ephemeral_5m_input_tokens":10000,"ephemeral_1h_input_tokens":0}`, `"cache_creation_input_tokens":10000,`, 0, 10_000},
		{`{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":10000}`, `"cache_creation_input_tokens":10000,`, 10_000, 10_000},
		{`{"ephemeral_5m_input_tokens":4000,"ephemeral_1h_input_tokens":6000}`, ``, 6_000, 10_000},
		{`{"ephemeral_5m_input_tokens":4000,"ephemeral_1h_input_tokens":6000}`, `"cache_creation_input_tokens":null,`, 6_000, 10_000},
		{`null`, `"cache_creation_input_tokens":10000,`, 0, 10_000},
	} {
		usage := `"usage":{"input_tokens":10,` + tt.total + `"cache_creation":` + tt.split + `,"output_tokens":1}`
		for _, stream := range []bool{false, true} {
			ask := asks
			body = `{"id":"m","content":[{"type":"text","text":"x"}],` + usage + `}`
			if stream {
				ask = strings.TrimSuffix(asks, "}") + `,"stream":true}`
				body = lines(`{"type":"message_start","message":{`+usage+`}}`, `{"type":"content_block_delta","delta":{"type":"text_delta","text":"x"}}`,
					`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}`, `{"type":"message_stop"}`)
			}
			r.post(x.path, ask).want(t, 200)
			u := llm.Usage{InputTokens: 10 + tt.all, CacheWriteTokens: tt.all, OutputTokens: 1}
			want := price.Cost(u) + llm.Price{Input: 2*price.Input - price.CacheWrite}.Cost(llm.Usage{InputTokens: tt.hour})
			if e := r.journal.last(t); e.Usage != u || e.Cost != want || e.Estimated {
				t.Errorf("%s, stream %v: %+v costs %d, want %d", tt.split, stream, e.Usage, e.Cost, want)
			}
		}
	}
}
