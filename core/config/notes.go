package config

import (
	"fmt"
	"maps"
	"slices"
)

// Notes are what is configured and does nothing, one line each, most likely by oversight: rate limits of what
// limits.dimensions leaves out. A file with notes is good, since a policy may name what the file does not.
func (c *Config) Notes() (notes []string) {
	untested := func(dimension, whose string) {
		if !slices.Contains(c.Limits.Dimensions, dimension) {
			notes = append(notes, fmt.Sprintf("limits.dimensions has no %s, so %s hold only where a policy names that dimension", dimension, whose))
		}
	}
	untested("key", "the limits of keys and tiers")
	if c.Limits.Global != (Rates{}) {
		untested("global", "limits.global")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Models)) {
		if m := c.Models[name]; m.QPSLimit != 0 || m.TPMLimit != 0 {
			untested("model", "the limits of models")
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Limits.Defaults)) {
		if c.Limits.Defaults[name] != (Rates{}) && slices.Contains(choices("limits.dimensions[]"), name) {
			untested(name, "limits.defaults."+name)
		}
	}
	return notes
}
