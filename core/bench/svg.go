package bench

import (
	"bytes"
	"fmt"
)

// The picture's measures, in pixels.
const (
	svgWidth = 760
	svgLeft  = 170 // of the bars
	svgFull  = 430 // the longest bar
	svgBar   = 22
	svgStep  = 30
)

// colours of the bars: what is compared is grey, Weir is not.
var colours = map[string]string{direct: "#c8ccd2", nginx: "#9aa1ab", bare: "#9aa1ab", process: "#1f6feb", power: "#5b9bf3"}

// SVG is the run as a picture: requests and streams per second at saturation, in parts of the bare proxy's, with the CPU time
// of each. It has a background of its own, so that it can be read on any page.
func (r *Result) SVG() []byte {
	var body bytes.Buffer
	y := 40
	for _, kind := range []string{buffered, streamed} {
		what := map[string]string{buffered: "Answers of 600 bytes", streamed: "Streams of 50 events"}[kind]
		text(&body, 20, y, "font-weight='bold'", what+" per second, at saturation")
		y = r.bars(&body, kind, y+14) + 34
	}
	text(&body, 20, y-8, "font-size='12'", fmt.Sprintf(
		"x: beside the fasthttp proxy of 40 lines; µs: CPU time of the proxy. %d rounds of %gs, %d connections, %d cores, %s/%s.",
		r.Rounds, r.Seconds, r.Connections, r.Machine.Cores, r.Machine.OS, r.Machine.Arch))
	return fmt.Appendf(nil, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %[1]d %[2]d' width='%[1]d' height='%[2]d' font-family='sans-serif' font-size='14'>\n"+
		"<rect width='%[1]d' height='%[2]d' rx='8' fill='#ffffff'/>\n%[3]s</svg>\n", svgWidth, y+8, body.String())
}

// bars draws one kind, and gives the y below.
func (r *Result) bars(b *bytes.Buffer, kind string, y int) int {
	most := 0.0
	for _, f := range r.Medians[kind] {
		most = max(most, f["rps"])
	}
	for _, name := range targetNames {
		f := r.Medians[kind][name]
		if f == nil || most == 0 {
			continue
		}
		width := f["rps"] / most * svgFull
		label := short(f["rps"])
		if times := paired(r.Laps[kind][name], r.Laps[kind][bare], "rps", func(of, to float64) float64 { return of / to }); times != nil {
			label += fmt.Sprintf(" · %.2fx", *times)
		}
		if cpu, ok := f["cpu_us"]; ok && name != direct { // of direct it would be the upstream's
			label += fmt.Sprintf(" · %s µs", short(cpu))
		}
		text(b, 20, y+svgBar-6, "", titles[name])
		fmt.Fprintf(b, "<rect x='%d' y='%d' width='%.1f' height='%d' rx='3' fill='%s'/>\n", svgLeft, y, width, svgBar, colours[name])
		text(b, svgLeft+int(width)+8, y+svgBar-6, "", label)
		y += svgStep
	}
	return y
}

// text draws a line of plain words; none of ours has a character that XML minds.
func text(b *bytes.Buffer, x, y int, attributes, words string) {
	fmt.Fprintf(b, "<text x='%d' y='%d' fill='#1f2328' %s>%s</text>\n", x, y, attributes, words)
}
