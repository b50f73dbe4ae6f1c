// Package abi holds the constants and layout of the policy ABI v1. The guest SDKs' constants are generated from it.
package abi

// Version of the ABI this host speaks.
const (
	Major = 1
	Minor = 0
)
