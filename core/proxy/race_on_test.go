//go:build race

package proxy_test

// patience stretches bounds on time: the race detector makes everything slower.
const patience = 10
