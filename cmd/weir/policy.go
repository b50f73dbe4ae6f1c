package main

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) policyCommand() *cobra.Command {
	c := group("policy", "Upload, activate and roll back policy modules of a running gateway")
	r := a.remoteFlags(c)
	list := &cobra.Command{Use: "list", Short: "List modules and which one is active", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			return r.call(c.Context(), "GET", "/admin/policies", nil, "name", "hash", "profile", "size", "active")
		}}
	c.AddCommand(list, policyPush(r), policyActivate(r))
	c.AddCommand(&cobra.Command{Use: "rollback NAME", Short: "Activate the version before the active one", Args: exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			return r.call(c.Context(), "POST", "/admin/policies/"+url.PathEscape(args[0])+"/rollback", map[string]any{})
		}})
	return c
}

func policyPush(r *remote) *cobra.Command {
	var name, profile string
	c := &cobra.Command{Use: "push FILE.wasm", Short: "Verify and store a module; nothing is active yet", Args: exactly("FILE.wasm"),
		RunE: func(c *cobra.Command, args []string) error {
			wasm, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			if name == "" {
				name = strings.TrimSuffix(filepath.Base(args[0]), ".wasm")
			}
			answer, err := r.do(c.Context(), "POST", "/admin/policies"+query(map[string]string{"name": name, "profile": profile}), wasm, "application/wasm")
			if err != nil {
				return err
			}
			return r.print(answer, nil)
		}}
	c.Flags().StringVar(&name, "name", "", "name of the module (default: the file's)")
	c.Flags().StringVar(&profile, "profile", "small", "small or large")
	return c
}

func policyActivate(r *remote) *cobra.Command {
	var version, params, onError string
	c := &cobra.Command{Use: "activate NAME", Short: "Let a module decide from the next request on", Args: exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			body := map[string]any{}
			if version != "" {
				body["version"] = version
			}
			if onError != "" {
				body["onError"] = onError
			}
			if params != "" {
				if !json.Valid([]byte(params)) {
					return usageError("--params: expected a JSON object, such as '{\"a\":1}'")
				}
				body["params"] = json.RawMessage(params)
			}
			return r.call(c.Context(), "POST", "/admin/policies/"+url.PathEscape(args[0])+"/activate", body)
		}}
	c.Flags().StringVar(&version, "version", "", "content hash, or its first characters (default: the newest)")
	c.Flags().StringVar(&params, "params", "", "params as a JSON object")
	c.Flags().StringVar(&onError, "on-error", "", "default, last_good or deny")
	return c
}
