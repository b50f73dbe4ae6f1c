package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/store/storetest"
)

// onPostgres is a gateway process whose ledger is in a database of its own.
func onPostgres(t *testing.T, more string) (*process, *storetest.PostgresServer) {
	t.Helper()
	srv, url := storetest.Postgres(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	p := prepare(t, more)
	p.env["DATA"] = url
	p.start()
	return p, srv
}

// TestPostgresIsAStoreLikeAnother: what an operator does with a folder, it does with a database.
func TestPostgresIsAStoreLikeAnother(t *testing.T) {
	p, srv := onPostgres(t, "")
	key := p.key("--monthly-quota", "50")
	p.spend(key, 3)
	must(t, p.env, "ledger", "verify")
	for _, args := range [][]string{{"ledger", "verify", "--data", p.env["DATA"]}, {"serve", "-c", p.file}} {
		host, _ := os.Hostname()
		_, stderr, code := weir(t, p.env, args...)
		if want := fmt.Sprintf("weir on %s, pid %d", host, p.cmd.Process.Pid); code != exitFail || !strings.Contains(stderr, "in use by another process") || !strings.Contains(stderr, want) {
			t.Errorf("%v beside the gateway: exit %d, %s; want %s", args, code, stderr, want)
		}
	}
	if out, _, _ := weir(t, p.env, "doctor", "-c", p.file); !strings.Contains(out, "ok    store: the database") || !strings.Contains(out, "in use by") {
		t.Errorf("doctor: %s", out)
	}
	dir := t.TempDir()
	file, folder, second := filepath.Join(dir, "backup"), filepath.Join(dir, "folder"), srv.Database(t)
	must(t, p.env, "backup", file)
	spent := p.object("user", "get", "1")["balanceMicroCny"]

	must(t, nil, "restore", file, "--data", folder)
	again := filepath.Join(dir, "again")
	must(t, nil, "backup", again, "--data", folder)
	must(t, nil, "restore", again, "--data", second)
	if _, stderr, code := weir(t, nil, "restore", again, "--data", second); code != exitFail || !strings.Contains(stderr, "not") {
		t.Errorf("restored twice: exit %d, %s", code, stderr)
	}
	p.kill()
	for _, data := range []string{folder, second} {
		p.env["DATA"] = data
		p.verify()
		p.start()
		if now := p.object("user", "get", "1")["balanceMicroCny"]; now != spent {
			t.Errorf("%s has a balance of %v, was %v", data, now, spent)
		}
		if got := p.status(key, hello); got != http.StatusOK {
			t.Errorf("%s answers %d", data, got)
		}
		p.kill()
	}
	p.verify()
}

// TestRestoreIntoADatabaseLeavesNothing of a backup that is not whole.
func TestRestoreIntoADatabaseLeavesNothing(t *testing.T) {
	p, srv := onPostgres(t, "")
	p.spend(p.key(), 3)
	whole := must(t, p.env, "backup", "-")
	file, second := filepath.Join(t.TempDir(), "backup"), srv.Database(t)
	write(t, file, whole[:len(whole)-1])
	if _, stderr, code := weir(t, nil, "restore", file, "--data", second); code != exitFail || !strings.Contains(stderr, "cut off") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	write(t, file, whole)
	must(t, nil, "restore", file, "--data", second)
}

// TestPostgresDoctor finds what is not fit, and makes nothing.
func TestPostgresDoctor(t *testing.T) {
	_, url := storetest.Postgres(t)
	p := prepare(t, "")
	p.env["DATA"] = url
	for range 2 {
		out, _, code := weir(t, p.env, "doctor", "-c", p.file)
		for _, want := range []string{"ok    database: test", "PostgreSQL ", "warn  database settings: fsync off", "ok    database clock", "ok    database room", "there is no ledger in the database", "serve will make it"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing", want)
			}
		}
		if code != 1 || t.Failed() {
			t.Fatalf("exit %d: %s", code, out)
		}
	}
	p.env["DATA"] = "postgres://weir:hunter2@127.0.0.1:1/weir"
	for _, args := range [][]string{{"doctor", "-c", p.file}, {"serve", "-c", p.file}, {"config", "show", "-c", p.file}, {"config", "check", "-c", p.file}, {"ledger", "verify", "--data", p.env["DATA"]}} {
		out, stderr, _ := weir(t, p.env, args...)
		if strings.Contains(out+stderr, "hunter2") || !strings.Contains(out+stderr, "127.0.0.1:1") && args[1] != "check" {
			t.Errorf("%v: %s%s", args, out, stderr)
		}
	}
}

