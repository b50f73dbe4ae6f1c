package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestNotesOfAFile: a limit that nothing tests is told by check, in both forms, by doctor, and by serve in its log; the file is
// taken all the same.
func TestNotesOfAFile(t *testing.T) {
	const note = "limits.dimensions has no key, so the limits of keys and tiers hold only where a policy names that dimension"
	file := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, file, fmt.Sprintf("admin: {token: %s}\ndata: %q\nlimits: {dimensions: [model]}\n", testToken, t.TempDir()))
	if out, stderr, code := weir(t, nil, "config", "check", "-c", file); code != exitDone || out != file+": ok\n" || stderr != "note: "+note+"\n" {
		t.Errorf("exit %d: %s%s", code, out, stderr)
	}
	var checked struct {
		OK    bool
		Notes []string
	}
	if out := must(t, nil, "config", "check", "-c", file, "--json"); json.Unmarshal([]byte(out), &checked) != nil || !checked.OK || len(checked.Notes) != 1 || checked.Notes[0] != note {
		t.Errorf("%s", out)
	}
	if out, _, code := weir(t, nil, "doctor", "-c", file); code != 1 || !strings.Contains(out, "warn  limits: "+note) {
		t.Errorf("exit %d: %s", code, out)
	}
	p := serve(t, "limits: {dimensions: [model]}\n")
	eventually(t, "serve tells", func() bool { return strings.Contains(p.log(), note) })
}

// TestApplyTellsWhatStays: what the file no longer names is told beside the answer, not in it.
func TestApplyTellsWhatStays(t *testing.T) {
	const text = "model x is no longer in the file and stays: weir model delete x"
	stub, env := stubAdmin(t)
	stub.answer = `{"applied":true,"warnings":["` + text + `"]}`
	if out, stderr, code := weir(t, env, "config", "apply"); code != exitDone || out != "applied  true\n" || stderr != "note: "+text+"\n" {
		t.Errorf("exit %d: %q %q", code, out, stderr)
	}
	if out := must(t, env, "config", "apply", "--json"); !strings.Contains(out, text) {
		t.Errorf("%s", out)
	}
}
