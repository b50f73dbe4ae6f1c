package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/weir-gateway/weir/core/config"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/store"
)

func (a *app) storeCommand() *cobra.Command {
	c := &cobra.Command{Use: "store", Short: "Move what a gateway keeps from one store to another"}
	c.AddCommand(a.storeCopy())
	return c
}

func (a *app) storeCopy() *cobra.Command {
	var from, to string
	c := &cobra.Command{Use: "copy --from STORE --to STORE", Short: "Copy everything into an empty store of another kind, verified on both sides", Args: exactly(),
		Long: "Copy everything that a gateway keeps into an empty store, verify the ledgers of both, and compare them. A store is a folder,\n" +
			"badger:///absolute/folder or postgres://user:password@host/database; nobody may be serving from it meanwhile (of a running\n" +
			"gateway, `weir backup - | weir restore - --data STORE` copies what there is at one moment). On failure TO is left empty."}
	c.Flags().StringVar(&from, "from", "", "`store` that is read")
	c.Flags().StringVar(&to, "to", "", "`store` that is filled: empty or missing")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if from == "" || to == "" {
			return usageError("store copy needs --from and --to, as in --from ./data --to postgres://user:password@host/database")
		}
		was, is, err := copyStore(c.Context(), from, to)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.out, "%s -> %s: %d entries: credits %s, posted %s, held %s in %d open reservations, on both sides\n",
			config.DataName(from), config.DataName(to), was.Entries, is.Credits, is.Posted, is.Held, is.Open)
		return err
	}
	return c
}

// copyStore copies a store into an empty one and compares the ledgers of both.
func copyStore(ctx context.Context, from, to string) (was, is ledger.Report, err error) {
	source, err := store.OpenExisting(from)
	if err != nil {
		return was, is, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	if was, err = ledger.Verify(source); err != nil {
		return was, is, err
	}
	if len(was.Problems) > 0 {
		return was, is, fmt.Errorf("%s does not add up, so nothing was copied: %s", config.DataName(from), was.Problems[0])
	}
	out, in := io.Pipe()
	var wrote sync.WaitGroup
	wrote.Go(func() {
		_, err := ledger.Backup(source, untilDone{ctx, nil, in})
		_ = in.CloseWithError(err) // the reader hears of it
	})
	is, _, err = restoreInto(strings.TrimPrefix(to, "badger://"), out)
	_ = out.CloseWithError(errors.New("the copy has ended"))
	wrote.Wait()
	if err == nil && !reflect.DeepEqual(was, is) {
		err = fmt.Errorf("the copy is another one: %+v was read, %+v was written; do not serve from %s", was, is, config.DataName(to))
	}
	return was, is, err
}
