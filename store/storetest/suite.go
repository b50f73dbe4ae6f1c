package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-gateway/weir/core/ledger"
)

// Run checks everything that ledger.Store promises. open gives an empty store each time; Run closes it.
func Run(t *testing.T, open func(t testing.TB) ledger.Store) {
	cases := []struct {
		name string
		run  func(t *testing.T, s ledger.Store)
	}{
		{"get what was applied", getApplied},
		{"values are copies", copies},
		{"delete", deletes},
		{"the last of several writes to a key counts", lastWins},
		{"a batch is all or nothing", allOrNothing},
		{"empty and large values", sizes},
		{"scan in order", scanOrder},
		{"scan from a start", scanStart},
		{"scan stops", scanStops},
		{"scan may write", scanWrites},
		{"sync", syncs},
		{"concurrent readers", concurrent},
		{"random operations", random},
		{"closed", closed},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			defer s.Close()
			c.run(t, s)
		})
	}
}

func apply(t *testing.T, s ledger.Store, b ...ledger.Write) {
	t.Helper()
	if err := s.Apply(b, false); err != nil {
		t.Fatalf("Apply: %v", err)
	}
}

func set(key, value string) ledger.Write { return ledger.Write{Key: []byte(key), Value: []byte(value)} }
func del(key string) ledger.Write        { return ledger.Write{Key: []byte(key)} }

func want(t *testing.T, s ledger.Store, key, value string) {
	t.Helper()
	v, ok, err := s.Get([]byte(key))
	if err != nil || !ok || string(v) != value {
		t.Fatalf("Get(%q) = %q, %v, %v; want %q", key, v, ok, err, value)
	}
}

func wantNone(t *testing.T, s ledger.Store, key string) {
	t.Helper()
	if v, ok, err := s.Get([]byte(key)); err != nil || ok {
		t.Fatalf("Get(%q) = %q, %v, %v; want nothing", key, v, ok, err)
	}
}

