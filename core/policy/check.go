package policy

import "context"

// Checked is what a module is made of, held against its profile.
type Checked struct {
	Module    Module       `json:"module"`
	Caps      []CapUse     `json:"caps"`
	Imports   []string     `json:"imports"` // "weir.log (i32, i32, i32)->()"
	Exports   []string     `json:"exports"`
	Sections  []SectionUse `json:"sections"`
	FuelWorst uint64       `json:"fuel_worst"` // of its cases; 0: it has none
	FuelLimit uint64       `json:"fuel_allowed"`
	Cases     []CaseResult `json:"cases"`
}

// CapUse is how much of a cap a module uses.
type CapUse struct {
	Name    string `json:"name"`
	Used    int    `json:"used"`
	Allowed int    `json:"allowed"`
	Where   string `json:"where,omitempty"` // the function with the most
}

// SectionUse is a section's size.
type SectionUse struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

// Check is everything that Add would verify, with the numbers. A refusal is the error that Add would give.
func Check(ctx context.Context, o Options, wasm []byte, profile string) (*Checked, error) {
	return nil, errUnfinished
}

// FunctionHits says how often a function ran.
type FunctionHits struct {
	Index int    `json:"index"`
	Name  string `json:"name"` // from the module's name section or its export; else "func[12]"
	Calls uint64 `json:"calls"`
}

// Cover is RunCases with a count for every function of the module, the module's own cases if none are given. The
// counters exist only in the copy that this runs.
func Cover(ctx context.Context, o Options, wasm []byte, profile string, cases []byte) ([]CaseResult, []FunctionHits, error) {
	return nil, nil, errUnfinished
}
