package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/config"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/store"
)

// books are the ledger that a command is about: a running gateway's, or that in the data folder or database of a stopped one.
type books struct {
	*remote
	cmd        *cobra.Command
	data, file string
}

const whichLedger = "The ledger is that of a stopped gateway with --data or -c, that of a running one with --admin or --admin-token, or when\n" +
	"WEIR_ADMIN_URL or WEIR_ADMIN_TOKEN is set; else the one in ./data."

func (a *app) books(c *cobra.Command) *books {
	b := &books{remote: a.remoteFlags(c), cmd: c}
	b.patient = true
	c.PersistentFlags().StringVar(&b.data, "data", "", "data `folder` of a stopped gateway, or its postgres:// URL")
	c.PersistentFlags().StringVarP(&b.file, "config", "c", "", "configuration `file` of a stopped gateway, for its data folder")
	return b
}

// stopped is the data folder to read, or "" when a running gateway is to be asked.
func (b *books) stopped() (string, error) {
	named := b.url != "" || b.token != ""
	switch {
	case named && b.data+b.file != "" || b.data != "" && b.file != "":
		return "", usageError("%s is about one ledger: give --data, or -c, or --admin and --admin-token", b.cmd.CommandPath())
	case b.data != "":
		return b.data, nil
	case b.file != "":
		cfg, err := config.Load(b.file, b.app.env)
		if err != nil {
			return "", err
		}
		return cfg.Data, nil
	}
	_, address := b.app.env("WEIR_ADMIN_URL")
	_, token := b.app.env("WEIR_ADMIN_TOKEN")
	if named || address || token {
		return "", nil
	}
	return "./data", nil
}

// read calls one of two, with what a stopped gateway's data folder holds or for the running gateway.
func (b *books) read(folder func(ledger.Store, admin.LedgerView) error, running func() error) error {
	dir, err := b.stopped()
	if err != nil {
		return err
	}
	if dir == "" {
		err := running()
		if _, unreachable := errors.AsType[*url.Error](err); unreachable {
			err = fmt.Errorf("%w; --data DIR reads the folder of a stopped one", err)
		}
		return err
	}
	st, err := store.OpenExisting(dir)
	if err != nil {
		return err
	}
	currency, err := ledger.Currency(st)
	if err == nil {
		err = folder(st, admin.NewLedgerView(currency))
	}
	return errors.Join(err, st.Close())
}

// show prints what either of two gives.
func (b *books) show(columns []string, folder func(ledger.Store, admin.LedgerView) (json.Marshaler, error), running func() ([]byte, error)) error {
	return b.read(func(st ledger.Store, view admin.LedgerView) error {
		answer, err := folder(st, view)
		if err != nil {
			return err
		}
		raw, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		return b.print(raw, columns)
	}, func() error {
		raw, err := running()
		if err != nil {
			return err
		}
		return b.print(raw, columns)
	})
}

func (a *app) ledgerCommand() *cobra.Command {
	c := group("ledger", "Verify, export and prune a ledger, and list what is open in it")
	c.Long = c.Short + ".\n" + whichLedger
	b := a.books(c)
	c.AddCommand(b.verify(), b.export(), b.reservations(), b.prune())
	return c
}

func (b *books) verify() *cobra.Command {
	return &cobra.Command{Use: "verify", Short: "Add every account up from the first entry and check the audit chain", Args: exactly(),
		Long: "Add every account up from the first entry and check the audit chain. Exit 1 names the first account that is wrong.\n" + whichLedger,
		RunE: func(c *cobra.Command, _ []string) error {
			return b.read(func(st ledger.Store, view admin.LedgerView) error {
				report, err := ledger.Verify(untilStopped{st, c.Context()})
				if err != nil {
					return err
				}
				raw, err := view.Report(report).MarshalJSON()
				if err != nil {
					return err
				}
				return b.printReport(raw)
			}, func() error {
				raw, err := b.do(c.Context(), "GET", "/admin/ledger/verify", nil, "")
				if err != nil {
					return err
				}
				return b.printReport(raw)
			})
		}}
}

// untilStopped is a store whose scans end with a context.
type untilStopped struct {
	ledger.Store
	ctx context.Context
}

func (u untilStopped) Scan(prefix, start []byte, reverse bool, visit func(key, value []byte) bool) error {
	err := u.Store.Scan(prefix, start, reverse, func(key, value []byte) bool { return u.ctx.Err() == nil && visit(key, value) })
	if err == nil && u.ctx.Err() != nil {
		err = fmt.Errorf("stopped before everything was read: %w", u.ctx.Err())
	}
	return err
}

// printReport prints what verification found, and fails when something does not add up.
func (b *books) printReport(raw []byte) error {
	var r map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&r); err != nil {
		return fmt.Errorf("reading the report: %w", err)
	}
	problems, _ := r["problems"].([]any)
	if b.json {
		if err := b.print(raw, nil); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(b.app.out, "%v entries: credits %v, posted %v, held %v in %v open reservations\n", r["entries"], units(r, "credits"), units(r, "posted"), units(r, "held"), r["openReservations"])
		for _, p := range problems {
			fmt.Fprintln(b.app.out, "problem:", p)
		}
	}
	switch first, _ := r["firstWrong"].(string); {
	case len(problems) == 0:
		return nil
	case first == "":
		return fmt.Errorf("the ledger does not add up: %v", problems[0])
	default:
		return fmt.Errorf("the ledger does not add up; the first wrong account is %s", first)
	}
}

