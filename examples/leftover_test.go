package examples_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"
)

var metric = regexp.MustCompile(`(?m)^(\w+)(?:\{.*\})? ([0-9.e+]+)$`)

// metrics sums up what the gateway's metrics say, by name.
func metrics(t *testing.T, admin string) map[string]float64 {
	t.Helper()
	req, err := http.NewRequest("GET", "http://"+admin+"/metrics", nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	sums := map[string]float64{}
	for _, m := range metric.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseFloat(m[2], 64)
		must(t, err)
		sums[m[1]] += n
	}
	return sums
}

// leavesNothing gives a check that nothing is held, sent or waited for at the gateway any more, and that it has no more goroutines than now.
func leavesNothing(t *testing.T, admin string) (check func()) {
	t.Helper()
	before := metrics(t, admin)["go_goroutines"]
	return func() {
		t.Helper()
		var state string
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			now := metrics(t, admin)
			busy := now["weir_reservations_open"] + now["weir_channel_in_flight"] + now["weir_channel_waiting"] + now["weir_panics_total"]
			if busy == 0 && now["go_goroutines"] <= before+32 && now["weir_requests_total"] > 0 {
				return
			}
			state = fmt.Sprintf("%g reservations, %g calls in flight, %g waiting, %g panics, %g goroutines of %g before; %g requests", now["weir_reservations_open"],
				now["weir_channel_in_flight"], now["weir_channel_waiting"], now["weir_panics_total"], now["go_goroutines"], before, now["weir_requests_total"])
		}
		t.Error("the gateway at ", admin, " has left: ", state)
	}
}
