// Package policies holds the policy modules that come with the binary. Each folder beside this file is one: its source,
// the schema of its params, its cases, and the module built from them by ./build; parts has what several share.
package policies

import (
	"embed"
	"path"
	"slices"
)

// modules are the shipped ones; the list is here only.
//
//go:embed default/default.wasm priority/priority.wasm rules/rules.wasm tiers/tiers.wasm soft-quota/soft-quota.wasm
//go:embed business-hours/business-hours.wasm burst/burst.wasm channel/channel.wasm
var modules embed.FS

// Names lists the shipped modules, in order.
func Names() []string {
	folders, err := modules.ReadDir(".")
	if err != nil {
		panic(err) // it is embedded
	}
	names := make([]string, len(folders))
	for i, f := range folders {
		names[i] = f.Name()
	}
	slices.Sort(names)
	return names
}

// Shipped is the module of that name.
func Shipped(name string) (wasm []byte, ok bool) {
	wasm, err := modules.ReadFile(path.Join(name, name+".wasm"))
	return wasm, err == nil
}
