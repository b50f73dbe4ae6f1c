package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// LedgerView shows a ledger in the API's words: this API a running one, commands that of a stopped gateway. It is
// immutable.
type LedgerView struct{ suffix string }

// NewLedgerView is a view of amounts in a currency; an empty one means "cny".
func NewLedgerView(currency string) LedgerView { return LedgerView{suffixOf(currency)} }

func (a *API) ledgerView() LedgerView { return LedgerView{a.suffix} }

// Report is what verification found.
func (v LedgerView) Report(r ledger.Report) json.Marshaler {
	o := object{{"ok", len(r.Problems) == 0}, {"entries", r.Entries}, {"openReservations", r.Open}}
	o = append(o, money(v.suffix, "credits", r.Credits)...)
	o = append(o, money(v.suffix, "posted", r.Posted)...)
	o = append(o, money(v.suffix, "held", r.Held)...)
	return append(o, object{{"firstWrong", orNull(r.FirstWrong)}, {"problems", list(r.Problems)}}...)
}

// Reservations is a page of those that are open; query has the route's limit and cursor.
func (v LedgerView) Reservations(query string, all []ledger.Reservation) (json.Marshaler, error) {
	ans, err := pageOf(parseQuery(&url.URL{RawQuery: query}, "limit", "cursor"), all,
		func(r ledger.Reservation) uint64 { return r.Reserve.ID }, parseID, v.reservation)
	if err != nil {
		return nil, err
	}
	return ans.value.(object), nil
}

func (v LedgerView) reservation(r ledger.Reservation) object {
	e := &r.Reserve
	o := object{{"id", e.ID}, {"requestId", requestID(e)}, {"startedAt", moment(e.AtMS)}, {"orgId", e.OrgID}, {"userId", e.UserID}, {"keyId", e.KeyID},
		{"model", e.Model}, {"endpoint", e.Endpoint.Path()}, {"stream", e.Stream}, {"inputTokens", e.Usage.InputTokens}, {"outputTokens", r.Output},
		{"billed", e.Billed}, {"period", period(e.Label)}}
	return append(o, money(v.suffix, "held", e.Held)...)
}

func requestID(e *llm.Entry) string { return fmt.Sprintf("%016x", e.RequestID) }

// Export says which entries are wanted, and how.
type Export struct {
	Format string // ndjson or csv
	From   uint64 // the first entry; 0: the first that the log still has
	Most   int    // 0: all
}

// ParseExport reads the query of the route: from, limit and format. An error names what was expected.
func ParseExport(query string) (Export, error) {
	q := parseQuery(&url.URL{RawQuery: query}, "from", "limit", "format")
	x := Export{Format: q.text("format"), From: q.whole("from"), Most: int(q.whole("limit"))}
	if x.Format == "" {
		x.Format = "ndjson"
	}
	if sheetTypes[x.Format] == "" {
		q.fail("format", "expected ndjson or csv, got %.32q", x.Format)
	}
	return x, q.err
}

// whole is a number that counts from 1; absent it is 0.
func (q *query) whole(name string) uint64 {
	s := q.text(name)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n == 0 {
		q.fail(name, "expected a whole number from 1 on, got %.32q", s)
	}
	return n
}

// Export writes entries one by one, and gives the number at which the next export goes on. When it is the number that
// was asked for, nothing was written.
func (v LedgerView) Export(ctx context.Context, w io.Writer, lines func(from uint64) iter.Seq2[ledger.Line, error], x Export) (next uint64, err error) {
	out := newSheet(w, x.Format, v.line(new(ledger.Line)))
	next = max(x.From, 1)
	n := 0
	for line, err := range lines(x.From) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = out.row(v.line(&line))
		}
		if err != nil {
			return next, err
		}
		next = line.Seq + 1
		if n++; n == x.Most {
			break
		}
	}
	return next, out.end()
}

// kinds are the words for the kinds of entry.
var kinds = [...]string{llm.EntryReserve: "reserve", llm.EntryProgress: "progress", llm.EntrySettle: "settle", llm.EntryVoid: "void", llm.EntryCredit: "credit"}

