package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Prices of the walk's model, in micro per million tokens.
const (
	inputPrice  = 1_080_000
	outputPrice = 4_320_000
)

func (w *walk) objects() error {
	org, err := w.command("org", "create", "--json", "--name", "Acme")
	if err != nil {
		return err
	}
	w.org = id(org)
	user, err := w.command("user", "create", "--json", "--org-id", fmt.Sprint(w.org), "--name", "alice", "--balance", "100")
	if err != nil {
		return err
	}
	w.user = id(user)
	key, err := w.command("key", "create", "--json", "--user-id", fmt.Sprint(w.user), "--name", "throttled",
		"--qps-limit", "2", "--tpm-limit", "1000", "--monthly-quota", "10000")
	if err != nil {
		return err
	}
	w.key = id(key)
	w.plaintext, _ = key["plaintext"].(string)
	return check("plaintext of the new key", w.plaintext != "", true)
}

func id(o object) int64 {
	n, _ := o["id"].(float64)
	return int64(n)
}

func (w *walk) attack(total, concurrency int) (object, error) {
	return w.command("attack", "--base", "http://"+w.base, "--model", "gpt-4o-mini", "--total", strconv.Itoa(total), "--concurrency", strconv.Itoa(concurrency))
}

func (w *walk) storm() error {
	res, err := w.attack(20, 5)
	if err != nil {
		return err
	}
	by, _ := res["by_status"].(object)
	first, _ := res["first_429_at_index"].(float64)
	body, _ := res["first_429_body"].(object)
	e, _ := body["error"].(object)
	wait, _ := e["retry_after_ms"].(float64)
	fmt.Fprintf(w.out, "   by_status %v, first 429 at %v: %v\n", by, first, e)
	return errors.Join(
		check("502s", by["502"], 2.0), check("429s", by["429"], 18.0), check("first 429 within 2..4", first >= 2 && first <= 4, true),
		check("dimension", e["dimension"], "key"), check("kind", e["kind"], "qps"), check("limit_key", e["limit_key"], fmt.Sprintf("key:%d", w.key)),
		check("limit", e["limit"], 2.0), check("current", e["current"], 2.0), check("retry_after_ms in 1..1000", wait >= 1 && wait <= 1000, true),
		check("Retry-After", res["first_429_retry_after"], "1"))
}

func (w *walk) again() error {
	time.Sleep(1100 * time.Millisecond) // the window itself: one real second
	res, err := w.attack(2, 1)
	if err != nil {
		return err
	}
	by, _ := res["by_status"].(object)
	u, err := w.usageWindow()
	if err != nil {
		return err
	}
	current := at(u, "qps", "current").(float64)
	return errors.Join(
		check("502s", by["502"], 2.0), check("429s", by["429"], nil), check("qps current in 1..2", current >= 1 && current <= 2, true),
		check("tpm current", at(u, "tpm", "currentTokens"), 0.0), check("held", at(u, "monthly", "heldMicroCny"), 0.0))
}

func (w *walk) usageWindow() (object, error) {
	return w.command("key", "usage-window", fmt.Sprint(w.key), "--json")
}

// at walks into nested objects.
func at(o object, path ...string) any {
	var v any = o
	for _, p := range path {
		inner, _ := v.(object)
		v = inner[p]
	}
	return v
}

func (w *walk) limits(flags ...string) error {
	_, err := w.command(append([]string{"key", "limits", fmt.Sprint(w.key), "--json"}, flags...)...)
	return err
}

func (w *walk) tooLarge() error {
	if err := w.limits("--qps-limit", "0", "--tpm-limit", "50"); err != nil {
		return err
	}
	e, header, err := w.refusal(429, `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hello"}],"max_tokens":64}`)
	if err != nil {
		return err
	}
	requested, _ := e["requested"].(float64)
	return errors.Join(
		check("kind", e["kind"], "tpm"), check("dimension", e["dimension"], "key"), check("limit", e["limit"], 50.0), check("current", e["current"], 0.0),
		check("requested about 71", requested >= 68 && requested <= 74, true), check("code", e["code"], "request_exceeds_limit"),
		check("Retry-After", header.Get("Retry-After"), "60"), check("x-should-retry", header.Get("x-should-retry"), "false"))
}

