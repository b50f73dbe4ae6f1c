package llm_test

import (
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
		"Bearer sk-proj-AbC_dEf-123, so": "Bearer sk-[hidden], so",
		"sk-short":                       "sk-short",
		"sk-sk-short":                    "sk-[hidden]",
		"task-management-model":          "task-management-model",
		"ask-" + key:                     "ask-sk-[hidden]",
		"risk-" + key[8:]:                "risk-" + key[8:],
		"sk-":                            "sk-",
	} {
		if got := llm.Blot(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
