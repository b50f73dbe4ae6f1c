package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store"
)

// spend makes n requests that are answered.
func (p *process) spend(key string, n int) {
	p.t.Helper()
	for range n {
		if got := p.status(key, hello); got != http.StatusOK {
			p.t.Fatalf("status %d", got)
		}
	}
}

// folder adds the flag of a command on the data folder.
func (p *process) folder(args ...string) []string { return append(args, "--data", p.env["DATA"]) }

// TestLedgerCommandsAgree: what a running gateway says of its ledger is what its folder says once it is stopped.
func TestLedgerCommandsAgree(t *testing.T) {
	p := serve(t, "")
	p.spend(p.key(), 3)
	running := map[string]string{}
	commands := map[string][]string{"verify": {"ledger", "verify"}, "json": {"ledger", "verify", "--json"}, "ndjson": {"ledger", "export"},
		"csv": {"ledger", "export", "--format", "csv", "--from", "2", "--limit", "4"}, "open": {"ledger", "reservations", "--json"}}
	for name, args := range commands {
		running[name] = must(t, p.env, args...)
	}
	for name, want := range map[string]string{"verify": "7 entries: credits 100, posted 0.", "json": `"firstWrong": null`, "ndjson": `{"seq":1,"kind":"credit"`,
		"csv": "seq,kind,id,requestId,at,orgId,userId,keyId,model", "open": `"data": []`} {
		if !strings.Contains(running[name], want) {
			t.Errorf("%s of the running gateway does not say %q:\n%s", name, want, running[name])
		}
	}
	if rows, err := csv.NewReader(strings.NewReader(running["csv"])).ReadAll(); err != nil || len(rows) != 5 || rows[4][0] != "5" {
		t.Errorf("four rows from the second on: %v, %v", rows, err)
	}
	if _, stderr, code := weir(t, nil, p.folder("ledger", "verify")...); code != exitFail || strings.Contains(stderr, "\n\n") {
		t.Errorf("the folder of a running gateway: exit %d, %s", code, stderr)
	}
	p.kill()
	if _, stderr, code := weir(t, p.env, "ledger", "verify"); code != exitFail || !strings.Contains(stderr, "--data DIR") {
		t.Errorf("a gateway that does not run: exit %d, %s", code, stderr)
	}
	for name, args := range commands {
		if stopped := must(t, p.env, p.folder(args...)...); stopped != running[name] {
			t.Errorf("%s was\n%s\nand is of the stopped gateway\n%s", name, running[name], stopped)
		}
	}
	if named := must(t, p.env, "ledger", "verify", "-c", p.file); named != running["verify"] {
		t.Errorf("by the configuration: %s", named)
	}
	for _, args := range [][]string{p.folder("ledger", "verify", "-c", p.file), p.folder("ledger", "verify", "--admin", "http://127.0.0.1:1"),
		p.folder("ledger", "export", "--from", "0"), p.folder("ledger", "export", "--format", "xml"), p.folder("ledger", "prune", "--before", "soon"), p.folder("ledger", "prune")} {
		if _, stderr, code := weir(t, p.env, args...); code != exitUsage || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit %d, %s", args, code, stderr)
		}
	}
}