func (w *walk) month() error {
	if err := w.limits("--qps-limit", "0", "--tpm-limit", "0", "--monthly-quota", "0.00001"); err != nil {
		return err
	}
	e, header, err := w.refusal(402, `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}`)
	if err != nil {
		return err
	}
	reserving, _ := e["reserving_micro_cny"].(float64)
	balance, err := w.balance()
	return errors.Join(err,
		check("code", e["code"], "monthly_quota_exceeded"), check("used", e["used_micro_cny"], 0.0), check("limit", e["limit_micro_cny"], 10.0),
		check("reserving about 17,700", reserving >= 17_695 && reserving <= 17_720, true), check("x-should-retry", header.Get("x-should-retry"), "false"),
		check("balance", balance, int64(100_000_000)))
}

func (w *walk) balance() (int64, error) {
	u, err := w.command("user", "get", fmt.Sprint(w.user), "--json")
	if err != nil {
		return 0, err
	}
	n, ok := u["balanceMicroCny"].(float64)
	return int64(n), check("balanceMicroCny is a number", ok, true)
}

func (w *walk) window() error {
	u, err := w.usageWindow()
	if err != nil {
		return err
	}
	reset, err := time.Parse(time.RFC3339, fmt.Sprint(at(u, "monthly", "resetAt")))
	return errors.Join(err,
		check("limitMicroCny", at(u, "monthly", "limitMicroCny"), 10.0), check("usedMicroCny", at(u, "monthly", "usedMicroCny"), 0.0),
		check("reset is the first of a month", reset.Day(), 1), check("reset is ahead", reset.After(time.Now()), true))
}

func (w *walk) startUpstream() error {
	if err := w.start("upstream-sim", "--listen", w.upstream); err != nil {
		return err
	}
	if err := w.limits("--monthly-quota", "10000"); err != nil {
		return err
	}
	return w.until("the upstream is live", func() bool { return w.alive("http://" + w.upstream + "/sim/stats") })
}

func (w *walk) paid() error {
	before, err := w.balance()
	if err != nil {
		return err
	}
	var answer []byte
	err = w.until("the channel has cooled down and answers", func() bool {
		status, _, body, cerr := w.ask(`{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hello"}],"max_tokens":64}`)
		answer = body
		return cerr == nil && status == 200
	})
	if err != nil {
		return err
	}
	var reply struct{ Usage usage }
	if err := json.Unmarshal(answer, &reply); err != nil {
		return err
	}
	return w.charged(before, reply.Usage)
}

// usage is what the upstream reported.
type usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
}

// cost is the price of u: one rounding, up.
func (u usage) cost() int64 {
	return (u.PromptTokens*inputPrice + u.CompletionTokens*outputPrice + 999_999) / 1_000_000
}

func (w *walk) charged(before int64, u usage) error {
	after, err := w.balance()
	if err != nil {
		return err
	}
	records, err := w.command("usage", "--json", "--key", fmt.Sprint(w.key), "--status", "finalized", "--limit", "1")
	if err != nil {
		return err
	}
	window, err := w.usageWindow()
	if err != nil {
		return err
	}
	rows, _ := records["data"].([]any)
	if len(rows) == 0 {
		return errors.New("no usage record was written")
	}
	newest, _ := rows[0].(object)
	fmt.Fprintf(w.out, "   %+v costs %d micro\n", u, u.cost())
	return errors.Join(
		check("balance went down by the price", before-after, u.cost()), check("record's cost", newest["costMicroCny"], float64(u.cost())),
		check("record's input tokens", newest["inputTokens"], float64(u.PromptTokens)), check("record's output tokens", newest["outputTokens"], float64(u.CompletionTokens)),
		check("held", at(window, "monthly", "heldMicroCny"), 0.0))
}

func (w *walk) streamed() error {
	before, err := w.balance()
	if err != nil {
		return err
	}
	status, _, answer, err := w.chat(`{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hello"}],"max_tokens":64,"stream":true,"stream_options":{"include_usage":true}}`)
	if err != nil {
		return err
	}
	var u usage
	for line := range bytes.Lines(answer) {
		var chunk struct{ Usage *usage }
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
		if ok && json.Unmarshal(data, &chunk) == nil && chunk.Usage != nil {
			u = *chunk.Usage
		}
	}
	return errors.Join(check("status", status, 200), check("ends with [DONE]", bytes.HasSuffix(bytes.TrimSpace(answer), []byte("data: [DONE]")), true),
		check("usage was reported", u.CompletionTokens > 0, true), w.charged(before, u))
}

func check(what string, got, want any) error {
	if got != want {
		return fmt.Errorf("%s is %v, want %v", what, got, want)
	}
	return nil
}
