//go:build goexperiment.jsonv2

package llm_test

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// One parse, one truth, as TestOneParseOneTruth, against encoding/json/v2 in its strictest reading. That refuses two things more:
// any name that comes twice, and half a surrogate pair. The scanner lets them pass where they name and decide nothing.
func TestOneParseOneTruthV2(t *testing.T) {
	for seed := range uint64(mutators) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			m := mutator{rand.New(rand.NewPCG(3, seed))}
			var accepted, done int
			for began := time.Now(); !enough(t, done, began); done++ {
				ep := llm.Endpoint(m.IntN(6) + 1)
				accepted += compareV2(t, ep, m.body(ep))
			}
			bothSides(t, done, accepted)
		})
	}
}

var (
	twice = jsontext.AllowDuplicateNames(true)
	half  = jsontext.AllowInvalidUTF8(true)

	halfPair = regexp.MustCompile(`(?i)\\ud[89a-f]`)
	deciding = []jsontext.Pointer{"/model", "/stream", "/n", "/best_of", "/max_tokens", "/max_completion_tokens", "/max_output_tokens", "/stream_options",
		"/stream_options/include_usage", "/messages", "/input", "/prompt", "/tools", "/user", "/metadata/user_id", "/service_tier"}
)

// compareV2 holds the scanner against encoding/json/v2 on one body; 1 when it is accepted.
func compareV2(t *testing.T, ep llm.Endpoint, body []byte) int {
	t.Helper()
	var h llm.Head
	refused := llm.ScanHead(ep, body, &h)
	tree, err := treeV2(body)
	if refused != nil {
		var e *llm.Error
		if err == nil && tree != nil && (!errors.As(refused, &e) || !reason(ep, body, tree, e.Param)) {
			t.Errorf("%s: refused without a reason: %v\n%q", ep.Path(), refused, body)
		}
		return 0
	}
	if err != nil {
		if _, err := treeV2(body, twice); err != nil && !halfPair.Match(body) {
			t.Errorf("%s: accepted, and encoding/json/v2 says %v\n%q", ep.Path(), err, body)
		}
		var at *jsontext.SyntacticError
		if _, err := treeV2(body, half); err != nil && (!errors.Is(err, jsontext.ErrDuplicateName) || !errors.As(err, &at) || slices.Contains(deciding, at.JSONPointer)) {
			t.Errorf("%s: accepted, and encoding/json/v2 says %v\n%q", ep.Path(), err, body)
		}
		if tree, err = treeV2(body, twice, half); err != nil {
			t.Errorf("%s: accepted, and encoding/json/v2 says %v\n%q", ep.Path(), err, body)
		}
	}
	var seen parsed
	if err := json.Unmarshal(body, &seen, twice, half); err != nil || seen.Model == nil {
		t.Errorf("%s: accepted, and encoding/json/v2 says %v\n%q", ep.Path(), err, body)
		return 0
	}
	seen.is(t, "encoding/json/v2", &h, body, tree)
	return 1
}

func treeV2(body []byte, lax ...json.Options) (tree map[string]jsontext.Value, err error) {
	err = json.Unmarshal(body, &tree, lax...)
	return tree, err
}
