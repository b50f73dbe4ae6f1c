package badger

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// history leaves a folder with tables, a log, a value log, settled and open reservations, credits and documents. killed:
// as kill -9 leaves it; else closed.
func history(t *testing.T, killed bool) string {
	t.Helper()
	live := t.TempDir()
	for life := range 3 {
		s, err := Open(live, Options{})
		must(t, err)
		l, _, err := ledger.Open(s, ledger.Options{Currency: "CNY"}, llm.NewSystemClock())
		must(t, err)
		for i := range 30 {
			user := uint64(i%3 + 1)
			must(t, l.Put(context.Background(), ledger.Change{Actor: "test", Idempotency: fmt.Sprint(life, i)},
				[]ledger.Doc{{Kind: "user", ID: fmt.Sprint(user), Data: []byte(`{"name":"x"}`)}},
				[]llm.Entry{{Kind: llm.EntryCredit, UserID: user, Cost: 1000}}))
			r := request(l)
			r[0].UserID, r[0].KeyID, r[0].Label = user, user, int32(202610+life)
			write(t, l, r[0])
			if i%5 != 0 {
				write(t, l, r[1])
			}
		}
		must(t, l.Put(context.Background(), ledger.Change{}, []ledger.Doc{{Kind: "module", ID: "m", Data: make([]byte, 60_000)}}, nil))
		must(t, s.Sync())
		if life == 2 && killed {
			defer s.Close()
			defer l.Close()
			break
		}
		must(t, l.Close())
		must(t, s.Close())
	}
	to := t.TempDir()
	copyFolder(t, live, to)
	return to
}

func copyFolder(t testing.TB, from, to string) {
	t.Helper()
	names, err := os.ReadDir(from)
	must(t, err)
	for _, f := range names {
		copySparse(t, filepath.Join(from, f.Name()), filepath.Join(to, f.Name()))
	}
}

// serve is what a start on a folder serves, after Verify; or why it does not.
func serve(dir string) (state ledger.State, err error) {
	s, err := Open(dir, Options{})
	if err != nil {
		return state, err
	}
	defer s.Close()
	l, state, err := ledger.Open(s, ledger.Options{Currency: "CNY"}, llm.NewSystemClock())
	if err != nil {
		return state, err
	}
	defer l.Close()
	report, err := l.Verify()
	if err == nil && len(report.Problems) > 0 {
		err = fmt.Errorf("Verify: %s", report.Problems)
	}
	return state, err
}

// TestC7OneByteFlipped: one random byte flipped in each of 60 copies (500 with -long) of a folder, closed or killed. The
// start refuses and names the file or the key, or it serves what it served before.
func TestC7OneByteFlipped(t *testing.T) {
	copies := 60
	if *Long {
		copies = 500
	}
	random, refused := rand.New(rand.NewPCG(7, 7)), map[string]int{}
	for _, killed := range []bool{false, true} {
		dir := history(t, killed)
		whole := t.TempDir()
		copyFolder(t, dir, whole)
		want, err := serve(whole)
		must(t, err)
		for range copies / 2 {
			to := t.TempDir()
			copyFolder(t, dir, to)
			file, at := flip(t, to, random)
			got, err := serve(to)
			switch {
			case err != nil && !strings.Contains(err.Error(), file) && !strings.Contains(err.Error(), "key \""):
				t.Errorf("byte %d of %s flipped: refused without a name: %v", at, file, err)
			case err != nil:
				refused[filepath.Ext(file)+file[:1]]++
			case !reflect.DeepEqual(got.Balances, want.Balances) || !reflect.DeepEqual(got.Used, want.Used):
				t.Errorf("byte %d of %s flipped: serves %v %v, not %v %v", at, file, got.Balances, got.Used, want.Balances, want.Used)
			}
			must(t, os.RemoveAll(to))
		}
	}
	t.Logf("refused, by kind of file: %v", refused)
	if len(refused) == 0 {
		t.Error("nothing was ever refused: the flips do not hit")
	}
}

// flip changes one byte of one file of a folder: mostly within what is in use of it, now and then in the zeros behind.
func flip(t *testing.T, dir string, random *rand.Rand) (file string, at int) {
	t.Helper()
	for {
		names, err := os.ReadDir(dir)
		must(t, err)
		file = names[random.IntN(len(names))].Name()
		path := filepath.Join(dir, file)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		b := readPages(f)
		if st, _ := f.Stat(); len(b) == 0 && st.Size() < 1<<20 {
			b, err = os.ReadFile(path)
			must(t, err)
		}
		if b = []byte(strings.TrimRight(string(b), "\x00")); len(b) == 0 {
			must(t, f.Close())
			continue
		}
		was := []byte{0}
		if at = random.IntN(len(b)); random.IntN(5) == 0 {
			st, err := f.Stat()
			must(t, err)
			at = random.IntN(int(st.Size()))
		}
		_, err = f.ReadAt(was, int64(at))
		must(t, err)
		_, err = f.WriteAt([]byte{was[0] ^ byte(1+random.IntN(255))}, int64(at))
		must(t, err)
		must(t, f.Close())
		return file, at
	}
}

