package proxy_test

import (
	"bytes"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/proxy"
)

// coded is text in a coding.
func coded(t testing.TB, coding, text string) string {
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if coding == "zstd" {
		z, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
		must(t, err)
		w = z
	}
	_, err := io.WriteString(w, text)
	must(t, err)
	must(t, w.Close())
	return b.String()
}

func decoding(o proxy.Options, codings ...string) option {
	o.Decode = codings
	return func(s *setup) { s.options = o }
}

// Bodies that are coded are decoded where that is asked for, on every route, streamed or not, and go upstream as what they
// are: plain, with their own length.
func TestCodedBodies(t *testing.T) {
	type request struct{ body, length, coding string }
	arrived := make(chan request, 1)
	r := newRig(t, decoding(proxy.Options{}, proxy.Codings()...), func(s *setup) {
		s.sim.Observe = func(_ string, h *fasthttp.RequestHeader, body []byte) {
			arrived <- request{string(body), string(h.Peek("Content-Length")), string(h.Peek("Content-Encoding"))}
		}
	})
	for _, x := range everyRoute {
		for _, more := range []string{"", `,"stream":true`} {
			if more != "" && capName(x) == "" {
				continue
			}
			padding := `,"x":"` + strings.Repeat("a", 200_000) + `"`
			plain := r.post(x.path, x.with(padding+more)).want(t, 200)
			want := <-arrived
			for _, name := range []string{"gzip", "zstd", "GZIP"} {
				body := coded(t, strings.ToLower(name), x.with(padding+more))
				p := r.post(x.path, body, "Content-Encoding", name).want(t, 200)
				if len(p.events()) != len(plain.events()) || p.err != nil {
					t.Errorf("%s%s as %s: %v %.300s", x.path, more, name, p.err, p.body)
				}
				if got := <-arrived; got != want || got.length != itoa(len(got.body)) || got.coding != "" {
					t.Errorf("%s%s as %s: upstream saw %d bytes of a length %s in coding %q", x.path, more, name, len(got.body), got.length, got.coding)
				}
			}
		}
	}
}

// What is not enabled is refused, and so are two codings, however they are written.
func TestCodingsThatAreRefused(t *testing.T) {
	body := chat("gpt-4o", "")
	for name, r := range map[string]*rig{"none": newRig(t), "zstd": newRig(t, decoding(proxy.Options{}, "zstd"))} {
		for _, headers := range [][]string{{"gzip"}, {"br"}, {"gzip, gzip"}, {"zstd, zstd"}, {"zstd,"}, {"zstd", "zstd"}, {"identity", "zstd"}, {"identity, zstd"}} {
			req := r.request("/v1/chat/completions", coded(t, "zstd", body))
			req.Header["Content-Encoding"] = headers
			f := r.do(req).want(t, 415).code(t, "unsupported_content_encoding")
			if m := f["message"].(string); !strings.Contains(m, strings.Join(headers, ", ")) || strings.Contains(m, "codings: zstd") != (name == "zstd") {
				t.Errorf("%s, %q: %s", name, headers, m)
			}
		}
		r.post("/v1/chat/completions", body, "Content-Encoding", "identity").want(t, 200)
		if n := r.sim.Stats().Requests; n != 1 {
			t.Errorf("%s: %d requests got through", name, n)
		}
	}
}

// A body that is not what it says it is says so.
func TestBrokenCodings(t *testing.T) {
	r := newRig(t, decoding(proxy.Options{}, proxy.Codings()...))
	text := chat("gpt-4o", `,"x":"`+strings.Repeat("ab", 50_000)+`"`)
	for _, coding := range proxy.Codings() {
		whole := coded(t, coding, text)
		flipped := []byte(whole)
		flipped[len(whole)-2] ^= 1 // of the checksum
		for what, body := range map[string]string{
			"cut in the middle": whole[:len(whole)/2], "without its last byte": whole[:len(whole)-1], "with the first byte alone": whole[:1],
			"not coded": text, "changed": string(flipped), "with a tail": whole + "{}", "of nothing": "",
		} {
			f := r.post("/v1/chat/completions", body, "Content-Encoding", coding).want(t, 400).code(t, "invalid_request_error")
			if m := f["message"].(string); f["param"] != "body" || !strings.Contains(m, coding) && body != "" {
				t.Errorf("%s %s: %v", coding, what, f)
			}
		}
		r.post("/v1/chat/completions", coded(t, coding, text[:len(text)-1]), "Content-Encoding", coding).want(t, 400)
		r.post("/v1/chat/completions", whole, "Content-Encoding", coding).want(t, 200)
	}
	if n := r.sim.Stats().Requests; n != 2 {
		t.Errorf("%d requests got through", n)
	}
}