// TestVerifyStops: the first signal ends the verification of a folder, however much of it there is.
func TestVerifyStops(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []ledger.Write
	for n := range 100 {
		all = append(all, ledger.Write{Key: fmt.Appendf(nil, "x%d", n), Value: []byte("1")})
	}
	if err := st.Apply(all, false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	err = untilStopped{st, ctx}.Scan([]byte("x"), nil, false, func(_, _ []byte) bool {
		if seen++; seen == 3 {
			cancel()
		}
		return true
	})
	if !errors.Is(err, context.Canceled) || seen != 3 {
		t.Errorf("%d keys, %v", seen, err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	c := new(console)
	if code := c.app(nil).run(ctx, []string{"ledger", "verify", "--data", dir}); code != exitFail || !strings.Contains(c.stderr(), "stopped before everything was read") {
		t.Errorf("exit %d: %s%s", code, c.stdout(), c.stderr())
	}
}

// TestExportGoesOn joins parts of an export, each from where stderr of the one before says, to the whole.
func TestExportGoesOn(t *testing.T) {
	p := serve(t, "")
	p.spend(p.key(), 4)
	whole := must(t, p.env, "ledger", "export")
	next := regexp.MustCompile(`^next: (--from) (\d+)\n$`)
	for _, where := range [][]string{nil, {"--data", p.env["DATA"]}} {
		if where != nil {
			p.kill()
		}
		parts, from := "", []string{}
		for {
			stdout, stderr, code := weir(t, p.env, append(append([]string{"ledger", "export", "--limit", "2"}, from...), where...)...)
			m := next.FindStringSubmatch(stderr)
			if code != exitDone || m == nil {
				t.Fatalf("exit %d, %q", code, stderr)
			}
			if stdout == "" {
				break
			}
			parts, from = parts+stdout, m[1:]
		}
		if parts != whole {
			t.Errorf("in parts:\n%s\nwhole:\n%s", parts, whole)
		}
	}
}

// TestVerifyNamesTheFirstWrongAccount alters one total of a stopped gateway.
func TestVerifyNamesTheFirstWrongAccount(t *testing.T) {
	p := serve(t, "")
	p.spend(p.key(), 1)
	p.kill()
	st, err := store.OpenExisting(p.env["DATA"])
	if err != nil {
		t.Fatal(err)
	}
	user := []byte{'u', 0, 0, 0, 0, 0, 0, 0, 1}
	if err := st.Apply([]ledger.Write{{Key: user, Value: []byte{1, 2, 2}}}, true); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	says := func(args ...string) {
		t.Helper()
		stdout, stderr, code := weir(t, p.env, args...)
		if code != exitFail || !strings.Contains(stderr, "the first wrong account is user 1") || !strings.Contains(stdout, "stored credits 1 ") && !strings.Contains(stdout, "stored credits 0.000001") {
			t.Errorf("%v: exit %d, %s%s", args, code, stdout, stderr)
		}
	}
	says(p.folder("ledger", "verify")...)
	says(p.folder("ledger", "verify", "--json")...)
	p.start()
	says("ledger", "verify")
}

// TestVerifyNamesDamage damages a table of a gateway that runs: the answer is what is damaged, and not that something is.
func TestVerifyNamesDamage(t *testing.T) {
	p := serve(t, "")
	p.spend(p.key(), 1)
	p.kill()
	p.start() // what the log had is in a table now
	tables, err := filepath.Glob(filepath.Join(p.env["DATA"], "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("%q, %v", tables, err)
	}
	f, err := os.OpenFile(tables[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt(bytes.Repeat([]byte{0x55}, 64), 100); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"ledger verify", "backup x"} {
		_, stderr, code := weir(t, p.env, strings.Fields(command)...)
		if code != exitFail || !strings.Contains(stderr, filepath.Base(tables[0])) || !strings.Contains(stderr, "is damaged") {
			t.Errorf("%s: exit %d, %s", command, code, stderr)
		}
	}
}

// TestBackupAndRestore copies a gateway that is running, and serves from the copy.
func TestBackupAndRestore(t *testing.T) {
	p := serve(t, "")
	key := p.key()
	p.spend(key, 3)
	dir := t.TempDir()
	online, offline, copied := filepath.Join(dir, "online"), filepath.Join(dir, "offline"), filepath.Join(dir, "copy")
	if out := must(t, p.env, "backup", online); !strings.HasPrefix(out, online+": ") {
		t.Errorf("backup says %s", out)
	}
	if info, err := os.Stat(online); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	refused(t, exitFail, []string{"backup", online, "--data", "x"}, online+" exists; --force replaces it")
	must(t, p.env, "backup", online, "--force")
	balance, report := p.object("user", "get", "1"), must(t, p.env, "ledger", "verify")
	p.spend(key, 2) // after the backup
	p.kill()
	if out := must(t, p.env, p.folder("backup", offline, "--json")...); !strings.Contains(out, `"file": "`+offline+`"`) || !strings.Contains(out, `"keys": `) {
		t.Errorf("backup --json says %s", out)
	}
	stdout := must(t, p.env, p.folder("backup", "-")...)
	if whole, err := os.ReadFile(offline); err != nil || stdout != string(whole) {
		t.Errorf("stdout has %d bytes, the file %d, %v", len(stdout), len(whole), err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if code := (&console{}).app(p.env).run(over, p.folder("backup", filepath.Join(dir, "stopped"))); code != exitFail {
		t.Errorf("a backup that was stopped: exit %d", code)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("left behind: %v", left)
	}
	if out := must(t, p.env, "restore", online, "--data", copied); out != copied+": "+report {
		t.Errorf("restore says %s, the backup was of %s", out, report)
	}
	again := t.TempDir()
	if out := must(t, nil, "restore", online, "--data", again, "--json"); out != must(t, nil, "ledger", "verify", "--data", again, "--json") {
		t.Errorf("restore --json says %s", out)
	}
	p.env["DATA"] = copied
	p.start()
	if after := p.object("user", "get", "1"); fmt.Sprint(after) != fmt.Sprint(balance) {
		t.Errorf("the user was %v and is %v", balance, after)
	}
	p.spend(key, 1)
	must(t, p.env, "ledger", "verify")
}

// TestRestoreRefuses: nothing that serve would accept is left of a backup that is not whole.
func TestRestoreRefuses(t *testing.T) {
	p := serve(t, "")
	p.spend(p.key(), 3)
	dir := t.TempDir()
	file := filepath.Join(dir, "backup")
	must(t, p.env, "backup", file)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	altered := bytes.Clone(whole)
	altered[len(altered)/2] ^= 1
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	for says, backup := range map[string][]byte{"cut off": whole[:len(whole)-1], "cut": whole[:len(whole)/2], "damaged": altered, "not a backup": []byte("weir"),
		"another format": append([]byte("weir-backup 2\n"), whole[14:]...)} {
		write(t, file, string(backup))
		for _, target := range []string{empty, filepath.Join(dir, "missing")} {
			_, stderr, code := weir(t, nil, "restore", file, "--data", target)
			if left, _ := os.ReadDir(target); code != exitFail || !strings.Contains(stderr, says) || strings.Count(stderr, "\n") != 1 || len(left) != 0 {
				t.Errorf("%s: exit %d, %s, left %v", says, code, stderr, left)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "missing")); err == nil {
		t.Error("the folder that was missing is there")
	}
	write(t, file, string(whole))
	for _, target := range []string{p.env["DATA"], dir} { // of a running gateway, of something else
		if _, stderr, code := weir(t, nil, "restore", file, "--data", target); code != exitFail || !strings.Contains(stderr, "not empty") {
			t.Errorf("restore into %s: exit %d, %s", target, code, stderr)
		}
	}
	if _, stderr, code := weir(t, nil, "restore", file); code != exitUsage || !strings.Contains(stderr, "--data") {
		t.Errorf("restore without a folder: exit %d, %s", code, stderr)
	}
	must(t, p.env, "ledger", "verify") // it serves on
}

// TestKilledRestoreIsNotServed leaves what a killed restore leaves.
func TestKilledRestoreIsNotServed(t *testing.T) {
	p := serve(t, "")
	p.spend(p.key(), 1)
	half := []byte(must(t, p.env, "backup", "-"))
	p.kill()
	p.env["DATA"] = filepath.Join(t.TempDir(), "half")
	st, err := store.Open(p.env["DATA"])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Restore(bytes.NewReader(half[:len(half)-40]), st); err == nil {
		t.Fatal("half a backup was restored")
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := weir(t, p.env, "serve", "-c", p.file); code != exitFail || !strings.Contains(stderr, "the restore of this data folder did not come to its end") {
		t.Errorf("serve: exit %d, %s", code, stderr)
	}
}

// old fills a data folder with n requests that ended some days ago.
func old(t *testing.T, data string, n int, days int) {
	t.Helper()
	st, err := store.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().AddDate(0, 0, -days).UnixMilli()
	l, _, err := ledger.Open(st, ledger.Options{Currency: "cny"}, llm.NewSystemClock())
	if err != nil {
		t.Fatal(err)
	}
	var seq uint64
	for i := range n {
		id := l.NextID()
		for _, e := range []llm.Entry{{Kind: llm.EntryReserve, ID: id, AtMS: at, UserID: 1, KeyID: 1, Billed: true, Held: 3, Price: llm.Price{Request: 2}},
			{Kind: llm.EntrySettle, ID: id, AtMS: at, Status: llm.StatusFinalized, Cost: 2, HTTPStatus: 200}} {
			if seq, err = l.Append(&e); err != nil {
				t.Fatal(err)
			}
		}
		if i%1_000 == 0 {
			if err := l.Wait(t.Context(), seq, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, close := range []func() error{l.Close, st.Close} {
		if err := close(); err != nil {
			t.Fatal(err)
		}
	}
}

// oldest is the number of the first entry that a ledger has.
func (p *process) oldest(flags ...string) (e struct{ Seq int64 }) {
	p.t.Helper()
	out := must(p.t, p.env, append([]string{"ledger", "export", "--limit", "1"}, flags...)...)
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		p.t.Fatal(err)
	}
	return e
}

// TestRetention: a start drops what is older than ledger.keep_usage_days, and no total moves.
func TestRetention(t *testing.T) {
	p := serve(t, "ledger: {keep_usage_days: 30}\n")
	p.kill()
	old(t, p.env["DATA"], 6_000, 31)
	before := must(t, p.env, p.folder("ledger", "verify")...)
	p.start()
	eventually(t, "the old records are dropped", func() bool { return p.oldest().Seq > 1_000 })
	eventually(t, "the log says so", func() bool { return strings.Contains(p.log(), "dropped old usage records") })
	after := must(t, p.env, "ledger", "verify")
	if _, totals, _ := strings.Cut(before, ": "); !strings.HasSuffix(after, totals) || before == after {
		t.Errorf("the totals were %s and are %s", before, after)
	}
	line := p.object("audit", "list", "--limit", "1")["data"].([]any)[0].(map[string]any)
	if line["action"] != "ledger.prune" || line["actor"] != "config" {
		t.Errorf("the audit says %v", line)
	}
}

// TestPrune drops records by hand, of a running gateway and of a stopped one.
func TestPrune(t *testing.T) {
	p := serve(t, "")
	p.kill()
	old(t, p.env["DATA"], 6_000, 10)
	today := time.Now().UTC().Format(time.DateOnly)
	must(t, p.env, p.folder("ledger", "prune", "--before", time.Now().AddDate(0, 0, -11).UTC().Format(time.DateOnly))...)
	if e := p.oldest("--data", p.env["DATA"]); e.Seq != 1 {
		t.Errorf("what is younger is dropped too: the first is %d", e.Seq)
	}
	p.start()
	must(t, p.env, "ledger", "prune", "--before", today)
	first := p.oldest().Seq
	if first < 1_000 {
		t.Errorf("the first entry is %d", first)
	}
	p.kill()
	old(t, p.env["DATA"], 3_000, 2)
	out := must(t, p.env, p.folder("ledger", "prune", "--before", today, "--json")...)
	if next := p.oldest("--data", p.env["DATA"]).Seq; next <= first || !strings.Contains(out, fmt.Sprintf(`"firstEntry": %d`, next)) {
		t.Errorf("the first entry was %d and is %d: %s", first, next, out)
	}
	p.verify()
}
