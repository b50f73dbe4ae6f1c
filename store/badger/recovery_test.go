package badger

import (
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// TestC6RecoveryOnDisk: the folder of a killed process with 10,000 open reservations is ready within 5 s, with nothing held.
func TestC6RecoveryOnDisk(t *testing.T) {
	const n = 10_000
	live, killed := t.TempDir(), t.TempDir()
	s, err := Open(live, Options{})
	must(t, err)
	defer s.Close()
	l, _, err := ledger.Open(s, ledger.Options{}, llm.NewSystemClock())
	must(t, err)
	defer l.Close()
	for i := range n {
		e := request(l)[0]
		seq, err := l.Append(&e)
		must(t, err)
		if i%1_000 == 999 {
			must(t, l.Wait(t.Context(), seq, time.Minute))
		}
	}
	must(t, s.Sync()) // or the copy may be torn
	copyFolder(t, live, killed)
	at := time.Now()
	s, err = Open(killed, Options{})
	must(t, err)
	defer s.Close()
	l, state, err := ledger.Open(s, ledger.Options{}, llm.NewSystemClock())
	must(t, err)
	defer l.Close()
	if took := time.Since(at); took > 5*time.Second || len(state.Recoveries) != n || state.Balances[1].Available() != -n*10 {
		t.Errorf("after %v: %d recovered, available %d", took, len(state.Recoveries), state.Balances[1].Available())
	}
	if report, err := l.Verify(); err != nil || len(report.Problems) > 0 || report.Held != 0 || report.Open != 0 {
		t.Errorf("%v, %+v", err, report)
	}
}
