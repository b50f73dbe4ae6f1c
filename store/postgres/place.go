package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-gateway/weir/core/llm"
)

// place is a database and how it is reached.
type place struct {
	name string // for people: without user and password
	host string // of this process
	pool *pgxpool.Config
}

// parse reads a URL of PostgreSQL's. No error of it repeats what may be a secret.
func parse(at string, timeout time.Duration) (place, error) {
	u, err := url.Parse(at)
	if err != nil || u.User == nil && strings.Contains(at, "@") { // a / or # of the password ended the host
		return place{}, llm.Invalid("data", "what data names is not a URL of PostgreSQL's, postgres://user:password@host:5432/database; is every character of the password that is neither letter nor digit percent-encoded?")
	}
	pool, err := pgxpool.ParseConfig(at)
	if err != nil {
		return place{}, llm.Invalid("data", "the URL of the database does not read: %s", reason(u, err))
	}
	c := pool.ConnConfig
	if c.Database == "" {
		return place{}, llm.Invalid("data", "the URL of the database names none; write postgres://user:password@host:5432/database")
	}
	p := place{name: fmt.Sprintf("%s at %s", c.Database, address(c)), pool: pool}
	if p.host, err = os.Hostname(); err != nil {
		p.host = "unknown"
	}
	ms := strconv.FormatInt(timeout.Milliseconds(), 10)
	for name, value := range map[string]string{
		"application_name":                    fmt.Sprintf("weir on %.36s, pid %d", plain(p.host), os.Getpid()),
		"default_transaction_isolation":       "read committed",
		"statement_timeout":                   ms,
		"idle_in_transaction_session_timeout": "0", // a backup is as slow as its reader
		"tcp_keepalives_idle":                 "10",
		"tcp_keepalives_interval":             "5",
		"tcp_keepalives_count":                "3",
		// Everything here goes by key, also while the server believes that its tables are small.
		"enable_seqscan":    "off",
		"enable_bitmapscan": "off",
		"enable_sort":       "off",
		"jit":               "off",
	} {
		c.RuntimeParams[name] = value
	}
	if c.ValidateConnect == nil {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, timeout)
	pool.MaxConns, pool.MinConns, pool.MinIdleConns = readers, 0, 0
	return p, nil
}

// address is host and port, or the folder of a socket.
func address(c *pgx.ConnConfig) string {
	if strings.HasPrefix(c.Host, "/") {
		return c.Host
	}
	return fmt.Sprintf("%s:%d", c.Host, c.Port)
}

// reason is what is wrong with a URL, without the URL and its secrets.
func reason(u *url.URL, err error) string {
	text := err.Error()
	if _, rest, ok := strings.Cut(text, "`: "); ok {
		text = rest
	}
	password, _ := u.User.Password()
	secrets := []string{password}
	for name, values := range u.Query() {
		if strings.Contains(name, "password") {
			secrets = append(secrets, values...)
		}
	}
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "(hidden)")
		}
	}
	return oneLine(text)
}

// plain is a name as every server's encoding has it.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
}

func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' || r == '\t' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return l == "" }), " ")
}

// failed says that a database could not be asked, or did not answer.
func (p place) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*llm.Error](err); ok {
		return known
	}
	return &llm.Error{Kind: llm.KindUnavailable, Code: "store_unavailable", Message: fmt.Sprintf("%s the database %s", doing, p.name), Err: inLine{err}}
}

// inLine is an error on one line.
type inLine struct{ error }

func (e inLine) Error() string { return oneLine(e.error.Error()) }
func (e inLine) Unwrap() error { return e.error }