// Badger empties a log before it removes it: a death in between leaves an empty one before the others, which is no
// damage. One behind a log that is not empty is.
func TestDeathWhileALogGoes(t *testing.T) {
	dir := history(t, true)
	want, err := serve(copied(t, dir))
	must(t, err)
	logs, err := numbered(dir, logSuffix)
	must(t, err)
	newest, err := numberOf(logs[len(logs)-1])
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%05d%s", newest-1, logSuffix)), nil, 0o600))
	got, err := serve(copied(t, dir))
	must(t, err)
	if !reflect.DeepEqual(got.Balances, want.Balances) {
		t.Errorf("%v, want %v", got.Balances, want.Balances)
	}
	must(t, os.Rename(filepath.Join(dir, logs[0]), filepath.Join(dir, fmt.Sprintf("%05d%s", newest-2, logSuffix))))
	must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%05d%s", newest-1, logSuffix)), nil, 0o600))
	if _, err := serve(copied(t, dir)); err == nil {
		t.Error("an empty log behind one that is not was taken for gone")
	}
}

func copied(t *testing.T, dir string) string {
	to := t.TempDir()
	copyFolder(t, dir, to)
	return to
}

// Each kind of damage is named by its file.
func TestDamageIsNamed(t *testing.T) {
	for _, c := range []struct {
		file   string
		killed bool
		at     float64 // of what is in use
	}{
		{"*.sst", false, 0.1}, {"*.sst", false, 0.999}, {"MANIFEST", false, 0.1}, {"MANIFEST", false, 0.9},
		{"*.mem", true, 0.3}, {"*.mem", true, 0.9}, {"*.vlog", true, 0.5},
	} {
		dir := history(t, c.killed)
		names, _ := filepath.Glob(filepath.Join(dir, c.file))
		path := names[len(names)-1]
		b, err := os.ReadFile(path)
		must(t, err)
		used := len(strings.TrimRight(string(b), "\x00"))
		b[int(float64(used)*c.at)] ^= 0x55
		must(t, os.WriteFile(path, b, 0o600))
		_, err = serve(dir)
		var e *llm.Error
		if !errors.As(err, &e) || e.Code != "store_damaged" || !strings.Contains(err.Error(), filepath.Base(path)) {
			t.Errorf("%s damaged at %.0f %%: %v", filepath.Base(path), c.at*100, err)
		}
	}
}

// A table that is damaged while it is in use is named to whoever reads everything: Verify, and a backup.
func TestDamageWhileOpen(t *testing.T) {
	dir := history(t, false)
	s, err := Open(dir, Options{})
	must(t, err)
	defer s.Close()
	names, _ := filepath.Glob(filepath.Join(dir, "*.sst"))
	table := names[len(names)-1]
	f, err := os.OpenFile(table, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	was := make([]byte, 64)
	_, err = f.ReadAt(was, 100)
	must(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte{0x55}, len(was)), 100)
	must(t, err)
	_, verr := ledger.Verify(s)
	_, berr := ledger.Backup(s, io.Discard)
	for _, err := range []error{verr, berr} {
		var e *llm.Error
		if !errors.As(err, &e) || e.Code != "store_damaged" || !strings.Contains(e.Message, filepath.Base(table)) {
			t.Errorf("%v", err)
		}
	}
	_, err = f.WriteAt(was, 100)
	must(t, err)
	if report, err := ledger.Verify(s); err != nil || len(report.Problems) > 0 {
		t.Errorf("put right again: %v, %q", err, report.Problems)
	}
}

// While what a failed sync left in doubt is not written anew, readers are told that, and to try again.
func TestReadingInDoubt(t *testing.T) {
	full := false
	d := newDisk()
	s, err := Open(t.TempDir(), Options{fsync: d.fsync})
	must(t, err)
	defer s.Close()
	must(t, s.Apply([]ledger.Write{{Key: []byte("k"), Value: []byte("v")}}, false))
	d.failWhen(func(_ int, name string) bool { return full })
	full = true
	for range 2 { // the second closes Badger, and cannot write anew
		if s.Sync() == nil {
			t.Fatal("synced")
		}
	}
	s.life.Lock()
	_, _, err = s.Get([]byte("k"))
	s.life.Unlock()
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != llm.KindUnavailable {
		t.Errorf("Get in the midst of a renewal: %v", err)
	}
	full = false
	must(t, s.Sync())
	if v, ok, err := s.Get([]byte("k")); string(v) != "v" || !ok || err != nil {
		t.Errorf("%q %v %v", v, ok, err)
	}
}

// A record that a crash tore may say any length. What it says is not taken at its word: the log ends before it.
func TestTornLength(t *testing.T) {
	for _, lengths := range [][2]uint64{{1 << 15, 1 << 20}, {1 << 15, 1<<32 - 1}, {1<<32 - 1, 1<<32 - 1}} {
		dir := history(t, true)
		want, err := serve(copied(t, dir))
		must(t, err)
		logs, err := numbered(dir, logSuffix)
		must(t, err)
		path := filepath.Join(dir, logs[len(logs)-1])
		whole, _, _, err := readLog(path)
		must(t, err)
		torn := binary.AppendUvarint([]byte{0x40, 0}, lengths[0])
		torn = binary.AppendUvarint(torn, lengths[1])
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		_, err = f.WriteAt(append(torn, bytes.Repeat([]byte{7}, 3_000)...), whole)
		must(t, errors.Join(err, f.Close()))
		got, err := serve(dir)
		if err != nil || !reflect.DeepEqual(got.Balances, want.Balances) || !reflect.DeepEqual(got.Used, want.Used) {
			t.Errorf("%v: serves %v %v, %v; not %v %v", lengths, got.Balances, got.Used, err, want.Balances, want.Used)
		}
	}
}
