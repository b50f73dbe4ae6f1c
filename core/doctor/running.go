package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// askPatience is how long a gateway may take to say how it is. Adding its ledger up takes what it takes.
const askPatience = 10 * time.Second

// running examines the gateway that the environment names, from where there is no file for one of its own: whether it is
// ready, its ledger, and how its channels fare.
func running(ctx context.Context, o Options) []Check {
	checks := []Check{{Name: "config", Detail: fmt.Sprintf("no %s here, so `weir serve` would not start; the gateway at %s is looked at", o.Path, o.Gateway)}}
	var ready struct{ Status string }
	var channels struct{ Data []channel }
	soon, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	err := o.read(soon, "/readyz", &ready)
	if err == nil {
		err = o.read(soon, "/admin/channels?limit=1000", &channels)
	}
	if err != nil {
		return append(checks, Check{"gateway", Fail, err.Error(), "see that it runs, and that WEIR_ADMIN_URL and WEIR_ADMIN_TOKEN are its own"})
	}
	checks = append(checks, Check{Name: "gateway", Detail: ready.Status}, checkClock(o.Clock), o.checkLedger(ctx))
	for _, ch := range channels.Data {
		checks = append(checks, ch.check())
	}
	if len(channels.Data) == 0 {
		checks = append(checks, Check{"upstreams", Warn, "it has no channel", "`weir channel create` adds one"})
	}
	return checks
}

// read asks the gateway's admin API.
func (o *Options) read(ctx context.Context, path string, into any) error {
	answer, err := o.Ask(ctx, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, into)
}

func (o *Options) checkLedger(ctx context.Context) Check {
	var report struct {
		Entries  int64
		Problems []string
	}
	err := o.read(ctx, "/admin/ledger/verify", &report)
	switch {
	case err != nil:
		return Check{"store", Fail, err.Error(), "see `weir ledger verify`"}
	case len(report.Problems) > 0:
		return Check{"store", Fail, strings.Join(report.Problems, "; "), "keep a copy of the data folder and see `weir ledger verify`"}
	}
	return Check{Name: "store", Detail: fmt.Sprintf("%d entries, every total re-adds", report.Entries)}
}

// channel is what the admin API says of one.
type channel struct {
	Name, State string
	Health      struct {
		State      string
		CoolingMS  int64 `json:"coolingMs"`
		LastStatus int
	}
}

func (ch *channel) check() Check {
	c := Check{Name: "upstream " + ch.Name, Detail: cmp.Or(ch.Health.State, ch.State)}
	if ch.State != "disabled" && (ch.Health.State == "cooling" || ch.Health.State == "probing") {
		c.Status, c.Detail = Warn, fmt.Sprintf("%s, for %d ms more; its last answer was a %d", ch.Health.State, ch.Health.CoolingMS, ch.Health.LastStatus)
		if ch.Health.LastStatus == 0 {
			c.Detail = fmt.Sprintf("%s, for %d ms more; it did not answer", ch.Health.State, ch.Health.CoolingMS)
		}
		c.Fix = "check its base URL and credential, the network and the provider; the channel cools down until it answers"
	}
	return c
}