// line is one entry; the columns of the table are its names, those of usage records where both have them. What an entry
// does not say is null; an ending also shows who and what its reserve was for.
func (v LedgerView) line(l *ledger.Line) object {
	e, about := &l.Entry, &l.Entry
	ends := e.Kind == llm.EntrySettle || e.Kind == llm.EntryVoid
	reserves := e.Kind == llm.EntryReserve
	if ends {
		about = &l.Reserve
	}
	o := object{{"seq", l.Seq}, {"kind", kinds[e.Kind]}, {"id", orNull(e.ID)}, {"requestId", given(about.RequestID != 0, requestID(about))},
		{"at", moment(e.AtMS)}, {"orgId", orNull(about.OrgID)}, {"userId", orNull(about.UserID)}, {"keyId", orNull(about.KeyID)},
		{"model", orNull(about.Model)}, {"channel", orNull(e.Channel)}, {"endpoint", given(ends || reserves, about.Endpoint.Path())},
		{"stream", given(ends || reserves, about.Stream)}, {"status", given(ends, e.Status.String())}, {"httpStatus", orNull(e.HTTPStatus)},
		{"inputTokens", given(ends || reserves, e.Usage.InputTokens)}, {"cachedInputTokens", given(ends, e.Usage.CachedInputTokens)},
		{"cacheWriteTokens", given(ends, e.Usage.CacheWriteTokens)}, {"outputTokens", given(ends || e.Kind == llm.EntryProgress, e.Usage.OutputTokens)},
		{"estimated", given(ends, e.Estimated)}, {"billed", given(ends || reserves, about.Billed)}, {"period", period(about.Label)}}
	o = append(o, v.maybe(reserves, "held", e.Held)...)
	o = append(o, v.maybe(ends, "cost", e.Cost)...)
	o = append(o, v.maybe(e.Kind == llm.EntryCredit, "credit", e.Cost)...)
	for _, p := range []struct {
		name  string
		price llm.Micro
	}{{"input" + v.suffix + "Per1M", e.Price.Input}, {"cachedInput" + v.suffix + "Per1M", e.Price.CachedInput}, {"cacheWrite" + v.suffix + "Per1M", e.Price.CacheWrite},
		{"output" + v.suffix + "Per1M", e.Price.Output}, {"request" + v.suffix, e.Price.Request}} {
		o = append(o, member{p.name, given(reserves, decimal(p.price))})
	}
	return append(o, object{{"latencyMs", given(ends, e.LatencyMS)}, {"firstByteMs", orNull(e.FirstMS)},
		{"periodWeek", period(about.WeekLabel)}, {"periodDay", period(about.DayLabel)}, {"serviceTier", orNull(e.ServiceTier)}}...)
}

// given is a value where it is meant, else null.
func given[T any](meant bool, v T) any {
	if meant {
		return v
	}
	return nil
}

func (v LedgerView) maybe(meant bool, name string, m llm.Micro) object {
	o := money(v.suffix, name, m)
	for i := range o {
		o[i].value = given(meant, o[i].value)
	}
	return o
}

// verifyLedger adds everything up from the first entry, while requests go on.
func (a *API) verifyLedger(c *call) (answer, error) {
	if q := parseQuery(c.URL); q.err != nil {
		return answer{}, q.err
	}
	report, err := a.Ledger.Verify()
	return ok(a.ledgerView().Report(report)), err
}

func (a *API) reservations(c *call) (answer, error) {
	all, err := a.Ledger.Reservations(c.Context())
	if err != nil {
		return answer{}, err
	}
	page, err := a.ledgerView().Reservations(c.URL.RawQuery, all)
	return ok(page), err
}

// nextHeader is the trailer that says where the next export goes on. It is missing when the export ended early.
const nextHeader = "X-Weir-Next"

func (a *API) entries(w http.ResponseWriter, r *http.Request) error {
	x, err := ParseExport(r.URL.RawQuery)
	if err != nil {
		return err
	}
	if r.URL.Query().Get("format") == "" && strings.Contains(r.Header.Get("Accept"), "text/csv") {
		x.Format = "csv"
	}
	w.Header().Set("Content-Type", sheetTypes[x.Format])
	w.Header().Set("Trailer", nextHeader)
	next, err := a.ledgerView().Export(r.Context(), w, a.Ledger.Lines, x)
	switch {
	case err == nil:
		w.Header().Set(nextHeader, strconv.FormatUint(next, 10))
	case next > max(x.From, 1):
		a.abort("an export of entries", err)
	default:
		w.Header().Del("Trailer")
	}
	return err
}

// backup streams the whole store as it is at one moment.
func (a *API) backup(w http.ResponseWriter, r *http.Request) error {
	if q := parseQuery(r.URL); q.err != nil {
		return q.err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	c, err := a.Ledger.Backup(w)
	if err != nil && c.Keys == 0 {
		return err // nothing was written
	}
	if err != nil {
		a.abort("a backup", err)
	}
	a.Log.Info("a backup was taken", "keys", c.Keys, "bytes", c.Bytes)
	return nil
}

// abort breaks the connection of an answer that has begun and cannot be ended, so that nobody takes a part for the whole.
func (a *API) abort(what string, err error) {
	a.Log.Warn(what+" ended early", "error", err)
	panic(http.ErrAbortHandler)
}

// prune drops old usage records. It takes no turn: no object changes, and it may last.
func (a *API) prune(c *call) (answer, error) {
	b, text := parseBody(c.body), ""
	b.need("before")
	b.text("before", &text, func(string) error { return nil })
	if err := b.end(); err != nil {
		return answer{}, err
	}
	before, err := ParseBefore(text, a.Clock.Wall())
	if err != nil {
		return answer{}, err
	}
	done, err := a.Ledger.Prune(c.ctx, ledger.Change{Actor: "admin"}, before)
	return ok(a.ledgerView().Pruned(done)), err
}

// ParseBefore reads the time before which records are dropped: RFC 3339 or a date, its first instant in UTC. A time that
// is still to come is refused.
func ParseBefore(s string, now time.Time) (time.Time, error) {
	q := &query{values: url.Values{"before": {s}}}
	t := q.time("before")
	if t.IsZero() {
		q.fail("before", "expected a time such as 2026-11-30T08:00:00Z or a date")
	}
	if t.After(now) {
		q.fail("before", "%s is still to come; records of the past can be dropped", s)
	}
	return t, q.err
}

// Pruned is what a Prune did.
func (v LedgerView) Pruned(p ledger.Pruned) json.Marshaler {
	return object{{"firstEntry", p.First}, {"droppedEntries", p.Entries}}
}
