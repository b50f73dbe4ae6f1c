//go:build !race

package policy

// patience stretches bounds on time: the race detector makes everything slower.
const patience = 1
