// Command gen writes assembly/abi.ts: the numbers of package sdk/abi in AssemblyScript.
//
//	go run ./sdk/assemblyscript/gen
package main

import (
	"fmt"
	"os"
)

func main() {
	ts, err := Generate("sdk/abi")
	if err == nil {
		err = os.WriteFile("sdk/assemblyscript/assembly/abi.ts", ts, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen (run it from the root of the module):", err)
		os.Exit(1)
	}
}
