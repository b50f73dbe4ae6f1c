package llm_test

import (
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

func TestBlot(t *testing.T) {
	const key = "sk-weir-abcdefgh-0123456789_12345678901234567890-23456789012"
	for text, want := range map[string]string{
		"":                               "",
		"no key at all":                  "no key at all",
		key:                              "sk-[hidden]",
		`no model "` + key + `"`:         `no model "sk-[hidden]"`,
		"/v1/" + key + "/x?key=" + key:   "/v1/sk-[hidden]/x?key=sk-[hidden]",
		"Bearer sk-proj-AbC_dEf-123, so": "Bearer [hidden], so",
		"sk-short":                       "sk-short",
		"sk-sk-short":                    "sk-[hidden]",
		"ask-" + key:                     "ask-sk-[hidden]",
		"risk-" + key[8:]:                "risk-" + key[8:],
		"sk-":                            "sk-",

		"sk_live_4eC39HqLyjW and rk_live_4eC39HqLyjW":         "sk_live_[hidden] and rk_live_[hidden]",
		"pk_live_4eC39HqLyjW.":                                "pk_[hidden].",
		"ghp_1234567890ab, gho_1234567890ab":                  "ghp_[hidden], gho_[hidden]",
		"github_pat_11ABCDEFG0_abc":                           "github_pat_[hidden]",
		`"xoxb-1234-5678-abc"/xoxp-1234-5678-abc`:             `"xoxb-[hidden]"/xoxp-[hidden]`,
		"key AKIAIOSFODNN7EXAMPLE; ASIAIOSFODNN7EXAMPLE":      "key AKIA[hidden]; ASIA[hidden]",
		"x=AIzaSyD-1234567890abcdef":                          "x=AIza[hidden]",
		"hf_abcdefghijklmnop":                                 "hf_[hidden]",
		"glpat-abcdefghijkl":                                  "glpat-[hidden]",
		"ya29.a0AfH6SMBx":                                     "ya29.[hidden]",
		"eyJhbGciOi.eyJzdWIiOi.c2ln-_bmF0 is":                 "eyJ[hidden] is",
		"Authorization: Basic dXNlcj/pw+Q== x":                "Authorization: Basic [hidden] x",
		"authorization: bearer abcdefghijkl":                  "authorization: bearer [hidden]",
		`"-----BEGIN RSA PRIVATE KEY-----\nMIIB\nAA==" is it`: `"-----BEGIN [hidden]" is it`,
		"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY":            "[hidden]",
		"q Ab1/wJalrXUtnFEMIxK7MDENGxbP= q":                   "q Ab1/[hidden] q",
		"/v1/responses/resp_0123456789abcdef0123456789abcdef": "/v1/responses/resp_[hidden]",
		"onlylettersofbothcasesAndNo":                         "[hidden]",
		strings.Repeat("0123456789abcdef", 4):                 "[hidden]",
	} {
		got := llm.Blot(text)
		if got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
		if again := llm.Blot(got); again != got {
			t.Errorf("%q becomes %q, and that %q", text, got, again)
		}
	}
	for _, name := range []string{
		"claude-3-5-sonnet-20241022", "gpt-4o-2024-08-06", "ft:gpt-4o-mini:org::id", "deepseek-ai/DeepSeek-V3", "meta-llama/Llama-3.3-70B-Instruct",
		"accounts/fireworks/models/mixtral8x22b", "deepseek_ai/DeepSeek_V3_0324", "togethercomputer/RedPajama-INCITE-7B", "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
		"task-management-model", "tool_search_tool_regex_20251119", "code_execution_20250825", "/v1/messages/count_tokens", "/v1/chat/completions",
		"0123456789abcdef", "6f1ed002-ab59-4dd1-a7de-0c5f0a0e2c11", "cache_creation_input_tokens", "ASIA-pacific-southeast-1", "eyJ", "Basic plans",
		"must read: Bearer <key>", "2147483647214748364721474836472147483647", strings.Repeat("a", 300),
	} {
		if got := llm.Blot(name); got != name {
			t.Errorf("%q becomes %q", name, got)
		}
	}
}

// What a client sends is looked through once, however it is made.
func TestBlotIsLinear(t *testing.T) {
	for _, piece := range []string{"aaaaaaaaaaaaaaaaa_", "_", "a/", "sk-", "Basic ", "AKIA", "eyJ.", "-----BEGIN", "1234567890/"} {
		text := strings.Repeat(piece, 1<<20)
		if got := llm.Blot(text); len(got) > len(text) {
			t.Errorf("%q grows", piece)
		}
		llm.Quote(text, 64)
	}
}

// A secret is hidden before the text is cut, so that no piece of it is left.
func TestQuote(t *testing.T) {
	for text, want := range map[string]string{
		"gpt-9":                           `"gpt-9"`,
		"a\"b\n":                          `"a\"b\n"`,
		"0123456789 AKIAIOSFODNN7EXAMPLE": `"0123456789 AKIA[hidd"`,
		"01234567890123 wJalrXUtnFEMIK7MDENGbPxRf":               `"01234567890123 [hidd"`,
		strings.Repeat("Secret12", 17) + " AKIAIOSFODNN7EXAMPLE": `"[hidden] "`,
	} {
		if got := llm.Quote(text, 20); got != want {
			t.Errorf("%q is quoted as %s, want %s", text, got, want)
		}
	}
}

func TestUnquoted(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "",
		"no quotes":                          "no quotes",
		`model "gpt-9" does not exist`:       "model … does not exist",
		`"a\"b" reads like b, "\\" like "c"`: "… reads like b, … like …",
		`an open "quote \" that was cut`:     "an open …",
	} {
		if got := llm.Unquoted(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
