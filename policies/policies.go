// Package policies holds the policy modules that come with the binary. Each folder beside this file is one: its source,
// the schema of its params, its cases, and the module built from them by ./build.
package policies

import (
	_ "embed"
)

var (
	//go:embed default/default.wasm
	defaultModule []byte
	//go:embed priority/priority.wasm
	priorityModule []byte
)

// Names lists the shipped modules.
func Names() []string { return []string{"default", "priority"} }

// Shipped is the module of that name. The bytes are shared: do not change them.
func Shipped(name string) (wasm []byte, ok bool) {
	switch name {
	case "default":
		return defaultModule, true
	case "priority":
		return priorityModule, true
	}
	return nil, false
}
