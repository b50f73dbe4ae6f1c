package main

import "testing"

// TestWalkthrough is the walkthrough of the README, with every number checked.
func TestWalkthrough(t *testing.T) {
	if err := run(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
}
