// Command walkthrough drives a fresh gateway through its limits from outside, as an operator and a client would, and
// checks every answer: first with no upstream reachable, then with the simulated one.
//
//	go run ./examples/walkthrough
//
// It starts `weir serve` on free ports of this machine with a temporary data folder, and needs nothing else.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	weir := flag.String("weir", "", "weir binary (default: built from this module)")
	flag.Parse()
	if err := run(context.Background(), *weir); err != nil {
		fmt.Fprintln(os.Stderr, "walkthrough:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, weir string) error {
	dir, err := os.MkdirTemp("", "weir-walkthrough-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if weir == "" {
		weir = filepath.Join(dir, "weir")
		build := exec.CommandContext(ctx, "go", "build", "-o", weir, "github.com/weir-gateway/weir/cmd/weir")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("building weir: %w", err)
		}
	}
	w := &walk{ctx: ctx, weir: weir, dir: dir, out: os.Stdout}
	defer w.stop()
	return w.all()
}
