package proxy

import (
	"log/slog"

	"github.com/weir-gateway/weir/core/llm"
)

// Reported usage is believed up to disbelieved tokens of input and of output, and beyond that up to farOff times what was
// estimated and granted. What is over both is a mistake in somebody's counting, and counts as not reported: one such
// number must not take a fortune.
const (
	disbelieved llm.Tokens = 10_000_000
	farOff      llm.Tokens = 100
)

// believes tells whether usage can be. The first that cannot be of a request is logged and counted.
func (s *Server) believes(c *call, u llm.Usage) bool {
	if u.InputTokens <= max(disbelieved, farOff*c.input) && u.OutputTokens <= max(disbelieved, farOff*c.granted) {
		return true
	}
	if !c.record.doubted {
		c.record.doubted = true
		s.meter.disbelieved.Inc()
		s.p.Log.Warn("reported usage is out of all proportion and not believed", slog.String("request_id", string(c.hex[:])), slog.String("channel", c.record.channel),
			slog.Int64("input_tokens", int64(u.InputTokens)), slog.Int64("output_tokens", int64(u.OutputTokens)),
			slog.Int64("input_estimate", int64(c.input)), slog.Int64("output_granted", int64(c.granted)))
	}
	return false
}
