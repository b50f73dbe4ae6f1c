package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGenerated holds the guest's numbers to the host's.
func TestGenerated(t *testing.T) {
	want, err := Generate("../../abi")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../assembly/abi.ts")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(got), string(want)); d != "" {
		t.Errorf("run go run ./sdk/assemblyscript/gen (-committed +generated):\n%s", d)
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
