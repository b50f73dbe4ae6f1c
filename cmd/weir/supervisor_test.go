package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/config"
	"github.com/weir-gateway/weir/core/llm"
)

// supervised is the other end of NOTIFY_SOCKET. It is read from the first look on, so that its few places never run out.
type supervised struct {
	t       *testing.T
	conn    *net.UnixConn
	reading sync.Once
	told    chan string
}

func listenAt(t *testing.T, address string) *supervised {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &supervised{t: t, conn: conn, told: make(chan string, 4096)}
}

// next is what it is told next; empty when nothing comes within patience.
func (s *supervised) next(patience time.Duration) string {
	s.reading.Do(func() { go s.read() })
	select {
	case told := <-s.told:
		return told
	case <-time.After(patience):
		return ""
	}
}

// read goes on until the socket is closed.
func (s *supervised) read() {
	for told := make([]byte, 4096); ; {
		n, err := s.conn.Read(told)
		if err != nil {
			return
		}
		s.told <- string(told[:n])
	}
}

// until reads up to what begins with state, past what the watchdog is told.
func (s *supervised) until(state string) string {
	s.t.Helper()
	for {
		switch told := s.next(20 * time.Second); {
		case strings.HasPrefix(told, state):
			return told
		case told != "WATCHDOG=1":
			s.t.Fatalf("told %q, want %s", told, state)
		}
	}
}

// TestSupervisorHearsALife: ready when it serves, alive while it does, reloading with the system's own time and ready
// again whatever the file is like, stopping before open requests have ended.
func TestSupervisorHearsALife(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir") // short: a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := listenAt(t, filepath.Join(dir, "notify"))
	p := serve(t, `  medium: {target: "gpt-4o-mini+pace=20ms,out=40", price: {input_per_1m: 1.08, output_per_1m: 4.32}}`)
	p.kill()
	p.env["NOTIFY_SOCKET"], p.env["WATCHDOG_USEC"] = filepath.Join(dir, "notify"), "100000"
	p.launch()
	s.until("READY=1")
	if got := p.status("none", hello); got != http.StatusUnauthorized {
		t.Errorf("once it is ready, a request gets %d", got)
	}
	key := p.key()
	for range 3 {
		s.until("WATCHDOG=1")
	}
	good, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(good) + "# changed\n", "nonsense: 1\n"} {
		write(t, p.file+".new", text)
		before, _ := monotonic()
		if err := os.Rename(p.file+".new", p.file); err != nil { // one change, however slow the machine is
			t.Fatal(err)
		}
		told := s.until("RELOADING=1")
		after, _ := monotonic()
		at, err := strconv.ParseInt(strings.TrimPrefix(told, "RELOADING=1\nMONOTONIC_USEC="), 10, 64)
		if err != nil || at < before.Microseconds() || at > after.Microseconds() {
			t.Errorf("%q, which is not from %v to %v", told, before, after)
		}
		s.until("READY=1")
	}
	resp := p.post(key, `{"model":"medium","stream":true,"max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`)
	defer func() { _ = resp.Body.Close() }()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.until("STOPPING=1")
	if rest, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(rest), "[DONE]") {
		t.Errorf("the stream ended with %v", err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("serve ended with %v: %s", err, p.log())
	}
}

// TestWatchdogIsToldTheTruth: a gateway that hangs does not say that it lives; one that only refuses does.
func TestWatchdogIsToldTheTruth(t *testing.T) {
	cfg, err := config.Parse("test", fmt.Appendf(nil, "listen: {address: \"127.0.0.1:0\"}\nadmin: {address: \"127.0.0.1:0\", token: %s}\ndata: %q\n", testToken, t.TempDir()), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	g, err := (&console{}).app(nil).open(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.start()
	defer func() { _ = g.close(context.Background()) }()
	address := "@weir-test-" + strconv.Itoa(os.Getpid())
	s := listenAt(t, address)
	env := map[string]string{"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "40000", "WATCHDOG_PID": strconv.Itoa(os.Getpid())}
	look := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	watched := newSupervisor(look, g.clock, g.log)
	defer watched.close()
	watch := func() (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			watched.watch(ctx, g.alive)
			close(ended)
		}()
		return func() { cancel(); <-ended }
	}
	var hangs atomic.Bool
	handler := g.adminHTTP.Handler
	g.adminHTTP.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hangs.Load() {
			<-t.Context().Done()
		}
		handler.ServeHTTP(w, r)
	})
	end := watch()
	s.until("WATCHDOG=1")
	end()
	hangs.Store(true)
	for s.next(500*time.Millisecond) != "" { // what was told before
	}
	end = watch()
	if told := s.next(400 * time.Millisecond); told != "" {
		t.Errorf("a gateway that hangs says %s", told)
	}
	end()
	hangs.Store(false)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_ = g.stop(over)
	if g.proxy.Ready() == nil || !g.alive(t.Context()) {
		t.Error("a gateway that drains is taken for one that hangs")
	}
}

