package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
)

// three is a run of three rounds: the machine is half as fast in the second.
func three() *Result {
	r := &Result{Rounds: 3, Seconds: 1, Connections: connections, Machine: Machine{Cores: 2, OS: "linux", Arch: "amd64", Go: "go1.26"},
		Laps: map[string]map[string][]Figures{}, Memory: Figures{"idle_mb": 50, "loaded_mb": 63, "stream_kb": 17}}
	rounds := map[string]map[string][]float64{
		buffered: {direct: {40e3, 20e3, 44e3}, nginx: {20e3, 10e3, 22e3}, bare: {16e3, 8e3, 18e3}, process: {15.2e3, 7.28e3, 15.3e3}, power: {12e3, 4.4e3, 13.5e3}},
		streamed: {direct: {8e3, 4e3, 8e3}, nginx: {6e3, 3e3, 6e3}, bare: {4e3, 2e3, 4e3}, process: {3.9e3, 2.2e3, 3.8e3}, power: {3e3, 1e3, 3e3}},
	}
	for kind, targets := range rounds {
		for name, rps := range targets {
			for _, v := range rps {
				r.add(kind, name, Figures{"rps": v, "cpu_us": 1e6 / v})
			}
		}
	}
	for i, p50 := range []float64{100, 300, 110} {
		r.add(atRate, bare, Figures{"p50_us": p50, "p99_us": 2 * p50})
		r.add(atRate, process, Figures{"p50_us": p50 + 40 + float64(i), "p99_us": 2*p50 + 90})
		r.add(delay, bare, Figures{"first_us": p50, "event_us": 30})
		r.add(delay, process, Figures{"first_us": p50 + 70, "event_us": 35})
	}
	r.Components = []Component{{Name: scanSmall, NS: 900, MBs: 1111}, {Name: reserveCommit, NS: 600, Allocs: 1}}
	return r
}

// TestRatiosAreOfOneRound: a slow round makes both slow, so it must not move a ratio; and the median is of the ratios.
func TestRatiosAreOfOneRound(t *testing.T) {
	r := three()
	r.judge()
	for name, want := range map[string]float64{"buffered_process_vs_bare": 0.91, "streamed_process_vs_bare": 0.975, "buffered_power_vs_bare": 0.75,
		"buffered_process_vs_nginx": 0.728, "buffered_bare_vs_nginx": 0.8, "buffered_process_cpu_vs_bare": 8 / 7.28} {
		if got := r.Ratios[name]; got == nil || math.Abs(*got-want) > 1e-9 {
			t.Errorf("%s is %s, want %v", name, orDash(got), want)
		}
	}
	for name, want := range map[string]float64{"p50_us": 41, "p99_us": 90, "first_event_us": 70, "event_us": 5} {
		if got := r.Added[name]; math.Abs(got-want) > 1e-9 {
			t.Errorf("added %s is %v, want %v", name, got, want)
		}
	}
	if got := r.Medians[buffered][bare]["rps"]; got != 16e3 {
		t.Errorf("the bare proxy's median is %v, want 16000", got)
	}
	if r.Void != "" {
		t.Error("void: ", r.Void)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{5, 9, 1}, 5}, {[]float64{4, 1, 9, 2}, 3}} {
		before := append([]float64(nil), c.values...)
		if got := median(c.values); got != c.want || c.values[0] != before[0] {
			t.Errorf("median of %v is %v, want %v; left %v", before, got, c.want, c.values)
		}
	}
}

// TestWhatIsNotMeasured is null in JSON, neither met nor missed, and no reason to be void.
func TestWhatIsNotMeasured(t *testing.T) {
	r := three()
	delete(r.Laps[buffered], nginx)
	delete(r.Laps[streamed], nginx)
	r.judge()
	raw, err := json.Marshal(r)
	if err != nil || !bytes.Contains(raw, []byte(`"buffered_process_vs_nginx":null`)) || !bytes.Contains(raw, []byte(`"void":""`)) {
		t.Errorf("%v: %s", err, raw)
	}
	for _, a := range r.Aims {
		if strings.Contains(a.Name, "nginx") && (a.Met != nil || a.Value != nil || a.verdict() != "not measured") {
			t.Errorf("%+v", a)
		}
	}
}

func TestVoid(t *testing.T) {
	for want, change := range map[string]func(*Result){
		"the bare proxy reached 0.70 of nginx": func(r *Result) {
			for i := range r.Laps[buffered][nginx] {
				r.Laps[buffered][nginx][i]["rps"] = r.Laps[buffered][bare][i]["rps"] / 0.7
			}
		},
		"other processes used 0.31 of a core": func(r *Result) { r.Others = 0.31 },
		"2 requests failed":                   func(r *Result) { r.fail(2, bare, "502") },
	} {
		r := three()
		r.Others = 0.29
		change(r)
		r.judge()
		if !strings.HasPrefix(r.Void, want) || strings.Contains(r.Void, ";") {
			t.Errorf("void is %q, want %q", r.Void, want)
		}
		var out bytes.Buffer
		if err := r.Print(&out); err != nil || !strings.Contains(out.String(), "VOID: "+want) {
			t.Errorf("%v\n%s", err, &out)
		}
	}
}

