//go:build !race

package proxy_test

// patience stretches bounds on time.
const patience = 1
