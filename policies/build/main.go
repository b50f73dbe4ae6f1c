// Command build makes the committed modules of policies again, or those of other policy folders.
//
//	(cd sdk/assemblyscript && npm ci)          once
//	go run ./policies/build                    the shipped ones
//	go run ./policies/build path/to/mine       another: writes path/to/mine/mine.wasm
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-gateway/weir/policies"
	"github.com/weir-gateway/weir/sdk"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

func run(folders []string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	if len(folders) == 0 {
		for _, name := range policies.Names() {
			folders = append(folders, filepath.Join(root, "policies", name))
		}
	}
	modules, err := sdk.BuildAll(context.Background(), folders...)
	if err != nil {
		return err
	}
	for i, dir := range folders {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		out := filepath.Join(dir, filepath.Base(abs)+".wasm")
		if err := os.WriteFile(out, modules[i], 0o644); err != nil {
			return err
		}
		fmt.Printf("%s: %d bytes\n", out, len(modules[i]))
	}
	return nil
}

// moduleRoot is the folder of go.mod, at or above the current one.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod here or above: run it inside the checkout")
		}
		dir = up
	}
}