// TestAims: each is held against its own figure, in its own direction.
func TestAims(t *testing.T) {
	r := three()
	r.judge()
	want := map[string]string{"buffered, process / bare": "met", "streamed, process / bare": "MISSED", "buffered, power / bare": "met",
		"buffered, process / nginx": "met", "added p50 over bare at 500/s": "met", "first event's delay over bare": "MISSED",
		"memory after load": "met", "memory of an open stream": "MISSED", "memory of an idle key": "not measured", "scan 1 kB": "met",
		"allocations of scanning": "met", "reserve and commit on five meters": "MISSED", "allocations of reserve and commit": "MISSED",
		"buffered, process / fastest peer without accounting": "not measured", "growth, as a power of the number": "not measured"}
	for i := range r.Aims {
		a := &r.Aims[i]
		if w, known := want[a.Name]; known && a.verdict() != w {
			t.Errorf("%s is %s with %s, want %s", a.Name, a.verdict(), orDash(a.Value), w)
		}
		delete(want, a.Name)
	}
	if len(want) > 0 {
		t.Errorf("no such aims: %v", want)
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.914: "0.91", 1: "1", 12.34: "12.3", 123.4: "123", 1000: "1,000", 15_200.4: "15,200", -1234: "-1,234", 999_999: "999,999", 1e6: "1M", 4.21e9: "4.21G"} {
		if got := short(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}

// TestEveryAimHasAFigure: a name that is misspelt would be "not measured" for ever.
func TestEveryAimHasAFigure(t *testing.T) {
	r := three()
	r.Memory["key_bytes"] = 1
	for _, name := range []string{resolve, scanSmall, scanLarge, estimate, decide, reserveCommit, admission, settleProcess, settlePower, activate,
		countEnglish, countCode, countJSON, countChinese, countBase64, countWorst} {
		r.Components = append(r.Components, Component{Name: name, NS: 1, MBs: 1})
	}
	r.Growth = []Growth{{Points: []Point{{1, 1}, {10, 10}}}}
	r.judge()
	for i := range r.Aims {
		if a := &r.Aims[i]; a.Met == nil && !strings.Contains(a.Name, "peer") {
			t.Errorf("%s has no figure", a.Name)
		}
	}
}

func TestGrowth(t *testing.T) {
	for _, c := range []struct {
		points []Point
		want   string
	}{
		{[]Point{{1, 5}, {1000, 5.1}}, "does not grow"},
		{[]Point{{1, 5}, {100, 50}}, "less than linear"},
		{[]Point{{1, 100}, {10, 105}, {1000, 10_000}}, "linear"},
		{[]Point{{1, 100}, {10, 1000}, {100, 20_000}}, "worse than linear"},
		{[]Point{{1, 0}, {10, 5}}, "not measured"},
		{[]Point{{1, 5}}, "not measured"},
	} {
		g := Growth{Points: c.points}
		if g.judge(); g.Verdict != c.want {
			t.Errorf("%v: %s (%.2f), want %s", c.points, g.Verdict, g.Exponent, c.want)
		}
	}
	r := three()
	r.Growth = []Growth{{What: "a", Points: []Point{{1, 1}, {10, 13.1}}}, {What: "b", Points: []Point{{1, 1}, {10, 1}}}}
	r.judge()
	if last := r.Aims[len(r.Aims)-1]; last.verdict() != "MISSED" || *last.Value < 1.11 || r.Growth[0].Verdict != "worse than linear" {
		t.Errorf("one of two grows a little faster than its number: %+v", last)
	}
}

// TestPrint: every target, component and aim has a line.
func TestPrint(t *testing.T) {
	r := three()
	r.Growth = []Growth{{What: "bytes", Unit: "µs", Points: []Point{{1, 1}, {10, 10}}}}
	r.note("something")
	r.judge()
	var out bytes.Buffer
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3 rounds of 1s, 64 connections; 2 cores", "direct (no proxy)", "Weir, power", "buffered_process_vs_bare", "0.91", scanSmall,
		"streamed, process / bare", ">= 1x", "MISSED", "not measured", "bytes, µs", "linear", "note: something"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, &out)
		}
	}
}

// TestSVG is well-formed, and its bars are as long as their numbers say.
func TestSVG(t *testing.T) {
	r := three()
	r.judge()
	picture := r.SVG()
	var widths []float64
	words := ""
	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, picture)
		}
		switch x := token.(type) {
		case xml.CharData:
			words += string(x)
		case xml.StartElement:
			seen := map[string]bool{}
			for _, a := range x.Attr {
				if seen[a.Name.Local] {
					t.Errorf("<%s> has two of %s", x.Name.Local, a.Name.Local)
				}
				seen[a.Name.Local] = true
				if x.Name.Local == "rect" && a.Name.Local == "width" {
					w, _ := strconv.ParseFloat(a.Value, 64)
					widths = append(widths, w)
				}
			}
		}
	}
	if len(widths) != 1+2*len(targetNames) {
		t.Fatalf("%d rectangles, want the ground and two bars for each target", len(widths))
	}
	if full, weir := widths[1], widths[4]; full != svgFull || math.Abs(weir/full-15.2/40) > 0.001 {
		t.Errorf("direct is %v wide and Weir %v, want 40 to 15.2", full, weir)
	}
	for _, want := range []string{"Weir, process", "nginx", "15,200 · 0.91x · 65.8 µs", "3,800 · 0.97x", "3 rounds of 1s"} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is missing in %s", want, words)
		}
	}
}
