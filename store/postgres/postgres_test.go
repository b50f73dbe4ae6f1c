package postgres_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/store/postgres"
	"github.com/weir-gateway/weir/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, url string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(url, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestPostgres(t *testing.T) {
	storetest.Run(t, func(t testing.TB) ledger.Store {
		_, url := storetest.Postgres(t)
		return open(t, url)
	})
}
