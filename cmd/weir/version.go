package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

func (b build) String() string { return fmt.Sprintf("%s (commit %s, %s)", b.Version, b.Commit, b.Go) }

// thisBuild reads what the toolchain stamped into the binary.
func thisBuild() build {
	b := build{Version: "devel", Commit: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = s.Value
		}
	}
	return b
}

func (a *app) version() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{Use: "version", Short: "Print version, commit and Go version", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			if asJSON {
				return a.printJSON(b)
			}
			_, err := fmt.Fprintln(a.out, "weir", b)
			return err
		}}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