// units is an amount of an object in units, whatever the currency.
func units(object map[string]any, name string) any {
	for member, v := range object {
		if strings.HasPrefix(member, name) && !strings.Contains(member, "Micro") {
			return v
		}
	}
	return nil
}

func (b *books) reservations() *cobra.Command {
	c := &cobra.Command{Use: "reservations", Short: "List what is held for requests that have not ended", Args: exactly(),
		Long: "List what is held for requests that have not ended. In the folder of a stopped gateway these are what its next start settles.\n" + whichLedger}
	limit := c.Flags().String("limit", "", "rows of a page")
	cursor := c.Flags().String("cursor", "", "continue a list")
	columns := []string{"id", "startedAt", "userId", "keyId", "model", "heldMicro*", "outputTokens"}
	c.RunE = func(c *cobra.Command, _ []string) error {
		q := query(map[string]string{"limit": *limit, "cursor": *cursor})
		return b.show(columns, func(st ledger.Store, view admin.LedgerView) (json.Marshaler, error) {
			all, err := ledger.Reservations(st)
			if err != nil {
				return nil, err
			}
			return view.Reservations(strings.TrimPrefix(q, "?"), all)
		}, func() ([]byte, error) { return b.do(c.Context(), "GET", "/admin/ledger/reservations"+q, nil, "") })
	}
	return c
}

func (b *books) export() *cobra.Command {
	c := &cobra.Command{Use: "export", Short: "Write the entries of the log to stdout, as NDJSON or CSV", Args: exactly(),
		Long: "Write the entries of the log to stdout, one by one. The last line on stderr says where the next export goes on: `next: --from N`.\n" + whichLedger}
	format := c.Flags().String("format", "ndjson", "ndjson or csv")
	from := c.Flags().String("from", "", "first `entry` (default the first that the log still has)")
	limit := c.Flags().String("limit", "", "most `rows` (default all)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		q := query(map[string]string{"format": *format, "from": *from, "limit": *limit})
		x, err := admin.ParseExport(strings.TrimPrefix(q, "?"))
		if err != nil {
			return usageError("--%v", err)
		}
		var next any
		err = b.read(func(st ledger.Store, view admin.LedgerView) error {
			out := bufio.NewWriterSize(b.app.out, 64<<10)
			lines := func(from uint64) iter.Seq2[ledger.Line, error] { return ledger.Lines(st, from) }
			var err error
			next, err = view.Export(c.Context(), out, lines, x)
			return errors.Join(err, out.Flush())
		}, func() (err error) {
			next, err = b.exportRunning(c.Context(), q)
			return err
		})
		if err == nil {
			_, err = fmt.Fprintf(b.app.err, "next: --from %v\n", next)
		}
		return err
	}
	return c
}

func (b *books) exportRunning(ctx context.Context, query string) (next string, err error) {
	resp, err := b.send(ctx, "GET", "/admin/ledger/entries"+query, nil, "")
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(b.app.out, resp.Body); err != nil {
		return "", fmt.Errorf("the export ended early, and goes on with --from and the seq after its last whole row: %w", err)
	}
	return resp.Trailer.Get("X-Weir-Next"), nil
}

func (b *books) prune() *cobra.Command {
	c := &cobra.Command{Use: "prune --before DATE", Short: "Drop usage records of requests that ended before a time", Args: exactly(),
		Long: "Drop usage records of requests that ended before a time: a date (its first instant in UTC) or RFC 3339. Balances, months and open\n" +
			"reservations stay, and so does what verify can prove. The log is dropped from its start and in chunks, and its newest 8,192 entries\n" +
			"always stay. In the folder of a stopped gateway, what is open is settled first, as at a start.\n" + whichLedger}
	before := c.Flags().String("before", "", "`time`")
	c.RunE = func(c *cobra.Command, _ []string) error {
		at, err := admin.ParseBefore(*before, b.app.clock.Wall())
		if err != nil {
			return usageError("--%v", err)
		}
		return b.show(nil, func(st ledger.Store, view admin.LedgerView) (json.Marshaler, error) {
			l, _, err := ledger.Open(st, ledger.Options{}, b.app.clock)
			if err != nil {
				return nil, err
			}
			done, err := l.Prune(c.Context(), ledger.Change{Actor: "command"}, at)
			return view.Pruned(done), errors.Join(err, l.Close())
		}, func() ([]byte, error) {
			body, err := json.Marshal(map[string]string{"before": *before})
			if err != nil {
				return nil, err
			}
			return b.do(c.Context(), "POST", "/admin/ledger/prune", body, "application/json")
		})
	}
	return c
}
