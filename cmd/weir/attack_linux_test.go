package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal opens both ends of a terminal: what a command writes into inside can be read from outside.
func terminal(t *testing.T) (outside, inside *os.File) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	t.Cleanup(func() { _ = outside.Close() })
	if err := unix.IoctlSetPointerInt(int(outside.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(outside.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if inside, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	t.Cleanup(func() { _ = inside.Close() })
	return outside, inside
}

// TestAttackDrawsABarOnATerminal: on a terminal a bar fills and is wiped away; elsewhere stderr stays empty.
func TestAttackDrawsABarOnATerminal(t *testing.T) {
	g := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer g.Close()
	args := []string{"attack", "--base", g.URL, "--key", "k", "--total", "20"}
	outside, inside := terminal(t)
	var c console
	a := c.app(nil)
	a.err = inside
	if code := a.run(t.Context(), args); code != exitDone || !strings.Contains(c.stdout(), `"total": 20`) {
		t.Errorf("exit %d, %s", code, c.stdout())
	}
	if err := outside.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Skip("the terminal cannot be read with a deadline: ", err)
	}
	var drawn []byte
	for buf := make([]byte, 4096); !strings.HasSuffix(string(drawn), "\r\x1b[K"); {
		n, err := outside.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, drawn)
		}
		drawn = append(drawn, buf[:n]...)
	}
	if text := string(drawn); !strings.Contains(text, "=] 20/20") || !strings.Contains(text, " ] 1/20") {
		t.Errorf("the bar is %q", text)
	}
	if _, stderr, code := weir(t, nil, args...); code != exitDone || stderr != "" {
		t.Errorf("without a terminal: exit %d, %q", code, stderr)
	}
}