// TestSupervisorOfAnother: what the environment says wrongly, or of another process, keeps nobody from serving.
func TestSupervisorOfAnother(t *testing.T) {
	address := "@weir-other-" + strconv.Itoa(os.Getpid())
	listenAt(t, address)
	for _, x := range []struct {
		env      map[string]string
		there    bool
		watchdog time.Duration
	}{
		{map[string]string{"WATCHDOG_USEC": "1000"}, false, 0},
		{map[string]string{"NOTIFY_SOCKET": "/nowhere/at/all"}, false, 0},
		{map[string]string{"NOTIFY_SOCKET": address}, true, 0},
		{map[string]string{"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000"}, true, time.Millisecond},
		{map[string]string{"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1s"}, true, 0},
		{map[string]string{"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}, true, 0},
	} {
		s := newSupervisor(func(name string) (string, bool) { v, ok := x.env[name]; return v, ok }, llm.NewSystemClock(), slog.New(slog.DiscardHandler))
		if (s != nil) != x.there || s != nil && s.watchdog != x.watchdog {
			t.Errorf("%v: %+v", x.env, s)
		}
		for range 12 { // more than a socket that nobody reads has room for
			s.tell("READY=1")
		}
		s.close()
	}
}

const unitFile = "../../examples/weir.service"

// TestUnitFile: the example runs a command that there is, waits for longer than a drain takes, and allows what policies need.
func TestUnitFile(t *testing.T) {
	raw, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	setting := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)=(.*)$`).FindAllStringSubmatch(string(raw), -1) {
		setting[m[1]] = m[2]
	}
	path, args, _ := strings.Cut(setting["ExecStart"], " ")
	c, rest, err := (&console{}).app(nil).root().Find(strings.Fields(args))
	if err != nil || filepath.Base(path) != "weir" || c.Name() != "serve" || c.ParseFlags(rest) != nil {
		t.Errorf("ExecStart is %s: %v", setting["ExecStart"], err)
	}
	stop, err := strconv.Atoi(setting["TimeoutStopSec"])
	if drain := config.Default().Listen.DrainMS / 1000; err != nil || int64(stop) < drain+10 {
		t.Errorf("TimeoutStopSec is %d, a drain takes %d", stop, drain)
	}
	files, err := strconv.Atoi(setting["LimitNOFILE"])
	if need := 2*config.Default().Listen.Connections + 256; err != nil || files < need {
		t.Errorf("LimitNOFILE is %d, needed are %d", files, need)
	}
	if setting["Type"] != "notify" || setting["WatchdogSec"] == "" || setting["MemoryDenyWriteExecute"] != "" || setting["ProtectSystem"] != "strict" {
		t.Errorf("%v", setting)
	}
}

// TestUnitFileIsSystemds: systemd knows every setting of the example and every value in it; what it does not know it leaves out,
// with a warning that nobody reads.
func TestUnitFileIsSystemds(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("only systemd can say whether it understands the unit: ", err)
	}
	raw, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "weir.service")
	write(t, unit, strings.Replace(string(raw), "/usr/local/bin/weir", os.Args[0], 1)) // a program that there is
	said, err := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput()
	if err != nil || strings.Contains(string(said), "weir.service") { // of other units it may say what it likes
		t.Errorf("%v\n%s", err, said)
	}
}
