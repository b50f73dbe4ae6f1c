package alert

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/weir-gateway/weir/core/llm"
)

const (
	postTimeout  = 10 * time.Second
	tries        = 8
	firstPause   = time.Second // doubled with each try: two minutes in all
	toldTimeout  = 2 * time.Second
	closeTimeout = 2 * time.Second // of Close, whatever waits
)

// SignatureHeader carries t=<unix seconds>,v1=<hex>.
const SignatureHeader = "Weir-Signature"

// Sign is the value of SignatureHeader: HMAC-SHA256 with the secret over the seconds, a dot and the body.
func Sign(secret string, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(t + "."))
	h.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(h.Sum(nil))
}

// run is the sender's one goroutine; Close waits for it.
func (s *Sender) run(life context.Context) {
	defer close(s.done)
	for {
		select {
		case <-life.Done():
			s.drain(nil)
			return
		case n := <-s.queue:
			if !s.deliver(life, &n) {
				s.drain(&n)
				return
			}
		}
	}
}

// deliver tries until the receiver has it or has failed too often; false when life ended before.
func (s *Sender) deliver(life context.Context, n *notice) bool {
	pause := firstPause
	for try := 1; ; try++ {
		err := s.post(life, n)
		switch {
		case err == nil:
			s.taken(n)
			return true
		case life.Err() != nil:
			return false
		case try == tries:
			s.failed(n, err)
			return true
		}
		s.p.Log.Warn("an alert was not taken; it is tried again", slog.Any("error", err), slog.Duration("after", pause))
		if s.sleep(life, pause) != nil {
			return false
		}
		pause *= 2
	}
}

// drain gives everything that waits one last try, within what Close waits.
func (s *Sender) drain(first *notice) {
	last := func(n *notice) {
		if err := s.post(s.ending, n); err != nil {
			s.failed(n, err)
		} else {
			s.taken(n)
		}
	}
	if first != nil {
		last(first)
	}
	for {
		select {
		case n := <-s.queue:
			last(&n)
		default:
			return
		}
	}
}

// taken is an alert that the receiver has: it is not sent again. It is remembered behind the answer, so that a death in
// between repeats it.
func (s *Sender) taken(n *notice) {
	s.counts.delivered.Add(1)
	ctx, cancel := context.WithTimeout(s.ending, toldTimeout)
	defer cancel()
	if err := s.p.Told(ctx, n.Key, n.Label, n.share); err != nil {
		s.p.Log.Warn("an alert may be sent again after a restart", slog.String("id", n.id()), slog.Any("error", err))
	}
}

// failed gives an alert up for now: the budget's next settlement, or the next start, tells it again.
func (s *Sender) failed(n *notice, err error) {
	s.mu.Lock()
	if b := (budget{n.Key, n.Window}); s.mu.budgets[b].label == n.Label {
		s.mu.budgets[b] = progress{n.Label, min(s.mu.budgets[b].fired, n.share-1)}
	}
	s.mu.Unlock()
	s.counts.failed.Add(1)
	s.p.Log.Error("an alert was not delivered", slog.String("id", n.id()), slog.Any("error", err))
}

// post sends once. Whatever is not a 2xx may pass: a receiver that is being replaced says 404, one whose secret is being
// changed says 401.
func (s *Sender) post(ctx context.Context, n *notice) error {
	body := n.body(s.p.Currency)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.o.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "weir")
	r.Header.Set(SignatureHeader, Sign(s.o.Secret, s.p.Clock.Wall(), body))
	resp, err := s.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // what is read whole leaves the connection usable
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the receiver answered %d", resp.StatusCode)
	}
	return nil
}

// id is the same for every try of one alert, and for no other.
func (n *notice) id() string {
	return fmt.Sprintf("%d-%d-%d", n.Key, n.Label, n.share)
}

func (n *notice) body(currency string) []byte {
	suffix := strings.ToUpper(currency[:1]) + currency[1:]
	raw, err := json.Marshal(map[string]any{
		"id": n.id(), "type": "budget.share", "at": n.at.UTC().Format(time.RFC3339), "percent": n.share,
		"orgId": n.Org, "userId": n.User, "keyId": n.Key, "keyName": n.Name,
		"window": n.Window.String(), "period": llm.PeriodName(n.Label), "resetsAt": n.ResetsAt.Format(time.RFC3339),
		"limitMicro" + suffix: n.Limit, "usedMicro" + suffix: n.Used,
	})
	if err != nil {
		panic("alert: " + err.Error()) // numbers and texts
	}
	return raw
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close gives what waits one last try of two seconds in all, and stops.
func (s *Sender) Close() {
	if s == nil {
		return
	}
	defer time.AfterFunc(closeTimeout, s.over).Stop()
	s.stop()
	<-s.done
	s.over()
	s.client.CloseIdleConnections()
}

// WriteMetrics writes the sender's counters in Prometheus' text format.
func (s *Sender) WriteMetrics(w io.Writer) {
	if s == nil {
		return
	}
	metrics.WriteMetadataIfNeeded(w, "weir_alerts_total", "counter")
	for _, c := range []struct {
		result string
		n      int64
	}{{"delivered", s.counts.delivered.Load()}, {"failed", s.counts.failed.Load()}, {"deferred", s.counts.deferred.Load()}} {
		_, _ = fmt.Fprintf(w, "weir_alerts_total{result=%q} %d\n", c.result, c.n)
	}
	metrics.WriteGaugeUint64(w, "weir_alerts_waiting", uint64(len(s.queue)))
}
