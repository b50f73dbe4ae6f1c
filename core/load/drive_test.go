package load_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/load"
)

// count answers every request well, and counts requests by their key, and connections.
type count struct {
	mu    sync.Mutex
	keys  map[string]int
	conns map[string]bool
	texts map[string]bool
}

func newCount() *count {
	return &count{keys: map[string]int{}, conns: map[string]bool{}, texts: map[string]bool{}}
}

func (c *count) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	c.keys[r.Header.Get("Authorization")]++
	c.conns[r.RemoteAddr] = true
	c.texts[string(body)] = true
	c.mu.Unlock()
	fmt.Fprintf(w, "%s, over", body)
}

func course(s *httptest.Server) load.Course {
	return load.Course{Address: strings.TrimPrefix(s.URL, "http://"), Body: []byte("{}"), End: []byte("over"), Connections: 3, For: time.Minute}
}

func drive(t *testing.T, c load.Course) *load.Lap {
	t.Helper()
	lap, err := load.Drive(t.Context(), c, llm.NewSystemClock())
	if err != nil {
		t.Fatal(err)
	}
	return lap
}

// TestDriveTakesTurns: every key of more keys than connections is asked with once, and connections are kept.
func TestDriveTakesTurns(t *testing.T) {
	c := newCount()
	s := httptest.NewServer(c)
	defer s.Close()
	way := course(s)
	for i := range 10 {
		way.Keys = append(way.Keys, fmt.Sprint("k", i))
	}
	way.Total, way.Body = len(way.Keys), []byte(`{"no":"`+load.Stamp+`"}`)
	lap := drive(t, way)
	if lap.Answers != 10 || lap.Failed != 0 || len(c.conns) != 3 || len(c.keys) != 10 || c.keys["Bearer k9"] != 1 {
		t.Errorf("%+v with keys %v on %v", lap, c.keys, c.conns)
	}
	if !slices.IsSorted(lap.Latencies) || len(lap.Latencies) != 10 || lap.Percentile(100) != lap.Latencies[9] || lap.Percentile(50) != lap.Latencies[4] {
		t.Errorf("latencies %v", lap.Latencies)
	}
	if (&load.Lap{}).Percentile(50) != 0 {
		t.Error("a lap without answers has a latency")
	}
}

// TestDriveNumbersRequests: no two have the same body, and it is otherwise as it was.
func TestDriveNumbersRequests(t *testing.T) {
	c := newCount()
	s := httptest.NewServer(c)
	defer s.Close()
	way := course(s)
	way.Total, way.Body = 1234, []byte("#a "+load.Stamp+" b#")
	if lap := drive(t, way); lap.Failed != 0 || len(c.texts) != 1234 || !c.texts["#a #0000000000 b#"] || !c.texts["#a #0000001233 b#"] {
		t.Errorf("%+v, %d texts, %v", lap.FirstError, len(c.texts), c.texts["#a #0000001233 b#"])
	}
}

// TestDriveEnds by its time, at its rate, and with its context.
func TestDriveEnds(t *testing.T) {
	s := httptest.NewServer(newCount())
	defer s.Close()
	way := course(s)
	way.For = 50 * time.Millisecond
	if lap := drive(t, way); lap.Answers == 0 || lap.Took < way.For {
		t.Errorf("as fast as it goes: %d answers in %v", lap.Answers, lap.Took)
	}
	way.For, way.Rate = 200*time.Millisecond, 100
	if lap := drive(t, way); lap.Answers != 20 || lap.Took < 190*time.Millisecond {
		t.Errorf("at 100/s: %d answers in %v", lap.Answers, lap.Took)
	}
	way.For, way.Rate = time.Hour, 0
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if lap, err := load.Drive(ctx, way, llm.NewSystemClock()); err == nil || lap.Failed != 0 {
		t.Errorf("cut: %+v, %v", lap, err)
	}
}

// TestDriveCountsWhatIsNotGood: another status, another end, and no answer at all.
func TestDriveCountsWhatIsNotGood(t *testing.T) {
	for want, answer := range map[string]func(http.ResponseWriter){
		"429: slow down":    func(w http.ResponseWriter) { w.WriteHeader(429); fmt.Fprint(w, `{"error":{"message":"slow down"}}`) },
		`ends with "cut sh`: func(w http.ResponseWriter) { fmt.Fprint(w, "cut sh") },
		"no whole answer":   func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
		lap := drive(t, course(s))
		s.Close()
		if lap.Answers != 0 || lap.Failed != 3 || !strings.Contains(lap.FirstError, want) {
			t.Errorf("%+v; want %q", lap, want)
		}
	}
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	if _, err := load.Drive(t.Context(), course(s), llm.NewSystemClock()); err == nil || !strings.Contains(err.Error(), "connection 1 of 3") {
		t.Errorf("nothing listens: %v", err)
	}
}
