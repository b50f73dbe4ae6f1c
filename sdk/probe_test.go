package sdk_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/weir-gateway/weir/sdk"
	"github.com/weir-gateway/weir/sdk/abi"
)

// TestProbe proves each guest SDK from the host's side: it writes facts into a probe module's memory as the ABI says, and
// reads the decision back, with nothing of the gateway in between.
func TestProbe(t *testing.T) {
	t.Parallel()
	for _, lang := range sdk.Languages() {
		t.Run(lang, func(t *testing.T) {
			wasm, ok := probeModule(t, lang)
			if !ok {
				return
			}
			p := newProbe(t, lang, wasm)
			if lang == sdk.AssemblyScript {
				t.Run("explanation", func(t *testing.T) { testExplanation(t, p) })
			}
			for name, test := range map[string]func(*testing.T, *probe){
				"configuration": testConfiguration, "attributes": testAttributes, "facts": testFacts, "decision": testDecision,
				"denial": testDenial, "room": testRoom, "log": testLog,
			} {
				t.Run(name, func(t *testing.T) { test(t, p) })
			}
		})
	}
}

// probe is a compiled module, run with nothing of the gateway.
type probe struct {
	rt     wazero.Runtime
	code   wazero.CompiledModule
	logged *bytes.Buffer
}

func probeModule(t *testing.T, lang string) ([]byte, bool) {
	t.Helper()
	if lang != sdk.AssemblyScript {
		return module(t, "testdata/probe", lang)
	}
	wasm, err := os.ReadFile("assemblyscript/testdata/probe/probe.wasm") // built and compared with the shipped policies
	if err != nil {
		t.Fatal(err)
	}
	return wasm, true
}

func newProbe(t *testing.T, lang string, wasm []byte) *probe {
	t.Helper()
	var err error
	ctx, pages := context.Background(), uint32(16)
	if lang == sdk.Go {
		pages = 256
	}
	p := &probe{logged: new(bytes.Buffer)}
	p.rt = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(api.CoreFeaturesV2).WithMemoryLimitPages(pages))
	t.Cleanup(func() { _ = p.rt.Close(ctx) })
	_, err = p.rt.NewHostModuleBuilder(abi.ImportModule).NewFunctionBuilder().WithFunc(
		func(_ context.Context, m api.Module, level, ptr, n uint32) {
			line, _ := m.Memory().Read(ptr, n)
			p.logged.WriteByte('0' + byte(level))
			p.logged.Write(line)
		}).Export(abi.ImportLog).Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	wasi_snapshot_preview1.MustInstantiate(ctx, p.rt)
	if p.code, err = p.rt.CompileModule(ctx, wasm); err != nil {
		t.Fatal(err)
	}
	return p
}

// guest is one instance of the probe.
type guest struct {
	t        testing.TB
	mod      api.Module
	req, res uint32
}

// load gives an instance that was configured with nothing.
func (p *probe) load(t testing.TB) *guest {
	t.Helper()
	g := p.instance(t)
	if code := g.configure(`{}`); code != 0 {
		t.Fatalf("an empty configuration was refused with %d", code)
	}
	return g
}

func (p *probe) instance(t testing.TB) *guest {
	t.Helper()
	ctx, g := context.Background(), &guest{t: t}
	p.logged.Reset()
	var err error
	if g.mod, err = p.rt.InstantiateModule(ctx, p.code, wazero.NewModuleConfig().WithName("").WithStartFunctions()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.mod.Close(ctx) })
	if g.mod.ExportedFunction(abi.ExportInitialize) != nil {
		g.call(abi.ExportInitialize)
	}
	if v := g.call(abi.ExportVersion); v != abi.Version {
		t.Fatalf("ABI version %#x", v)
	}
	g.req, g.res = g.call(abi.ExportRequest), g.call(abi.ExportResponse)
	if g.req%abi.BufferAlign != 0 || g.res%abi.BufferAlign != 0 || g.res < g.req+abi.RequestSize && g.req < g.res+abi.ResponseSize {
		t.Fatalf("request at %d, response at %d", g.req, g.res)
	}
	return g
}

