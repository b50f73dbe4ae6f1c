package limit

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts print into testdata")

// TestScripts runs testdata/*.txt: blocks of commands, a line of four dashes, what they print, an empty line. The
// clock stands still but for "advance" and "jump"; everything else is in the commands' own cases below.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) { runScript(t, f) })
	}
}

func runScript(t *testing.T, file string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &script{t: t, dims: map[string]Dim{}, held: map[string]Reservation{}}
	var out strings.Builder
	for i, block := range strings.Split(strings.TrimRight(string(raw), "\n"), "\n\n") {
		commands, want, _ := strings.Cut(block, "\n----")
		got := s.run(commands)
		want = strings.TrimSuffix(strings.TrimPrefix(want, "\n"), "\n")
		if strings.TrimSuffix(got, "\n") != want && !*rewrite {
			t.Errorf("%s, block %d:\n%s\n---- got\n%s---- want\n%s", file, i+1, commands, got, want)
		}
		if i > 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "%s\n----\n%s", commands, got)
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range s.held {
		r.Release()
	}
	if s.rig != nil && s.Open() != 0 {
		t.Errorf("%d reservations are still open", s.Open())
	}
}

type script struct {
	t *testing.T
	*rig
	options Options
	dims    map[string]Dim
	held    map[string]Reservation
	money   Money
	count   int
	printed int // journal entries
}

func (s *script) run(commands string) string {
	var out strings.Builder
	for _, line := range strings.Split(commands, "\n") {
		if f := strings.Fields(line); len(f) > 0 && !strings.HasPrefix(f[0], "#") {
			if r := s.do(f[0], f[1:]); r != "" {
				out.WriteString(r + "\n")
			}
		}
	}
	return out.String()
}

func (s *script) do(verb string, args []string) string {
	if verb == "algorithms" {
		return s.algorithms(args)
	}
	if s.rig == nil {
		s.rig = newRig(s.t, s.options)
	}
	switch verb {
	case "dim": // dim NAME KIND[:SCOPE][:NAME] qps= tpm= concurrency= burst= cost= base.tpm= countonly shadow
		s.dims[args[0]] = s.dim(args[1], args[2:])
	case "money": // money in= out= request= overdraft= quota= label=
		s.setMoney(args)
	case "balance":
		if len(args) == 1 {
			s.LoadBalance(2, llm.Micro(s.num(args[0])), 0)
		}
		a, h := s.Balance(2)
		return fmt.Sprintf("balance: available %d, held %d", a, h)
	case "quota":
		u, h := s.Quota(3, s.money.Quotas[llm.Month].Label)
		return fmt.Sprintf("quota %d: used %d, held %d", s.money.Quotas[llm.Month].Label, u, h)
	case "reserve", "peek": // reserve DIM,DIM INPUT [OUTPUT [soft]]
		return s.reserve(verb, args)
	case "advance", "jump":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			s.t.Fatal(err)
		}
		if verb == "advance" {
			s.clock.Advance(d)
		} else {
			s.clock.Jump(d)
		}
	case "use":
		u := s.use(s.named(args[0]).ID)
		return fmt.Sprintf("%s: qps %d, tpm %d (held %d), concurrency %d", args[0], u.QPS, u.TPM, u.TPMHeld, u.Concurrency)
	case "sweep":
		before := s.Meters()
		s.sweep()
		return fmt.Sprintf("meters: %d, then %d", before, s.Meters())
	case "storm": // storm DIM LIMIT
		if d := new(Denial); s.Storm(s.named(args[0]).ID, s.num(args[1]), 0, d) {
			return denied("storm", d)
		}
		return "storm: go on"
	case "journal":
		return s.entries()
	default:
		return s.progress(verb, args)
	}
	return ""
}

