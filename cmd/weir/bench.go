package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/bench"
	"github.com/weir-gateway/weir/store"
)

func (a *app) bench() *cobra.Command {
	o := bench.Options{Open: store.Open, Clock: a.clock, Random: a.random}
	var svg string
	var asJSON bool
	c := &cobra.Command{Use: "bench", Short: "How fast is Weir on this machine, beside a bare proxy and nginx", Args: exactly(),
		Long: "Start the simulated upstream, a bare fasthttp proxy, nginx (where it is installed), and Weir with everything on, once at each\n" +
			"durability; drive them in turns, and print medians, ratios, memory, what each component costs, and which of the project's aims\n" +
			"are met. Everything runs on the loopback, in a temporary folder; access logs are off everywhere.\n\n" +
			"A run takes about two minutes and wants the machine for itself. It is void, and the exit code 1, when requests failed, when\n" +
			"other processes used more than 0.3 of a core, or when the bare proxy reached less than 0.75 of nginx. A missed aim is no error.\n" +
			"CPU and memory are measured on Linux only. `go doc ./core/bench` says what is driven, and how ratios are taken.",
		RunE: func(c *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			o.Self = self
			if o.Rounds < 1 || !(o.Seconds > 0 && o.Seconds <= bench.MaxSeconds) {
				return usageError("bench: --rounds is at least 1, and --seconds more than 0 and at most %d", bench.MaxSeconds)
			}
			line := newLine(a.err)
			o.Tell = line.show
			res, err := bench.Run(c.Context(), o)
			line.clear()
			if err != nil {
				return fmt.Errorf("bench: %w", err)
			}
			return a.printBench(res, asJSON, svg)
		}}
	f := c.Flags()
	f.IntVar(&o.Rounds, "rounds", 5, "how often each target has its turn")
	f.Float64Var(&o.Seconds, "seconds", 1, "length of a lap; below 1 there are fewer streams and keys, too")
	f.BoolVar(&o.Growth, "growth", false, "measure how costs grow, too: to 1,000,000 keys, 5,000 streams, 1 MB of body (some minutes, and 4 GB of memory)")
	f.StringVar(&svg, "svg", "", "write a picture to this `file`, unless the run is void")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// printBench prints a run, writes its picture, and fails when it is void.
func (a *app) printBench(res *bench.Result, asJSON bool, svg string) error {
	var err error
	if asJSON {
		err = a.printJSON(res)
	} else {
		err = res.Print(a.out)
	}
	switch {
	case err != nil:
		return err
	case res.Void != "":
		return errors.New("this run is void: " + res.Void)
	case svg != "":
		return os.WriteFile(svg, res.SVG(), 0o644)
	}
	return nil
}

// benchBare is the process that Weir is compared with.
func (a *app) benchBare() *cobra.Command {
	var listen, upstream string
	c := &cobra.Command{Use: bench.BareName, Short: "Run the bare proxy", Hidden: true, Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			ln, err := listenOn("--listen", listen)
			if err != nil {
				return err
			}
			return bench.Bare(c.Context(), ln, upstream)
		}}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address")
	c.Flags().StringVar(&upstream, "upstream", "127.0.0.1:3009", "host:port of the upstream")
	return c
}
