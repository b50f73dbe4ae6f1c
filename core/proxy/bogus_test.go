package proxy_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
)

// direct asks the gateway without a socket between: everything else is as it is for a client.
type direct struct {
	r   *rig
	ctx fasthttp.RequestCtx
}

func (d *direct) ask(method, path, token, body string) (status int) {
	q := &d.ctx.Request
	q.Reset()
	q.Header.SetMethod(method)
	q.Header.SetRequestURI(path)
	q.Header.Set("Authorization", "Bearer "+token)
	q.Header.SetContentType("application/json")
	q.SetBodyString(body)
	d.ctx.Response.Reset()
	d.r.server.Handle(&d.ctx)
	return d.ctx.Response.StatusCode()
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// L10: a million models that nobody configured, on every route, and routes and keys that do not exist beside them, go all
// the way to the answer, the log and the metrics: nothing of them stays, and the window that the key has really spent is
// as spent as before.
func TestL10AMillionMadeUpModels(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 2, TPMLimit: 100_000}))
	good := chat("gpt-4o", `,"max_tokens":50`)
	for range 2 {
		r.post("/v1/chat/completions", good, "x-sim", "usage_in=100,usage_out=50").want(t, 200)
	}
	const batch = 10_000
	r.madeUp(t, 0, batch)
	series, meters, before := r.series(), r.limits.Meters(), heapInUse()
	for i := batch; i < 1_000_000/patience; i += batch {
		r.madeUp(t, i, batch)
	}
	if grown := heapInUse() - before; grown > 32<<20 {
		t.Errorf("%d bytes stay", grown)
	}
	if now := r.series(); len(now) != len(series) {
		t.Errorf("%d metric series, %d before", len(now), len(series))
	}
	if n := r.limits.Meters(); n != meters {
		t.Errorf("%d meters, %d before", n, meters)
	}
	f := r.post("/v1/chat/completions", good).want(t, 429).code(t, "rate_limit_exceeded")
	use, err := r.limits.Inspect(t.Context(), limit.ID{Kind: limit.Key, Scope: idKey})
	if f["current"] != 2.0 || err != nil || use.QPS != 2 || use.TPM != 300 || use.TPMHeld != 0 {
		t.Errorf("%v, %+v, %v", f, use, err)
	}
}

// madeUp asks for n models from the first on, from two sides at once, and looks at the log.
func (r *rig) madeUp(t *testing.T, first, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for half := range 2 {
		wg.Go(func() {
			d := &direct{r: r}
			d.ctx.Init(&fasthttp.Request{}, nil, nil)
			for i := first + half; i < first+n && !t.Failed(); i += 2 {
				d.madeUp(t, i)
			}
		})
	}
	wg.Wait()
	if log := r.log.String(); strings.Count(log, `code=model_not_found why="model … does not exist`) < n {
		t.Fatalf("the log does not say why: %.2000s", log)
	}
	r.log.Reset()
}

func (d *direct) madeUp(t *testing.T, i int) {
	name := "model-" + itoa(i)
	x := everyRoute[i%len(everyRoute)]
	d.is(t, 404, "POST", x.path, d.r.token, strings.Replace(x.body, x.model, name, 1))
	switch i % 32 {
	case 8:
		d.is(t, 404, "GET", "/v1/models/"+name, d.r.token, "")
	case 16:
		d.is(t, 404, "POST", "/v1/"+name, d.r.token, "{}")
	case 24:
		d.is(t, 401, "POST", x.path, d.r.token[:len(d.r.token)-7]+itoa(1_000_000+i), x.body)
	}
}

func (d *direct) is(t *testing.T, want int, method, path, token, body string) {
	if got := d.ask(method, path, token, body); got != want {
		t.Errorf("%s %s, %s: %d", method, path, body, got)
	}
}
