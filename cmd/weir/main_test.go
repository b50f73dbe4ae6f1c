package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// asMain, when set, makes the test binary be the program: processes that are killed and restarted need no build.
const asMain = "WEIR_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	if policy.IsChild(os.Args, os.Stdin, os.Stdout) {
		return
	}
	os.Exit(m.Run())
}

// console is a program run in process: its output so far may be read at any time.
type console struct {
	mu       sync.Mutex
	out, err bytes.Buffer
}

type consoleWriter struct {
	c  *console
	to *bytes.Buffer
}

func (w consoleWriter) Write(p []byte) (int, error) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return w.to.Write(p)
}

func (c *console) stdout() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

func (c *console) stderr() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err.String()
}

func (c *console) app(env map[string]string) *app {
	return &app{in: strings.NewReader(""), out: consoleWriter{c, &c.out}, err: consoleWriter{c, &c.err}, clock: llm.NewSystemClock(), random: rand.Reader,
		env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}
}

// weir runs one command to its end.
func weir(t *testing.T, env map[string]string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var c console
	code = c.app(env).run(t.Context(), args)
	return c.stdout(), c.stderr(), code
}

// must is weir for commands that have to succeed.
func must(t *testing.T, env map[string]string, args ...string) string {
	t.Helper()
	stdout, stderr, code := weir(t, env, args...)
	if code != exitDone {
		t.Fatalf("weir %s: exit %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

var exported = regexp.MustCompile(`export (WEIR_URL=.*)`)

// demo runs `weir demo` on free ports until the test ends and returns the variables that it prints for a second
// terminal.
func demo(t *testing.T, flags ...string) map[string]string {
	t.Helper()
	var c console
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	args := append([]string{"demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", "127.0.0.1:0"}, flags...)
	go func() { ended <- c.app(nil).run(ctx, args) }()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitDone {
			t.Errorf("demo ended with %d: %s", code, c.stderr())
		}
		if !strings.Contains(c.stdout(), "0 reservations open") {
			t.Errorf("the summary names open reservations or is missing: %s", c.stdout())
		}
	})
	for range 1200 {
		if m := exported.FindStringSubmatch(c.stdout()); m != nil {
			env := map[string]string{}
			for _, pair := range strings.Fields(m[1]) {
				name, value, _ := strings.Cut(pair, "=")
				env[name] = value
			}
			return env
		}
		select {
		case code := <-ended:
			ended <- code
			t.Fatalf("demo ended with %d: %s", code, c.stderr())
		case <-time.After(25 * time.Millisecond):
		}
	}
	t.Fatalf("demo printed nothing to export in 30 s: %s %s", c.stdout(), c.stderr())
	return nil
}