// TestPostgresKills: the gateway or the server is killed under load, and both at once; nothing that a client was answered is
// lost or doubled, but for the last one under "process", and the ledger adds up.
func TestPostgresKills(t *testing.T) {
	gateway := func(p *process, _ *storetest.PostgresServer) { p.kill(); p.start() }
	server := func(_ *process, srv *storetest.PostgresServer) { srv.Stop(t, true); srv.Start(t) }
	both := func(p *process, srv *storetest.PostgresServer) { srv.Stop(t, true); p.kill(); srv.Start(t); p.start() }
	t.Run("process", func(t *testing.T) { killInTurn(t, "process", gateway, server) })
	t.Run("power", func(t *testing.T) { killInTurn(t, "power", both) })
}

func killInTurn(t *testing.T, durability string, kills ...func(*process, *storetest.PostgresServer)) {
	p, srv := onPostgres(t, "ledger: {durability: "+durability+"}\n")
	key := p.key()
	var answered atomic.Int64
	load := func(kill func()) {
		var clients sync.WaitGroup
		stop := make(chan struct{})
		for range 4 {
			clients.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					req, _ := http.NewRequest("POST", p.env["WEIR_URL"]+"/v1/chat/completions", strings.NewReader(hello))
					req.Header.Set("Authorization", "Bearer "+key)
					resp, err := http.DefaultClient.Do(req)
					if err != nil {
						time.Sleep(time.Millisecond)
						continue
					}
					_ = resp.Body.Close()
					if resp.StatusCode == http.StatusOK {
						answered.Add(1)
					} else if resp.StatusCode != http.StatusServiceUnavailable {
						t.Errorf("status %d", resp.StatusCode)
					}
				}
			})
		}
		from := answered.Load()
		eventually(t, "requests are answered", func() bool { return answered.Load() > from+50 })
		kill()
		from = answered.Load()
		eventually(t, "requests are answered again", func() bool { return answered.Load() > from+50 })
		close(stop)
		clients.Wait()
	}
	for _, kill := range kills {
		load(func() { kill(p, srv) })
	}
	p.kill()
	p.start()
	entries := strings.Count(must(t, p.env, "ledger", "export"), `"kind":"settle"`)
	if int64(entries) < answered.Load() {
		t.Errorf("%d answers, %d settlements", answered.Load(), entries)
	}
	p.kill()
	p.verify()
	if strings.Contains(p.log(), "panic") {
		t.Error(p.log())
	}
}

// TestStoreCopy: a store is copied into an empty one of another kind and back; both serve the same, and what cannot be copied
// leaves nothing behind.
func TestStoreCopy(t *testing.T) {
	p := serve(t, "")
	key := p.key("--monthly-quota", "50")
	p.spend(key, 3)
	folder := p.env["DATA"]
	srv, url := storetest.Postgres(t)
	back := filepath.Join(t.TempDir(), "back")
	if _, stderr, code := weir(t, nil, "store", "copy", "--from", folder, "--to", url); code != exitFail || !strings.Contains(stderr, "in use") {
		t.Errorf("from a folder that is served: exit %d, %s", code, stderr)
	}
	p.kill()
	p.start() // settles what was open
	p.stop()
	out := must(t, nil, "store", "copy", "--from", folder, "--to", url)
	if !strings.Contains(out, "on both sides") || strings.Contains(out, "password") {
		t.Errorf("said %s", out)
	}
	if _, stderr, code := weir(t, nil, "store", "copy", "--from", folder, "--to", url); code != exitFail || !strings.Contains(stderr, "not") {
		t.Errorf("into a store that is not empty: exit %d, %s", code, stderr)
	}
	if _, stderr, code := weir(t, nil, "store", "copy", "--from", filepath.Join(t.TempDir(), "none"), "--to", srv.Database(t)); code != exitFail || stderr == "" {
		t.Errorf("from nowhere: exit %d, %s", code, stderr)
	}
	must(t, nil, "store", "copy", "--from", url, "--to", "badger://"+back)
	for _, data := range []string{url, back} {
		p.env["DATA"] = data
		p.verify()
		p.start()
		if got := p.status(key, hello); got != http.StatusOK {
			t.Errorf("%s answers %d", data, got)
		}
		p.stop()
	}
}
