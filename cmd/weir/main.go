// Command weir is the gateway and everything around it: `weir demo` to see it, `weir serve` to run it, `weir attack` to
// test it, and the commands that speak to a running one. This package only wires; the logic is in core.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

func main() {
	if policy.IsChild(os.Args, os.Stdin, os.Stdout) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first signal asks to end; another one means it
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.LookupEnv, clock: llm.NewSystemClock(), random: rand.Reader}
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// app is what every command may touch of the outside, so that tests can run any command in process.
type app struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) (string, bool)
	clock    llm.Clock
	random   io.Reader
}

// Exit codes.
const (
	exitDone  = 0
	exitFail  = 1
	exitUsage = 2
)

// exitError carries an exit code that is not the usual 1; quiet when everything was already printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// run is the whole program: one line on stderr for an error, and an exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(goFlags(args))
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if text := err.Error(); text != "" {
		text = strings.TrimPrefix(text, "weir: ") // of the root command's own flags
		fmt.Fprintln(a.err, "weir: "+strings.ReplaceAll(strings.TrimSpace(text), "\n", " "))
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return exitFail
}

// goFlags has `weir policy test -run X` mean --run X, as go test does; to cobra it would be -r un.
func goFlags(args []string) []string {
	if len(args) < 2 || args[0] != "policy" || args[1] != "test" {
		return args
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if arg == "-run" || strings.HasPrefix(arg, "-run=") {
			args[i] = "-" + arg
		}
	}
	return args
}

func (a *app) root() *cobra.Command {
	root := group("weir", "An LLM gateway whose limits are programmable")
	root.SilenceUsage, root.SilenceErrors = true, true
	root.Version = thisBuild().String()
	root.SetVersionTemplate("weir {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(helpOf(root))
	root.AddCommand(a.demo(), a.serve(), a.attack(), a.bench(), a.benchBare(), a.upstreamSim(), a.configCommand(), a.doctor(), a.version(), a.ledgerCommand(), a.backup(), a.restore(), a.storeCommand(), a.policyCommand(), a.tenantCommand())
	root.AddCommand(a.objectCommands()...)
	return root
}

// helpOf is `weir help COMMAND`.
func helpOf(root *cobra.Command) *cobra.Command {
	return &cobra.Command{Use: "help [COMMAND]", Short: "Say what a command does and takes", RunE: func(_ *cobra.Command, args []string) error {
		c, rest, err := root.Find(args)
		if err != nil {
			return err
		}
		if c.HasSubCommands() && len(rest) > 0 {
			return unknownChild(c, rest[0])
		}
		c.InitDefaultHelpFlag()
		return c.Help()
	}}
}

// group is a command that only has children: alone it prints its help, with an unknown child it says which there are.
func group(use, short string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return unknownChild(c, args[0])
	}}
}

// exactly checks the number of arguments and says what they are.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want, hint := "no argument", ""
		if len(names) > 0 {
			want = strings.Join(names, " ")
		}
		if len(names) == 0 && strings.Contains(c.Use, "--org N") {
			hint = "; did you mean --org " + args[0] + "?"
		}
		return usageError("%s takes %s, got %d argument(s)%s", c.CommandPath(), want, len(args), hint)
	}
}
