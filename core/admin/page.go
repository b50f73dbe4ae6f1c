package admin

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/weir-gateway/weir/core/llm"
)

const (
	pageDefault = 100
	pageMost    = 1000
)

// query reads a request's parameters; each must be known and given once. The first error sticks.
type query struct {
	values url.Values
	err    error
}

func parseQuery(u *url.URL, known ...string) *query {
	q := new(query)
	if q.values, q.err = url.ParseQuery(u.RawQuery); q.err != nil {
		q.err = llm.Invalid("", "the query string is malformed")
	}
	for name, v := range q.values {
		switch {
		case !slices.Contains(known, name):
			q.fail(name, "unknown query parameter%s", suggest(name, known))
		case len(v) > 1:
			q.fail(name, "given %d times; expected once", len(v))
		}
	}
	return q
}

func (q *query) fail(name, format string, args ...any) {
	if q.err == nil {
		q.err = llm.Invalid(name, "%s", fmt.Sprintf("%.64s: ", name)+fmt.Sprintf(format, args...))
	}
}

func (q *query) text(name string) string { return q.values.Get(name) }

func (q *query) id(name string) uint64 {
	s := q.text(name)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 {
		q.fail(name, "expected the number of an object, got %.32q", s)
	}
	return n
}

// limit is how many items a page has; absent is what the caller says.
func (q *query) limit(absent int) int {
	s := q.text("limit")
	if s == "" {
		return absent
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > pageMost {
		q.fail("limit", "expected a whole number from 1 to %d, got %.32q", pageMost, s)
	}
	return n
}

// pageOf cuts a page out of items sorted by key. The cursor is the key of the last item seen.
func pageOf[T any, K cmp.Ordered](q *query, items []T, key func(T) K, parse func(string) (K, error), view func(T) object) (answer, error) {
	limit, start := q.limit(pageDefault), 0
	if s := q.text("cursor"); s != "" {
		after, err := parse(s)
		if err != nil {
			q.fail("cursor", "expected the nextCursor of an earlier page, got %.32q", s)
		}
		var found bool
		if start, found = slices.BinarySearchFunc(items, after, func(t T, k K) int { return cmp.Compare(key(t), k) }); found {
			start++
		}
	}
	if q.err != nil {
		return answer{}, q.err
	}
	items = items[start:]
	more := len(items) > limit
	items = items[:min(limit, len(items))]
	rows := make([]object, len(items))
	for i, t := range items {
		rows[i] = view(t)
	}
	next := ""
	if more {
		next = fmt.Sprint(key(items[limit-1]))
	}
	return ok(object{{"data", rows}, {"nextCursor", orNull(next)}}), nil
}

func parseID(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) }

func parseName(s string) (string, error) { return s, nil }

// only keeps the items that match.
func only[T any](items []T, keep func(T) bool) []T {
	return slices.DeleteFunc(items, func(t T) bool { return !keep(t) })
}

// id is the number in the path.
func (c *call) id(kind string) (uint64, error) {
	s := c.PathValue("id")
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 {
		return 0, llm.Errorf(llm.KindNotFound, "no %s %.64q; ids are numbers", kind, s)
	}
	return n, nil
}
