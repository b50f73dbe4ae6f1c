// Package doctor runs the checks of `weir doctor`: is this configuration, this machine and this data folder fit to
// serve. Each check answers ok, warn or fail, and says in one line how to mend what it found. A check changes nothing
// that outlives it.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-gateway/weir/core/cert"
	"github.com/weir-gateway/weir/core/config"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/upstream"
)

// Status is a check's verdict; a larger one is worse.
type Status int

// The verdicts, which are also the exit codes of the command.
const (
	OK Status = iota
	Warn
	Fail
)

// String is the word printed.
func (s Status) String() string { return [...]string{"ok", "warn", "fail"}[s] }

// MarshalText makes JSON carry the word.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Check is one finding.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// Worst is the highest status of checks.
func Worst(checks []Check) Status {
	worst := OK
	for _, c := range checks {
		worst = max(worst, c.Status)
	}
	return worst
}

// Options say what to examine.
type Options struct {
	Path  string // configuration file
	Env   func(string) (string, bool)
	Clock llm.Clock
	// Prove finds what serve would refuse of a file that can be read; nil: nothing.
	Prove func(context.Context, *config.Config) error
	// Open opens the store of the configuration's data setting.
	Open func(data string) (ledger.Store, error)
	// Windows asks the server of shared windows at a URL about itself.
	Windows func(ctx context.Context, url string) (Windows, error)
	// Database tells what the server of a database says of itself; it is asked where data is no folder.
	Database func(ctx context.Context, data string) (Database, error)
	// Ask is GET of the admin API of the gateway at the URL Gateway, which is looked at where there is no file; nil: none is
	// known.
	Ask     func(ctx context.Context, path string) ([]byte, error)
	Gateway string
}

// Run makes all checks that the configuration allows; without a readable one, only that finding. Where there is no file, what
// can be asked of a running gateway is checked.
func Run(ctx context.Context, o Options) []Check {
	c, err := config.Load(o.Path, o.Env)
	if errors.Is(err, fs.ErrNotExist) && o.Ask != nil {
		return running(ctx, o)
	}
	if err != nil {
		return []Check{badConfig(o.Path, err)}
	}
	checks := []Check{checkConfig(ctx, c, o), checkClock(o.Clock), checkFiles(c.Listen.Connections)}
	for _, text := range c.Notes() {
		checks = append(checks, Check{"limits", Warn, text, "add the dimension to limits.dimensions"})
	}
	checks = append(checks, checkCertificate("listen", c.Listen.TLS, o.Clock)...)
	checks = append(checks, checkCertificate("admin", c.Admin.TLS, o.Clock)...)
	folder, local := folderOf(c.Data)
	if local {
		checks = append(checks, checkSync(folder, o.Clock), checkSpace(folder))
	} else if o.Database != nil {
		checks = append(checks, checkDatabase(ctx, c.Data, o.Database)...)
	}
	checks = append(checks, checkStore(c.Data, o.Open))
	if s := &c.Limits.Shared; s.URL != "" && o.Windows != nil {
		checks = append(checks, checkWindows(ctx, s.URL, time.Duration(s.TimeoutMS)*time.Millisecond, o.Windows))
	}
	for _, ch := range c.Channels {
		checks = append(checks, checkChannel(ctx, ch, c.Upstream, o.Clock))
	}
	if len(c.Channels) == 0 {
		checks = append(checks, Check{"upstreams", Warn, "the file has no channel; those of the admin API are not seen here", "add one under channels:, or see that GET /admin/channels has one"})
	}
	return checks
}

func badConfig(path string, err error) Check {
	fix := "mend the file; `weir config check -c " + path + "` repeats this check"
	if errors.Is(err, fs.ErrNotExist) {
		fix = "name the file with -c, or write one (README, Run it); a running gateway is looked at where WEIR_ADMIN_TOKEN and WEIR_ADMIN_URL name it"
	}
	return Check{"config", Fail, err.Error(), fix}
}

func checkConfig(ctx context.Context, c *config.Config, o Options) Check {
	if o.Prove != nil {
		if err := o.Prove(ctx, c); err != nil {
			return badConfig(o.Path, err)
		}
	}
	return Check{Name: "config", Detail: fmt.Sprintf("%s: %d models, %d channels, %d tiers", o.Path, len(c.Models), len(c.Channels), len(c.Tiers))}
}

func folderOf(data string) (string, bool) {
	if rest, ok := strings.CutPrefix(data, "badger://"); ok {
		return rest, true
	}
	return data, !strings.Contains(data, "://")
}

// checkClock refuses a wall clock that cannot be right: quota months follow it.
func checkClock(clock llm.Clock) Check {
	now := clock.Wall()
	if now.Year() < 2025 || now.Year() > 2100 {
		return Check{"clock", Fail, "the wall clock says " + now.Format(time.RFC3339), "set the clock (NTP); monthly quotas follow it"}
	}
	return Check{Name: "clock", Detail: now.Format(time.RFC3339)}
}

// checkCertificate examines the pair of a listener; without one there is nothing to say.
func checkCertificate(block string, f cert.Files, clock llm.Clock) []Check {
	if !f.Set() {
		return nil
	}
	name, now := "certificate "+block, clock.Wall()
	c, err := f.Load(now)
	if err != nil {
		return []Check{{name, Fail, err.Error(), "give " + block + ".tls a certificate that is in force, and the key that it was made for"}}
	}
	if text := cert.Expiry(c, now); text != "" {
		return []Check{{name, Warn, f.Cert + ": " + text, "renew it; a running gateway reads the new files by itself"}}
	}
	if now.Before(c.Leaf.NotBefore) {
		return []Check{{name, Warn, f.Cert + ": in force only from " + c.Leaf.NotBefore.UTC().Format(time.RFC3339), "set the clock (NTP), or wait"}}
	}
	return []Check{{Name: name, Detail: f.Cert + ": in force until " + c.Leaf.NotAfter.UTC().Format(time.RFC3339)}}
}

