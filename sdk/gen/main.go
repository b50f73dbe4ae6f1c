// Command gen writes the numbers of package sdk/abi in every guest language.
//
//	go run ./sdk/gen
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run("sdk"); err != nil {
		fmt.Fprintln(os.Stderr, "gen (run it from the root of the module):", err)
		os.Exit(1)
	}
}

func run(sdk string) error {
	files, err := Generate(filepath.Join(sdk, "abi"))
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(sdk, filepath.FromSlash(name)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
