package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/config"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store"
)

func (a *app) backup() *cobra.Command {
	c := &cobra.Command{Use: "backup FILE", Short: "Write everything in the data folder to a file, while the gateway runs", Args: exactly("FILE"),
		Long: "Write everything in the data folder, as it is at one moment, to a file; - is stdout. The file appears under its name when it is\n" +
			"whole and stable. It holds what the data folder holds, credentials of channels too.\n" + whichLedger}
	b := a.books(c)
	force := c.Flags().Bool("force", false, "replace FILE if it exists")
	c.RunE = func(c *cobra.Command, args []string) error {
		if args[0] == "-" {
			return b.backupTo(c.Context(), a.out)
		}
		if _, err := os.Lstat(args[0]); err == nil && !*force {
			return fmt.Errorf("%s exists; --force replaces it, once the new backup is whole", args[0])
		}
		copied, err := writeWhole(args[0], func(w io.Writer) error { return b.backupTo(c.Context(), w) })
		if err == nil && b.json {
			return a.printJSON(map[string]any{"file": args[0], "keys": copied.Keys, "bytes": copied.Bytes})
		}
		if err == nil {
			_, err = fmt.Fprintf(a.out, "%s: %d keys, %d bytes\n", args[0], copied.Keys, copied.Bytes)
		}
		return err
	}
	return c
}

func (b *books) backupTo(ctx context.Context, w io.Writer) error {
	return b.read(func(st ledger.Store, _ admin.LedgerView) error {
		_, err := ledger.Backup(st, untilDone{ctx, nil, w})
		return err
	}, func() error {
		resp, err := b.send(ctx, "GET", "/admin/backup", nil, "")
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if _, err = io.Copy(w, resp.Body); err != nil {
			err = fmt.Errorf("the backup was cut off: %w", err)
		}
		return err
	})
}

// writeWhole lets fill write a backup to a file that has its name only once it is whole, checked and stable.
func writeWhole(name string, fill func(io.Writer) error) (copied ledger.Copied, err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return copied, err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name()) // gone when it was renamed
	}()
	if err := fill(f); err != nil {
		return copied, err
	}
	if err := f.Sync(); err != nil {
		return copied, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return copied, err
	}
	if copied, err = ledger.CheckBackup(f); err != nil {
		return copied, fmt.Errorf("reading back what was written: %w", err)
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return copied, err
	}
	return copied, syncFolder(filepath.Dir(name))
}

// syncFolder makes names in a folder stable.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		return err
	}
	return nil
}

func (a *app) restore() *cobra.Command {
	var data string
	var asJSON bool
	c := &cobra.Command{Use: "restore FILE --data DIR", Short: "Fill an empty data folder or database from a backup, and verify it", Args: exactly("FILE"),
		Long: "Fill an empty or missing data folder, or an empty database, from a backup (- is stdin), and verify it. When the backup is cut off or altered, or the\n" +
			"command is stopped, the folder stays empty; when it is killed, `weir serve` refuses what it left."}
	c.Flags().StringVar(&data, "data", "", "data `folder`, empty or missing, or postgres://user:password@host/database")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		if data == "" {
			return usageError("restore fills the folder that --data names; it must be empty or missing")
		}
		in := a.in
		if args[0] != "-" {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			in = f
		}
		report, currency, err := restoreInto(strings.TrimPrefix(data, "badger://"), untilDone{c.Context(), in, nil})
		if err == nil && asJSON {
			return a.printJSON(admin.NewLedgerView(currency).Report(report))
		}
		if err == nil {
			_, err = fmt.Fprintf(a.out, "%s: %d entries: credits %s, posted %s, held %s in %d open reservations\n", config.DataName(data), report.Entries, report.Credits, report.Posted, report.Held, report.Open)
		}
		return err
	}
	return c
}

// untilDone reads and writes until its context ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
	w   io.Writer
}

func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

func (u untilDone) Write(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.w.Write(p)
}

// restoreInto restores into a folder that is empty or missing, and leaves it so on failure.
func restoreInto(dir string, in io.Reader) (report ledger.Report, currency string, err error) {
	if store.IsDatabase(dir) {
		return restoreAt(dir, in, clearStore)
	}
	entries, err := os.ReadDir(dir)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !missing:
		return report, "", err
	case len(entries) > 0:
		return report, "", fmt.Errorf("%s is not empty; a backup is restored into a folder that is empty or missing", dir)
	}
	return restoreAt(dir, in, func(st ledger.Store) error {
		return errors.Join(st.Close(), clearFolder(dir, missing))
	})
}

// restoreAt restores into a store; clear takes away what a failure left.
func restoreAt(at string, in io.Reader, clear func(ledger.Store) error) (report ledger.Report, currency string, err error) {
	st, err := store.Open(at)
	if err != nil {
		return report, "", err
	}
	if report, err = ledger.Restore(in, st); err == nil {
		currency, err = ledger.Currency(st)
	}
	e, _ := errors.AsType[*llm.Error](err)
	theirs := e != nil && e.Code == "store_not_empty" // somebody filled it since it was looked at
	if err != nil && !theirs {
		err = errors.Join(err, clear(st))
	}
	return report, currency, errors.Join(err, st.Close())
}

// clearStore takes away what a restore left in a database; what says that it is being restored goes last.
func clearStore(st ledger.Store) error {
	for {
		var all []ledger.Write
		err := st.Scan(nil, nil, false, func(k, _ []byte) bool {
			all = append(all, ledger.Write{Key: bytes.Clone(k)})
			return len(all) < 4_096
		})
		if len(all) > 1 {
			all = slices.DeleteFunc(all, func(w ledger.Write) bool { return ledger.IsRestoring(w.Key) })
		}
		if err != nil || len(all) == 0 {
			return err
		}
		if err := st.Apply(all, true); err != nil {
			return err
		}
	}
}

// clearFolder takes away what a restore left, and the folder too if it was missing before.
func clearFolder(dir string, whole bool) error {
	if whole {
		return os.RemoveAll(dir)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}
