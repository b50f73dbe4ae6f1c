package admin_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

func TestLedgerVerify(t *testing.T) {
	f := newFixture(t)
	f.account()
	f.spend(3, "gpt")
	f.ok("GET", "/admin/ledger/verify", nil).has(t, "ok", true, "entries", 7, "creditsCny", 100, "postedMicroCny", 57, "heldMicroCny", 0,
		"openReservations", 0, "firstWrong", nil, "problems.0", nil)
	f.refused(400, "GET", "/admin/ledger/verify?user=1", nil, "user")
	user := append([]byte{'u'}, 0, 0, 0, 0, 0, 0, 0, 1)
	f.must(f.store.Apply([]ledger.Write{{Key: user, Value: []byte{1, 2, 2}}}, true)) // credits 1, posted 1
	a := f.ok("GET", "/admin/ledger/verify", nil)
	a.has(t, "ok", false, "firstWrong", "user 1")
	if !strings.Contains(a.raw, "stored credits 1") {
		t.Errorf("the problem is not told: %s", a.raw)
	}
}

func TestLedgerReservations(t *testing.T) {
	f := newFixture(t)
	f.account()
	var open []limit.Reservation
	for range 3 {
		claim := limit.Claim{Caller: limit.Caller{Org: 1, User: 1, Key: 1}, Input: 10, Output: 20,
			Facts: llm.Entry{Endpoint: llm.Chat, Model: "gpt", RequestID: 0xCD, AtMS: f.clock.Wall().UnixMilli()}}
		claim.Money = limit.Money{Billed: true, Balance: true, Price: llm.Price{Input: 1_000_000, Output: 2_000_000}}
		res, denial, err := f.limiter.Reserve(t.Context(), &claim)
		if err != nil || denial != nil {
			t.Fatal(denial, err)
		}
		open = append(open, res)
	}
	f.spend(1, "gpt") // what comes later is written, so those are
	a := f.ok("GET", "/admin/ledger/reservations?limit=2", nil)
	a.has(t, "data.0.requestId", "00000000000000cd", "data.0.keyId", 1, "data.0.model", "gpt", "data.0.heldMicroCny", 50, "data.2", nil)
	f.ok("GET", fmt.Sprint("/admin/ledger/reservations?limit=2&cursor=", a.at("nextCursor")), nil).has(t, "data.0.heldMicroCny", 50, "data.1", nil, "nextCursor", nil)
	f.refused(400, "GET", "/admin/ledger/reservations?cursor=x", nil, "nextCursor")
	for _, r := range open {
		r.Release()
	}
	f.spend(1, "gpt")
	f.ok("GET", "/admin/ledger/reservations", nil).has(t, "data.0", nil)
}

// TestLedgerEntries exports in parts, each going on where the one before said.
func TestLedgerEntries(t *testing.T) {
	f := newFixture(t)
	f.account()
	f.spend(150, "gpt")
	var seen []map[string]any
	from := "1"
	for {
		a := f.ok("GET", "/admin/ledger/entries?limit=70&from="+from, nil)
		rows := strings.Split(strings.TrimSpace(a.raw), "\n")
		if a.raw == "" {
			break
		}
		for _, row := range rows {
			var e map[string]any
			f.must(json.Unmarshal([]byte(row), &e))
			seen = append(seen, e)
		}
		from = a.header.Get("X-Weir-Next")
	}
	if len(seen) != 301 || from != "302" {
		t.Fatalf("%d entries, the next would be %s", len(seen), from)
	}
	for i, e := range seen {
		if e["seq"] != float64(i+1) {
			t.Fatalf("row %d is entry %v", i, e["seq"])
		}
	}
	for i, want := range []map[string]any{
		{"kind": "credit", "userId": 1.0, "creditMicroCny": 100_000_000.0, "costMicroCny": nil, "id": nil, "model": nil, "status": nil},
		{"kind": "reserve", "userId": 1.0, "heldMicroCny": 50.0, "costMicroCny": nil, "inputTokens": 10.0, "outputTokens": nil, "inputCnyPer1M": 1.0},
		{"kind": "settle", "userId": 1.0, "keyId": 1.0, "model": "gpt", "costMicroCny": 19.0, "heldMicroCny": nil, "outputTokens": 7.0, "status": "finalized"},
	} {
		for name, v := range want {
			if got := seen[i][name]; got != v {
				t.Errorf("entry %d: %s is %v, want %v", i+1, name, got, v)
			}
		}
	}
	a := f.ok("GET", "/admin/ledger/entries?from=300", nil, "Accept", "text/csv")
	rows, err := csv.NewReader(strings.NewReader(a.raw)).ReadAll()
	if err != nil || len(rows) != 3 || rows[0][0] != "seq" || rows[2][0] != "301" || !strings.HasPrefix(a.header.Get("Content-Type"), "text/csv") {
		t.Errorf("the table is %v, %v", rows, err)
	}
	for query, says := range map[string]string{"format=json": "ndjson or csv", "from=0": "from 1 on", "limit=-1": "from 1 on", "cursor=3": "cursor"} {
		f.refused(400, "GET", "/admin/ledger/entries?"+query, nil, says)
	}
}