func (s *script) progress(verb string, args []string) string {
	r := s.held[args[0]]
	var n []llm.Tokens
	for _, a := range args[1:] {
		if v, err := strconv.ParseInt(a, 10, 64); err == nil {
			n = append(n, llm.Tokens(v))
		}
	}
	n = append(n, 0, 0)
	switch verb {
	case "sent":
		r.Sent("c1")
	case "refused":
		r.Refused()
	case "relayed":
		r.Relayed(n[0])
	case "known":
		r.UsageKnown(llm.Usage{InputTokens: n[0], OutputTokens: n[1]})
	case "answered":
		r.Answered(int(n[0]))
	case "move":
		s.held[args[0]] = r.Move()
		return fmt.Sprintf("%s: old handle inert %v", args[0], !r.Release().First)
	case "extend": // extend N DIM,DIM|- OUTPUT
		d, err := r.Extend(ctx, s.list(args[1]), n[0])
		if err != nil || d != nil {
			return denied(args[0], d) + errText(err)
		}
		return fmt.Sprintf("%s: extended, granted %d", args[0], r.Granted())
	case "shrink":
		r.Shrink()
	case "commit": // commit N INPUT [OUTPUT]
		return settled(args[0], r.Commit(llm.Usage{InputTokens: n[0], OutputTokens: n[1]}, true))
	case "counted":
		return settled(args[0], r.Commit(llm.Usage{InputTokens: n[0], OutputTokens: n[1]}, false))
	case "release":
		return settled(args[0], r.Release())
	case "tightest":
		q, t := r.Tightest()
		return fmt.Sprintf("%s: requests %+v, tokens %+v", args[0], q, t)
	default:
		s.t.Fatalf("unknown command %q", verb)
	}
	return ""
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func settled(name string, e Settlement) string {
	if !e.First {
		return name + ": already ended"
	}
	return fmt.Sprintf("%s: %s, %d+%d tokens, cost %d", name, e.Status, e.Usage.InputTokens, e.Usage.OutputTokens, e.Cost)
}

func (s *script) reserve(verb string, args []string) string {
	c := &Claim{Caller: Caller{Org: 1, User: 2, Key: 3}, Money: s.money}
	for _, d := range s.list(args[0]) {
		c.Dims[c.N] = d
		c.N++
	}
	c.Input = llm.Tokens(s.num(args[1]))
	if len(args) > 2 {
		c.Output = llm.Tokens(s.num(args[2]))
	}
	c.SoftOutput = len(args) > 3 && args[3] == "soft"
	if verb == "peek" {
		if d, err := s.Peek(ctx, c); d != nil || err != nil {
			return denied("peek", d) + errText(err)
		}
		return "peek: would pass"
	}
	s.count++
	name := strconv.Itoa(s.count)
	r, d, err := s.Reserve(ctx, c)
	if d != nil || err != nil {
		return denied(name, d) + errText(err)
	}
	s.held[name] = r
	out := name + ": held"
	if c.Output > 0 {
		out += fmt.Sprintf(", granted %d", r.Granted())
	}
	for _, id := range c.Shadowed {
		out += ", shadow " + id.String()
	}
	return out
}

func denied(name string, d *Denial) string {
	if d == nil {
		return name + ": "
	}
	axis := [...]string{"", "balance", "quota", "concurrency", "qps", "tpm"}[d.Axis]
	out := name + ": denied, " + axis
	switch d.Axis {
	case AxisBalance:
		return out + fmt.Sprintf(", required %d, available %d", d.Required, d.Available)
	case AxisQuota:
		return out + fmt.Sprintf(", used %d, held %d, limit %d, reserving %d", d.Used, d.Held, d.Limit, d.Requested)
	}
	out += fmt.Sprintf(" of %s, limit %d, current %d, requested %d, wait %dms", d.ID, d.Limit, d.Current, d.Requested, d.RetryAfterMS)
	if d.TooLarge {
		out += ", too large"
	}
	if !d.Exact {
		out += ", not exact"
	}
	return out
}

func (s *script) entries() string {
	var out []string
	for _, e := range s.journal.all()[s.printed:] {
		s.printed++
		kind := [...]string{"", "reserve", "progress", "settle", "void", "credit"}[e.Kind]
		out = append(out, fmt.Sprintf("%s #%d %s, %d+%d tokens, held %d, cost %d, label %d, channel %q, http %d, latency %d, first %d, estimated %v",
			kind, e.ID, e.Status, e.Usage.InputTokens, e.Usage.OutputTokens, e.Held, e.Cost, e.Label, e.Channel,
			e.HTTPStatus, e.LatencyMS, e.FirstMS, e.Estimated))
	}
	return strings.Join(out, "\n")
}

func (s *script) num(v string) int64 {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) named(name string) Dim {
	d, ok := s.dims[name]
	if !ok {
		s.t.Fatalf("no dimension %q", name)
	}
	return d
}

func (s *script) list(names string) (out []Dim) {
	if names == "-" {
		return nil
	}
	for _, n := range strings.Split(names, ",") {
		out = append(out, s.named(n))
	}
	return out
}

func kindNamed(name string) Kind {
	for k := range Kind(255) {
		if k.String() == name {
			return k
		}
	}
	return Custom
}

func (s *script) algorithms(args []string) string {
	w := Windows{}
	for _, a := range args[1:] {
		k, v, _ := strings.Cut(a, "=")
		if k == "qps" {
			w.QPS = Algorithm(v)
		} else {
			w.TPM = Algorithm(v)
		}
	}
	if s.options.Algorithms == nil {
		s.options.Algorithms = map[Kind]Windows{}
	}
	s.options.Algorithms[kindNamed(args[0])] = w
	return ""
}

func (s *script) dim(id string, opts []string) Dim {
	p := strings.SplitN(id, ":", 3)
	d := Dim{ID: ID{Kind: kindNamed(p[0])}}
	for _, v := range p[1:] {
		if n, err := strconv.ParseUint(v, 10, 64); err == nil && d.ID.Scope == 0 && d.ID.Kind.scoped() {
			d.ID.Scope = n
		} else {
			d.ID.Name = v
		}
	}
	for _, o := range opts {
		k, v, _ := strings.Cut(o, "=")
		n, _ := strconv.ParseInt(v, 10, 64)
		switch k {
		case "qps":
			d.Base.QPS, d.Effective.QPS = n, n
		case "tpm":
			d.Base.TPM, d.Effective.TPM = n, n
		case "base.tpm":
			d.Base.TPM = n
		case "concurrency":
			d.Base.Concurrency, d.Effective.Concurrency = n, n
		case "burst":
			d.Burst = uint32(n)
		case "cost":
			d.Cost = uint32(n)
		case "countonly":
			d.CountOnly = true
		case "shadow":
			d.Shadow = true
		}
	}
	return d
}

func (s *script) setMoney(args []string) {
	s.money = Money{Billed: true, Balance: true}
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		n := llm.Micro(s.num(v))
		switch k {
		case "in":
			s.money.Price.Input = n
		case "out":
			s.money.Price.Output = n
		case "request":
			s.money.Price.Request = n
		case "overdraft":
			s.money.Overdraft = n
		case "quota":
			s.money.Quotas[llm.Month].Limit = n
		case "label":
			s.money.Quotas[llm.Month].Label = int32(n)
		}
	}
}
