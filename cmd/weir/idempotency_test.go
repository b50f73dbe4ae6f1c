package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// reply is a status and a body; no status: no answer.
type reply struct {
	status int
	body   string
}

// topUp asks a gateway to move user 1's balance under an idempotency key.
func topUp(adminURL, key, body string) reply {
	req, _ := http.NewRequest("POST", adminURL+"/admin/users/1/balance", strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+testToken)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}
	}
	return reply{resp.StatusCode, string(raw)}
}

// TestC8TopUpsOverKills: a hundred parallel top-ups with one key have one effect and one answer, also when the gateway
// is killed among them and they are all repeated.
func TestC8TopUpsOverKills(t *testing.T) {
	p := serve(t, "")
	p.key() // balance 100
	for round := range int64(6) {
		key, answers := fmt.Sprint("top-up-", round), map[string]bool{}
		var mu sync.Mutex
		hundred := func(killAt int64) {
			var count atomic.Int64
			var wg sync.WaitGroup
			killed := sync.OnceFunc(p.kill)
			for range 100 {
				wg.Go(func() {
					r := topUp(p.env["WEIR_ADMIN_URL"], key, `{"deltaCny":5}`)
					if count.Add(1) == killAt {
						killed()
					}
					mu.Lock()
					defer mu.Unlock()
					switch r.status {
					case 0:
						if killAt == 0 {
							t.Error("no answer from a gateway that nobody killed")
						}
					case http.StatusOK:
						answers[r.body] = true
					default:
						t.Errorf("answered %+v", r)
					}
				})
			}
			wg.Wait()
		}
		hundred(1 + round*15)
		http.DefaultClient.CloseIdleConnections()
		p.start()
		hundred(0)
		if want := 100 + 5*float64(round+1); len(answers) != 1 || p.object("user", "get", "1")["balanceCny"] != want {
			t.Errorf("round %d: balance %v, want %v; the answers are %v", round, p.object("user", "get", "1")["balanceCny"], want, answers)
		}
		if r := topUp(p.env["WEIR_ADMIN_URL"], key, `{"deltaCny":6}`); r.status != http.StatusConflict {
			t.Errorf("another body under the same key gets %+v, want 409", r)
		}
	}
	p.kill()
	p.verify()
}

// shifted is the machine's clock, some time later.
type shifted struct {
	llm.Clock
	by time.Duration
}

func (s shifted) Wall() time.Time { return s.Clock.Wall().Add(s.by) }

// later runs the gateway in process, with a clock that is ahead, while f runs.
func (p *process) later(by time.Duration, f func()) {
	p.t.Helper()
	var c console
	a := c.app(p.env)
	a.clock = shifted{a.clock, by}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() { ended <- a.run(ctx, []string{"serve", "-c", p.file}) }()
	p.stderr = &c
	p.ready()
	f()
	cancel()
	if code := <-ended; code != exitDone {
		p.t.Errorf("serve ended with %d: %s", code, c.stderr())
	}
}

// TestC8KeysLastADay: a repeated top-up is known 23 hours later over kill and restarts, and forgotten after more than 24.
func TestC8KeysLastADay(t *testing.T) {
	p := serve(t, "")
	p.key()
	first := topUp(p.env["WEIR_ADMIN_URL"], "once", `{"deltaCny":5}`)
	p.kill()
	http.DefaultClient.CloseIdleConnections()
	balance := func() (u struct{ BalanceCny float64 }) {
		if err := json.Unmarshal([]byte(must(t, p.env, "user", "get", "1", "--json")), &u); err != nil {
			t.Fatal(err)
		}
		return u
	}
	for _, by := range []time.Duration{0, 23 * time.Hour} {
		p.later(by, func() {
			if again := topUp(p.env["WEIR_ADMIN_URL"], "once", `{"deltaCny":5}`); first.status != http.StatusOK || again != first {
				t.Errorf("%v later: %+v, was %+v", by, again, first)
			}
			if r := topUp(p.env["WEIR_ADMIN_URL"], "once", `{"deltaCny":6}`); r.status != http.StatusConflict {
				t.Errorf("%v later another body gets %+v", by, r)
			}
			if b := balance().BalanceCny; b != 105 {
				t.Errorf("%v later the balance is %v", by, b)
			}
		})
	}
	p.later(25*time.Hour, func() {
		if r := topUp(p.env["WEIR_ADMIN_URL"], "once", `{"deltaCny":6}`); r.status != http.StatusOK || balance().BalanceCny != 111 {
			t.Errorf("a day later the key is not free: %+v, balance %v", r, balance().BalanceCny)
		}
	})
}
