package policies_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// This file says once more, in the plainest way, what a table of rules means, and holds the module to it with random tables
// and facts.

type modelRule struct {
	Name    string     `json:"name"`
	Enabled *bool      `json:"enabled,omitempty"`
	When    *modelWhen `json:"when,omitempty"`
	Then    modelThen  `json:"then"`
}

type modelRange struct {
	AtLeast *int64 `json:"at_least,omitempty"`
	Below   *int64 `json:"below,omitempty"`
}

type modelHours struct {
	Weekdays []string `json:"weekdays,omitempty"`
	From     string   `json:"from,omitempty"`
	To       string   `json:"to,omitempty"`
}

type modelWhen struct {
	Models    []string            `json:"models,omitempty"`
	Labels    map[string][]string `json:"labels,omitempty"`
	Tiers     []string            `json:"tiers,omitempty"`
	Endpoints []string            `json:"endpoints,omitempty"`
	Hours     *modelHours         `json:"hours,omitempty"`
	Days      []int               `json:"days_of_month,omitempty"`
	Input     *modelRange         `json:"input_tokens,omitempty"`
	Month     *modelRange         `json:"month_used_permille,omitempty"`
	Balance   *modelRange         `json:"balance_micro,omitempty"`
	Stream    *bool               `json:"stream,omitempty"`
	Tools     *bool               `json:"tools,omitempty"`
}

type modelThen struct {
	QPS    int          `json:"qps_permille,omitempty"`
	Month  int          `json:"month_permille,omitempty"`
	Price  int          `json:"price_permille,omitempty"`
	Output int          `json:"output_tokens_cap,omitempty"`
	Tier   string       `json:"tier,omitempty"`
	Dims   []modelDim   `json:"dimensions,omitempty"`
	Deny   *modelDenial `json:"deny,omitempty"`
}

type modelDim struct {
	Kind  string `json:"kind"`
	Value string `json:"value,omitempty"`
	QPS   int    `json:"qps_limit,omitempty"`
}

type modelDenial struct {
	Status int  `json:"status"`
	Shadow bool `json:"shadow,omitempty"`
}

type modelFacts struct {
	Flags      int               `json:"flags"`
	Endpoint   string            `json:"endpoint"`
	Tier       string            `json:"tier"`
	Input      int64             `json:"input_tokens"`
	Limit      int64             `json:"quota_limit_micro"`
	Used       int64             `json:"quota_used_micro"`
	Balance    int64             `json:"balance_available_micro"`
	Minute     int               `json:"minute_of_week"`
	Day        int               `json:"day_of_month"`
	Days       int               `json:"days_in_month"`
	Attributes map[string]string `json:"attributes"`
}

func (r *modelRange) holds(n int64) bool {
	return r == nil || (r.AtLeast == nil || n >= *r.AtLeast) && (r.Below == nil || n < *r.Below)
}

func like(patterns []string, value string) bool {
	return patterns == nil || value != "" && slices.ContainsFunc(patterns, func(p string) bool {
		stem, open := strings.CutSuffix(p, "*")
		return open && strings.HasPrefix(value, stem) || !open && value == p
	})
}

func flag(want *bool, set bool) bool { return want == nil || *want == set }

