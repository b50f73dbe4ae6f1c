package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGenerated holds the guests' numbers to the host's.
func TestGenerated(t *testing.T) {
	files, err := Generate("../abi")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile("../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(got), string(want)); d != "" {
			t.Errorf("%s: run go run ./sdk/gen (-committed +generated):\n%s", name, d)
		}
	}
}

func TestSnake(t *testing.T) {
	for name, want := range map[string]string{
		"ReqNowMS": "REQ_NOW_MS", "ReqQPSLimit": "REQ_QPS_LIMIT", "NAttr": "N_ATTR", "AttrLabel0": "ATTR_LABEL0",
		"KindIP": "KIND_IP", "RespRetryAfterMS": "RESP_RETRY_AFTER_MS", "ReqTPMCurrent": "REQ_TPM_CURRENT",
	} {
		if got := snake(name); got != want {
			t.Errorf("%s became %s, want %s", name, got, want)
		}
	}
}
