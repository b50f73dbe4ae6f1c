package bench

import (
	"fmt"
	"math"
)

// goal is one aim: a figure, and the bound that it is held to.
type goal struct {
	name, figure string
	least        bool // the bound is the least; else it is the most
	bound        float64
	unit         string
}

// goals are the project's aims. The peers' gateways are no part of this run, so what is aimed at beside them is only named.
var goals = []goal{
	{"buffered, process / bare", "buffered_process_vs_bare", true, 0.90, "x"},
	{"streamed, process / bare", "streamed_process_vs_bare", true, 1.0, "x"},
	{"buffered, process / nginx", "buffered_process_vs_nginx", true, 0.70, "x"},
	{"buffered, power / bare", "buffered_power_vs_bare", true, 0.70, "x"},
	{"buffered, process / fastest peer without accounting", "", true, 6, "x"},
	{"buffered, process / fastest peer with accounting", "", true, 40, "x"},
	{"added p50 over bare at 500/s", "added p50_us", false, 60, "µs"},
	{"first event's delay over bare", "added first_event_us", false, 50, "µs"},
	{"memory after load", "loaded_mb", false, 64, "MB"},
	{"memory of an open stream", "stream_kb", false, 16, "kB"},
	{"memory of an idle key", "key_bytes", false, 1024, "B"},

	{"count English", countEnglish + " MB/s", true, 40, "MB/s"},
	{"count code", countCode + " MB/s", true, 40, "MB/s"},
	{"count JSON", countJSON + " MB/s", true, 80, "MB/s"},
	{"count Chinese", countChinese + " MB/s", true, 12, "MB/s"},
	{"count base64", countBase64 + " MB/s", true, 12, "MB/s"},
	{"count the worst input", countWorst + " MB/s", true, 5, "MB/s"},
	{"allocations of counting", countEnglish + " allocs", false, 0, ""},
	{"scan 1 kB", scanSmall + " ns", false, 1000, "ns"},
	{"scan 32 kB", scanLarge + " MB/s", true, 1500, "MB/s"},
	{"allocations of scanning", scanSmall + " allocs", false, 0, ""},
	{"reserve and commit on five meters", reserveCommit + " ns", false, 500, "ns"},
	{"allocations of reserve and commit", reserveCommit + " allocs", false, 0, ""},
	{"admission of 1 kB", admission + " ns", false, 6000, "ns"},
	{"allocations of admission", admission + " allocs", false, 0, ""},
	{"policy call", decide + " ns", false, 690, "ns"},
	{"allocations of a policy call", decide + " allocs", false, 0, ""},
	{"a settled request, 64 waiting, process", settleProcess + " ns", false, 20_000, "ns"}, // two entries: 100,000 a second
	{"a settled request, 64 waiting, power", settlePower + " ns", false, 50_000, "ns"},     // two entries: 40,000 a second
	{"module from upload to active", activate + " ns", false, 100e6, "ns"},
	{"growth, as a power of the number", "worst growth", false, linear, ""},
}

// judgeAims holds the figures against the goals.
func judgeAims(f Figures) (aims []Aim) {
	for _, g := range goals {
		a := Aim{Name: g.name, Aim: g.text()}
		if v, ok := f[g.figure]; ok {
			met := v <= g.bound
			if g.least {
				met = v >= g.bound
			} else if g.bound == 0 {
				met = v < slack // a count of allocations is an average, and others allocate meanwhile
			}
			a.Value, a.Met = &v, &met
		}
		aims = append(aims, a)
	}
	return aims
}

// slack is what an average over many calls may be where none is the bound.
const slack = 0.05

func (g goal) text() string {
	sign := "<= "
	if g.least {
		sign = ">= "
	}
	return sign + short(g.bound) + g.unit
}

// short is a number with three digits that matter.
func short(v float64) string {
	switch size := math.Abs(v); {
	case size >= 1e9:
		return fmt.Sprintf("%.3gG", v/1e9)
	case size >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case size >= 1000:
		n := int64(math.Round(v))
		return fmt.Sprintf("%d,%03d", n/1000, max(n, -n)%1000)
	case size >= 100 || size == math.Trunc(size):
		return fmt.Sprintf("%.0f", v)
	case size >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// linear is the largest exponent that still counts as linear: a cost that is measured wobbles.
const linear = 1.1

// judge fills in how it grows.
func (g *Growth) judge() {
	if len(g.Points) < 2 {
		g.Verdict = "not measured"
		return
	}
	last, before := g.Points[len(g.Points)-1], g.Points[len(g.Points)-2]
	if before.Cost <= 0 || last.Cost <= 0 || last.N <= before.N {
		g.Verdict = "not measured"
		return
	}
	g.Exponent = math.Log(last.Cost/before.Cost) / math.Log(float64(last.N)/float64(before.N))
	switch {
	case g.Exponent > linear:
		g.Verdict = "worse than linear"
	case g.Exponent > 0.9:
		g.Verdict = "linear"
	case g.Exponent > 0.1:
		g.Verdict = "less than linear"
	default:
		g.Verdict = "does not grow"
	}
}
