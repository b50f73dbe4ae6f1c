// Package examples_test runs the examples that are not Go.
package examples_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	demoKey    = "sk-weir-nodetest-0123456789012345678901234567890123456789012"
	adminToken = "node-test-admin-token"
)

// TestOpenAINode and TestAnthropicNode run the stock SDKs against the demo. They need Node and the packages: with
// CI=true these are installed (npm ci) or the test fails; without, the test says that nothing was run unless npm ci was
// run in the folder.
func TestOpenAINode(t *testing.T)    { runNode(t, "openai-node", 13) }
func TestAnthropicNode(t *testing.T) { runNode(t, "anthropic-node", 11) }

func runNode(t *testing.T, dir string, checks int) {
	if !installed(t, dir) {
		return
	}
	d := startDemo(t)
	node(t, dir, "check.mjs", checks, &d.output, "WEIR_BASE_URL=http://"+d.listen, "WEIR_KEY="+demoKey, "WEIR_ADMIN_URL=http://"+d.admin, "WEIR_ADMIN_TOKEN="+adminToken)
}

// node runs a script and counts its checks; output is what the gateway has said.
func node(t *testing.T, dir, script string, checks int, output *lockedBuffer, env ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("%s: %v\nthe gateway said:\n%s", dir, err, output.String())
	}
	if n := strings.Count("\n"+string(out), "\nok "); n != checks {
		t.Errorf("%d checks passed, want %d", n, checks)
	}
}

func installed(t *testing.T, dir string) bool {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err == nil {
		return true
	}
	if os.Getenv("CI") != "true" {
		t.Logf("NOTHING WAS RUN: run npm ci in examples/%s, or set CI=true", dir)
		return false
	}
	cmd := exec.Command("npm", "ci")
	cmd.Dir = dir
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, said)
	}
	return true
}

// demo is a running `weir demo`.
type demo struct {
	listen, admin string
	output        lockedBuffer
}

type lockedBuffer struct {
	mu struct {
		sync.Mutex
		buf bytes.Buffer
	}
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.buf.String()
}

// startDemo builds the binary, starts the demo on free ports, and ends it with the test, by its own way of ending.
func startDemo(t *testing.T) *demo {
	t.Helper()
	d, upstream := new(demo), ""
	freeAddresses(t, &d.listen, &d.admin, &upstream)
	ended := start(t, &d.output, nil, build(t), "demo", "--listen", d.listen, "--admin", d.admin, "--upstream", upstream,
		"--data", t.TempDir(), "--key", demoKey, "--admin-token", adminToken)
	if err := ready("http://"+d.listen+"/v1/key", &d.output, ended); err != nil { // the demo's key is made after all else
		t.Fatal(err)
	}
	return d
}

func build(t *testing.T) (weir string) {
	t.Helper()
	weir = filepath.Join(t.TempDir(), "weir")
	if said, err := exec.Command("go", "build", "-o", weir, "../cmd/weir").CombinedOutput(); err != nil {
		t.Fatalf("building weir: %v\n%s", err, said)
	}
	return weir
}

// start runs weir until the test ends, and then ends it by its own way of ending. The channel gets its error when it ends.
func start(t *testing.T, output *lockedBuffer, env []string, weir string, args ...string) chan error {
	t.Helper()
	cmd := exec.Command(weir, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = output, output, append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("weir %s ended with %v:\n%s", args[0], err, output.String())
			}
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			t.Errorf("weir %s did not drain:\n%s", args[0], output.String())
		}
	})
	return ended
}

// ready waits for the gateway to say so itself.
func ready(url string, output *lockedBuffer, ended chan error) error {
	for range 1200 {
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("weir ended: %v\n%s", err, output.String())
		case <-time.After(50 * time.Millisecond):
		}
		req, err := http.NewRequest("GET", url, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+demoKey)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode == 200 {
			return nil
		}
	}
	return fmt.Errorf("weir was not ready in a minute:\n%s", output.String())
}

// freeAddresses are held until all are found, so that no two are the same.
func freeAddresses(t *testing.T, to ...*string) {
	t.Helper()
	for _, a := range to {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		*a = ln.Addr().String()
	}
}
