package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/store"
)

func (a *app) ledgerCommand() *cobra.Command {
	c := group("ledger", "Examine the ledger of a stopped gateway")
	var data string
	var asJSON bool
	verify := &cobra.Command{Use: "verify", Short: "Re-add every account from the first entry and check the audit chain", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			st, err := store.OpenExisting(data)
			if err != nil {
				return err
			}
			report, err := ledger.Verify(st)
			if cerr := st.Close(); err == nil {
				err = cerr
			}
			if err != nil {
				return err
			}
			return a.printReport(report, asJSON)
		}}
	verify.Flags().StringVar(&data, "data", "./data", "data `folder`")
	verify.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.AddCommand(verify)
	return c
}

func (a *app) printReport(r ledger.Report, asJSON bool) error {
	if asJSON {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(a.out, "%d entries: credits %s, posted %s, held %s in %d open reservations\n", r.Entries, r.Credits, r.Posted, r.Held, r.Open)
		for _, p := range r.Problems {
			fmt.Fprintln(a.out, "problem: "+p)
		}
	}
	if len(r.Problems) > 0 {
		return &exitError{exitFail, fmt.Errorf("%d totals do not re-add", len(r.Problems))}
	}
	return nil
}
