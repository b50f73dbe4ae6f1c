//go:build unix

package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresServer is a PostgreSQL server of this test binary's, in a temporary folder and on a socket in it. It does not sync
// its files, which only a power cut would tell.
type PostgresServer struct {
	bin, dir string
	log      string
	alive    *os.File // while this is open; whoever kills the test binary closes it
	made     atomic.Int64
}

var sharedPostgres = sync.OnceValues(startPostgres)

// Postgres gives the server, which is started for the first caller, and the URL of an empty database of this test's.
// Without the programs the test is skipped, or fails where CI=true is set. The server ends with the test binary.
func Postgres(t testing.TB) (s *PostgresServer, database string) {
	t.Helper()
	s, err := sharedPostgres()
	switch {
	case errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true":
		t.Skip("there is no PostgreSQL server to test with: install postgresql-15")
	case err != nil:
		t.Fatalf("starting a PostgreSQL server: %v", err)
	}
	return s, s.Database(t)
}

// Folder is where its socket is.
func (s *PostgresServer) Folder() string { return s.dir }

// Database makes an empty database and gives its URL.
func (s *PostgresServer) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test%d", s.made.Add(1))
	if err := s.exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	return s.url(name)
}

func (s *PostgresServer) url(name string) string {
	u := url.URL{Scheme: "postgres", User: url.User("weir"), Path: "/" + name, RawQuery: url.Values{"host": {s.dir}}.Encode()}
	return u.String()
}

// Exec runs SQL on a database, as whoever is not this program would.
func (s *PostgresServer) Exec(t testing.TB, database, sql string) {
	t.Helper()
	if err := execOn(database, sql); err != nil {
		t.Fatal(err)
	}
}

// Set changes a setting of the whole server until the test ends.
func (s *PostgresServer) Set(t testing.TB, name, value string) {
	t.Helper()
	set := func(sql string) {
		if err := errors.Join(s.exec(sql), s.exec("SELECT pg_reload_conf()")); err != nil {
			t.Error(err)
		}
	}
	set(fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", name, value))
	t.Cleanup(func() { set("ALTER SYSTEM RESET " + name) })
}

func (s *PostgresServer) exec(sql string) error { return execOn(s.url("postgres"), sql) }

func execOn(database, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// Stop ends the server: at once and without a checkpoint, as a crash does (it recovers when it is started), or in order.
func (s *PostgresServer) Stop(t testing.TB, crash bool) {
	t.Helper()
	mode := "fast"
	if crash {
		mode = "immediate"
	}
	if err := s.control("-m", mode, "stop"); err != nil {
		t.Fatal(err)
	}
}

// Start starts it again.
func (s *PostgresServer) Start(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// Pause stops every process of the server in its tracks, and gives what lets them go on.
func (s *PostgresServer) Pause(t testing.TB) (resume func()) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(s.dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(file), "\n")
	main, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	pids, err := s.processes()
	if err != nil {
		t.Fatal(err)
	}
	pids = append(pids, main)
	resume = sync.OnceFunc(func() { signalAll(pids, syscall.SIGCONT) })
	t.Cleanup(resume)
	signalAll(pids, syscall.SIGSTOP)
	return resume
}

// processes are those of the server beside its first.
func (s *PostgresServer) processes() ([]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

func startPostgres() (*PostgresServer, error) {
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "weirpg")
	if err != nil {
		return nil, err
	}
	s := &PostgresServer{bin: bin, dir: dir, log: filepath.Join(dir, "log")}
	if err := ownedByServer(dir); err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := s.run("initdb", "-D", data, "-U", "weir", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"); err != nil {
		return nil, err
	}
	conf, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = conf.WriteString("fsync = off\nmax_connections = 100\n") // which Set can change
		err = errors.Join(err, conf.Close())
	}
	if err != nil {
		return nil, err
	}
	if err := s.endWithUs(data); err != nil {
		return nil, err
	}
	return s, s.start()
}

// postgresPrograms is the folder of the server's programs.
func postgresPrograms() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		return filepath.Dir(path), nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return "", fmt.Errorf("postgres: %w", exec.ErrNotFound)
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

func (s *PostgresServer) start() error {
	return s.control("-l", s.log, "-w", "-t", "30", "-o", fmt.Sprintf("-c listen_addresses= -c unix_socket_directories=%s", s.dir), "start")
}

func (s *PostgresServer) control(args ...string) error {
	return s.run("pg_ctl", append([]string{"-D", filepath.Join(s.dir, "data")}, args...)...)
}

func (s *PostgresServer) run(program string, args ...string) error {
	c := asServer(exec.Command(filepath.Join(s.bin, program), args...))
	c.Dir = s.dir
	var said bytes.Buffer
	out, err := os.CreateTemp("", "weirpg")
	if err != nil {
		return err
	}
	defer func() { _ = out.Close(); _ = os.Remove(out.Name()) }()
	c.Stdout, c.Stderr = out, out // a file: the server keeps it open, and would hold a pipe
	if err := c.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		log, _ := os.ReadFile(s.log)
		said.Write(text)
		said.Write(log[max(0, len(log)-2_000):])
		return fmt.Errorf("%s: %w: %s", program, err, said.String())
	}
	return nil
}

// endWithUs has a process wait for the end of this one, however it comes, and take the server and its folder away.
func (s *PostgresServer) endWithUs(data string) error {
	wait, alive, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = wait.Close() }()
	s.alive = alive
	c := asServer(exec.Command("sh", "-c", `trap "" INT TERM HUP; cat; "$1"/pg_ctl -D "$2" -m immediate stop; rm -rf "$3"`, "sh", s.bin, data, s.dir))
	c.Dir, c.Stdin = "/", wait
	return c.Start()
}

// serverUser is who runs the server when the tests run as root, which it refuses to.
const serverUser = "postgres"

func asServer(c *exec.Cmd) *exec.Cmd {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if uid, gid, err := serverIDs(); err == nil {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return c
}

func ownedByServer(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	uid, gid, err := serverIDs()
	if err != nil {
		return err
	}
	return os.Chown(dir, uid, gid)
}

func serverIDs() (uid, gid int, err error) {
	if os.Getuid() != 0 {
		return os.Getuid(), os.Getgid(), os.ErrPermission
	}
	u, err := user.Lookup(serverUser)
	if err != nil {
		return 0, 0, err
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}

func signalAll(pids []int, s syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, s) // one that has ended meanwhile has no say
	}
}
