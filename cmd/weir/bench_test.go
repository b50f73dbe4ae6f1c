package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/bench"
)

// TestBench runs everything for a moment. The numbers are nothing; that there are all of them, that none is absurd and that
// every request was answered well is what counts. What runs beside it may make the run void.
func TestBench(t *testing.T) {
	t.Setenv(asMain, "1") // of the processes it starts
	t.Setenv("TMPDIR", t.TempDir())
	picture := filepath.Join(t.TempDir(), "bench.svg")
	stdout, stderr, code := weir(t, nil, "bench", "--rounds", "1", "--seconds", "0.1", "--json", "--svg", picture)
	var r bench.Result
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("exit %d, %v: %s%s", code, err, stdout, stderr)
	}
	if r.Failed != 0 || r.FirstError != "" {
		t.Errorf("%d requests failed: %s", r.Failed, r.FirstError)
	}
	drawn, _ := os.ReadFile(picture)
	if r.Void == "" && (code != exitDone || !bytes.HasPrefix(drawn, []byte("<svg "))) {
		t.Errorf("exit %d, picture %.20q: %s", code, drawn, stderr)
	}
	if r.Void != "" && (code != exitFail || len(drawn) != 0 || !strings.Contains(stderr, "this run is void: "+r.Void)) {
		t.Errorf("exit %d of a run that is void (%s), picture %.20q: %s", code, r.Void, drawn, stderr)
	}
	plausible(t, &r)
	ratios(t, stdout)
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "weir-bench-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func plausible(t *testing.T, r *bench.Result) {
	for _, target := range []string{"direct", "bare", "process", "power"} {
		for kind, names := range map[string][]string{"buffered": {"rps", "p50_us"}, "streamed": {"rps", "p50_us"}, "rate": {"rps", "p50_us", "p99_us"}, "delay": {"first_us", "event_us"}} {
			for _, name := range names {
				if v := r.Medians[kind][target][name]; v <= 0 || v > 1e7 || len(r.Laps[kind][target]) != 1 {
					t.Errorf("%s of %s: %s is %v, of %d laps", kind, target, name, v, len(r.Laps[kind][target]))
				}
			}
		}
	}
	if v := r.Medians["rate"]["process"]["rps"]; v < 50 || v > 600 {
		t.Errorf("%v requests a second, where 500 were asked for", v)
	}
	for _, name := range []string{"idle_mb", "loaded_mb"} {
		if v := r.Memory[name]; runtime.GOOS == "linux" && (v < 5 || v > 5000) {
			t.Errorf("%s is %v", name, v)
		}
	}
	if len(r.Components) < 16 || len(r.Aims) < 25 {
		t.Errorf("%d components, %d aims", len(r.Components), len(r.Aims))
	}
	for _, c := range r.Components {
		if c.NS <= 0 || c.NS > 1e11 {
			t.Errorf("%+v", c)
		}
	}
}

// ratios checks those that others read, by the name in the JSON; where nginx is missing its ratio is null.
func ratios(t *testing.T, stdout string) {
	var r struct {
		Ratios map[string]*float64
		Void   *string
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || r.Void == nil {
		t.Fatalf("%v, void %v", err, r.Void)
	}
	for _, name := range []string{"buffered_process_vs_bare", "streamed_process_vs_bare", "buffered_power_vs_bare", "buffered_process_vs_nginx"} {
		v, there := r.Ratios[name]
		mayMiss := strings.HasSuffix(name, "nginx") && os.Getenv("CI") != "true"
		if !there || v == nil && !mayMiss || v != nil && (*v < 0.001 || *v > 1000) {
			t.Errorf("ratio %s: %v, %v", name, v, there)
		}
	}
}

func TestBenchFlags(t *testing.T) {
	for _, args := range [][]string{{"--rounds", "0"}, {"--seconds", "0"}, {"--seconds", "NaN"}, {"--seconds", "Inf"}, {"--seconds", "1e300"}, {"--rounds", "x"}, {"more"}} {
		if _, stderr, code := weir(t, nil, append([]string{"bench"}, args...)...); code != exitUsage {
			t.Errorf("%v: exit %d, %s", args, code, stderr)
		}
	}
	if help := must(t, nil, "help"); !strings.Contains(help, "bench") || strings.Contains(help, bench.BareName) {
		t.Errorf("help says\n%s", help)
	}
	if _, stderr, _ := weir(t, nil, "ben"); !strings.Contains(stderr, `did you mean "bench"`) {
		t.Errorf("a command that is misspelt: %s", stderr)
	}
}
