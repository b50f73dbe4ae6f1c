package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// columns are the figures of the first table.
var columns = []struct{ head, kind, figure string }{
	{"buffered /s", buffered, "rps"}, {"CPU µs", buffered, "cpu_us"},
	{"streamed /s", streamed, "rps"}, {"CPU µs", streamed, "cpu_us"},
	{"p50 µs at 500/s", atRate, "p50_us"}, {"p99 µs", atRate, "p99_us"},
	{"first event µs", delay, "first_us"}, {"each event µs", delay, "event_us"},
}

// titles are the targets as people read them.
var titles = map[string]string{direct: "direct (no proxy)", nginx: "nginx", bare: "bare fasthttp proxy", process: "Weir, process", power: "Weir, power"}

// Print writes the run as tables.
func (r *Result) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%d rounds of %gs, %d connections; %d cores, %s/%s, %s; other processes used %.2f of a core\n\n",
		r.Rounds, r.Seconds, r.Connections, r.Machine.Cores, r.Machine.OS, r.Machine.Arch, r.Machine.Go, r.Others)
	r.printTargets(t)
	fmt.Fprint(t, "\nRATIO\tmedian\n")
	for _, c := range comparisons {
		fmt.Fprintf(t, "%s\t%s\n", c.name, orDash(r.Ratios[c.name]))
	}
	fmt.Fprint(t, "\nADDED TO THE BARE PROXY'S\tmedian\n")
	for _, a := range additions {
		fmt.Fprintf(t, "%s\t%s\n", a.name, r.Added.text(a.name))
	}
	fmt.Fprintf(t, "\nMEMORY OF WEIR\t\nidle\t%s MB\nafter load\t%s MB\nan open stream, of %s\t%s kB\n10,000 keys, each used once\t%s MB\n", r.Memory.text("idle_mb"),
		r.Memory.text("loaded_mb"), r.Memory.text("streams"), r.Memory.text("stream_kb"), r.Memory.text("ten_thousand_keys_mb"))
	fmt.Fprint(t, "\nCOMPONENT\tns\tB\tallocs\tMB/s\n")
	for _, c := range r.Components {
		fmt.Fprintf(t, "%s\t%s\t%.0f\t%.2f\t%s\n", c.Name, short(c.NS), c.Bytes, c.Allocs, Figures{"": c.MBs}.text(""))
	}
	r.printGrowth(t)
	fmt.Fprint(t, "\nAIM\t\tmeasured\t\n")
	for _, a := range r.Aims {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", a.Name, a.Aim, orDash(a.Value), a.verdict())
	}
	for _, n := range r.Notes {
		fmt.Fprintf(t, "\nnote: %s\n", n)
	}
	if r.Void != "" {
		fmt.Fprintf(t, "\nVOID: %s\n", r.Void)
	}
	return t.Flush()
}

func (r *Result) printTargets(w io.Writer) {
	for _, c := range columns {
		fmt.Fprint(w, "\t", c.head)
	}
	fmt.Fprintln(w)
	for _, name := range targetNames {
		if r.Medians[buffered][name] == nil {
			continue
		}
		fmt.Fprint(w, titles[name])
		for _, c := range columns {
			fmt.Fprint(w, "\t", r.Medians[c.kind][name].text(c.figure))
		}
		fmt.Fprintln(w)
	}
}

func (r *Result) printGrowth(w io.Writer) {
	if len(r.Growth) == 0 {
		return
	}
	fmt.Fprint(w, "\nGROWTH\t\texponent\t\n")
	for _, g := range r.Growth {
		points := ""
		for _, p := range g.Points {
			points += fmt.Sprintf("%s: %s  ", short(float64(p.N)), short(p.Cost))
		}
		fmt.Fprintf(w, "%s, %s\t%s\t%.2f\t%s\n", g.What, g.Unit, points, g.Exponent, g.Verdict)
	}
}

// text is a figure, or a dash.
func (f Figures) text(name string) string {
	v, ok := f[name]
	if !ok || name == "" && v == 0 {
		return "-"
	}
	return short(v)
}

func orDash(v *float64) string {
	if v == nil {
		return "-"
	}
	return short(*v)
}

func (a *Aim) verdict() string {
	switch {
	case a.Met == nil:
		return "not measured"
	case *a.Met:
		return "met"
	}
	return "MISSED"
}
