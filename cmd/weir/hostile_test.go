package main

import (
	"context"
	"encoding/binary"
	"flag"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/load"
	"github.com/weir-gateway/weir/sdk/abi"
)

// Addresses of a hostile module's buffers.
const (
	hostileRequest  = 0x1000
	hostileResponse = 0x2000
)

// hostile is a policy module around the body of weir_decide, without its end; more are bodies of further functions, of
// type ()->(), from index 4.
func hostile(decide []byte, more ...[]byte) []byte {
	sized := func(b []byte) []byte { return append(binary.AppendUvarint(nil, uint64(len(b))), b...) }
	constant := func(v int64) []byte { return append([]byte{0x41}, signed(v)...) }
	bodies := [][]byte{decide, constant(abi.Version), constant(hostileRequest), constant(hostileResponse)}
	types, exports := []byte{0, 0, 0, 0}, []byte{5}
	for i, name := range []string{abi.ExportDecide, abi.ExportVersion, abi.ExportRequest, abi.ExportResponse} {
		exports = append(append(exports, sized([]byte(name))...), 0, byte(i))
	}
	exports = append(append(exports, sized([]byte(abi.ExportMemory))...), 2, 0)
	for _, body := range more {
		bodies, types = append(bodies, body), append(types, 1)
	}
	code := []byte{byte(len(bodies))}
	for _, body := range bodies {
		code = append(code, sized(append(append([]byte{1, 1, 0x7f}, body...), 0x0b))...) // one local, an i32
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range []struct {
		id      byte
		content []byte
	}{{1, []byte{2, 0x60, 0, 1, 0x7f, 0x60, 0, 0}}, {3, append([]byte{byte(len(types))}, types...)}, {5, []byte{1, 1, 1, 16}}, {7, exports}, {10, code}} {
		out = append(append(out, s.id), sized(s.content)...)
	}
	return out
}

// signed writes a signed LEB128 that is not negative.
func signed(v int64) (out []byte) {
	for ; v > 0x3f; v >>= 7 {
		out = append(out, byte(v)|0x80)
	}
	return append(out, byte(v))
}

// sparing makes body run once in 32 requests, which is too rare to put a module out of service (but by chance: entropy is
// random); in the others it burns nearly all its fuel and abstains.
func sparing(body []byte) []byte {
	at := signed(hostileRequest + abi.ReqEntropy)
	out := append(append([]byte{0x41}, at...), 0x28, 2, 0, 0x41, 32, 0x70, 0x45, 0x04, 0x40)
	out = append(append(out, body...), 0x0f, 0x0b)
	out = append(append(out, 0x41), signed(25_000)...)
	return append(out, 0x21, 0, 0x03, 0x40, 0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0, 0x0b, 0x41, abi.Abstained)
}

// hostiles are the bodies of weir_decide that P01 names, and the functions they call.
func hostiles() map[string][2][][]byte {
	call, doubles := []byte{0x10, 4, 0x41, 0}, [][]byte(nil)
	for i := range byte(40) {
		doubles = append(doubles, []byte{0x10, 5 + i, 0x10, 5 + i})
	}
	return map[string][2][][]byte{
		"endless loop":        {{{0x03, 0x40, 0x0c, 0, 0x0b, 0x41, 0}}},
		"exponential calls":   {{call}, append(doubles, []byte{0x01})},
		"memory.fill":         {{{0x03, 0x40, 0x41, 0, 0x41, 7, 0x41, 0x80, 0x80, 4, 0xfc, 11, 0, 0x0c, 0, 0x0b, 0x41, 0}}}, // 64 KiB each time
		"unbounded recursion": {{call}, {{0x10, 4}}},
	}
}

const outOfFuel = `weir_policy_faults_total{kind="out_of_fuel"}`

var long = flag.Bool("long", false, "measure for longer and hold every bound without slack: for a machine with nothing else to do")

// fight is a gateway with two orgs: the first one's module is hostile, the second one is timed.
type fight struct {
	p           *process
	admin       remote
	enemy, peer string // keys
}

func newFight(t *testing.T) *fight {
	t.Helper()
	p := serve(t, "policies: {module: default, header: true, labels: [{name: tier, source: key}, {name: soft, source: key}, {name: hot, source: model}]}\n")
	f := &fight{p: p, enemy: p.key(), admin: remote{app: (&console{}).app(p.env), url: p.env["WEIR_ADMIN_URL"], token: testToken}}
	must(t, p.env, "org", "create", "--name", "Other")
	must(t, p.env, "user", "create", "--org-id", "2", "--name", "bob", "--balance", "100")
	f.peer = p.object("key", "create", "--user-id", "2", "--name", "other")["plaintext"].(string)
	return f
}

func (f *fight) do(t *testing.T, method, path, body, kind string) string {
	t.Helper()
	out, err := f.admin.do(t.Context(), method, path, []byte(body), kind)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return string(out)
}

// bind has a module (empty: none) decide for the enemy's org.
func (f *fight) bind(t *testing.T, module string) {
	t.Helper()
	name := "null"
	if module != "" {
		name = `"` + module + `"`
	}
	f.do(t, http.MethodPut, "/admin/bindings", `{"owner":"org:1","module":`+name+`}`, "application/json")
}

// attack sends a key's requests at a pace.
func (f *fight) attack(ctx context.Context, t *testing.T, key string, window time.Duration) *load.Result {
	const rate = 300
	r, err := load.Attack(ctx, load.Options{Base: f.p.env["WEIR_URL"], Key: key, Model: "gpt-4o-mini", Total: max(1, int(rate*window/time.Second)),
		Concurrency: 4, Rate: rate, MaxTokens: 16, Timeout: 10 * time.Second}, llm.NewSystemClock())
	if err != nil {
		t.Error(err)
		return &load.Result{}
	}
	if len(r.ByStatus) != 1 || r.ByStatus["200"] == 0 {
		t.Errorf("answers by status: %v (%s)", r.ByStatus, r.FirstError)
	}
	return r
}

// round gives the peer's latency while the enemy sends as many requests with its module as without.
func (f *fight) round(t *testing.T, module string, window time.Duration) load.Latency {
	t.Helper()
	f.bind(t, module)
	ended := make(chan struct{})
	go func() {
		f.attack(t.Context(), t, f.enemy, window)
		close(ended)
	}()
	r := f.attack(t.Context(), t, f.peer, window)
	<-ended
	return r.Latency
}

// metric is a number among the gateway's metrics.
func (p *process) metric(t *testing.T, name string) int {
	t.Helper()
	_, rest, _ := strings.Cut(p.admin(t, "/metrics"), "\n"+name+" ")
	text, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("metric %s: %v", name, err)
	}
	return n
}

