package policy

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

// specFiles are the binaries of the WebAssembly specification's tests, which ship inside the wazero module.
func specFiles(t *testing.T) []string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatalf("find the wazero module: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "internal/integration_test/spectest/*/testdata/*.wasm"))
	if err != nil || len(files) < 5000 {
		t.Fatalf("%d spec-test binaries, want thousands (%v)", len(files), err)
	}
	return files
}

// generous has no caps that a spec test could meet: what it refuses it refuses on principle.
func generous() *profile {
	const much = 1 << 24
	return &profile{name: "generous", bytes: much, pages: 1 << 16, fuel: 1 << 40, startFuel: 1 << 40, functions: much,
		body: much, nesting: much, locals: 1 << 16, allLocals: much, brTable: 1 << 16, allTables: much, types: much, globals: much,
		exports: much, segments: much, tables: much, table: 1 << 31}
}

// onPrinciple are refusals of valid modules: what policies may not do whatever the caps are.
func onPrinciple(err error) bool {
	for _, why := range []string{"only functions can be imported", "SIMD is not allowed", "only imported globals could be read"} {
		if strings.Contains(err.Error(), why) {
			return true
		}
	}
	return false
}

// TestSpecMeteringKeepsTheModule: what was valid stays valid, what was invalid is refused or stays invalid, and a
// metered module computes what the plain one does.
func TestSpecMeteringKeepsTheModule(t *testing.T) {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCoreFeatures(api.CoreFeaturesV2.SetEnabled(api.CoreFeatureSIMD, false)))
	defer rt.Close(ctx)
	var seen specCounts
	for i, file := range specFiles(t) {
		if !*long && i%5 != 0 {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		suite := filepath.Base(filepath.Dir(filepath.Dir(file)))
		seen.proposal = suite != "v1" && suite != "v2"
		if err := seen.check(ctx, rt, src); err != nil {
			t.Errorf("%s/%s: %v", suite, filepath.Base(file), err)
		}
	}
	t.Logf("%+v", seen)
	if seen.valid == 0 || seen.invalid == 0 || seen.calls == 0 {
		t.Error("too little was compared")
	}
}

// specCounts is what was met. Binaries of a proposal beyond 2.0 may be refused whatever the compiler thinks of them.
type specCounts struct {
	proposal                                              bool
	valid, invalid, principle, run, calls, traps, endless int
}

func (s *specCounts) check(ctx context.Context, rt wazero.Runtime, src []byte) error {
	plain, plainErr := rt.CompileModule(ctx, src)
	if plainErr == nil {
		defer plain.Close(ctx)
	}
	m, err := parse(src, generous())
	var metered []byte
	if err == nil {
		metered, err = m.meter()
	}
	switch {
	case err != nil && plainErr != nil:
		s.invalid++
		return nil
	case err != nil && (s.proposal || onPrinciple(err)):
		s.principle++
		return nil
	case err != nil:
		return fmt.Errorf("valid, but refused: %w", err)
	}
	code, err := rt.CompileModule(ctx, metered)
	switch {
	case err != nil && plainErr != nil:
		s.invalid++
		return nil
	case err != nil:
		return fmt.Errorf("valid, but its metered form is not: %w", err)
	case plainErr != nil:
		return fmt.Errorf("metering made an invalid module valid; it was: %w", plainErr)
	}
	defer code.Close(ctx)
	s.valid++
	if len(m.imports) > 0 {
		return nil
	}
	return s.compare(ctx, rt, plain, code, len(m.memories) > 0)
}

// compare calls every export of simple parameters on both and wants the same results or traps, and fuel gone.
func (s *specCounts) compare(ctx context.Context, rt wazero.Runtime, plain, metered wazero.CompiledModule, memory bool) error {
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	a, errA := rt.InstantiateModule(ctx, plain, config)
	b, errB := rt.InstantiateModule(ctx, metered, config)
	if (errA == nil) != (errB == nil) {
		return fmt.Errorf("plain starts with %v, metered with %v", errA, errB)
	}
	if errA != nil {
		return nil
	}
	defer a.Close(ctx)
	defer b.Close(ctx)
	s.run++
	const plenty = 10_000_000
	fuel := b.ExportedGlobal(abi.ExportFuel).(api.MutableGlobal)
	defs := a.ExportedFunctionDefinitions()
	for _, name := range slices.Sorted(maps.Keys(defs)) {
		def := defs[name]
		args, ok := arguments(def.ParamTypes())
		if !ok {
			continue
		}
		fuel.Set(plenty)
		rb, errB := b.ExportedFunction(name).Call(ctx, args...)
		if left := int64(fuel.Get()); left < 0 {
			s.endless++ // the plain one would run on
			continue
		} else if left == plenty {
			return fmt.Errorf("%s: ran for free", name)
		}
		ra, errA := a.ExportedFunction(name).Call(ctx, args...)
		s.calls++
		if errA != nil || errB != nil {
			s.traps++
			if firstOf(errA) != firstOf(errB) {
				return fmt.Errorf("%s: plain ends with %v, metered with %v", name, firstOf(errA), firstOf(errB))
			}
		}
		if !sameResults(def.ResultTypes(), ra, rb) {
			return fmt.Errorf("%s%v: plain gives %x, metered %x", name, args, ra, rb)
		}
	}
	if memory && a.Memory().Size() < 1<<22 {
		ma, mb := a.Memory(), b.Memory()
		x, _ := ma.Read(0, ma.Size())
		y, _ := mb.Read(0, mb.Size())
		if !bytes.Equal(x, y) {
			return fmt.Errorf("the memories differ afterwards")
		}
	}
	return nil
}

func arguments(types []api.ValueType) ([]uint64, bool) {
	args := make([]uint64, len(types))
	for i, t := range types {
		switch t {
		case api.ValueTypeI32, api.ValueTypeI64:
			args[i] = uint64(i + 3)
		case api.ValueTypeF32:
			args[i] = uint64(math.Float32bits(1.5))
		case api.ValueTypeF64:
			args[i] = math.Float64bits(2.25)
		default:
			return nil, false
		}
	}
	return args, true
}

func firstOf(err error) string {
	if err == nil {
		return ""
	}
	return firstLine(err)
}

// sameResults compares numbers bit by bit; references are addresses and differ.
func sameResults(types []api.ValueType, a, b []uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if types[i] != api.ValueTypeExternref && types[i] != 0x70 && a[i] != b[i] {
			return false
		}
	}
	return true
}

func FuzzParse(f *testing.F) {
	f.Add(guest(sixDims()).configurable(c32(0)).bytes())
	f.Add(recursion(3).bytes())
	f.Add(guest(loop(c32(0), c32(7), c32(9), []byte{opPrefix, 11, 0})).section(abi.SectionCases, "{}").bytes())
	f.Add([]byte(header))
	p, err := profileOf(ProfileSmall)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		before := bytes.Clone(src)
		m, err := parse(src, p)
		if err == nil {
			_ = m.checkABI()
			var metered []byte
			if metered, err = m.meter(); err == nil {
				// The output is well formed for the parser itself, but for the fuel's name.
				if _, err := parse(metered, generous()); err == nil || !strings.Contains(err.Error(), abi.ExportFuel) {
					t.Errorf("metered form: %v", err)
				}
			}
		}
		if _, ok := err.(*llm.Error); err != nil && (!ok || !strings.HasPrefix(err.Error(), "policy module refused: ")) {
			t.Errorf("refusal without a subject: %v", err)
		}
		if !bytes.Equal(before, src) {
			t.Error("the input was changed")
		}
	})
}
