package badger

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// Long runs the numbered promises at their full numbers: go test ./store/badger -run TestC -long
var Long = flag.Bool("long", false, "run the numbered promises at their full numbers")

const page = 4096

// disk is what a power cut leaves of the logs: what was there at the last fsync of each. Everything else in the folder is
// Badger's own to sync.
type disk struct {
	mu     sync.Mutex
	stable map[string][]byte // by name, whole pages from the start
	doubt  map[string][]byte // content at a failed fsync: the kernel takes it for clean from then on
	head   map[string]string // how the file of that name begins: with random bytes of its own
	seal   []byte            // at its last fsync
	calls  int
	fail   func(call int, name string) bool
	again  []string // logs that were synced again after a failure
}

var errDisk = errors.New("injected: input/output error")

func newDisk() *disk {
	return &disk{stable: map[string][]byte{}, doubt: map[string][]byte{}, head: map[string]string{}, fail: func(int, string) bool { return false }}
}

// failWhen counts the calls from now on.
func (d *disk) failWhen(fail func(call int, name string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls, d.fail = 0, fail
}

// fsync takes the place of the real one.
func (d *disk) fsync(f *os.File) error {
	name := filepath.Base(f.Name())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	failed := d.fail(d.calls, name)
	if failed && !strings.HasSuffix(name, logSuffix) {
		return errDisk
	}
	if name == sealName {
		d.seal, _ = os.ReadFile(f.Name())
	}
	if !strings.HasSuffix(name, logSuffix) {
		return nil
	}
	d.same(name, f)
	if d.doubt[name] != nil {
		d.again = append(d.again, name)
	}
	now := readPages(f)
	if failed {
		d.doubt[name] = now
		return errDisk
	}
	d.write(name, now)
	return nil
}

// same forgets a log when there is another one by its name.
func (d *disk) same(name string, f *os.File) {
	head := make([]byte, logHeader)
	_, _ = f.ReadAt(head, 0)
	if d.head[name] != string(head) {
		d.head[name] = string(head)
		delete(d.stable, name)
		delete(d.doubt, name)
	}
}

// write makes pages stable, but for those that are as they were when a sync of them failed.
func (d *disk) write(name string, now []byte) {
	was, lost := d.stable[name], d.doubt[name]
	for at := 0; at < len(now) && at < len(lost); at += page {
		if !bytes.Equal(lost[at:at+page], now[at:at+page]) {
			continue
		}
		clear(now[at : at+page])
		copy(now[at:at+page], was[min(at, len(was)):])
	}
	d.stable[name] = now
}

// readPages reads a log up to the first 16 pages of zeros.
func readPages(f *os.File) (b []byte) {
	buf := make([]byte, 16*page)
	for {
		n, _ := f.ReadAt(buf, int64(len(b)))
		n -= n % page
		if n == 0 || len(bytes.TrimLeft(buf[:n], "\x00")) == 0 {
			return b
		}
		b = append(b, buf[:n]...)
	}
}

// cut makes the folder that a start finds after a power cut at this moment. What was written to the newest log since its
// last sync is there, torn or gone, as tear likes.
func (d *disk) cut(t testing.TB, dir string, tear func(log []byte, stable int) []byte) string {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	to := t.TempDir()
	names, _ := os.ReadDir(dir)
	newest := ""
	for _, f := range names {
		if strings.HasSuffix(f.Name(), logSuffix) {
			newest = f.Name()
		}
	}
	for _, f := range names {
		name := f.Name()
		switch {
		case name == "LOCK":
		case name == sealName && d.calls%2 == 0: // the other times the newest, which may have got there
			must(t, os.WriteFile(filepath.Join(to, name), d.seal, 0o600))
		case strings.HasSuffix(name, logSuffix):
			st, err := f.Info()
			must(t, err)
			must(t, withFile(filepath.Join(dir, name), func(f *os.File) { d.same(name, f) }))
			b := append([]byte(nil), d.stable[name]...)
			if name == newest && tear != nil {
				must(t, withFile(filepath.Join(dir, name), func(f *os.File) { b = tear(readPages(f), len(b)) }))
			}
			writeSparse(t, filepath.Join(to, name), b, st.Size())
		default:
			copySparse(t, filepath.Join(dir, name), filepath.Join(to, name))
		}
	}
	return to
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func withFile(path string, use func(*os.File)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	use(f)
	return nil
}

// writeSparse writes what there is and makes the rest of the size a hole; a b that was cut short cuts the file.
func writeSparse(t testing.TB, path string, b []byte, size int64) {
	t.Helper()
	must(t, os.WriteFile(path, b, 0o600))
	if cap(b) != len(b) || len(b) > 0 {
		must(t, os.Truncate(path, max(size, int64(len(b)))))
	}
}

// copySparse copies a file up to 1 MiB of zeros; Badger makes its logs much larger than what is in them.
func copySparse(t testing.TB, from, to string) {
	t.Helper()
	must(t, withFile(from, func(f *os.File) {
		st, err := f.Stat()
		must(t, err)
		var all []byte
		buf := make([]byte, mib)
		for {
			n, err := io.ReadFull(f, buf)
			if n == 0 || len(bytes.TrimLeft(buf[:n], "\x00")) == 0 {
				break
			}
			all = append(all, buf[:n]...)
			if err != nil {
				break
			}
		}
		must(t, os.WriteFile(to, bytes.TrimRight(all, "\x00"), 0o600))
		must(t, os.Truncate(to, st.Size()))
	}))
}

var price = llm.Price{Input: 1_000_000, Output: 1_000_000}

// request is a reserve and its ending, which charges 30.
func request(l *ledger.Ledger) [2]llm.Entry {
	id, u := l.NextID(), llm.Usage{InputTokens: 10, OutputTokens: 20}
	return [2]llm.Entry{
		{Kind: llm.EntryReserve, ID: id, UserID: 1, KeyID: 7, Label: 202611, Price: price, Billed: true, Usage: llm.Usage{InputTokens: 10}, Held: 100},
		{Kind: llm.EntrySettle, ID: id, Status: llm.StatusFinalized, Usage: u, Cost: price.Cost(u)},
	}
}

func write(t testing.TB, l *ledger.Ledger, e llm.Entry) {
	t.Helper()
	seq, err := l.Append(&e)
	must(t, err)
	must(t, l.Wait(context.Background(), seq, time.Minute))
}

func openLedger(t testing.TB, dir string, d *disk, how ledger.Durability) (*Store, *ledger.Ledger) {
	t.Helper()
	s, err := Open(dir, Options{fsync: d.fsync})
	must(t, err)
	l, _, err := ledger.Open(s, ledger.Options{Durability: how}, llm.NewSystemClock())
	must(t, err)
	return s, l
}

// wantPosted starts on a folder and wants so much charged to the user in all, or up to more beyond that.
func wantPosted(t testing.TB, dir string, posted, more llm.Micro) {
	t.Helper()
	s, err := Open(dir, Options{})
	must(t, err)
	defer s.Close()
	l, state, err := ledger.Open(s, ledger.Options{}, llm.NewSystemClock())
	must(t, err)
	defer l.Close()
	if got := -state.Balances[1].Available(); got < posted || got > posted+more {
		t.Fatalf("%d was acknowledged as posted, and %d (at most) more written; a start finds %d", posted, more, got)
	}
	if report, err := l.Verify(); err != nil || len(report.Problems) > 0 || report.Held != 0 {
		t.Fatalf("Verify: %v, %q, held %d", err, report.Problems, report.Held)
	}
}

// TestC5PowerSyncsBeforeAcknowledging: under "power", each of 1,000 acknowledged batches was in the log when it was last
// synced; and 20 power cuts (200 with -long) in the midst of the next writes, which leave those cut off, in holes or
// overwritten, lose nothing that was acknowledged.
func TestC5PowerSyncsBeforeAcknowledging(t *testing.T) {
	const batches = 1_000
	every := batches / 20
	if *Long {
		every = batches / 200
	}
	dir, d, random := t.TempDir(), newDisk(), rand.New(rand.NewPCG(5, 5))
	s, l := openLedger(t, dir, d, ledger.Power)
	defer s.Close()
	defer l.Close()
	var posted llm.Micro
	for i := range batches / 2 {
		for half, e := range request(l) {
			write(t, l, e)
			chunk := 2*i + half + 1 // one entry each
			if key := binary.BigEndian.AppendUint64([]byte{'l'}, uint64(chunk)); !d.has(key) {
				t.Fatalf("batch %d was acknowledged before it was synced", chunk)
			}
			posted += e.Cost
			if chunk%every == 0 {
				powerCut(t, s, d, random, posted, llm.Micro(1-half)*10)
			}
		}
	}
}

// has reports whether a synced log ends with this, nearly.
func (d *disk) has(key []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.stable {
		if bytes.Contains(b, key) {
			return true
		}
	}
	return false
}

// powerCut writes something that is not synced and starts from what is left without power.
func powerCut(t *testing.T, s *Store, d *disk, random *rand.Rand, posted, more llm.Micro) {
	t.Helper()
	for range random.IntN(4) {
		must(t, s.commit([]ledger.Write{{Key: []byte("zz"), Value: make([]byte, 1+random.IntN(9_000))}, {Key: []byte("zy"), Value: []byte("x")}}))
	}
	to := d.cut(t, s.dir, func(log []byte, _ int) []byte {
		s.mu.Lock()
		stable := int(s.mu.seal.log.bytes)
		s.mu.Unlock()
		end := stable + int(wholeRecordsOf(log[stable:]))
		switch random.IntN(4) {
		case 0:
			return append(make([]byte, 0, len(log)), log[:stable+random.IntN(end-stable+1)]...)
		case 1:
			log[stable+random.IntN(end-stable+1)] ^= byte(1 + random.IntN(255))
		default: // sectors that did not get there, or got there with something else
			for at := stable - stable%512; at < end; at += 512 {
				if from := max(at, stable); random.IntN(2) == 0 {
					for i := range log[from : at+512] {
						log[from+i] = byte(random.IntN(2) * random.IntN(256))
					}
				}
			}
		}
		return log
	})
	wantPosted(t, to, posted, more)
	must(t, os.RemoveAll(to))
}

// TestC5ProcessLosesAtMost100ms: under "process", whatever was acknowledged is synced within 100 ms and the time of a
// sync; a busy machine is given ten times that.
func TestC5ProcessLosesAtMost100ms(t *testing.T) {
	dir, d := t.TempDir(), newDisk()
	s, l := openLedger(t, dir, d, ledger.Process)
	defer s.Close()
	defer l.Close()
	for i := range 10 {
		write(t, l, request(l)[0])
		acknowledged := time.Now()
		key := binary.BigEndian.AppendUint64([]byte{'l'}, uint64(i+1))
		for !d.has(key) {
			if late := time.Since(acknowledged); late > time.Second {
				t.Fatalf("entry %d was acknowledged %v ago and is not synced", i+1, late)
			}
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(time.Duration(i) * 7 * time.Millisecond)
	}
}

// TestC12SyncFailsAtTheNthCall: whichever fsync fails, nothing is acknowledged until everything in doubt was written
// anew; the file is never synced again, because that would prove nothing; and then all goes on.
func TestC12SyncFailsAtTheNthCall(t *testing.T) {
	for _, how := range []ledger.Durability{ledger.Power, ledger.Process} {
		for n := 1; n <= map[ledger.Durability]int{ledger.Power: 14, ledger.Process: 6}[how]; n++ {
			t.Run(fmt.Sprintf("%s/%d", how, n), func(t *testing.T) { nthSyncFails(t, how, n) })
		}
	}
}

func nthSyncFails(t *testing.T, how ledger.Durability, n int) {
	dir, d := t.TempDir(), newDisk()
	s, l := openLedger(t, dir, d, how)
	defer s.Close()
	defer l.Close()
	var failed atomic.Bool
	d.failWhen(func(call int, _ string) bool {
		if call == n {
			failed.Store(true)
		}
		return call == n
	})
	var posted, shed llm.Micro
	for i := 0; i < 16 || !failed.Load() || l.Healthy() != nil; i++ {
		r := request(l)
		if seq, err := l.Append(&r[0]); err != nil || l.Wait(t.Context(), seq, time.Minute) != nil {
			shed++ // refused; nothing was sent upstream
			time.Sleep(time.Millisecond)
			continue
		}
		write(t, l, r[1])
		posted += r[1].Cost
		if how == ledger.Power {
			if at := d.cut(t, dir, nil); i == 7 {
				wantPosted(t, at, posted, 0)
			}
		}
		if how == ledger.Process {
			time.Sleep(2 * time.Millisecond) // it syncs every 100 ms
		}
		if i > 5_000 {
			t.Fatalf("after 5,000 requests: failed %v, healthy %v", failed.Load(), l.Healthy())
		}
	}
	must(t, s.Sync())
	wantPosted(t, d.cut(t, dir, nil), posted, 0)
	if len(d.again) > 0 {
		t.Errorf("synced again after a failure: %q", d.again)
	}
}

// A large value whose log could not be synced is in another log when the store says that all is well.
func TestValuesInDoubtAreWrittenAnew(t *testing.T) {
	dir, d := t.TempDir(), newDisk()
	s, err := Open(dir, Options{fsync: d.fsync})
	must(t, err)
	defer s.Close()
	big := bytes.Repeat([]byte("x"), 2*bigValue)
	must(t, s.Apply([]ledger.Write{{Key: []byte("stable"), Value: big}}, true))
	failed := ""
	d.failWhen(func(_ int, name string) bool {
		fails := failed == "" && strings.HasSuffix(name, valueSuffix)
		if fails {
			failed = name
		}
		return fails
	})
	must(t, s.Apply([]ledger.Write{{Key: []byte("doubt"), Value: big}, {Key: []byte("gone"), Value: big}}, false))
	must(t, s.Apply([]ledger.Write{{Key: []byte("gone")}}, false))
	if err := s.Sync(); !errors.Is(err, errDisk) || failed == "" {
		t.Fatalf("Sync: %v", err)
	}
	must(t, s.Sync())
	to := d.cut(t, dir, nil)
	log := filepath.Join(to, failed)
	b, err := os.ReadFile(log)
	must(t, err)
	at := bytes.LastIndex(b, []byte("doubt"))
	clear(b[at-7:]) // what the failed sync did not write
	must(t, os.WriteFile(log, b, 0o600))
	must(t, os.Remove(filepath.Join(to, sealName))) // it would name the damage
	s2, err := Open(to, Options{})
	must(t, err)
	defer s2.Close()
	for _, key := range []string{"stable", "doubt"} {
		if v, ok, err := s2.Get([]byte(key)); !ok || err != nil || !bytes.Equal(v, big) {
			t.Errorf("%s: %d bytes, %v, %v", key, len(v), ok, err)
		}
	}
	if _, ok, err := s2.Get([]byte("gone")); ok || err != nil {
		t.Errorf("a deleted value: %v, %v", ok, err)
	}
}

func wholeRecordsOf(b []byte) int64 {
	return wholeRecords(bufio.NewReader(bytes.NewReader(b)))
}

// TestC12HungSync: an fsync that does not return. Reserves are refused from ledger.stall_ms on, readers go on, an ending is
// taken, and when the disk answers all is as if nothing had been.
func TestC12HungSync(t *testing.T) {
	for _, how := range []ledger.Durability{ledger.Process, ledger.Power} {
		t.Run(string(how), func(t *testing.T) { hungSync(t, how) })
	}
}

func hungSync(t *testing.T, how ledger.Durability) {
	dir, gate := t.TempDir(), make(chan struct{})
	var hung atomic.Bool
	release := sync.OnceFunc(func() { hung.Store(false); close(gate) })
	s, err := Open(dir, Options{fsync: func(f *os.File) error {
		if hung.Load() {
			<-gate
		}
		return f.Sync()
	}})
	must(t, err)
	defer s.Close()
	l, _, err := ledger.Open(s, ledger.Options{Durability: how, StallMS: 100}, llm.NewSystemClock())
	must(t, err)
	defer l.Close()
	defer release()
	r := request(l)
	write(t, l, r[0])
	hung.Store(true)
	p := llm.Entry{Kind: llm.EntryProgress, ID: r[0].ID}
	_, err = l.Append(&p)
	must(t, err)
	within(t, "the stall to be noticed", func() bool { return l.Healthy() != nil })
	late := request(l)[0]
	var e *llm.Error
	if _, err := l.Append(&late); !errors.As(err, &e) || e.Kind != llm.KindUnavailable {
		t.Errorf("a reserve on a hung disk: %v", err)
	}
	end, err := l.Append(&r[1])
	must(t, err)
	if report, err := l.Verify(); err != nil || len(report.Problems) > 0 {
		t.Errorf("Verify on a hung disk: %v, %q", err, report.Problems)
	}
	release()
	must(t, l.Wait(t.Context(), end, time.Minute))
	within(t, "the ledger to be up", func() bool { return l.Healthy() == nil })
	r = request(l)
	write(t, l, r[0])
	write(t, l, r[1])
	must(t, s.Sync())
	to := t.TempDir()
	copyFolder(t, dir, to)
	wantPosted(t, to, 60, 0)
}

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
