package policy

import (
	"strings"
	"testing"
)

// What a schema refuses is said where it is, what was expected, and which name was meant: without the words of the validator.
func TestMisfits(t *testing.T) {
	const schema = `{"type":"object","additionalProperties":false,"required":["mode"],"properties":{
		"mode":{"enum":["first","all"]},
		"rules":{"type":"array","maxItems":2,"uniqueItems":true,"items":{"$ref":"#/$defs/rule"}},
		"labels":{"type":"object","propertyNames":{"maxLength":9},"additionalProperties":{"type":"integer","exclusiveMinimum":0,"maximum":5}},
		"kind":{"const":"x"},"odd":{"not":{"const":3}},"text":{"type":["string","null"],"maxLength":3},"code":{"pattern":"^a+$"}},
		"$defs":{"rule":{"type":"object","minProperties":1,"additionalProperties":false,"properties":{
			"models":{"$ref":"#/$defs/names","examples":[["gpt-4o"]]},"at":{"$ref":"#/$defs/time","title":"At"}}},
			"names":{"type":"array","minItems":1},
			"time":{"pattern":"^..:..$","description":"A time as HH:MM. Of the day.","examples":["08:30"]}}}`
	for params, want := range map[string]string{
		`{}`:                             `params: needs "mode"`,
		`{"mode":"frist"}`:               `params: mode: expected "first" or "all"; got "frist"; did you mean "first"?`,
		`{"mode":"all","rules":1}`:       `params: rules: expected a list; got 1`,
		`{"mode":"all","rules":[{},{}]}`: `params: rules: the elements 0 and 1 are the same; rules[0]: expected at least 1 member of at, models; got {}; rules[1]: expected at least 1 member of at, models; got {}`,
		`{"mode":"all","rules":[{"model":["x"]}]}`:             `params: rules[0].model: unknown; did you mean "models"?`,
		`{"mode":"all","rules":[{"colour":1}]}`:                `params: rules[0].colour: unknown; known are at, models`,
		`{"mode":"all","rules":[{"models":"x<y"}]}`:            `params: rules[0].models: expected a list, such as ["gpt-4o"]; got "x<y"`,
		`{"mode":"all","rules":[{"models":[]}]}`:               `params: rules[0].models: expected a list of at least 1 element, such as ["gpt-4o"]; got []`,
		`{"mode":"all","rules":[{"at":"8:30"}]}`:               `params: rules[0].at: expected a time as HH:MM, such as "08:30"; got "8:30"`,
		`{"mode":"all","labels":{"a b":7}}`:                    `params: labels["a b"]: expected a whole number above 0 to 5; got 7`,
		`{"mode":"all","labels":{"0123456789":1}}`:             `params: labels: the name "0123456789" is too long, empty or otherwise not allowed`,
		`{"mode":"all","kind":"y"}`:                            `params: kind: expected "x"; got "y"`,
		`{"mode":"all","odd":3}`:                               `params: odd: expected another value; got 3`,
		`{"mode":"all","text":"abcd"}`:                         `params: text: expected text of at most 3 characters, got 4`,
		`{"mode":"all","text":5}`:                              `params: text: expected null or a text; got 5`,
		`{"mode":"all","code":"b"}`:                            `params: code: expected text that matches ^a+$; got "b"`,
		`{"mode":"all","a":1,"b":1,"c":1,"d":1,"e":1,"rrr":1}`: `; and 1 more`,
	} {
		err := checkParams([]byte(schema), []byte(params))
		if err == nil || !strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), "weir:schema") {
			t.Errorf("%s:\ngave %v\nwant %s", params, err, want)
		}
	}
	if err := checkParams([]byte(schema), []byte(`{"mode":"all","rules":[{"at":"08:30"}]}`)); err != nil {
		t.Error(err)
	}
}

// A schema that a stranger wrote makes no long message.
func TestMisfitsAreShort(t *testing.T) {
	long := strings.Repeat("ü", 10_000)
	for _, schema := range []string{
		`{"properties":{"a":{"pattern":"^$","description":"` + long + `","examples":["` + long + `"]}}}`,
		`{"additionalProperties":false,"properties":{"` + long + `":{}}}`,
		`{"properties":{"a":{"enum":["x` + long + `"]}}}`,
		`{"propertyNames":{"maxLength":0}}`,
	} {
		if err := checkParams([]byte(schema), []byte(`{"a":"`+long+`"}`)); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%.60s: %.200v", schema, err)
		}
	}
}

// What is no schema is said like what does not fit one: the place, and what is allowed there.
func TestASchemaThatIsNone(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"objekt"}`: `type: expected "array", "boolean", "integer", "null", "number", "object" or "string"; got "objekt"; did you mean "object"?`,
		`{"type":"object","properties":{"cap":{"type":"int"}}}`: `properties.cap.type: expected`,
		`{"properties":{"cap":{"minimum":"1"}}}`:                `properties.cap.minimum: expected a number; got "1"`,
		`{"required":"cap"}`:                                    `required: expected a list; got "cap"`,
		`{"properties":[]}`:                                     `properties: expected an object; got []`,
	} {
		err := checkParams([]byte(schema), nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n#") {
			t.Errorf("%s: %v, want %q", schema, err, want)
		}
	}
}
