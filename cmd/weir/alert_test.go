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
	mu    sync.Mutex
	bad   int
	count map[float64]int // by percent
}

const hookSecret = "an operator's secret"

func newHook(t *testing.T) *hook {
	h := &hook{count: map[float64]int{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
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
		h.count[v["percent"].(float64)]++
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) told(percent float64) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count[percent]
}

// A share of a budget that is spent is told, signed, once, over a kill -9 too; the key is refused where its budget ends.
func TestAlerts(t *testing.T) {
	h := newHook(t)
	p := serve(t, "alerts: {url: \""+h.URL+"\", secret: \""+hookSecret+"\", at: [20, 40]}\n")
	key := p.key("--budget", "day:limit=0.0004,warnPercent=60")
	spend := func(percent float64) {
		eventually(t, "a share is told", func() bool {
			if h.told(percent) == 0 {
				p.status(key, hello)
			}
			return h.told(percent) > 0
		})
	}
	spend(20)
	spend(40)
	p.kill()
	p.start()
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
