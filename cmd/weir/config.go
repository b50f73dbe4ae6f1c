package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/config"
	"github.com/weir-gateway/weir/core/doctor"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/store"
)

func fileFlag(c *cobra.Command, path *string) {
	c.Flags().StringVarP(path, "config", "c", "weir.yaml", "configuration `file`")
}

func (a *app) configCommand() *cobra.Command {
	c := group("config", "Check, show or describe the configuration")
	var path string
	var asJSON bool
	check := &cobra.Command{Use: "check", Short: "Accept or refuse a file, exactly as serve would", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			loaded, err := config.Load(path, a.env)
			if err == nil {
				err = a.prove(c.Context(), loaded)
			}
			var notes []string
			if err == nil {
				notes = a.notes(loaded)
			}
			if asJSON {
				return a.checkJSON(path, notes, err)
			}
			if err == nil {
				fmt.Fprintln(a.out, path+": ok")
			}
			for _, text := range notes {
				fmt.Fprintln(a.err, "note: "+text)
			}
			return err
		}}
	fileFlag(check, &path)
	check.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.AddCommand(check, a.configShow(), a.configSchema(), a.configApply())
	return c
}

// notes warn of what serve takes, and the operator may not have meant: limits that nothing tests, certificates that expire soon.
func (a *app) notes(cfg *config.Config) []string {
	now := a.clock.Wall()
	ps, err := openPairs(cfg, now)
	if err != nil {
		return cfg.Notes() // they have been changed since they were found fit
	}
	return append(cfg.Notes(), ps.notes(now)...)
}

// configApply may be given the gateway's file to find the gateway by; what is applied, the gateway reads itself.
func (a *app) configApply() *cobra.Command {
	c := &cobra.Command{Use: "apply", Short: "Let a running gateway's file win over what the admin API changed", Args: exactly(),
		Long: "A file seeds what the store lacks, and what the admin API changed wins, until this command: then everything the file names is as the file says. What only the API knows stays, and so does what only an earlier file named, which is told."}
	r := a.remoteFlags(c)
	path := c.Flags().StringP("config", "c", "", "the gateway's configuration `file`, for its admin address and token; the gateway applies the file that it was started with")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *path != "" {
			cfg, err := config.Load(*path, a.env)
			if err != nil {
				return err
			}
			r.url, r.token = or(r.url, adminURL(cfg.Admin)), or(r.token, cfg.Admin.Token)
		}
		return r.applied(c.Context())
	}
	return c
}

// applied has the gateway apply its file, and tells for people what stays although the file does not name it.
func (r *remote) applied(ctx context.Context) error {
	raw, err := r.do(ctx, "POST", "/admin/config/apply", nil, "application/json")
	if err != nil || r.json {
		return errors.Join(err, r.print(raw, nil))
	}
	var answer struct {
		Applied  bool
		Warnings []string
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	fmt.Fprintln(r.app.out, "applied ", answer.Applied)
	for _, text := range answer.Warnings {
		fmt.Fprintln(r.app.err, "note: "+text)
	}
	return nil
}

// adminURL is where a gateway on this machine has its admin listener.
func adminURL(o config.Admin) string {
	host, port, _ := net.SplitHostPort(o.Address) // validated
	switch ip := net.ParseIP(host); {
	case host == "" || ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip.Equal(net.IPv6unspecified):
		host = "::1"
	}
	scheme := "http"
	if o.TLS.Set() {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

func (a *app) configShow() *cobra.Command {
	var path string
	var asJSON bool
	c := &cobra.Command{Use: "show", Short: "Print the configuration with every default filled in and secrets hidden", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			loaded, err := config.Load(path, a.env)
			if err != nil {
				return err
			}
			text, err := yaml.Marshal(loaded.Redacted())
			if err != nil {
				return err
			}
			if asJSON { // by way of YAML, which has the names of the file
				if text, err = yaml.YAMLToJSON(text); err != nil {
					return err
				}
				return a.printJSON(json.RawMessage(text))
			}
			_, err = a.out.Write(text)
			return err
		}}
	fileFlag(c, &path)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// configSchema prints JSON with or without --json: a schema has no other form.
func (a *app) configSchema() *cobra.Command {
	c := &cobra.Command{Use: "schema", Short: "Print a JSON Schema of the configuration file", Args: exactly(),
		RunE: func(*cobra.Command, []string) error { return a.printJSON(config.Schema()) }}
	c.Flags().Bool("json", true, "print JSON, as always")
	return c
}

func (a *app) checkJSON(path string, notes []string, err error) error {
	out := map[string]any{"file": path, "ok": err == nil}
	if len(notes) > 0 {
		out["notes"] = notes
	}
	if err != nil {
		out["error"] = err.Error()
	}
	if perr := a.printJSON(out); perr != nil || err == nil {
		return perr
	}
	return &exitError{code: exitFail}
}

func (a *app) doctor() *cobra.Command {
	var path string
	var asJSON bool
	c := &cobra.Command{Use: "doctor", Short: "Check configuration, clock, disk, store and upstreams", Args: exactly(),
		Long: "Check configuration, clock, open files, disk, store and upstreams. Where there is no weir.yaml and none is named, the running\ngateway that $WEIR_ADMIN_URL and $WEIR_ADMIN_TOKEN name is asked. Exit code 0: all well, 1: a warning, 2: a failure.",
		RunE: func(c *cobra.Command, _ []string) error {
			o := doctor.Options{Path: path, Env: a.env, Clock: a.clock, Prove: a.prove,
				Open: func(data string) (ledger.Store, error) {
					open := store.Open
					if store.IsDatabase(data) { // which a look would make tables in
						open = store.OpenExisting
					}
					st, err := open(data)
					return untilStopped{st, c.Context()}, err
				},
				Database: func(ctx context.Context, data string) (doctor.Database, error) {
					found, err := store.Examine(ctx, data, a.clock)
					return doctor.Database(found), err
				}}
			o.Windows = func(ctx context.Context, url string) (doctor.Windows, error) {
				h, err := store.WindowsHealth(ctx, url, a.clock.Wall)
				return doctor.Windows{Version: h.Version, RoundTrip: h.RoundTrip, Ahead: h.Ahead, Eviction: h.Eviction, Cluster: h.Cluster}, err
			}
			if r := (&remote{app: a, patient: true}); !c.Flags().Changed("config") && r.resolve() == nil {
				o.Gateway = r.url
				o.Ask = func(ctx context.Context, path string) ([]byte, error) {
					return r.do(ctx, http.MethodGet, path, nil, "")
				}
			}
			checks := doctor.Run(c.Context(), o)
			worst := doctor.Worst(checks)
			if err := a.printChecks(checks, worst, asJSON); err != nil || worst == doctor.OK {
				return err
			}
			return &exitError{code: int(worst)}
		}}
	fileFlag(c, &path)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) printChecks(checks []doctor.Check, worst doctor.Status, asJSON bool) error {
	if asJSON {
		return a.printJSON(map[string]any{"status": worst, "checks": checks})
	}
	for _, c := range checks {
		fmt.Fprintf(a.out, "%-4s  %s: %s\n", c.Status, c.Name, c.Detail)
		if c.Fix != "" && c.Status != doctor.OK {
			fmt.Fprintf(a.out, "      fix: %s\n", c.Fix)
		}
	}
	return nil
}
