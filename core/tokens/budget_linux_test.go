package tokens

import (
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the CPU time of the calling thread, which other load on the machine cannot stretch much.
func threadTime(t testing.TB) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// most is what the budget is meant to keep: CPU time for each 100 kB begun. Tests allow slack times that.
const most = 2 * time.Millisecond

// counted is the shortest of some runs of f, for each 100 kB begun of size bytes.
func counted(t testing.TB, runs, size int, f func()) time.Duration {
	least := time.Hour
	for range runs {
		start := threadTime(t)
		f()
		least = min(least, threadTime(t)-start)
	}
	return least / time.Duration(1+size/workSpan)
}

// S11: the budget means what it says, whatever has to be undone or replaced first.
func TestS11TimeIsBounded(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := counter()
	check := func(name, text string, count func(Encoding, []byte)) {
		for _, model := range []string{"gpt-4", "gpt-4o"} {
			e := c.For(model)
			spent := counted(t, 2, len(text), func() { count(e, []byte(text)) })
			t.Logf("%s, %s: %v per 100 kB", name, model, spent)
			if spent > slack*most {
				t.Errorf("%s, %s: %v per 100 kB, meant to be at most %v", name, model, spent, most)
			}
		}
	}
	text := func(e Encoding, b []byte) { c.Text(e, b) }
	for name, s := range hostile(1 << 20) {
		check(name, s, text)
	}
	for name, s := range stray(1 << 20) {
		check(name, s, text)
	}
	for _, unit := range escapes {
		check(unit, strings.Repeat(unit, 1<<20/len(unit)), func(e Encoding, b []byte) { c.Escaped(e, b) })
	}
}

// escapes are dear to undo.
var escapes = []string{`\n`, `a\n`, `\"`, `\u0061`, `\u6f22\u5b57`, `\ud83d\ude00`, `\ud83d`, `\x`, `abcdefgh\t`}

// stray are texts with bytes that are no UTF-8.
func stray(size int) map[string]string {
	return map[string]string{
		"stray":                strings.Repeat("\xff", size),
		"letters and stray":    strings.Repeat("a\xff", size/2),
		"cut characters":       strings.Repeat("\xe6\xbc", size/2),
		"bytes at random":      fill(rand.New(rand.NewPCG(1, 9)), size, func(r *rand.Rand) string { return string([]byte{byte(r.IntN(256))}) }),
		"half of it at random": fill(rand.New(rand.NewPCG(2, 9)), size, func(r *rand.Rand) string { return string([]byte{"a\xff"[r.IntN(2)]}) }),
	}
}

// No mixture of what is dear is dearer than its parts: the budget is true of each part's work.
func TestS11MixturesAreBounded(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := counter()
	r := rand.New(rand.NewPCG(11, 12))
	all := dear()
	names := slices.Sorted(maps.Keys(all))
	var worst time.Duration
	var made string
	for range 60 {
		parts := make([]string, 2+r.IntN(4))
		for i := range parts {
			parts[i] = names[r.IntN(len(names))]
		}
		run := 1 + r.IntN(20)
		text := []byte(fill(r, 99_000, func(r *rand.Rand) string {
			return fill(r, 1+r.IntN(run), all[parts[r.IntN(len(parts))]])
		}))
		for _, model := range []string{"gpt-4", "gpt-4o"} {
			e := c.For(model)
			if spent := counted(t, 3, len(text), func() { c.Text(e, text) }); spent > worst {
				worst, made = spent, model+": "+strings.Join(parts, " + ")
			}
		}
	}
	t.Logf("%v per 100 kB, %s", worst, made)
	if worst > slack*most {
		t.Errorf("%v per 100 kB, meant to be at most %v: %s", worst, most, made)
	}
}

// BenchmarkWorst is the dearest of the hostile texts, by the least time that each takes: in ns for 100 kB, and as a
// multiple of hashing as many bytes one by one, which says less of the machine. The clock is the wall's: where a
// hypervisor takes time away, what is left of a thread's may be too little, and no run is so long that none goes undisturbed.
func BenchmarkWorst(b *testing.B) {
	texts := map[string][]byte{}
	for name, text := range hostile(99_000) {
		texts[name] = []byte(beginning(text, 99_000))
	}
	for name, text := range stray(99_000) {
		texts[name] = []byte(text)
	}
	for _, encoding := range encodingNames {
		b.Run(encoding, func(b *testing.B) { benchmarkWorst(b, Encoding{vocabOf(encoding), permille}, texts) })
	}
}

func benchmarkWorst(b *testing.B, e Encoding, texts map[string][]byte) {
	c, h := counter(), fnv.New64a()
	least, yard := map[string]time.Duration{}, time.Hour
	took := func(f func()) time.Duration {
		start := time.Now()
		f()
		return time.Since(start)
	}
	for b.Loop() {
		for name, text := range texts {
			spent := took(func() { c.Text(e, text) })
			if was, ok := least[name]; !ok || spent < was {
				least[name] = spent
			}
		}
		yard = min(yard, took(func() { h.Write(texts["one letter"]) }))
	}
	names := slices.SortedFunc(maps.Keys(least), func(x, y string) int { return int(least[y] - least[x]) })
	for _, name := range names[:5] {
		b.Logf("%v: %s", least[name], name)
	}
	b.ReportMetric(float64(least[names[0]]), "ns/100kB")
	b.ReportMetric(float64(least[names[0]])/float64(yard), "x-hash")
}