// A few bytes that become a gigabyte are refused at the limit of every body, in little more memory than that, and a thousand
// times over.
func TestBombs(t *testing.T) {
	const most = 1 << 20
	r := newRig(t, decoding(proxy.Options{BodyBytes: most}, proxy.Codings()...))
	for _, coding := range proxy.Codings() {
		bomb := coded(t, coding, strings.Repeat("\x00", 512*most))
		for _, exact := range []struct{ size, status int }{{most, 200}, {most + 1, 413}} {
			text := chat("gpt-4o", `,"x":""`)
			text = strings.Replace(text, `"x":"`, `"x":"`+strings.Repeat("a", exact.size-len(text)), 1)
			r.post("/v1/chat/completions", coded(t, coding, text), "Content-Encoding", coding).want(t, exact.status)
		}
		allocated := func() uint64 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.TotalAlloc
		}
		before := allocated()
		for range 10 {
			if f := r.post("/v1/chat/completions", bomb, "Content-Encoding", coding).want(t, 413).code(t, "request_too_large"); f["limit_bytes"] != float64(most) {
				t.Errorf("%s: %v", coding, f)
			}
		}
		// The buffer doubles up to the limit, and is made anew each time; the request is sent and read besides.
		if each := int(allocated()-before) / 10; each > 3*most+8*len(bomb) {
			t.Errorf("%s: a bomb of %d bytes takes %d", coding, len(bomb), each)
		}
	}
	if n := r.sim.Stats().Requests; n != 2 {
		t.Errorf("%d requests got through", n)
	}
}

// What a body becomes counts among what all bodies may occupy, until its answer is over.
func TestDecodedBodiesAreCharged(t *testing.T) {
	r := newRig(t, decoding(proxy.Options{BodiesBytes: 1 << 20}, proxy.Codings()...))
	for _, coding := range proxy.Codings() {
		for range 5 {
			large := coded(t, coding, chat("gpt-4o", `,"x":"`+strings.Repeat("a", 3<<20)+`"`))
			r.post("/v1/chat/completions", large, "Content-Encoding", coding).want(t, 503)
			half := coded(t, coding, chat("gpt-4o", `,"x":"`+strings.Repeat("a", 400<<10)+`"`))
			r.post("/v1/chat/completions", half, "Content-Encoding", coding).want(t, 200)
		}
	}
}

// Who is refused again and again is refused before anything is decoded, and a stranger always.
func TestAStormIsNotDecoded(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 1}), decoding(proxy.Options{}, proxy.Codings()...), func(s *setup) { s.settings.StormPermille = 1000 })
	r.post("/v1/chat/completions", "no gzip", "Content-Encoding", "gzip", "Authorization", "Bearer nobody").want(t, http.StatusUnauthorized)
	r.post("/v1/chat/completions", coded(t, "gzip", chat("gpt-4o", "")), "Content-Encoding", "gzip").want(t, 200)
	refused := 0
	for range 200 {
		r.post("/v1/chat/completions", coded(t, "gzip", chat("gpt-4o", "")), "Content-Encoding", "gzip").want(t, 429)
		if p := r.post("/v1/chat/completions", "no gzip", "Content-Encoding", "gzip"); p.status == 429 {
			refused++
		}
	}
	if refused < 150 {
		t.Errorf("%d of 200 broken bodies were looked at", 200-refused)
	}
}
