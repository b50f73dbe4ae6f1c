package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// A machine that is out of descriptors, ports or memory says so; its channels are not blamed, however often it happens.
func TestAShortageHereIsNoChannelsFailure(t *testing.T) {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.EADDRNOTAVAIL, &net.DNSError{Err: "dial udp: socket: " + syscall.EMFILE.Error()}} {
		t.Run(e.Error(), func(t *testing.T) {
			r := newRig(t, Options{}, openai("a", "http://127.0.0.1:1"), openai("b", "http://127.0.0.1:1"))
			r.client.dialer.Control = func(string, string, syscall.RawConn) error { return e }
			for range 2 * threshold {
				w := new(watcher)
				_, err := r.do(context.Background(), plainBody, w)
				var answer *llm.Error
				if !errors.As(err, &answer) || answer.Kind != llm.KindUnavailable {
					t.Fatal(err)
				}
				if told := fmt.Sprint(w.told); strings.Contains(told, "sent") {
					t.Error(told)
				}
			}
			for _, h := range r.client.Health(r.cat) {
				if h.State != "up" || h.Failures != 0 {
					t.Errorf("%+v", h)
				}
			}
			for _, ch := range []string{"a", "b"} {
				if open, _ := r.conns(ch); open != 0 {
					t.Errorf("%d connections of %s count as open", open, ch)
				}
			}
		})
	}
	if shortage(fmt.Errorf("x: %w", syscall.ECONNREFUSED)) || shortage(nil) {
		t.Error("a refused connection is the channel's failure")
	}
}
