package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDescriptorsRunOut: more connections than the process may have descriptors. It says so, and serves again when
// they are closed.
func TestDescriptorsRunOut(t *testing.T) {
	p := serve(t, "")
	defer func() {
		if t.Failed() {
			t.Log(p.log())
		}
	}()
	key := p.key()
	open, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	limit := unix.Rlimit{Cur: uint64(len(open)) + 20, Max: uint64(len(open)) + 20}
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimPrefix(p.env["WEIR_URL"], "http://")
	var conns []net.Conn
	for range 100 {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("%v: %s", err, p.log())
		}
		conns = append(conns, nc)
	}
	eventually(t, "the shortage is told", func() bool { return strings.Contains(p.log(), "short of descriptors") })
	for _, nc := range conns {
		_ = nc.Close()
	}
	eventually(t, "it serves again", func() bool { return p.status(key, hello) == http.StatusOK })
	eventually(t, "and says so", func() bool { return strings.Contains(p.log(), "accepted again") })
}
