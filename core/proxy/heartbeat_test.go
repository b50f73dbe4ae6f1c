package proxy_test

import (
	"strings"
	"testing"
)

// A client of a silent stream gets signs of life, between events and never inside one, also while an event comes slowly;
// they change neither the events nor what is charged.
func TestASilentStreamHasAHeartbeat(t *testing.T) {
	up := newPlayer(t)
	r := newRig(t, func(s *setup) {
		s.options.HeartbeatMS = 20
		s.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[1].BaseURL = up.URL, up.URL }
	})
	for _, x := range streams() {
		beat := ":\n"
		if x.path == "/v1/messages" {
			beat = "event: ping\ndata: {\"type\": \"ping\"}\n\n"
		}
		for _, f := range framings() {
			stream, events := r.recorded(x, scripted, f)
			var all strings.Builder
			beats := 0
			c, a := r.chunks(x.path, streamed(x)), up.play()
			// listen takes what comes until an event or so many heartbeats have.
			listen := func(most int) (event bool) {
				t.Helper()
				for range most {
					got, err := c.next()
					must(t, err)
					if string(got) != beat {
						all.Write(got)
						return true
					}
					beats++
				}
				return false
			}
			listen(2) // before the first event
			for i, e := range events {
				if i == 1 {
					a.send(e[:len(e)/2], 1)
					if listen(2) {
						t.Fatalf("%s as %s: half an event reached the client", x.path, f.name)
					}
					a.send(e[len(e)/2:], 1)
				} else {
					a.send(e, len(e))
				}
				if !listen(100) {
					t.Fatalf("%s as %s: event %d does not come", x.path, f.name, i)
				}
			}
			a.end()
			c.over(t)
			if all.String() != string(forwarded(stream)) || beats < 4 {
				t.Fatalf("%s as %s: %d heartbeats, and the rest is\n%q\nnot\n%q", x.path, f.name, beats, all.String(), forwarded(stream))
			}
			r.charged(t, x, f.name)
		}
	}
}