// TestBackupOverTheAPI restores what was streamed.
func TestBackupOverTheAPI(t *testing.T) {
	f := newFixture(t)
	f.account()
	f.spend(20, "gpt")
	a := f.ok("GET", "/admin/backup", nil)
	copied := storetest.NewMemory()
	report, err := ledger.Restore(strings.NewReader(a.raw), copied)
	if err != nil || report.Entries != 41 || report.Posted != 20*19 {
		t.Errorf("restored: %+v, %v", report, err)
	}
	f.refused(400, "GET", "/admin/backup?file=x", nil, "file")
}

// goneWriter is an answer whose client has left.
type goneWriter struct{ *httptest.ResponseRecorder }

func (goneWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestABrokenBackupIsNoBackup: what cannot be sent to its end breaks the connection, and does not end as if it were whole.
func TestABrokenBackupIsNoBackup(t *testing.T) {
	f := newFixture(t)
	f.account()
	defer func() {
		if r := recover(); r != http.ErrAbortHandler {
			t.Errorf("the handler ended with %v", r)
		}
	}()
	r := httptest.NewRequest("GET", "/admin/backup", nil)
	r.Header.Set("Authorization", "Bearer "+adminToken)
	f.handler.ServeHTTP(goneWriter{httptest.NewRecorder()}, r)
	t.Error("the handler returned")
}

// TestPruneOverTheAPI drops old records: the totals stay, and so does the proof.
func TestPruneOverTheAPI(t *testing.T) {
	f := newFixture(t)
	f.account()
	f.refused(400, "POST", "/admin/ledger/prune", j{"before": "soon"}, "2026-11-30T08:00:00Z")
	f.refused(400, "POST", "/admin/ledger/prune", j{}, "before", "required")
	f.refused(400, "POST", "/admin/ledger/prune", j{"before": "2027-01-01"}, "still to come")
	f.spend(10, "gpt")
	f.append(9_000)
	f.clock.Advance(24 * time.Hour)
	before := f.ok("GET", "/admin/users/1", nil).raw
	a := f.ok("POST", "/admin/ledger/prune", j{"before": f.clock.Wall().Format(time.RFC3339)})
	first := a.at("firstEntry")
	a.has(t, "droppedEntries", fmt.Sprint(number(t, first)-1))
	if number(t, first) <= 21 {
		t.Fatalf("nothing was dropped: %s", a.raw)
	}
	f.ok("GET", "/admin/ledger/entries?limit=1", nil).has(t, "seq", first)
	f.ok("GET", "/admin/ledger/verify", nil).has(t, "ok", true)
	f.ok("GET", "/admin/audit?limit=1", nil).has(t, "data.0.action", "ledger.prune", "data.0.actor", "admin")
	if after := f.ok("GET", "/admin/users/1", nil).raw; after != before {
		t.Errorf("the user was %s and is %s", before, after)
	}
	f.ok("GET", "/admin/usage?model=gpt", nil).has(t, "data.0", nil)
}

// append makes n requests straight in the ledger, of nothing that is billed.
func (f *fixture) append(n int) {
	f.t.Helper()
	var last uint64
	for range n {
		id := f.ledger.NextID()
		for _, e := range []llm.Entry{{Kind: llm.EntryReserve, ID: id, AtMS: f.clock.Wall().UnixMilli()},
			{Kind: llm.EntryVoid, ID: id, AtMS: f.clock.Wall().UnixMilli(), Status: llm.StatusRefunded}} {
			seq, err := f.ledger.Append(&e)
			f.must(err)
			last = seq
		}
		if n%1_000 == 0 {
			f.must(f.ledger.Wait(f.t.Context(), last, time.Minute))
		}
	}
	f.must(f.ledger.Wait(f.t.Context(), last, time.Minute))
}

func number(t *testing.T, v any) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(fmt.Sprint(v), &n); err != nil {
		t.Fatal(err)
	}
	return n
}