// checkFiles compares the limit on open files with what the configured connections need: two sockets each.
func checkFiles(connections int) Check {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return Check{"open files", Warn, err.Error(), ""}
	}
	need := uint64(2*connections + 256)
	if r.Cur < need {
		return Check{"open files", Warn, fmt.Sprintf("%d allowed, %d needed for listen.connections %d", r.Cur, need, connections),
			fmt.Sprintf("ulimit -n %d, or lower listen.connections", need)}
	}
	return Check{Name: "open files", Detail: fmt.Sprintf("%d allowed, %d needed", r.Cur, need)}
}

// existing is the folder itself or the nearest parent that exists: serve makes the rest.
func existing(folder string) string {
	for {
		if st, err := os.Stat(folder); err == nil && st.IsDir() {
			return folder
		}
		up := filepath.Dir(folder)
		if up == folder {
			return folder
		}
		folder = up
	}
}

// slowSync is where waiting for the disk begins to dominate an answer with durability: power.
const slowSync = 20 * time.Millisecond

func checkSync(folder string, clock llm.Clock) Check {
	f, err := os.CreateTemp(existing(folder), ".weir-doctor-*")
	if err != nil {
		return Check{"disk", Fail, err.Error(), "make the data folder writable, or change data:"}
	}
	defer func() { _ = os.Remove(f.Name()) }()
	defer func() { _ = f.Close() }()
	var took []time.Duration
	for range 8 {
		start := clock.Mono()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return Check{"disk", Fail, err.Error(), "free space in the data folder"}
		}
		if err := f.Sync(); err != nil {
			return Check{"disk", Fail, "sync: " + err.Error(), "use a disk that can sync"}
		}
		took = append(took, clock.Mono()-start)
	}
	slices.Sort(took)
	median := took[len(took)/2]
	c := Check{Name: "disk", Detail: fmt.Sprintf("4 kB write and sync in %v (median of 8)", median.Round(10*time.Microsecond))}
	if median > slowSync {
		c.Status, c.Fix = Warn, "use a faster disk, or keep ledger.durability: process"
	}
	return c
}

const leastSpace = 1 << 30

func checkSpace(folder string) Check {
	var st syscall.Statfs_t
	if err := syscall.Statfs(existing(folder), &st); err != nil {
		return Check{"space", Warn, err.Error(), ""}
	}
	free := st.Bavail * uint64(st.Bsize)
	c := Check{Name: "space", Detail: fmt.Sprintf("%d MiB free at %s", free>>20, folder)}
	if free < leastSpace {
		c.Status, c.Fix = Warn, "free at least 1 GiB; the ledger stops taking requests when the disk is full"
	}
	return c
}

// checkStore opens the store, unless that would create it, and re-adds its ledger.
func checkStore(data string, open func(string) (ledger.Store, error)) Check {
	if folder, local := folderOf(data); local {
		if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
			return Check{Name: "store", Detail: folder + " does not exist yet; serve will make it"}
		}
	}
	store, err := open(data)
	if e, ok := errors.AsType[*llm.Error](err); ok && e.Code == "store_locked" {
		return inUse(data, e)
	}
	if e, ok := errors.AsType[*llm.Error](err); ok && e.Kind == llm.KindNotFound {
		return Check{Name: "store", Detail: e.Message + "; serve will make it"}
	}
	if err != nil {
		return Check{"store", Fail, err.Error(), "see that the data folder is whole and may be read, or restore it from a copy"}
	}
	defer func() { _ = store.Close() }()
	report, err := ledger.Verify(store)
	switch {
	case err != nil:
		return Check{"store", Fail, err.Error(), "restore the data folder from a copy"}
	case len(report.Problems) > 0:
		return Check{"store", Fail, strings.Join(report.Problems, "; "), "keep a copy of the data folder and see `weir ledger verify`"}
	}
	return Check{Name: "store", Detail: fmt.Sprintf("%d entries, every total re-adds", report.Entries)}
}

// inUse is the finding on a store that another process has, which is as it should be while that process lives.
func inUse(data string, locked *llm.Error) Check {
	folder, local := folderOf(data)
	if !local { // the server tells of living owners only
		return Check{Name: "store", Detail: locked.Message + "; `weir ledger verify` proves the ledger of a gateway that runs"}
	}
	raw, _ := os.ReadFile(filepath.Join(folder, "LOCK")) // where the store's owner leaves its number
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err == nil && pid > 0 && alive(pid) {
		return Check{Name: "store", Detail: fmt.Sprintf("in use by the running gateway, pid %d; `weir ledger verify` proves its ledger", pid)}
	}
	return Check{"store", Warn, locked.Error(), "find the process that has the data folder open, and stop it"}
}

// alive says whether there is a process of this number, ours or another user's.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// checkChannel connects as serve would: through the proxy of the environment, under TLS, and only where upstream.reach allows.
func checkChannel(ctx context.Context, ch upstream.Channel, o upstream.Options, clock llm.Clock) Check {
	o.ConnectTimeoutMS = min(o.Defaults().ConnectTimeoutMS, 3_000)
	address, err := upstream.Connect(ctx, ch, o, clock)
	if err != nil {
		return Check{"upstream " + ch.Name, Fail, err.Error(), "check base_url, the network and the provider; the channel cools down until it answers"}
	}
	return Check{Name: "upstream " + ch.Name, Detail: "connected to " + address}
}
