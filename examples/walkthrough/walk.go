package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const adminToken = "walkthrough-0123456789"

// walk is one run: the processes it started and what it learned on the way.
type walk struct {
	ctx       context.Context
	weir, dir string
	out       io.Writer

	base, admin, upstream string // addresses
	processes             []*exec.Cmd
	org, user, key        int64
	plaintext             string
}

// object is a JSON object, with numbers as float64.
type object = map[string]any

func (w *walk) all() error {
	steps := []struct {
		title string
		run   func() error
	}{
		{"start a gateway whose upstream is not reachable", w.startGateway},
		{"an org, a user with 100, a key with QPS 2, TPM 1000, 10,000 a month", w.objects},
		{"a storm of 20: 2 pass to the dead upstream, 18 are refused with the truth", w.storm},
		{"a second later two more pass, and nothing is held", w.again},
		{"TPM 50 can never hold 64 output tokens", w.tooLarge},
		{"a month of 0.00001 holds no answer of 4,096 tokens", w.month},
		{"the window of the month", w.window},
		{"the upstream comes to life", w.startUpstream},
		{"an answer costs exactly what its tokens cost", w.paid},
		{"a stream, and the same sum again", w.streamed},
	}
	for i, s := range steps {
		fmt.Fprintf(w.out, "%d. %s\n", i+1, s.title)
		if err := s.run(); err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, s.title, err)
		}
	}
	fmt.Fprintln(w.out, "every number was as it should be")
	return nil
}

// freeAddresses fills in addresses of this machine where nothing listens. They are held until all are found, so that no
// two are the same.
func freeAddresses(to ...*string) error {
	for _, a := range to {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer ln.Close()
		*a = ln.Addr().String()
	}
	return nil
}

func (w *walk) startGateway() error {
	if err := freeAddresses(&w.base, &w.admin, &w.upstream); err != nil {
		return err
	}
	file := filepath.Join(w.dir, "weir.yaml")
	text := fmt.Sprintf(`
listen: {address: %q}
admin: {address: %q, token: "${WEIR_ADMIN_TOKEN}"}
data: %q
log: {level: error}
channels:
  - {name: sim, provider: openai, base_url: "http://%s/v1", credential: sk-simulated}
models:
  gpt-4o-mini:
    price: {input_per_1m: 1.08, cached_input_per_1m: 0.54, output_per_1m: 4.32}
`, w.base, w.admin, filepath.Join(w.dir, "data"), w.upstream)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if err := w.start("serve", "-c", file); err != nil {
		return err
	}
	return w.until("the gateway is live", func() bool { return w.alive("http://"+w.base+"/healthz") && w.alive("http://"+w.admin+"/healthz") })
}

func (w *walk) start(args ...string) error {
	c := exec.CommandContext(w.ctx, w.weir, args...)
	c.Env = append(os.Environ(), "WEIR_ADMIN_TOKEN="+adminToken)
	c.Stderr = os.Stderr
	w.processes = append(w.processes, c)
	return c.Start()
}

// stop ends the processes as an operator would, and waits for them.
func (w *walk) stop() {
	for i := len(w.processes) - 1; i >= 0; i-- {
		if p := w.processes[i]; p.Process != nil {
			_ = p.Process.Signal(syscall.SIGTERM)
			_ = p.Wait()
		}
	}
}

func (w *walk) alive(url string) bool {
	resp, err := http.Get(url)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// until polls a condition that another process brings about; half a minute is ten times what it takes.
func (w *walk) until(what string, ok func() bool) error {
	for range 600 {
		if ok() {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("gave up waiting until " + what)
}

// command runs a weir command against the gateway and reads its JSON.
func (w *walk) command(args ...string) (object, error) {
	fmt.Fprintln(w.out, "   $ weir "+strings.Join(args, " "))
	c := exec.CommandContext(w.ctx, w.weir, args...)
	c.Env = append(os.Environ(), "WEIR_ADMIN_TOKEN="+adminToken, "WEIR_ADMIN_URL=http://"+w.admin, "WEIR_KEY="+w.plaintext)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	raw, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.String())
	}
	var o object
	return o, json.Unmarshal(raw, &o)
}

// chat sends one chat request with the key and shows what came back.
func (w *walk) chat(body string) (status int, header http.Header, answer []byte, err error) {
	status, header, answer, err = w.ask(body)
	fmt.Fprintf(w.out, "   POST /v1/chat/completions %s\n   %d %.300s\n", body, status, strings.TrimSpace(string(answer)))
	return status, header, answer, err
}

// ask is chat without a word.
func (w *walk) ask(body string) (status int, header http.Header, answer []byte, err error) {
	req, err := http.NewRequestWithContext(w.ctx, "POST", "http://"+w.base+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+w.plaintext)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, answer, err
}

// refusal is chat for a request that must be refused: the error object.
func (w *walk) refusal(status int, body string) (object, http.Header, error) {
	got, header, answer, err := w.chat(body)
	if err != nil {
		return nil, nil, err
	}
	var e struct{ Error object }
	if err := json.Unmarshal(answer, &e); err != nil {
		return nil, nil, err
	}
	if got != status {
		return nil, nil, fmt.Errorf("status %d, want %d", got, status)
	}
	return e.Error, header, nil
}
