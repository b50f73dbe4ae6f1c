package policy

import (
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// The profiles a module can be added under.
const (
	ProfileSmall = "small" // C, Rust, AssemblyScript; the default and all a tenant may use
	ProfileLarge = "large" // standard Go, with the WASI stub; operators only
)

// profile is everything that bounds a module: what it may be made of, and what a call may cost. The numbers keep
// the decoder and the compiler below from being killed by small inputs, and one call's stall below a stated time. The
// child's own limits are far above what the caps leave possible: a module of profile small that is refused has taken 13
// MiB of memory there as a rule, program included, and 50 if it is all code; standard Go takes several times that.
type profile struct {
	name      string
	bytes     int    // of the upload
	pages     uint32 // of memory, 64 KiB each
	fuel      int64  // per call of weir_decide
	startFuel int64  // for instantiation, and again for each call made before the first decision

	functions int // imported and defined
	body      int // bytes of one function body
	nesting   int // blocks inside blocks of one function
	locals    int // of one function, parameters included
	allLocals int // of all functions together: a decoder spreads them out
	brTable   int // targets of one br_table
	allTables int // targets of all of them together: each becomes code of its own in the compiler
	types     int
	globals   int
	exports   int
	segments  int    // element and data segments together; Go's linker makes one for each run without zeros
	tables    int    // tables of one module
	table     uint32 // elements of one table

	code    int64 // bytes of machine code
	wasi    bool
	cpuS    uint64        // seconds of CPU of one run of the child
	wall    time.Duration // of one run: at nice 19 a busy machine gives it a part of its time only
	childMB uint64        // address space the child may add to what it starts with
}

// profileOf gives the caps of a profile; an empty name is the small one.
func profileOf(name string) (*profile, error) {
	switch name {
	case "", ProfileSmall:
		return &profile{
			name: ProfileSmall, bytes: 256 << 10, pages: 16, fuel: 200_000, startFuel: 5_000_000,
			functions: 2_000, body: 32 << 10, nesting: 64, locals: 256, allLocals: 64 << 10, brTable: 512, allTables: 64 << 10,
			types: 500, globals: 500, exports: 64, segments: 256, tables: 4, table: 1_024,
			code: 16 << 20, wall: 30 * time.Second, cpuS: 5, childMB: 256,
		}, nil
	case ProfileLarge:
		return &profile{
			name: ProfileLarge, bytes: 8 << 20, pages: 256, fuel: 1_000_000, startFuel: 50_000_000,
			functions: 20_000, body: 1 << 20, nesting: 1_024, locals: 4_096, allLocals: 1 << 20, brTable: 4_096, allTables: 1 << 20,
			types: 4_000, globals: 2_000, exports: 256, segments: 65_536, tables: 4, table: 65_536,
			code: 128 << 20, wasi: true, wall: 90 * time.Second, cpuS: 30, childMB: 2_048,
		}, nil
	}
	return nil, llm.Invalid("profile", "unknown profile %q: want %q or %q", name, ProfileSmall, ProfileLarge)
}

// within refuses n over a cap. What names the thing and the place, e.g. "function 12: locals".
func (p *profile) within(n, limit int, what string, args ...any) error {
	if n <= limit {
		return nil
	}
	return refuse(what+": %d, the cap of profile %s is %d", append(args, n, p.name, limit)...)
}

// refuse is the one shape of a refused module: a client error about the upload.
func refuse(format string, args ...any) error {
	e := llm.Invalid("module", "policy module refused: "+format, args...)
	e.Code = "policy_module_refused"
	return e
}

// asRefusal makes what a reader met a refusal.
func asRefusal(err error) error {
	if _, ok := err.(*llm.Error); ok || err == nil {
		return err
	}
	return refuse("%s", err)
}