// TestP01HostileModuleOverHTTP: an org whose module hangs, in every request until it is put out of service or rarely
// enough to stay in it, has its requests answered by on_error, and moves the p99 of another org's requests by 5 ms at
// most. Ten times that is let pass but under -long, for other load.
func TestP01HostileModuleOverHTTP(t *testing.T) {
	f, window, most := newFight(t), 500*time.Millisecond, 50.0
	if *long {
		window, most = 5*time.Second, 5
	}
	for name, parts := range hostiles() {
		for way, body := range map[string][]byte{"always": parts[0][0], "sparing": sparing(parts[0][0])} {
			t.Run(name+"/"+way, func(t *testing.T) {
				module := strings.NewReplacer(" ", "-", ".", "-").Replace(name + "-" + way)
				f.do(t, http.MethodPost, "/admin/policies?name="+module+"&profile=small", string(hostile(body, parts[1]...)), "application/wasm")
				faults, quarantined := f.p.metric(t, outOfFuel), f.p.metric(t, "weir_policy_quarantined_total")
				best := math.Inf(1)
				for range 3 { // other load may move one
					without := f.round(t, "", window)
					with := f.round(t, module, window)
					best = min(best, with.P99-without.P99)
					t.Logf("p50 %.2f ms, %.2f beside it; p99 %.2f ms, %.2f beside it", without.P50, with.P50, without.P99, with.P99)
					if best <= 5 {
						break
					}
				}
				if best > most {
					t.Errorf("p99 moved by %.2f ms, want <= 5 ms", best)
				}
				faults, quarantined = f.p.metric(t, outOfFuel)-faults, f.p.metric(t, "weir_policy_quarantined_total")-quarantined
				t.Logf("%d requests ran out of fuel, the module was put out of service %d times", faults, quarantined)
				if way == "always" && (faults == 0 || quarantined == 0) {
					t.Error("it is still in service")
				}
			})
		}
	}
	f.p.kill()
	f.p.verify()
}