func scan(t *testing.T, s ledger.Store, prefix, start string, reverse bool) []string {
	t.Helper()
	var from []byte
	if start != "" {
		from = []byte(start)
	}
	var got []string
	err := s.Scan([]byte(prefix), from, reverse, func(k, v []byte) bool {
		got = append(got, fmt.Sprintf("%s=%s", k, v))
		return true
	})
	if err != nil {
		t.Fatalf("Scan: %v", err)
	}
	return got
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

func getApplied(t *testing.T, s ledger.Store) {
	wantNone(t, s, "a")
	apply(t, s, set("a", "1"), set("b", "2"))
	want(t, s, "a", "1")
	want(t, s, "b", "2")
	apply(t, s, set("a", "3"))
	want(t, s, "a", "3")
	apply(t, s)
}

func copies(t *testing.T, s ledger.Store) {
	key, value := []byte("a"), []byte("1")
	apply(t, s, ledger.Write{Key: key, Value: value})
	key[0], value[0] = 'x', 'x'
	want(t, s, "a", "1")
	v, _, _ := s.Get([]byte("a"))
	v[0] = 'y'
	want(t, s, "a", "1")
}

func deletes(t *testing.T, s ledger.Store) {
	apply(t, s, set("a", "1"))
	apply(t, s, del("a"), del("never there"))
	wantNone(t, s, "a")
	same(t, "after a delete", scan(t, s, "a", "", false), nil)
	apply(t, s, set("a", "2"))
	want(t, s, "a", "2")
}

func lastWins(t *testing.T, s ledger.Store) {
	apply(t, s, set("a", "1"), set("a", "2"), del("b"), set("b", "3"), set("c", "4"), del("c"))
	want(t, s, "a", "2")
	want(t, s, "b", "3")
	wantNone(t, s, "c")
}

func allOrNothing(t *testing.T, s ledger.Store) {
	if err := s.Apply([]ledger.Write{set("a", "1"), set("", "2")}, false); err == nil {
		t.Fatal("a batch with an empty key was taken")
	}
	wantNone(t, s, "a")
}

func sizes(t *testing.T, s ledger.Store) {
	big := bytes.Repeat([]byte("weir"), 1<<20)
	apply(t, s, set("empty", ""), ledger.Write{Key: []byte("big"), Value: big}, set("small", "x"))
	want(t, s, "empty", "")
	want(t, s, "big", string(big))
	if err := s.Sync(); err != nil {
		t.Fatalf("Sync: %v", err)
	}
	var many []ledger.Write
	for i := range 1200 {
		many = append(many, set(fmt.Sprintf("many%04d", i), string(big[:200])))
	}
	apply(t, s, many...)
	if n := len(scan(t, s, "many", "", false)); n != len(many) {
		t.Fatalf("%d of a batch of %d are there", n, len(many))
	}
}

func scanOrder(t *testing.T, s ledger.Store) {
	apply(t, s, set("b2", "4"), set("a", "1"), set("b", "2"), set("b1", "3"), set("c", "5"), set("b\x00", "z"), set("b\xff", "y"))
	up := []string{"b=2", "b\x00=z", "b1=3", "b2=4", "b\xff=y"}
	same(t, "ascending", scan(t, s, "b", "", false), up)
	slices.Reverse(up)
	same(t, "descending", scan(t, s, "b", "", true), up)
	same(t, "no such prefix", scan(t, s, "x", "", false), nil)
	same(t, "no such prefix, descending", scan(t, s, "x", "", true), nil)
}

func scanStart(t *testing.T, s ledger.Store) {
	apply(t, s, set("a9", "0"), set("b1", "1"), set("b3", "3"), set("b5", "5"), set("c1", "9"))
	same(t, "from a key that is there", scan(t, s, "b", "b3", false), []string{"b3=3", "b5=5"})
	same(t, "from between keys", scan(t, s, "b", "b2", false), []string{"b3=3", "b5=5"})
	same(t, "down from a key that is there", scan(t, s, "b", "b3", true), []string{"b3=3", "b1=1"})
	same(t, "down from between keys", scan(t, s, "b", "b4", true), []string{"b3=3", "b1=1"})
	same(t, "from the end", scan(t, s, "b", "b6", false), nil)
	same(t, "down from before the first", scan(t, s, "b", "b0", true), nil)
}

func scanStops(t *testing.T, s ledger.Store) {
	apply(t, s, set("a1", ""), set("a2", ""), set("a3", ""))
	n := 0
	err := s.Scan([]byte("a"), nil, false, func(_, _ []byte) bool { n++; return n < 2 })
	if err != nil || n != 2 {
		t.Fatalf("visited %d, %v; want 2", n, err)
	}
}

func scanWrites(t *testing.T, s ledger.Store) {
	apply(t, s, set("a1", "1"), set("a2", "2"))
	err := s.Scan([]byte("a"), nil, false, func(k, _ []byte) bool {
		apply(t, s, set("b"+string(k), "x"))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "written during the visit", scan(t, s, "b", "", false), []string{"ba1=x", "ba2=x"})
}

func syncs(t *testing.T, s ledger.Store) {
	for range 3 {
		if err := s.Sync(); err != nil {
			t.Fatalf("Sync: %v", err)
		}
		if err := s.Apply([]ledger.Write{set("a", "1")}, true); err != nil {
			t.Fatalf("Apply with sync: %v", err)
		}
	}
	want(t, s, "a", "1")
}

func concurrent(t *testing.T, s ledger.Store) {
	apply(t, s, set("k", "0"), set("l", "0"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				got := scan(t, s, "", "", false)
				if len(got) != 2 || got[0][2:] != got[1][2:] {
					t.Errorf("half a batch is visible: %q", got)
					return
				}
			}
		})
	}
	for i := range 200 {
		v := fmt.Sprint(i)
		apply(t, s, set("k", v), set("l", v))
		if i%50 == 0 {
			if err := s.Sync(); err != nil {
				t.Error(err)
			}
		}
	}
	wg.Wait()
}

// random compares with a map over many small operations, enough to make a store rotate its files.
func random(t *testing.T, s ledger.Store) {
	r := rand.New(rand.NewPCG(1, 2))
	model := map[string]string{}
	for range 3000 {
		var b []ledger.Write
		for range r.IntN(8) {
			k := fmt.Sprintf("k%03d", r.IntN(500))
			if r.IntN(4) == 0 {
				b = append(b, del(k))
				delete(model, k)
				continue
			}
			v := string(bytes.Repeat([]byte{byte('a' + r.IntN(26))}, r.IntN(2000)))
			b = append(b, set(k, v))
			model[k] = v
		}
		apply(t, s, b...)
	}
	var wanted []string
	for k, v := range model {
		wanted = append(wanted, k+"="+v)
	}
	slices.Sort(wanted)
	same(t, "after random operations", scan(t, s, "k", "", false), wanted)
}

func closed(t *testing.T, s ledger.Store) {
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if err := s.Apply([]ledger.Write{set("a", "1")}, false); err == nil {
		t.Fatal("a closed store took a write")
	}
	if err := s.Close(); err != nil {
		t.Fatalf("second Close: %v", err)
	}
}
