package policy

import (
	"context"
	"encoding/gob"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestChildFailures(t *testing.T) {
	p, err := profileOf(ProfileSmall)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		child []string
		want  string
	}{
		{"not there", []string{"/nonexistent/weir"}, "start the compile child /nonexistent/weir"},
		{"says nothing", []string{"true"}, "gave no verdict; its main must call policy.IsChild first"},
		{"dies", []string{"sh", "-c", "echo something odd >&2; exit 3"}, "the compile child died: exit status 3: something odd"},
		{"out of memory", []string{"sh", "-c", "echo 'fatal error: runtime: out of memory' >&2; exit 2"}, "needed more than the 256 MiB"},
		{"hangs", []string{"sleep", "60"}, "took longer than the 50ms of profile small"},
		{"talks without end", []string{"yes"}, "took longer than the 50ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := *p
			if strings.Contains(c.want, "50ms") {
				q.wall = 50 * time.Millisecond
			}
			_, err := runChild(context.Background(), &Options{Child: c.child}, &q, &job{Profile: ProfileSmall})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestChildIsToldNoSecrets(t *testing.T) {
	t.Setenv("WEIR_ADMIN_TOKEN", "secret")
	p, err := profileOf(ProfileSmall)
	if err != nil {
		t.Fatal(err)
	}
	child := []string{"sh", "-c", `echo "token=$WEIR_ADMIN_TOKEN procs=$GOMAXPROCS" >&2; exit 3`}
	_, err = runChild(context.Background(), &Options{Child: child}, p, &job{Profile: ProfileSmall})
	wantRefusal(t, err, "exit status 3: token= procs=1")
}

func TestChildStartsNoChildren(t *testing.T) {
	t.Setenv(childEnv, "1")
	h := newHost(t, Options{})
	if _, err := h.Add(context.Background(), "m", guest(allow(1)).bytes(), ""); err == nil || !strings.Contains(err.Error(), "IsChild") {
		t.Errorf("error %v", err)
	}
}

func TestAddEndsWithItsContextAndTheHost(t *testing.T) {
	h := newHost(t, Options{Child: []string{"sleep", "60"}})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := h.Add(ctx, "m", guest(allow(1)).bytes(), ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the caller's deadline", err)
	}
	failed := make(chan error)
	go func() {
		_, err := h.Add(context.Background(), "m", guest(allow(1)).bytes(), "")
		failed <- err
	}()
	for len(h.trial) == 0 {
		time.Sleep(time.Millisecond)
	}
	h.Close()
	if err := <-failed; err == nil {
		t.Error("added by a closed host")
	}
}

// The limits that the child sets itself hold: memory beyond the allowance ends it, and that is a refusal.
func TestChildMemoryIsBounded(t *testing.T) {
	p, err := profileOf(ProfileSmall)
	if err != nil {
		t.Fatal(err)
	}
	p.wall *= patience
	// A schema that takes twenty times its size when it is read.
	schema := `{"enum":[` + strings.Repeat("{},", 6<<20) + `0]}`
	j := &job{Profile: p.name, CacheDir: t.TempDir(), Schema: []byte(schema)}
	_, err = runChild(context.Background(), &Options{}, p, j)
	want := "needed more than the 256 MiB of profile small"
	if patience > 1 {
		want = "" // the race detector's allocator dies with words of its own
	}
	wantRefusal(t, err, want)
}

// What a child says is bounded as exec copies it, too.
func TestHeadKeepsNoMore(t *testing.T) {
	h := &head{limit: 3}
	if n, err := io.Copy(h, strings.NewReader("abcdef")); n != 6 || err != nil || h.kept.String() != "abc" {
		t.Errorf("copied %d, kept %q; %v", n, h.kept.String(), err)
	}
}

func TestIsChildAnswersABrokenJob(t *testing.T) {
	var out strings.Builder
	if IsChild([]string{"weir"}, strings.NewReader(""), &out) || IsChild([]string{"weir", "serve"}, strings.NewReader(""), &out) {
		t.Error("an ordinary start is taken for the child")
	}
	if !IsChild([]string{"weir", ChildArg}, strings.NewReader("nonsense"), &out) {
		t.Fatal("not taken for the child")
	}
	var v verdict
	if err := gob.NewDecoder(strings.NewReader(out.String())).Decode(&v); err != nil || !strings.Contains(v.Refusal, "could not read its job") {
		t.Errorf("verdict %+v, error %v", v, err)
	}
}

// A cache entry that cannot be read is made anew, not an end of all uploads.
func TestBrokenCacheEntryIsReplaced(t *testing.T) {
	dir := t.TempDir()
	wasm := guest(allow(5)).bytes()
	h := newHost(t, Options{CacheDir: dir})
	mustAdd(t, h, "m", wasm)
	entries, err := h.store.entries(h.find(func(*added) bool { return true }).prepared)
	if err != nil || len(entries) != 1 {
		t.Fatalf("entries %v, error %v", entries, err)
	}
	h.Close()
	raw, err := os.ReadFile(entries[0])
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 0xff
	if err := os.WriteFile(entries[0], raw, 0o600); err != nil {
		t.Fatal(err)
	}
	h = newHost(t, Options{CacheDir: dir})
	mustAdd(t, h, "m", wasm)
	mustActivate(t, h, Binding{Module: "m"}, wide())
	var d Decision
	if h.Decide(sampleFacts(), &d); d.QPS != 5 {
		t.Errorf("decision %+v", d)
	}
}

// An entry under a name that the runtime does not look for would have it compile; that is seen and refused.
func TestForeignCacheEntryIsRefused(t *testing.T) {
	h := newHost(t, Options{})
	mustAdd(t, h, "m", guest(allow(5)).bytes())
	mustActivate(t, h, Binding{Module: "m"}, wide())
	if err := h.Activate(context.Background(), nil, Envelope{}); err != nil {
		t.Fatal(err)
	}
	entries, err := h.store.entries(h.find(func(*added) bool { return true }).prepared)
	if err != nil || len(entries) != 1 {
		t.Fatalf("entries %v, error %v", entries, err)
	}
	if err := os.Rename(entries[0], filepath.Join(filepath.Dir(entries[0]), strings.Repeat("0", 64))); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, h.Activate(context.Background(), &Binding{Module: "m"}, wide()), "another version or machine")
	if n := len(h.store.list()); n != 0 {
		t.Errorf("%d entries left where the runtime looks", n)
	}
}

func TestPruneKeepsTheNewest(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"c", "a", "b"} {
		if err := os.Mkdir(dir+"/"+name, 0o700); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(1000+i), 0)
		if err := os.Chtimes(dir+"/"+name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := prune(dir+"/*", 2); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 || left[0].Name() != "a" || left[1].Name() != "b" {
		t.Errorf("left %v, error %v", left, err)
	}
}
