package proxy

import "github.com/valyala/fasthttp"

// Handle serves one request without a socket.
func (s *Server) Handle(ctx *fasthttp.RequestCtx) { s.handle(ctx) }
