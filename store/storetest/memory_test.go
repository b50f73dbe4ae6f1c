package storetest_test

import (
	"testing"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(testing.TB) ledger.Store { return storetest.NewMemory() })
}

func TestMemoryCrash(t *testing.T) {
	m := storetest.NewMemory()
	write := func(key string, sync bool) {
		t.Helper()
		if err := m.Apply([]ledger.Write{{Key: []byte(key), Value: []byte("x")}}, sync); err != nil {
			t.Fatal(err)
		}
	}
	has := func(m *storetest.Memory, key string) bool {
		_, ok, _ := m.Get([]byte(key))
		return ok
	}
	write("synced", true)
	write("applied", false)
	killed, cut := m.Clone(), m.CloneSynced()
	write("later", true)
	if !has(killed, "synced") || !has(killed, "applied") || has(killed, "later") {
		t.Error("a killed process leaves everything applied, and nothing later")
	}
	if !has(cut, "synced") || has(cut, "applied") || has(cut, "later") {
		t.Error("a power cut leaves what was synced")
	}
	m.FailNext(2)
	for i := range 3 {
		err := m.Apply([]ledger.Write{{Key: []byte("f"), Value: []byte("x")}}, false)
		if (err != nil) != (i < 2) {
			t.Errorf("call %d after FailNext(2): %v", i, err)
		}
	}
}
