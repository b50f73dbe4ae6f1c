package admin

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// usage lists usage records, oldest first unless newest=true. JSON is a page; NDJSON and CSV run to the end, or
// to the limit when one is given.
func (a *API) usage(w http.ResponseWriter, r *http.Request) error {
	q := parseQuery(r.URL, "key", "user", "org", "model", "status", "from", "to", "newest", "limit", "cursor", "format")
	f := ledger.Filter{Key: q.id("key"), User: q.id("user"), Org: q.id("org"), Model: q.text("model"), Status: q.text("status"),
		From: q.time("from"), To: q.time("to"), Cursor: q.text("cursor"), Newest: q.flag("newest")}
	if err := oneOf("", "finalized", "partial", "refunded", "failed")(f.Status); err != nil {
		q.fail("status", "expected finalized, partial, refunded or failed, got %.32q", f.Status)
	}
	format := q.format(r)
	most := pageDefault
	if format != "json" {
		most = 0
	}
	most = q.limit(most)
	if q.err != nil {
		return q.err
	}
	records := a.Ledger.Records(f)
	if format == "json" {
		return a.usagePage(w, records, most)
	}
	return a.usageSheet(w, r, records, format, most)
}

// format follows ?format=, else the Accept header, else JSON.
func (q *query) format(r *http.Request) string {
	accept := r.Header.Get("Accept")
	switch s := q.text("format"); {
	case s == "json", s == "ndjson", s == "csv":
		return s
	case s != "":
		q.fail("format", "expected json, ndjson or csv, got %.32q", s)
	case strings.Contains(accept, "ndjson"), strings.Contains(accept, "jsonl"):
		return "ndjson"
	case strings.Contains(accept, "text/csv"):
		return "csv"
	}
	return "json"
}

// time reads RFC 3339 or a date, which is its first instant in UTC.
func (q *query) time(name string) time.Time {
	s := q.text(name)
	if s == "" {
		return time.Time{}
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t
		}
	}
	q.fail(name, "expected a time such as 2026-11-30T08:00:00Z or a date, got %.40q", s)
	return time.Time{}
}

func (q *query) flag(name string) bool {
	s := q.text(name)
	if s != "" && s != "true" && s != "false" {
		q.fail(name, "expected true or false, got %.32q", s)
	}
	return s == "true"
}

// recordView is one record; the columns of the CSV are its names.
func (a *API) recordView(r *ledger.Record) object {
	b, e := &r.Reserve, &r.End
	v := object{{"id", b.ID}, {"requestId", fmt.Sprintf("%016x", b.RequestID)}, {"startedAt", moment(b.AtMS)}, {"at", moment(e.AtMS)},
		{"orgId", b.OrgID}, {"userId", b.UserID}, {"keyId", b.KeyID}, {"model", b.Model}, {"channel", orNull(e.Channel)},
		{"endpoint", b.Endpoint.Path()}, {"stream", b.Stream}, {"status", e.Status.String()}, {"httpStatus", orNull(e.HTTPStatus)},
		{"inputTokens", e.Usage.InputTokens}, {"cachedInputTokens", e.Usage.CachedInputTokens},
		{"cacheWriteTokens", e.Usage.CacheWriteTokens}, {"outputTokens", e.Usage.OutputTokens},
		{"estimated", e.Estimated}, {"billed", b.Billed}, {"period", period(b.Label)}}
	v = append(v, a.money("held", b.Held)...)
	v = append(v, a.money("cost", e.Cost)...)
	return append(v, object{{"latencyMs", e.LatencyMS}, {"firstByteMs", orNull(e.FirstMS)},
		{"periodWeek", period(b.WeekLabel)}, {"periodDay", period(b.DayLabel)}, {"serviceTier", orNull(e.ServiceTier)}}...)
}

// period is a quota's period for people: its month, or its first day; null when no quota was metered.
func period(label int32) any {
	if label == 0 {
		return nil
	}
	return llm.PeriodName(label)
}

func (a *API) usagePage(w http.ResponseWriter, records iter.Seq2[ledger.Record, error], most int) error {
	rows, next := []object{}, ""
	cursor := ""
	for r, err := range records {
		if err != nil {
			return err
		}
		if len(rows) == most {
			next = cursor
			break
		}
		rows, cursor = append(rows, a.recordView(&r)), r.Cursor
	}
	writeJSON(w, ok(object{{"data", rows}, {"nextCursor", orNull(next)}}))
	return nil
}

// stream visits at most most records (0: all) while the client is there. An error after the first byte can only cut
// the answer short: the connection is aborted, so that nobody takes a part for the whole.
func (a *API) stream(r *http.Request, records iter.Seq2[ledger.Record, error], most int, visit func(object) error) error {
	n := 0
	for rec, err := range records {
		if err == nil {
			err = r.Context().Err()
		}
		if err == nil {
			err = visit(a.recordView(&rec))
		}
		if err != nil && n == 0 {
			return err
		}
		if err != nil {
			a.abort("a usage export", err)
		}
		if n++; n == most {
			break
		}
	}
	return nil
}

func (a *API) usageSheet(w http.ResponseWriter, r *http.Request, records iter.Seq2[ledger.Record, error], format string, most int) error {
	w.Header().Set("Content-Type", sheetTypes[format])
	out := newSheet(w, format, a.recordView(new(ledger.Record)))
	if err := a.stream(r, records, most, out.row); err != nil {
		return err
	}
	return out.end()
}

// audit lists who changed what, newest first.
func (a *API) audit(c *call) (answer, error) {
	q := parseQuery(c.URL, "limit", "cursor")
	from := q.id("cursor")
	most := q.limit(pageDefault)
	if q.err != nil {
		return answer{}, q.err
	}
	rows, next := []object{}, ""
	for l, err := range a.Ledger.Audit(from) {
		if err != nil {
			return answer{}, err
		}
		if len(rows) == most {
			next = strconv.FormatUint(l.Seq, 10)
			break
		}
		rows = append(rows, auditView(&l))
	}
	return ok(object{{"data", rows}, {"nextCursor", orNull(next)}}), nil
}

func auditView(l *ledger.AuditLine) object {
	raw := func(b []byte) any {
		if len(b) == 0 {
			return nil
		}
		return json.RawMessage(b)
	}
	return object{{"seq", l.Seq}, {"at", moment(l.AtMS)}, {"actor", l.Change.Actor}, {"action", l.Change.Action},
		{"target", l.Change.Target}, {"before", raw(l.Change.Before)}, {"after", raw(l.Change.After)},
		{"idempotencyKey", orNull(l.Change.Idempotency)},
		{"prev", fmt.Sprintf("%x", l.Prev)}, {"hash", fmt.Sprintf("%x", l.Hash)}}
}