func (g *guest) call(name string, args ...uint64) uint32 {
	g.t.Helper()
	r, err := g.mod.ExportedFunction(name).Call(context.Background(), args...)
	if err != nil {
		g.t.Fatalf("%s: %v", name, err)
	}
	if len(r) == 0 {
		return 0
	}
	return uint32(r[0])
}

func (g *guest) configure(json string) uint32 {
	g.t.Helper()
	at := g.call(abi.ExportParamsBuffer, uint64(len(json)))
	if at == 0 || !g.mod.Memory().WriteString(at, json) {
		g.t.Fatalf("no room for %d bytes of configuration", len(json))
	}
	return g.call(abi.ExportConfigure, uint64(len(json)))
}

// decide runs one call with attributes and further facts, over a response full of rubbish.
func (g *guest) decide(attrs map[int]string, more func(req []byte)) (code uint32, res []byte) {
	g.t.Helper()
	req := make([]byte, abi.RequestSize)
	end := abi.ReqStrings
	for i, s := range attrs {
		binary.LittleEndian.PutUint32(req[abi.ReqAttrs+abi.AttrSize*i:], uint32(end))
		binary.LittleEndian.PutUint32(req[abi.ReqAttrs+abi.AttrSize*i+4:], uint32(len(s)))
		end += copy(req[end:], s)
	}
	if more != nil {
		more(req)
	}
	mem := g.mod.Memory()
	mem.Write(g.req, req)
	mem.Write(g.res, bytes.Repeat([]byte{0xee}, abi.ResponseSize))
	code = g.call(abi.ExportDecide)
	res, _ = mem.Read(g.res, abi.ResponseSize)
	return code, bytes.Clone(res)
}

// run is decide for one of the probe's commands.
func (g *guest) run(command string) (code uint32, res []byte) {
	g.t.Helper()
	return g.decide(map[int]string{abi.AttrModel: command, abi.AttrKeyName: "k1", abi.AttrEndUser: "grüße 😀 x"}, nil)
}

