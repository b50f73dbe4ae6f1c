package badger

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

var makeFixture = flag.Bool("make-fixture", false, "write the folders of testdata/format-1 anew")

const fixtures = "testdata/format-1"

// kept is what a start on a kept folder has to find.
type kept struct {
	State   ledger.State
	Report  ledger.Report // before the recovery
	Lines   int
	Records int // after the recovery
	Audit   uint64
	Doc     string
}

// Folders and a backup of format 1, as a closed and as a killed process left them, open, verify and say the same for ever.
// go test ./store/badger -run TestKeptFolders -make-fixture writes them anew; do so only for a format of another number.
func TestKeptFolders(t *testing.T) {
	if *makeFixture {
		writeFixtures(t)
	}
	for _, name := range []string{"closed", "killed"} {
		dir := t.TempDir()
		copyFolder(t, filepath.Join(fixtures, name), dir)
		compareKept(t, name, readKept(t, dir))
	}
	b, err := os.ReadFile(filepath.Join(fixtures, "backup.weir.gz"))
	must(t, err)
	z, err := gzip.NewReader(bytes.NewReader(b))
	must(t, err)
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	must(t, err)
	_, err = ledger.Restore(z, s)
	must(t, err)
	must(t, s.Close())
	compareKept(t, "killed", readKept(t, dir))
}

func compareKept(t *testing.T, name string, got kept) {
	t.Helper()
	path := filepath.Join(fixtures, name+".json")
	if *makeFixture {
		b, err := json.MarshalIndent(got, "", "\t")
		must(t, err)
		must(t, os.WriteFile(path, append(b, '\n'), 0o644))
	}
	b, err := os.ReadFile(path)
	must(t, err)
	var want kept
	must(t, json.Unmarshal(b, &want))
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: %s", name, d)
	}
}

func readKept(t *testing.T, dir string) (k kept) {
	t.Helper()
	s, err := Open(dir, Options{})
	must(t, err)
	defer s.Close()
	k.Report, err = ledger.Verify(s)
	must(t, err)
	l, state, err := ledger.Open(s, ledger.Options{Currency: "CNY"}, llm.NewFakeClock(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)))
	must(t, err)
	defer l.Close()
	k.State = state
	for _, err := range l.Lines(0) {
		must(t, err)
		k.Lines++
	}
	for _, err := range l.Records(ledger.Filter{}) {
		must(t, err)
		k.Records++
	}
	for a, err := range l.Audit(0) {
		must(t, err)
		k.Audit = max(k.Audit, a.Seq)
	}
	d, _, err := l.Doc("user", "2")
	must(t, err)
	k.Doc = string(d.Data)
	if report, err := l.Verify(); err != nil || len(report.Problems) > 0 || report.Held != 0 {
		t.Errorf("after the start: %v, %+v", err, report)
	}
	return k
}

// writeFixtures makes a ledger with everything a store can hold: all kinds of entries, a base, reservations in the tail
// and saved apart, documents, tombstones, a large one, answers and audit lines.
func writeFixtures(t *testing.T) {
	t.Helper()
	must(t, os.RemoveAll(fixtures))
	dir := t.TempDir()
	clock := llm.NewFakeClock(time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC))
	for _, name := range []string{"closed", "killed"} {
		s, err := Open(dir, Options{})
		must(t, err)
		l, _, err := ledger.Open(s, ledger.Options{Currency: "CNY"}, clock)
		must(t, err)
		fillFixture(t, l, clock)
		must(t, s.Sync())
		if name == "closed" {
			must(t, l.Close())
			must(t, s.Close())
			copyFixture(t, dir, name)
			continue
		}
		copyFixture(t, dir, name)
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err = l.Backup(z)
		must(t, errors.Join(err, z.Close()))
		must(t, os.WriteFile(filepath.Join(fixtures, "backup.weir.gz"), b.Bytes(), 0o644))
		must(t, l.Close())
		must(t, s.Close())
	}
}

func fillFixture(t *testing.T, l *ledger.Ledger, clock *llm.FakeClock) {
	t.Helper()
	ctx, now := context.Background(), clock.Wall().UnixMilli
	if clock.Mono() == 0 {
		growFixture(t, l, clock)
	}
	for i := range uint64(4) {
		must(t, l.Put(ctx, ledger.Change{Actor: "admin", Action: "user.credit", Target: "user:2", Idempotency: string(rune('a' + i)), Answer: []byte("{}")},
			[]ledger.Doc{{Kind: "user", ID: "2", Data: []byte(`{"name":"näme"}`)}, {Kind: "key", ID: "9", Data: nil}},
			[]llm.Entry{{Kind: llm.EntryCredit, UserID: 2, Cost: 1_000 * llm.Micro(i)}}))
		r := request(l)
		r[0].UserID, r[0].KeyID, r[0].Model, r[0].Label, r[0].AtMS = 2, 9, "gpt-4o-mini", 202612, now()
		r[1].Channel, r[1].HTTPStatus, r[1].LatencyMS, r[1].FirstMS, r[1].AtMS = "east", 200, 900, 120, now()
		write(t, l, r[0])
		write(t, l, llm.Entry{Kind: llm.EntryProgress, ID: r[0].ID, Usage: llm.Usage{OutputTokens: 5}, AtMS: now()})
		switch i {
		case 0:
			write(t, l, llm.Entry{Kind: llm.EntryVoid, ID: r[0].ID, Status: llm.StatusRefunded, HTTPStatus: 502, AtMS: now()})
		case 1: // stays open
		default:
			write(t, l, r[1])
		}
	}
}

// growFixture makes the log so long that a reservation is saved apart, and drops its beginning.
func growFixture(t *testing.T, l *ledger.Ledger, clock *llm.FakeClock) {
	t.Helper()
	old, talks := request(l)[0], request(l)[0]
	write(t, l, old)
	write(t, l, talks)
	var seq uint64
	for i := range 8_300 {
		var err error
		seq, err = l.Append(&llm.Entry{Kind: llm.EntryProgress, ID: talks.ID, Usage: llm.Usage{OutputTokens: llm.Tokens(i / 100)}})
		must(t, err)
	}
	must(t, l.Wait(t.Context(), seq, time.Minute))
	must(t, l.Put(t.Context(), ledger.Change{}, []ledger.Doc{{Kind: "module", ID: "m", Data: make([]byte, bigValue)}}, nil))
	clock.Advance(time.Minute)
	p, err := l.Prune(t.Context(), ledger.Change{Actor: "admin"}, clock.Wall())
	if err != nil || p.Entries == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
}

// copyFixture keeps a folder without what Badger makes anew and without the zeros that its logs end with.
func copyFixture(t *testing.T, dir, name string) {
	t.Helper()
	to := filepath.Join(fixtures, name)
	must(t, os.MkdirAll(to, 0o755))
	all, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range all {
		if f.Name() == "LOCK" || f.Name() == "DISCARD" {
			continue
		}
		path := filepath.Join(to, f.Name())
		copySparse(t, filepath.Join(dir, f.Name()), path)
		if b, err := os.ReadFile(path); filepath.Ext(path) == logSuffix || filepath.Ext(path) == valueSuffix {
			must(t, err)
			must(t, os.WriteFile(path, bytes.TrimRight(b, "\x00"), 0o644))
		}
	}
	if _, err := os.Stat(filepath.Join(to, sealName)); errors.Is(err, fs.ErrNotExist) {
		t.Fatal("no seal")
	}
}
