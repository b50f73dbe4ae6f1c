package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// Who gets nothing but our own 503 when the time to drain is over owes nothing, however far the upstream was; a stream that is
// cut owes its input and what was sent of it.
func TestCutAnswersAreFree(t *testing.T) {
	r := newRig(t)
	var calls sync.WaitGroup
	sent := 0
	cut := func(x route, body, sim string) {
		sent++
		calls.Go(func() {
			resp, err := http.DefaultClient.Do(r.request(x.path, body, "x-sim", sim))
			if err != nil {
				t.Errorf("%s, %s: %v", x.path, sim, err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			said, err := io.ReadAll(resp.Body)
			if want := x.outage(); resp.StatusCode != want || err != nil || !strings.Contains(string(said), "the gateway is shutting down") {
				t.Errorf("%s, %s: %d %s %v, want %d", x.path, sim, resp.StatusCode, said, err, want)
			}
		})
	}
	for _, x := range everyRoute {
		cut(x, x.body, "latency=60s")
		cut(x, x.body, "hang_after=1")
		if !strings.HasSuffix(x.path, "embeddings") && !strings.HasSuffix(x.path, "count_tokens") {
			cut(x, streamed(x), "latency=60s")
		}
	}
	eventually(t, func() bool { return r.sim.Stats().Open == int64(sent) }, "never sent")
	stream, err := http.DefaultClient.Do(r.request("/v1/chat/completions", streamed(everyRoute[0]), "x-sim", "hang_after=3"))
	must(t, err)
	defer func() { _ = stream.Body.Close() }()
	lines := bufio.NewScanner(stream.Body)
	for events := 0; events < 3 && lines.Scan(); { // the second has text
		events += strings.Count(lines.Text(), "data: ")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.server.Shutdown(over); err == nil {
		t.Error("nothing was open")
	}
	calls.Wait()
	for lines.Scan() {
	}
	must(t, lines.Err())
	for _, e := range r.journal.of(llm.EntryVoid) {
		if e.Status != llm.StatusFailed || e.HTTPStatus < 503 || e.Cost != 0 {
			t.Errorf("a cut answer: %+v", e)
		}
	}
	settled := r.journal.of(llm.EntrySettle)
	if len(settled) != 1 || settled[0].HTTPStatus != 200 || settled[0].Status != llm.StatusPartial || settled[0].Usage.InputTokens == 0 || settled[0].Usage.OutputTokens == 0 {
		t.Fatalf("of %d cut answers and a cut stream were settled: %+v", sent, settled)
	}
	use, err := r.limits.Inspect(t.Context(), limit.ID{Kind: limit.Key, Scope: idKey})
	if total := settled[0].Usage.InputTokens + settled[0].Usage.OutputTokens; err != nil || use.TPM != int64(total) {
		t.Errorf("the window has %d tokens (%v), the stream came to %d", use.TPM, err, total)
	}
	if credits, _ := r.limits.Balance(idUser); credits != startBalance-settled[0].Cost {
		t.Errorf("the balance is %d, the stream cost %d of %d", credits, settled[0].Cost, startBalance)
	}
}

// outage is the status that a route's dialect has for a gateway that cannot serve.
func (x route) outage() int {
	if strings.HasPrefix(x.path, "/v1/messages") {
		return 529
	}
	return 503
}

// Whom we hang up on has not left: a request that comes as far as the upstream only after its connection was cut is free, too.
func TestHungUpOnIsFree(t *testing.T) {
	r := newRig(t)
	deciding, decide := make(chan struct{}), make(chan struct{})
	r.policy.decide = func(*policy.Facts, *policy.Decision) {
		close(deciding)
		<-decide
	}
	conn, err := net.Dial("tcp", r.addr)
	must(t, err)
	defer func() { _ = conn.Close() }()
	body := everyRoute[0].body
	_, err = io.WriteString(conn, r.rawHead("/v1/chat/completions", "Authorization: Bearer "+r.token+"\r\n", "x-sim: latency=60s\r\n", "Content-Length: "+itoa(len(body))+"\r\n")+"\r\n"+body)
	must(t, err)
	<-deciding
	over, cancel := context.WithCancel(t.Context())
	cancel()
	down := make(chan error)
	go func() { down <- r.server.Shutdown(over) }()
	if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	close(decide)
	if err := <-down; err == nil {
		t.Error("nothing was open")
	}
	if e := r.journal.last(t); e.Kind != llm.EntryVoid || e.Status != llm.StatusFailed || e.Cost != 0 {
		t.Errorf("it ended as %+v", e)
	}
	if credits, _ := r.limits.Balance(idUser); credits != startBalance {
		t.Errorf("the balance is %d of %d", credits, startBalance)
	}
}
