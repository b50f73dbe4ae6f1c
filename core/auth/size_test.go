package auth

import (
	"fmt"
	"runtime"
	"testing"
)

// An idle key costs at most 1 kB.
func TestIdleKeySize(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	f := newFixture(t)
	const n = 20_000
	before := heap()
	for i := range uint64(n) {
		k, token := f.mint(t, 10+i, 2)
		k.Name = fmt.Sprintf("key number %d", i)
		k.Labels = map[string]string{"tier": "free"}
		f.SetKey(k)
		if _, err := f.Resolve(token); err != nil {
			t.Fatal(err)
		}
	}
	if per := (heap() - before) / n; per > 1024 {
		t.Errorf("%d bytes per key", per)
	} else {
		t.Logf("%d bytes per key", per)
	}
	runtime.KeepAlive(f)
}
