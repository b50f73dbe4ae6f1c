package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/weir-gateway/weir/sdk/abi"
)

// configuration is what weir_configure is given; it is refused when it is not an object or does not fit.
func configuration(tiers, labels []string, params []byte) ([]byte, error) {
	params, err := paramsOf(params)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // a guest's small JSON reader need not know \u003c
	err = enc.Encode(struct {
		Tiers  []string        `json:"tiers"`
		Labels []string        `json:"labels"`
		Params json.RawMessage `json:"params"`
	}{append([]string{}, tiers...), append([]string{}, labels...), params})
	if err != nil {
		return nil, err
	}
	raw := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	if len(raw) > abi.ParamsMax {
		return nil, fmt.Errorf("params: the configuration is %d bytes, the limit is %d", len(raw), abi.ParamsMax)
	}
	return raw, nil
}

// paramsOf gives params as a JSON object, {} when there are none.
func paramsOf(params []byte) (json.RawMessage, error) {
	params = bytes.TrimSpace(params)
	if len(params) == 0 || string(params) == "null" {
		return json.RawMessage("{}"), nil
	}
	if len(params) > abi.ParamsMax {
		return nil, fmt.Errorf("params: %d bytes, the limit is %d", len(params), abi.ParamsMax)
	}
	if params[0] != '{' || !json.Valid(params) {
		return nil, errors.New("params: want a JSON object")
	}
	return params, nil
}

// sealed loads no schema from anywhere: a module's schema stands alone.
type sealed struct{}

// Load implements jsonschema.URLLoader.
func (sealed) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s: a module's schema must not refer to other documents", url)
}

// CheckSchema says what is wrong with a schema, in one line: the place, and what is allowed there; empty: nothing. For one's own:
// a hostile one is only for the child.
func CheckSchema(schema []byte) error {
	if len(schema) == 0 {
		return nil
	}
	_, _, err := compiled(schema)
	return err
}

func compiled(schema []byte) (doc any, s *jsonschema.Schema, err error) {
	if doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(schema)); err != nil {
		return nil, nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(sealed{})
	const name = "weir:schema"
	if err := c.AddResource(name, doc); err != nil {
		return nil, nil, err
	}
	s, err = c.Compile(name)
	if wrong := new(jsonschema.SchemaValidationError); errors.As(err, &wrong) {
		if e, ok := wrong.Err.(*jsonschema.ValidationError); ok {
			err = fmt.Errorf("no JSON Schema: %s", misfits(nil, doc, e))
		}
	}
	return doc, s, err
}

// checkParams holds params to a module's schema (none: anything goes). Only the child calls it: a hostile schema
// can make validation take for ever.
func checkParams(schema, params []byte) error {
	if len(schema) == 0 {
		return nil
	}
	doc, s, err := compiled(schema)
	if err != nil {
		return fmt.Errorf("section %s: %w", abi.SectionSchema, err)
	}
	if params == nil {
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(params))
	if err != nil {
		return fmt.Errorf("params: %w", err)
	}
	err = s.Validate(value)
	if wrong := new(jsonschema.ValidationError); errors.As(err, &wrong) {
		return fmt.Errorf("params: %s", misfits(doc, value, wrong))
	}
	return err
}