func weekdays() []string { return []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"} }

// holds goes back minute by minute to the time the hours began.
func (h *modelHours) holds(minute int) bool {
	if h == nil {
		return true
	}
	clock := func(s string, otherwise int) int {
		if s == "" {
			return otherwise
		}
		var hour, min int
		fmt.Sscanf(s, "%d:%d", &hour, &min)
		return hour*60 + min
	}
	from, to := clock(h.From, 0), clock(h.To, 1440)
	length := (to - from + 1440) % 1440
	if length == 0 {
		length = 1440
	}
	for back := range length {
		start := (minute - back + 7*1440) % (7 * 1440)
		if start%1440 == from {
			return h.Weekdays == nil || slices.Contains(h.Weekdays, weekdays()[start/1440])
		}
	}
	return false
}

func (w *modelWhen) holds(f *modelFacts) bool {
	if w == nil {
		return true
	}
	for label, patterns := range w.Labels {
		if !like(patterns, f.Attributes[label]) {
			return false
		}
	}
	return like(w.Models, f.Attributes["model"]) && like(w.Tiers, f.Tier) && like(w.Endpoints, f.Endpoint) && w.Hours.holds(f.Minute) &&
		(w.Days == nil || slices.Contains(w.Days, f.Day) || slices.Contains(w.Days, f.Day-f.Days-1)) && w.Input.holds(f.Input) &&
		(w.Month == nil || f.Limit > 0 && w.Month.holds(f.Used*1000/f.Limit)) && w.Balance.holds(f.Balance) &&
		flag(w.Stream, f.Flags&1 != 0) && flag(w.Tools, f.Flags&2 != 0)
}

// answer is the whole decision as JSON.
func answer(rules []modelRule, all bool, f *modelFacts) map[string]any {
	want := map[string]any{"verdict": "allow", "qps_permille": 1000, "quota_permille": 1000, "price_permille": 1000, "output_tokens_cap": 0, "tier": "", "status": 403}
	var names []string
	var dims []modelDim
	reason, denied := 0, false
	scale := func(member string, factor int) {
		if factor != 0 {
			want[member] = min(max(want[member].(int)*factor/1000, 1), 1_000_000)
		}
	}
	for i, r := range rules {
		if r.Enabled != nil && !*r.Enabled || !r.When.holds(f) {
			continue
		}
		names = append(names, r.Name)
		if d := r.Then.Deny; d != nil {
			if !denied || !d.Shadow {
				reason = i + 1
			}
			denied = true
			if d.Shadow {
				want["verdict"] = "shadow_deny"
				continue
			}
			want["verdict"], want["status"] = "deny", d.Status
			break
		}
		if reason == 0 {
			reason = i + 1
		}
		scale("qps_permille", r.Then.QPS)
		scale("quota_permille", r.Then.Month)
		scale("price_permille", r.Then.Price)
		if now := want["output_tokens_cap"].(int); r.Then.Output > 0 && (now == 0 || r.Then.Output < now) {
			want["output_tokens_cap"] = r.Then.Output
		}
		if want["tier"] == "" {
			want["tier"] = r.Then.Tier
		}
		dims = append(dims, r.Then.Dims...)
		if !all {
			break
		}
	}
	want["abstain"], want["reason"], want["message"], want["dims"] = len(names) == 0, reason, strings.Join(names, ", "), modelDims(dims, f)
	return want
}

func modelDims(dims []modelDim, f *modelFacts) []any {
	list := []any{}
	for _, d := range dims {
		value := strings.NewReplacer("{model}", f.Attributes["model"], "{label.soft}", f.Attributes["soft"]).Replace(d.Value)
		if strings.Contains(d.Value, "{model}") && f.Attributes["model"] == "" || strings.Contains(d.Value, "{label.soft}") && f.Attributes["soft"] == "" {
			continue
		}
		list = append(list, map[string]any{"kind": d.Kind, "value": value, "qps_limit": d.QPS})
	}
	if len(list) > 0 {
		list = append([]any{map[string]any{"kind": "key"}, map[string]any{"kind": "model"}, map[string]any{"kind": "global"}, map[string]any{"kind": "user"}, map[string]any{"kind": "org"}}, list...)
	}
	return list
}

// TestRulesModel: 40 random tables, each asked 150 times.
func TestRulesModel(t *testing.T) {
	g := &generator{rand.New(rand.NewPCG(11, 13))}
	fired := map[int]int{}
	for range 40 {
		all := g.IntN(2) == 0
		mode := map[bool]string{true: "all", false: "first"}[all]
		rules := make([]modelRule, 1+g.IntN(12))
		room := 0
		for i := range rules {
			rules[i] = g.rule(i)
			if room += len(rules[i].Then.Dims); room > 6 {
				rules[i].Then.Dims = nil
			}
		}
		params, err := json.Marshal(map[string]any{"mode": mode, "rules": rules})
		if err != nil {
			t.Fatal(err)
		}
		var cases []string
		for n := range 150 {
			f := g.facts()
			want := answer(rules, all, f)
			fired[want["reason"].(int)]++
			c, err := json.Marshal(map[string]any{"name": fmt.Sprintf("%d of %s", n, params), "facts": f, "want": want})
			if err != nil {
				t.Fatal(err)
			}
			cases = append(cases, string(c))
		}
		if runCases(t, string(params), cases); t.Failed() {
			return
		}
	}
	for i := range 8 {
		if fired[i] < 20 {
			t.Errorf("rule %d fired %d times: %v", i, fired[i], fired)
		}
	}
}

// generator draws from few values, so that they meet.
type generator struct{ *rand.Rand }

func (g *generator) names() []string {
	return []string{"a", "ab", "abcdefgh", "abcdefghi", "abcdefghijklmnopqrst", "abcdefghijklmnopqrsu", "ünïcödé-ünïcödé", "b"}
}

func draw[T any](g *generator, from []T) T { return from[g.IntN(len(from))] }

func (g *generator) patterns() []string {
	list := make([]string, 1+g.IntN(3))
	for i := range list {
		list[i] = draw(g, g.names())
		if g.IntN(2) == 0 {
			runes := []rune(list[i])
			list[i] = string(runes[:g.IntN(len(runes)+1)]) + "*"
		}
	}
	return list
}

func (g *generator) bounds(from []int64) *modelRange {
	r := &modelRange{}
	if g.IntN(2) == 0 {
		r.AtLeast = new(draw(g, from))
	}
	if r.AtLeast == nil || g.IntN(2) == 0 {
		r.Below = new(draw(g, from))
	}
	return r
}

func (g *generator) rule(i int) modelRule {
	r := modelRule{Name: fmt.Sprintf("r%d", i+1)}
	if g.IntN(10) == 0 {
		r.Enabled = new(g.IntN(3) == 0)
	}
	if g.IntN(12) > 0 {
		r.When = g.when()
	}
	r.Then = modelThen{QPS: draw(g, []int{0, 0, 1, 500, 3000, 1_000_000}), Month: draw(g, []int{0, 1100}), Price: draw(g, []int{0, 0, 1000, 1333}),
		Output: draw(g, []int{0, 0, 100, 7}), Tier: draw(g, []string{"", "", "free", "pro"})}
	if g.IntN(5) == 0 {
		r.Then.Deny = &modelDenial{Status: 400 + g.IntN(100), Shadow: g.IntN(3) > 0}
	}
	for range g.IntN(2) * g.IntN(3) {
		r.Then.Dims = append(r.Then.Dims, draw(g, []modelDim{{Kind: "ip", QPS: 3}, {Kind: "key+model"}, {Kind: "custom", Value: "x"}, {Kind: "custom", Value: "m:{model}"}, {Kind: "custom", Value: "{label.soft}/{model}", QPS: 9}}))
	}
	return r
}

func (g *generator) when() *modelWhen {
	w := &modelWhen{}
	for range 1 + g.IntN(2) {
		switch g.IntN(11) {
		case 0, 1:
			w.Models = g.patterns()
		case 2:
			w.Labels = map[string][]string{draw(g, []string{"soft", "hot"}): g.patterns()}
		case 3:
			w.Tiers = []string{draw(g, tiers())}
		case 4:
			w.Endpoints = []string{draw(g, []string{"chat", "messages"}), "responses"}
		case 5, 6:
			w.Hours = draw(g, []*modelHours{{From: "08:00"}, {To: "00:01"}, {From: "22:00", To: "06:00"}, {From: "00:00", To: "24:00"}, {From: "23:59", To: "23:58"}})
			hours := *w.Hours
			if hours.Weekdays = []string{draw(g, weekdays()), draw(g, weekdays())}; hours.Weekdays[0] == hours.Weekdays[1] {
				hours.Weekdays = nil
			}
			w.Hours = &hours
		case 7:
			w.Days = draw(g, [][]int{{1}, {-1}, {-2, 15}, {28, 29, 31}, {-31}})
		case 8:
			w.Input = g.bounds([]int64{0, 10, 11, 1000})
		case 9:
			w.Month, w.Balance = g.bounds([]int64{0, 500, 999, 1000}), g.bounds([]int64{-5, 0, 1})
		case 10:
			w.Stream, w.Tools = new(g.IntN(2) == 0), draw(g, []*bool{nil, new(true)})
		}
	}
	return w
}

func (g *generator) facts() *modelFacts {
	days := 28 + g.IntN(4)
	f := &modelFacts{Flags: g.IntN(8), Endpoint: draw(g, []string{"chat", "messages", "embeddings"}), Tier: draw(g, tiers()), Input: draw(g, []int64{0, 10, 11, 999}),
		Limit: draw(g, []int64{0, 1000}), Used: draw(g, []int64{0, 499, 500, 999, 1000, 2000}), Balance: draw(g, []int64{-6, -5, 0, 1, 1 << 62}),
		Minute: draw(g, []int{0, 1, 479, 480, 1439, 1440, 1441, 360, 359, 10079, 8639, g.IntN(10080)}), Day: draw(g, []int{1, 15, days - 1, days}), Days: days,
		Attributes: map[string]string{}}
	for _, name := range []string{"model", "soft", "hot"} {
		if g.IntN(4) > 0 {
			f.Attributes[name] = draw(g, g.names())
		}
	}
	return f
}
