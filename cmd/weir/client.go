package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// remote is a running gateway's admin API, as the object commands reach it.
type remote struct {
	app      *app
	url      string
	token    string
	currency string
	json     bool
	patient  bool // an answer may take as long as it takes
}

// remoteFlags gives c and its children the flags of a remote; empty ones come from the environment.
func (a *app) remoteFlags(c *cobra.Command) *remote {
	r := &remote{app: a}
	f := c.PersistentFlags()
	f.StringVar(&r.url, "admin", "", "admin `URL` (default $WEIR_ADMIN_URL, else http://127.0.0.1:3001)")
	f.StringVar(&r.token, "admin-token", "", "admin token (default $WEIR_ADMIN_TOKEN)")
	f.StringVar(&r.currency, "currency", "cny", "the gateway's currency, for amounts")
	f.BoolVar(&r.json, "json", false, "print the API's JSON")
	return r
}

func (r *remote) resolve() error {
	from := "--admin"
	if _, ok := r.app.env("WEIR_ADMIN_URL"); ok && r.url == "" {
		from = "WEIR_ADMIN_URL"
	}
	for _, v := range []struct {
		to       *string
		name, or string
	}{{&r.url, "WEIR_ADMIN_URL", "http://127.0.0.1:3001"}, {&r.token, "WEIR_ADMIN_TOKEN", ""}} {
		if *v.to != "" {
			continue
		}
		*v.to = v.or
		if value, ok := r.app.env(v.name); ok {
			*v.to = value
		}
	}
	if r.token == "" {
		return usageError("no admin token: give --admin-token or set WEIR_ADMIN_TOKEN")
	}
	return checkURL(from, r.url)
}

// do makes one call and returns the answer's body. An error object becomes its message.
func (r *remote) do(ctx context.Context, method, path string, body []byte, contentType string) ([]byte, error) {
	if !r.patient {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Minute)
		defer cancel()
	}
	resp, err := r.send(ctx, method, path, body, contentType)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.ReadAll(resp.Body)
}

// send makes one call; the caller reads and closes the answer's body.
func (r *remote) send(ctx context.Context, method, path string, body []byte, contentType string) (*http.Response, error) {
	if err := r.resolve(); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(r.url, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, usageError("--admin: %v", err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer from the gateway at %s (is it running?): %w", r.url, hinted(err))
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil {
		err = apiError(resp.StatusCode, answer)
	}
	return nil, err
}

// copy prints an answer as it comes, however large it is and however long it takes.
func (r *remote) copy(ctx context.Context, path string) error {
	resp, err := r.send(ctx, http.MethodGet, path, nil, "")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err = io.Copy(r.app.out, resp.Body); err != nil {
		err = fmt.Errorf("the answer was cut off: %w", err)
	}
	return err
}

// refusal is an error of the admin API.
type refusal struct {
	status         int
	message, param string // param: the field that it is about, if any
}

func (e *refusal) Error() string { return e.message }

func apiError(status int, answer []byte) error {
	var e struct {
		Error struct{ Message, Param string }
	}
	if json.Unmarshal(answer, &e) != nil || e.Error.Message == "" {
		return fmt.Errorf("the gateway answered %d: %.200s", status, answer)
	}
	return &refusal{status, e.Error.Message, e.Error.Param}
}

// call sends a JSON object (nil: no body) and prints the answer.
func (r *remote) call(ctx context.Context, method, path string, body map[string]any, columns ...string) error {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return err
		}
	}
	answer, err := r.do(ctx, method, path, raw, "application/json")
	if err != nil {
		return err
	}
	return r.print(answer, columns)
}

// print writes the API's JSON as it is, or as lines for people: a table for a list, name and value for an object.
func (r *remote) print(answer []byte, columns []string) error {
	out := r.app.out
	if len(bytes.TrimSpace(answer)) == 0 {
		return nil
	}
	if r.json {
		var pretty bytes.Buffer
		if json.Indent(&pretty, answer, "", "  ") == nil {
			answer = pretty.Bytes()
		}
		_, err := fmt.Fprintln(out, strings.TrimSpace(string(answer)))
		return err
	}
	d := json.NewDecoder(bytes.NewReader(answer))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		_, err = out.Write(answer)
		return err
	}
	w := tabwriter.NewWriter(out, 2, 4, 2, ' ', 0)
	if rows, ok := object["data"].([]any); ok {
		table(w, rows, columns)
		if next, _ := object["nextCursor"].(string); next != "" {
			fmt.Fprintf(w, "more: --cursor %s\n", next)
		}
		return w.Flush()
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		fmt.Fprintf(w, "%s\t%s\n", name, cell(object[name]))
	}
	return w.Flush()
}

// table prints rows under their columns; a * in a column's name stands for the gateway's currency, whichever it is.
func table(w io.Writer, rows []any, columns []string) {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = columnIn(rows, c)
	}
	fmt.Fprintln(w, strings.ToUpper(strings.Join(names, "\t")))
	for _, row := range rows {
		object, _ := row.(map[string]any)
		cells := make([]string, len(names))
		for i, name := range names {
			cells[i] = cell(object[name])
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
}

// columnIn is the name that a column has in rows.
func columnIn(rows []any, column string) string {
	before, after, amount := strings.Cut(column, "*")
	if !amount || len(rows) == 0 {
		return before + after
	}
	first, _ := rows[0].(map[string]any)
	for name := range first {
		if len(name) == len(before)+len("Cny")+len(after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after) {
			return name
		}
	}
	return before + after
}

// cell is one value on one line.
func cell(v any) string {
	switch x := v.(type) {
	case nil:
		return "-"
	case string:
		return x
	case json.Number, bool:
		return fmt.Sprint(x)
	default:
		raw, _ := json.Marshal(x)
		return string(raw)
	}
}

// query builds a query string of the flags that were given.
func query(pairs map[string]string) string {
	q := url.Values{}
	for name, value := range pairs {
		if value != "" {
			q.Set(name, value)
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}
