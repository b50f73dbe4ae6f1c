package bench

import (
	"bytes"
	"context"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// Bare serves on ln until ctx ends: a reverse proxy of the upstream (host:port) that does nothing else. It is what Weir is
// compared with, so it takes every short cut that a proxy may take, and some that none should: it does not notice a client
// that left, and trusts the request to say whether the answer is a stream.
func Bare(ctx context.Context, ln net.Listener, upstream string) error {
	client := &fasthttp.HostClient{Addr: upstream, MaxConns: 16 << 10, NoDefaultUserAgentHeader: true, MaxIdleConnDuration: time.Minute}
	server := &fasthttp.Server{
		NoDefaultServerHeader: true,
		MaxRequestBodySize:    32 << 20,
		Handler: func(c *fasthttp.RequestCtx) {
			c.Request.Header.Del("Connection")
			c.Response.StreamBody = bytes.Contains(c.Request.Body(), []byte(`"stream":true`))
			if err := client.Do(&c.Request, &c.Response); err != nil {
				c.Error(err.Error(), fasthttp.StatusBadGateway)
				return
			}
			c.Response.Header.Del("Connection")
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		soon, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.ShutdownWithContext(soon) // what is still open then ends with the process
		return <-ended
	}
}
