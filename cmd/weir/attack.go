package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/load"
	"golang.org/x/term"
)

func (a *app) attack() *cobra.Command {
	o := load.Options{}
	c := &cobra.Command{Use: "attack --base URL --key K [--model M] --total N --concurrency C", Short: "Send many requests and report what came back", Args: exactly(),
		Long: "Send many chat requests at a gateway and print one JSON object: by_status, the first 429 with its body and\nRetry-After, latencies in milliseconds and requests per second. It ends after --total requests; Ctrl+C prints what it has.",
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Key == "" {
				o.Key, _ = a.env("WEIR_KEY")
			}
			if base, set := a.env("WEIR_URL"); set && !c.Flags().Changed("base") {
				o.Base = base
			}
			if o.Key == "" {
				return usageError("attack needs --key (or WEIR_KEY)")
			}
			bar := newBar(a.err)
			o.Progress = bar.show
			res, err := load.Attack(c.Context(), o, a.clock)
			bar.clear()
			if err != nil {
				return usageError("attack: %v", err)
			}
			return a.printAttack(res)
		}}
	f := c.Flags()
	f.StringVar(&o.Base, "base", "http://127.0.0.1:3000", "gateway `URL`, with or without /v1; $WEIR_URL goes before the default")
	f.StringVar(&o.Key, "key", "", "client key (default $WEIR_KEY)")
	f.StringVar(&o.Model, "model", "gpt-4o-mini", "model to ask for")
	f.IntVar(&o.Total, "total", 20, "how many requests")
	f.IntVar(&o.Concurrency, "concurrency", 5, "how many at the same time")
	f.Float64Var(&o.Rate, "rate", 0, "requests per second over all (0: as fast as answers come)")
	f.BoolVar(&o.Stream, "stream", false, "ask for streams and read them to the end")
	f.IntVar(&o.MaxTokens, "max-tokens", 16, "max_tokens of each request (0: send none)")
	f.DurationVar(&o.Timeout, "timeout", 2*time.Minute, "longest wait for one answer")
	f.Bool("json", true, "print JSON (it always does)")
	return c
}

// printAttack prints the result on stdout, and on stderr what was wrong. It fails when no request met a limit.
func (a *app) printAttack(res *load.Result) error {
	if err := a.printJSON(res); err != nil {
		return err
	}
	switch {
	case res.Total > 0 && res.ByStatus["error"] == res.Total:
		return fmt.Errorf("no request was answered: %s", res.FirstError)
	case res.InVain():
		return fmt.Errorf("no request got as far as a limit: %s", res.FirstError)
	case res.FirstError != "":
		fmt.Fprintln(a.err, "note: the first error that is no 429 is "+strings.ReplaceAll(res.FirstError, "\n", " "))
	}
	return nil
}

// terminalOf is the width of the terminal that w is; 0: it is none.
func terminalOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width < 40 {
		return 80
	}
	return width
}

// line is one line that says what is going on; it is drawn only on a terminal.
type line struct{ w io.Writer }

func newLine(w io.Writer) *line {
	if terminalOf(w) == 0 {
		return &line{}
	}
	return &line{w}
}

func (l *line) show(what string) {
	if l.w != nil {
		fmt.Fprintf(l.w, "\r\x1b[K%.78s", what)
	}
}

func (l *line) clear() { l.show("") }

// bar is a progress bar; it draws only on a terminal. The attack calls it one call at a time.
type bar struct {
	w     io.Writer
	width int
	drawn int // last permille drawn
}

func newBar(w io.Writer) *bar {
	width := terminalOf(w)
	if width == 0 {
		return &bar{}
	}
	return &bar{w: w, width: min(width, 100) - 30, drawn: -1}
}

func (b *bar) show(done, total int) {
	if b.w == nil || total == 0 || done*1000/total == b.drawn {
		return
	}
	b.drawn = done * 1000 / total
	full := done * b.width / total
	fmt.Fprintf(b.w, "\r[%s%s] %d/%d", strings.Repeat("=", full), strings.Repeat(" ", b.width-full), done, total)
}

func (b *bar) clear() {
	if b.w != nil {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}
