//go:build race

package main

// slow is what the race detector costs at most.
const slow = 10
