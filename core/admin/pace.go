package admin

import (
	"io"
	"net/http"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// minBodyRate is how many bytes a second a body must bring, on average and beyond the time that its head has, as on the
// client listener.
const minBodyRate = 1 << 10

// Steady is h on a listener where who sends a byte a second is cut: a body has head, and a second more for each KiB that it has
// brought, and within has to be there whole.
func Steady(h http.Handler, clock llm.Clock, head, within time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			r.Body = &steady{ReadCloser: r.Body, conn: http.NewResponseController(w), since: clock.Wall(), head: head, within: within}
		}
		h.ServeHTTP(w, r)
	})
}

// steady is a body whose every read has its deadline. Behind its end the server waits for the connection without one.
type steady struct {
	io.ReadCloser
	conn         *http.ResponseController
	since        time.Time
	head, within time.Duration
	size         int64
}

func (p *steady) Read(b []byte) (int, error) {
	due := min(p.head+time.Duration(p.size)*(time.Second/minBodyRate), p.within)
	if err := p.conn.SetReadDeadline(p.since.Add(due)); err != nil {
		return 0, err
	}
	n, err := p.ReadCloser.Read(b)
	p.size += int64(n)
	return n, err
}
