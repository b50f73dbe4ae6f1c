package policy

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/weir-gateway/weir/policies"
	"github.com/weir-gateway/weir/sdk/abi"
)

// entropy is a source of random numbers that are given, and of fixed ones after those.
type entropy struct {
	given []byte
	after *rand.PCG
}

func (e *entropy) Uint64() uint64 {
	if len(e.given) < 8 {
		return e.after.Uint64()
	}
	v := binary.LittleEndian.Uint64(e.given)
	e.given = e.given[8:]
	return v
}

// FuzzDifferential: metered, a module computes what it does as it is, and never for free. The input is a module, or the
// choices that make one of valid code.
func FuzzDifferential(f *testing.F) {
	for _, name := range policies.Names() {
		wasm, _ := policies.Shipped(name)
		f.Add(wasm, uint64(7))
	}
	f.Add(guest(sixDims()).configurable(c32(0)).bytes(), uint64(1))
	f.Add(pack(frames()).bytes(), uint64(2))
	for seed := range uint64(4) {
		given := make([]byte, 8*64)
		rnd := rand.NewPCG(seed, 11)
		for i := 0; i < len(given); i += 8 {
			binary.LittleEndian.PutUint64(given[i:], rnd.Uint64())
		}
		f.Add(given, seed)
	}
	p, err := profileOf(ProfileSmall)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, input []byte, arg uint64) {
		if !bytes.HasPrefix(input, []byte(header)) {
			input = randomModule(rand.New(&entropy{input, rand.NewPCG(1, 2)}))
		}
		m, err := parse(input, p)
		if err != nil {
			return
		}
		metered, err := m.meter()
		if err != nil {
			return
		}
		sameFate(t, input, metered, len(m.memories) == 1 && !m.runsOrGrows(), func(x *pair) { x.exercise(t, m, p.fuel, arg) })
	})
}

// runsOrGrows reports that a module has start code, which nothing would stop in its plain form, or memories and tables
// that the profile cuts to another size.
func (m *module) runsOrGrows() bool {
	for _, s := range m.sections {
		if s.id == secStart {
			return true
		}
	}
	for _, l := range m.memories {
		if !l.bounded || l.max > m.p.pages {
			return true
		}
	}
	for _, l := range m.tables {
		if !l.bounded || l.max > m.p.table {
			return true
		}
	}
	return false
}

// sameFate wants that both are valid and can be instantiated, or neither; then does what is to be done with the two.
func sameFate(t *testing.T, plain, metered []byte, instantiate bool, then func(*pair)) {
	t.Helper()
	ctx := context.Background()
	rt, cache, err := newRuntime(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close(ctx)
	defer rt.Close(ctx)
	var (
		x     pair
		fails [2]error
	)
	for i, c := range []struct {
		wasm []byte
		to   *api.Module
	}{{plain, &x.plain}, {metered, &x.metered}} {
		code, err := rt.CompileModule(ctx, c.wasm)
		if err == nil && instantiate {
			*c.to, err = rt.InstantiateModule(ctx, code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
		}
		fails[i] = err
	}
	if (fails[0] == nil) != (fails[1] == nil) {
		t.Fatalf("plain: %v, metered: %v", fails[0], fails[1])
	}
	if fails[0] == nil && instantiate {
		then(&x)
	}
}

// exercise calls every export, with numbers that follow from arg, until one needs more than fuel.
func (x *pair) exercise(t *testing.T, m *module, fuel int64, arg uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(arg, 5))
	for _, mod := range []api.Module{x.plain, x.metered} {
		mod.Memory().WriteUint64Le(reqAt+abi.ReqEntropy, arg) // a fact, where the modules of these tests look for it
	}
	for _, e := range m.exports {
		if e.kind != extFunc {
			continue
		}
		var args []uint64
		for _, typ := range []byte(m.typeOf(e.idx).params) {
			switch typ {
			case typeI32:
				args = append(args, uint64(rnd.Uint32()>>rnd.IntN(32)))
			case typeFuncref, typeExternref:
				args = append(args, 0)
			default:
				args = append(args, rnd.Uint64())
			}
		}
		if _, used := x.within(t, fuel, e.name, args...); used > fuel {
			return
		}
	}
}
