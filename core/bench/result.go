package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The targets, in the order of printing.
const (
	direct  = "direct"
	nginx   = "nginx"
	bare    = "bare"
	process = "process"
	power   = "power"
)

var targetNames = [...]string{direct, nginx, bare, process, power}

// Figures are numbers by name; the name ends with the unit. What was not measured is not there.
type Figures map[string]float64

// set notes what was measured: 0 is what cannot be told.
func (f Figures) set(name string, value float64) {
	if value > 0 {
		f[name] = value
	}
}

// Machine is where it was measured.
type Machine struct {
	Cores int    `json:"cores"`
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	Go    string `json:"go"`
}

// Component is one step of the walk by itself, in this process.
type Component struct {
	Name   string  `json:"name"`
	NS     float64 `json:"ns"`
	Bytes  float64 `json:"bytes"` // allocated
	Allocs float64 `json:"allocs"`
	MBs    float64 `json:"mb_s,omitempty"` // of its input
}

// Point is what so many of something cost.
type Point struct {
	N    int     `json:"n"`
	Cost float64 `json:"cost"`
}

// Growth is how one cost grows: with N to the power of Exponent, over the last step, where what is fixed weighs least.
type Growth struct {
	What     string  `json:"what"`
	Unit     string  `json:"unit"` // of Cost
	Points   []Point `json:"points"`
	Exponent float64 `json:"exponent"`
	Verdict  string  `json:"verdict"`
}

// Aim is one of the project's aims, and what this run says of it.
type Aim struct {
	Name  string   `json:"name"`
	Aim   string   `json:"aim"`
	Value *float64 `json:"value"` // nil: not measured
	Met   *bool    `json:"met"`   // nil: not measured
}

// Result is one run.
type Result struct {
	Void        string   `json:"void"` // why nothing of it counts; empty: it does
	Notes       []string `json:"notes,omitempty"`
	Machine     Machine  `json:"machine"`
	Rounds      int      `json:"rounds"`
	Seconds     float64  `json:"seconds"`
	Connections int      `json:"connections"`
	Failed      int      `json:"failed"` // requests
	FirstError  string   `json:"first_error,omitempty"`
	Others      float64  `json:"others_cores"` // of CPU that other processes and guests took

	Ratios map[string]*float64 `json:"ratios"` // medians over the rounds; null: not measured
	Added  Figures             `json:"added"`  // by Weir to the bare proxy's, medians over the rounds

	Medians    map[string]map[string]Figures `json:"medians"` // by kind of lap and target
	Memory     Figures                       `json:"memory"`
	Components []Component                   `json:"components"`
	Growth     []Growth                      `json:"growth,omitempty"`
	Aims       []Aim                         `json:"aims"`

	Laps map[string]map[string][]Figures `json:"laps"` // by kind, target and round
}

func (r *Result) add(kind, target string, f Figures) {
	if r.Laps[kind] == nil {
		r.Laps[kind] = map[string][]Figures{}
	}
	r.Laps[kind][target] = append(r.Laps[kind][target], f)
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *Result) fail(n int, target, text string) {
	r.Failed += n
	if r.FirstError == "" {
		r.FirstError = target + ": " + text
	}
}

// comparisons are the ratios of a run.
var comparisons = []struct{ name, kind, of, to, figure string }{
	{"buffered_process_vs_bare", buffered, process, bare, "rps"},
	{"streamed_process_vs_bare", streamed, process, bare, "rps"},
	{"buffered_power_vs_bare", buffered, power, bare, "rps"},
	{"streamed_power_vs_bare", streamed, power, bare, "rps"},
	{"buffered_process_vs_nginx", buffered, process, nginx, "rps"},
	{"streamed_process_vs_nginx", streamed, process, nginx, "rps"},
	{"buffered_bare_vs_nginx", buffered, bare, nginx, "rps"},
	{"buffered_process_cpu_vs_bare", buffered, process, bare, "cpu_us"},
	{"streamed_process_cpu_vs_bare", streamed, process, bare, "cpu_us"},
}

// additions are what Weir adds to the bare proxy's times.
var additions = []struct{ name, kind, figure string }{
	{"p50_us", atRate, "p50_us"}, {"p99_us", atRate, "p99_us"},
	{"first_event_us", delay, "first_us"}, {"event_us", delay, "event_us"},
}

// judge does the arithmetic: medians, ratios, aims, and whether any of it counts.
func (r *Result) judge() {
	r.Medians = map[string]map[string]Figures{}
	for kind, targets := range r.Laps {
		r.Medians[kind] = map[string]Figures{}
		for name, laps := range targets {
			r.Medians[kind][name] = medians(laps)
		}
	}
	r.Ratios = map[string]*float64{}
	for _, c := range comparisons {
		r.Ratios[c.name] = paired(r.Laps[c.kind][c.of], r.Laps[c.kind][c.to], c.figure, func(of, to float64) float64 { return of / to })
	}
	r.Added = Figures{}
	for _, a := range additions {
		if v := paired(r.Laps[a.kind][process], r.Laps[a.kind][bare], a.figure, func(of, to float64) float64 { return of - to }); v != nil {
			r.Added[a.name] = *v
		}
	}
	for i := range r.Growth {
		r.Growth[i].judge()
	}
	r.Void = r.void()
	r.Aims = judgeAims(r.figures())
}

// The bounds of a run that counts.
const (
	leastBare  = 0.75 // of nginx's requests
	mostOthers = 0.3  // cores
)

// void says why a run does not count; empty when it does.
func (r *Result) void() string {
	var why []string
	if r.Failed > 0 {
		why = append(why, fmt.Sprintf("%d requests failed, the first with %q", r.Failed, r.FirstError))
	}
	if v := r.Ratios["buffered_bare_vs_nginx"]; v != nil && *v < leastBare {
		why = append(why, fmt.Sprintf("the bare proxy reached %.2f of nginx, less than %.2f", *v, leastBare))
	}
	if r.Others > mostOthers {
		why = append(why, fmt.Sprintf("other processes used %.2f of a core, more than %.1f", r.Others, mostOthers))
	}
	return strings.Join(why, "; ")
}

// medians is the median of each figure.
func medians(laps []Figures) Figures {
	values := map[string][]float64{}
	for _, f := range laps {
		for name, v := range f {
			values[name] = append(values[name], v)
		}
	}
	m := Figures{}
	for name, v := range values {
		m[name] = median(v)
	}
	return m
}

// median is the middle one, or the mean of the two in the middle; of at least one.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// paired compares laps of the same round, and gives the median; nil when a figure is missing in every round.
func paired(of, to []Figures, figure string, compare func(of, to float64) float64) *float64 {
	var all []float64
	for i := range min(len(of), len(to)) {
		x, ok := of[i][figure]
		y, there := to[i][figure]
		if ok && there && y > 0 {
			all = append(all, compare(x, y))
		}
	}
	if len(all) == 0 {
		return nil
	}
	m := median(all)
	return &m
}

// figures is everything that an aim may be about, by one name.
func (r *Result) figures() Figures {
	all := maps.Clone(r.Memory)
	if all == nil {
		all = Figures{}
	}
	for name, v := range r.Ratios {
		if v != nil {
			all[name] = *v
		}
	}
	for name, v := range r.Added {
		all["added "+name] = v
	}
	for _, c := range r.Components {
		all[c.Name+" ns"], all[c.Name+" allocs"] = c.NS, c.Allocs
		if c.MBs > 0 {
			all[c.Name+" MB/s"] = c.MBs
		}
	}
	for _, g := range r.Growth {
		all["worst growth"] = max(all["worst growth"], g.Exponent)
	}
	return all
}
