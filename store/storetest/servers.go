//go:build unix

package storetest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Server is a server of a test's own, on loopback and in a temporary folder; it is gone when the test ends.
type Server struct {
	URL  string // as the store's Open takes it
	Addr string // host:port

	t    testing.TB
	argv []string
	dir  string
	cmd  *exec.Cmd
	done chan error
}

// ports are given out in order, below those that the kernel gives to clients.
var ports atomic.Int32

const (
	firstPort = 12_000
	portCount = 10_000 // a cluster's bus is as far above
	patience  = 500    // looks, 20 ms apart
)

// Redis starts an empty redis-server that keeps nothing on disk. Where there is no such program the test is skipped; with
// CI=true it fails.
func Redis(t testing.TB, settings ...string) *Server {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("redis-server is not installed: %v", err)
		}
		t.Skip("redis-server is not installed (Debian: apt-get install redis-server)")
	}
	for range 20 {
		port := firstPort + (os.Getpid()*37+int(ports.Add(1))*101)%portCount
		s := &Server{t: t, dir: t.TempDir(), Addr: fmt.Sprintf("127.0.0.1:%d", port), URL: fmt.Sprintf("redis://127.0.0.1:%d", port)}
		s.argv = append([]string{program, "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
			"--dir", s.dir, "--logfile", filepath.Join(s.dir, "log"), "--daemonize", "no"}, settings...)
		if s.start() {
			t.Cleanup(s.Stop)
			return s
		}
	}
	t.Fatal("redis-server does not start")
	return nil
}

// RedisCluster starts a redis-server that is a cluster of one: it refuses what a cluster refuses.
func RedisCluster(t testing.TB) *Server {
	t.Helper()
	s := Redis(t, "--cluster-enabled", "yes")
	s.Say("CLUSTER ADDSLOTSRANGE 0 16383")
	for range patience {
		if strings.Contains(s.Say("CLUSTER INFO"), "cluster_state:ok") {
			return s
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the cluster does not form")
	return nil
}

// start runs the program and waits until it answers.
func (s *Server) start() bool {
	s.cmd = exec.Command(s.argv[0], s.argv[1:]...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("%s: %v", s.argv[0], err)
	}
	done, cmd := make(chan error, 1), s.cmd
	s.done = done
	go func() { done <- cmd.Wait() }()
	for range patience {
		select {
		case <-done: // another program has the port
			done <- nil
			return false
		case <-time.After(20 * time.Millisecond):
		}
		if answer, err := s.say("PING"); err == nil && strings.HasPrefix(answer, "+PONG") {
			return true
		}
	}
	s.Stop()
	return false
}

// Say sends one command and returns the beginning of the answer as it is on the wire.
func (s *Server) Say(command string) string {
	s.t.Helper()
	answer, err := s.say(command)
	if err != nil {
		s.t.Fatalf("%s: %v", command, err)
	}
	return answer
}

func (s *Server) say(command string) (string, error) {
	c, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "%s\r\n", command); err != nil {
		return "", err
	}
	b := make([]byte, 16<<10)
	n, err := bufio.NewReader(c).Read(b)
	return string(b[:n]), err
}

// Pause freezes the server: its connections stay, and nothing is answered until Resume.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a frozen server go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("%v: %v", sig, err)
	}
}

// Stop kills the server. It may be called again, and Restart after it.
func (s *Server) Stop() {
	_ = s.cmd.Process.Kill()
	err := <-s.done
	s.done <- err
}

// Restart kills the server and starts an empty one at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	if !s.start() {
		s.t.Fatal("the server does not start again")
	}
}
