package ledger_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

// A ledger stays in the currency it was first opened with.
func TestCurrency(t *testing.T) {
	store := storetest.NewMemory()
	open := func(currency string) error {
		l, _, err := ledger.Open(store, ledger.Options{Currency: currency}, llm.NewFakeClock(noon))
		if err != nil {
			return err
		}
		return l.Close()
	}
	for _, step := range []struct {
		currency string
		refused  bool
	}{{"", false}, {"CNY", false}, {"CNY", false}, {"", false}, {"USD", true}, {"CNY", false}} {
		applies := store.Applies()
		err := open(step.currency)
		if !step.refused {
			if err != nil {
				t.Fatalf("opening in %q: %v", step.currency, err)
			}
			continue
		}
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != llm.KindConflict || e.Code != "currency_differs" ||
			!strings.Contains(err.Error(), "CNY") || !strings.Contains(err.Error(), "USD") {
			t.Errorf("opening in %q what is kept in CNY: %v", step.currency, err)
		}
		if n := store.Applies(); n != applies {
			t.Errorf("a refused opening wrote %d times", n-applies)
		}
	}
}

// The currency is there after a power cut, as soon as Open returns.
func TestCurrencyIsDurable(t *testing.T) {
	r := start(t, storetest.NewMemory(), ledger.Options{Currency: "CNY"})
	if _, _, err := ledger.Open(r.store.CloneSynced(), ledger.Options{Currency: "USD"}, r.clock); code(err) != "currency_differs" {
		t.Errorf("opening in another currency after a power cut: %v", err)
	}
	r.verify()
}