func testConfiguration(t *testing.T, p *probe) {
	g := p.instance(t)
	const tiers = `{"tiers":["a","b"], "labels":["x","y"] , "params":`
	if code := g.configure(tiers + ` { "text" : "a\"b\\c\/\b\f\n\r\t\u00e9\uD83D\ude00\u0001", "number":-1234567890123,
		"fraction":1.5, "big":99999999999999999999, "yes":true,"no":false, "none":null,
		"list":[1,{"deep":["{[\"", "}]"]},[]],"empty":{} } }`); code != 0 {
		t.Errorf("code %d", code)
	}
	if code := p.instance(t).configure(tiers + `{"text":"other"}}`); code != 1 {
		t.Errorf("code %d for a text that differs", code)
	}
	if code := p.instance(t).configure(`{}`); code != 0 {
		t.Errorf("code %d for an empty configuration", code)
	}
	for _, broken := range []string{``, `{`, `{"params`, `{"params":`, `{"params":{"text":"a\`, `{"params":{"list":[1,`, `[`, `"`} {
		p.instance(t).configure(broken) // any code will do, so long as it ends
	}
	if at := g.call(abi.ExportParamsBuffer, abi.ParamsMax+1); at != 0 {
		t.Errorf("a buffer for more than %d bytes at %d", abi.ParamsMax, at)
	}
	big := tiers + `{"pad":"` + string(bytes.Repeat([]byte("x"), abi.ParamsMax-200)) + `"}}`
	if code := p.instance(t).configure(big); code != 1 {
		t.Errorf("code %d for a large configuration", code)
	}
}

func testAttributes(t *testing.T, p *probe) {
	g := p.load(t)
	if code, _ := g.run("match"); code != 1<<8|1|2|8|16|64 {
		t.Errorf("comparisons gave %b", code)
	}
	for text, want := range map[string]uint32{"": 16 | 128, "false": 16, "no": 16, "off": 16, "0": 16, "01": 16 | 64, "gr": 16 | 64, "grü\xc3": 16 | 64} {
		if code, _ := g.decide(map[int]string{abi.AttrModel: "match", abi.AttrEndUser: text}, nil); code != 1<<8|want {
			t.Errorf("comparisons of %q gave %b, want %b", text, code, 1<<8|want)
		}
	}
}

func testFacts(t *testing.T, p *probe) {
	g := p.load(t)
	code, _ := g.decide(map[int]string{abi.AttrModel: "facts"}, func(req []byte) {
		le := binary.LittleEndian
		le.PutUint64(req[abi.ReqNowMS:], 1_700_000_000_000)
		le.PutUint64(req[abi.ReqEntropy:], 0xfedcba9876543210)
		le.PutUint32(req[abi.ReqFlags:], abi.FlagStream|abi.FlagTools)
		for i, off := range []int{abi.ReqInputTokens, abi.ReqOutputTokensMax, abi.ReqChoices, abi.ReqBodyBytes} {
			le.PutUint32(req[off:], uint32(11+i))
		}
		for i, off := range []int{abi.ReqKeyID, abi.ReqUserID, abi.ReqOrgID} {
			le.PutUint64(req[off:], uint64(15+i))
		}
		for i := range 6 {
			le.PutUint32(req[abi.ReqQPSLimit+4*i:], uint32(18+i))
		}
		for i, n := range []int64{24, 25, -26, 27} {
			le.PutUint64(req[abi.ReqQuotaLimit+8*i:], uint64(n))
		}
		le.PutUint32(req[abi.ReqEndpoint:], abi.EndpointMessages)
		le.PutUint32(req[abi.ReqMinuteOfWeek:], 28)
		le.PutUint16(req[abi.ReqDayOfMonth:], 29)
		le.PutUint16(req[abi.ReqDaysInMonth:], 30)
		le.PutUint32(req[abi.ReqTier:], 31)
		le.PutUint32(req[abi.ReqGeneration:], 32)
	})
	if code != abi.Decided {
		t.Errorf("the probe read other facts: code %d", code)
	}
}

func testDecision(t *testing.T, p *probe) {
	le := binary.LittleEndian
	code, res := p.load(t).run("everything")
	if code != abi.Decided {
		t.Fatalf("code %d", code)
	}
	want := make([]byte, abi.ResponseSize)
	le.PutUint16(want[abi.RespMajor:], abi.Major)
	le.PutUint16(want[abi.RespNDims:], 3)
	want[abi.RespFlags] = abi.RespNoBill | abi.RespNoLimit
	le.PutUint16(want[abi.RespTier:], 2)
	for i, off := range []int{abi.RespQPSMultiplier, abi.RespTPMMultiplier, abi.RespQuotaMultiplier, abi.RespBurst, abi.RespOutputCap, abi.RespPriceMultiplier} {
		le.PutUint32(want[off:], uint32(1001+i))
	}
	le.PutUint64(want[abi.RespOverdraft:], 1<<40)
	arena := "team:k1/üsecond"
	le.PutUint32(want[abi.RespArenaUsed:], uint32(len(arena)))
	copy(want[abi.RespArena:], arena)
	end, team, second := want[abi.RespDims:], want[abi.RespDims+abi.DimSize:], want[abi.RespDims+2*abi.DimSize:]
	end[abi.DimKind], end[abi.DimFlags] = abi.KindEndUser, abi.DimShadow|abi.DimSkipAbsent
	le.PutUint32(end[abi.DimQPSLimit:], 5)
	le.PutUint32(end[abi.DimTPMLimit:], 6)
	team[abi.DimKind], team[abi.DimFlags] = abi.KindCustom, abi.DimCountOnly
	le.PutUint16(team[abi.DimTier:], 1)
	le.PutUint32(team[abi.DimMultiplier:], 7)
	le.PutUint32(team[abi.DimBurst:], 8)
	le.PutUint32(team[abi.DimCostMultiplier:], 9)
	le.PutUint32(team[abi.DimValueOff:], abi.RespArena)
	le.PutUint32(team[abi.DimValueLen:], uint32(len("team:k1/ü")))
	second[abi.DimKind] = abi.KindCustom
	le.PutUint32(second[abi.DimValueOff:], abi.RespArena+uint32(len("team:k1/ü")))
	le.PutUint32(second[abi.DimValueLen:], uint32(len("second")))
	used := abi.RespDims + 3*abi.DimSize
	if !bytes.Equal(res[:used], want[:used]) {
		t.Errorf("response\n% x, want\n% x", res[:used], want[:used])
	}
	if got := res[abi.RespArena:][:len(arena)]; string(got) != arena {
		t.Errorf("arena %q, want %q", got, arena)
	}
}

func testDenial(t *testing.T, p *probe) {
	g, le := p.load(t), binary.LittleEndian
	code, res := g.run("deny")
	off, n := le.Uint32(res[abi.RespMessageOff:]), le.Uint32(res[abi.RespMessageLen:])
	if code != abi.Decided || res[abi.RespVerdict] != abi.VerdictDeny || le.Uint16(res[abi.RespStatus:]) != 429 ||
		le.Uint16(res[abi.RespReason:]) != 7 || le.Uint32(res[abi.RespRetryAfterMS:]) != 1500 || string(res[off:off+n]) != "später 😀" {
		t.Errorf("code %d, response % x", code, res[:abi.RespDims])
	}
	if code, res = g.run("shadow"); code != abi.Decided || res[abi.RespVerdict] != abi.VerdictShadowDeny || le.Uint32(res[abi.RespMessageLen:]) != 0 {
		t.Errorf("code %d, response % x", code, res[:abi.RespDims])
	}
}

// testExplanation: what is allowed can say which rule fired.
func testExplanation(t *testing.T, p *probe) {
	g, le := p.load(t), binary.LittleEndian
	code, res := g.run("explain")
	off, n := le.Uint32(res[abi.RespMessageOff:]), le.Uint32(res[abi.RespMessageLen:])
	if code != abi.Decided || res[abi.RespVerdict] != abi.VerdictAllow || le.Uint16(res[abi.RespReason:]) != 9 ||
		le.Uint32(res[abi.RespQPSMultiplier:]) != 500 || string(res[off:off+n]) != "Nachtrabatt ☾" {
		t.Errorf("code %d, response % x", code, res[:abi.RespDims])
	}
}

// testRoom: what fits exactly is accepted; one more is a guest error, and the response stays well-formed.
func testRoom(t *testing.T, p *probe) {
	g, le := p.load(t), binary.LittleEndian
	for command, want := range map[string]uint32{"full": abi.Decided, "overfull": 2, "arena": abi.Decided, "arena overfull": 2} {
		code, res := g.run(command)
		if code != want || le.Uint16(res[abi.RespNDims:]) > abi.MaxDims || le.Uint32(res[abi.RespArenaUsed:]) > abi.ArenaSize {
			t.Errorf("%s: code %d, want %d; %d dimensions, %d bytes", command, code, want, le.Uint16(res[abi.RespNDims:]), le.Uint32(res[abi.RespArenaUsed:]))
		}
		if command == "overfull" && res[abi.RespArena] != 0xee {
			t.Error("a 17th dimension was written into the arena")
		}
	}
	if code, _ := g.run("unknown"); code != abi.Abstained {
		t.Errorf("code %d after the errors", code)
	}
}

func testLog(t *testing.T, p *probe) {
	g := p.load(t)
	g.run("log")
	if got := p.logged.String(); got != "2straße 😀" {
		t.Errorf("logged %q", got)
	}
}
