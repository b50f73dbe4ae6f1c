package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// hook is an operator's webhook: it checks signatures as the documentation says and keeps the shares it was told.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	down   bool // it answers 503
	bad    int
	count  map[float64]int // taken, by percent
	missed map[float64]int // while it was down
}

const hookSecret = "an operator's secret"

func newHook(t *testing.T) *hook {
	h := &hook{count: map[float64]int{}, missed: map[float64]int{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		stamp, sum, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Weir-Signature"), "t="), ",v1=")
		mac := hmac.New(sha256.New, []byte(hookSecret))
		mac.Write([]byte(stamp + "." + string(body)))
		var v map[string]any
		h.mu.Lock()
		defer h.mu.Unlock()
		if json.Unmarshal(body, &v) != nil || hex.EncodeToString(mac.Sum(nil)) != sum || v["keyName"] != "k" || v["window"] != "day" {
			h.bad++
		}
		percent := v["percent"].(float64)
		if h.down {
			h.missed[percent]++
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		h.count[percent]++
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) told(percent float64) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count[percent]
}

func (h *hook) setDown(down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = down
}

func (h *hook) missedAny(percent float64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.missed[percent] > 0
}

// A share of a budget that is spent is told, signed, once, over a kill -9 too; one that the receiver had not taken when the
// process died is told by the next one, without a request; the key is refused where its budget ends.
func TestAlerts(t *testing.T) {
	h := newHook(t)
	p := serve(t, "alerts: {url: \""+h.URL+"\", secret: \""+hookSecret+"\", at: [20, 40]}\n")
	key := p.key("--budget", "day:limit=0.0004,warnPercent=60")
	spendUntil := func(told func() bool) {
		eventually(t, "a share is told", func() bool {
			if !told() {
				p.status(key, hello)
			}
			return told()
		})
	}
	spend := func(percent float64) { spendUntil(func() bool { return h.told(percent) > 0 }) }
	spend(20)
	h.setDown(true)
	spendUntil(func() bool { return h.missedAny(40) })
	p.kill()
	h.setDown(false)
	p.start()
	eventually(t, "the next process tells it", func() bool { return h.told(40) > 0 })
	spend(60)
	eventually(t, "the budget is spent", func() bool { return p.status(key, hello) == http.StatusPaymentRequired })
	for _, percent := range []float64{20, 40, 60} {
		if n := h.told(percent); n != 1 || h.bad != 0 {
			t.Errorf("%v %% was told %d times; %d alerts were wrong", percent, n, h.bad)
		}
	}
	if used := p.object("key", "usage-window", "1")["daily"].(map[string]any); used["limitMicroCny"] != 400.0 || used["usedMicroCny"].(float64) < 240 {
		t.Errorf("usage-window shows %v", used)
	}
}
