package bench

import (
	"fmt"
	"strings"

	"github.com/weir-gateway/weir/core/load"
)

// model is what is asked for.
const model = "gpt-4o-mini"

// prose is what the chats are about; long ones say it again and again.
const prose = "A weir is a low dam across a river. It does not stop the water; it raises the level a little, and lets the rest pass " +
	"over its edge. Millers built them to feed their wheels, and farmers to water their fields, long before anybody wrote down " +
	"how much water goes over an edge of a given width. The answer, found in the nineteenth century by measuring, is that the flow " +
	"grows with the height of the water above the edge to the power of one and a half. So whoever knows the height knows the flow, " +
	"and a weir is both a limit and a meter. In a dry summer the upper miller could take what the lower one needed, and courts were " +
	"busy with it: who may hold back how much, for how long, and what is owed for it afterwards? "

// chat is a body of about n bytes: half of it instructions, the same in all of them, and half a question with a number of
// its own, which nobody has seen before.
func chat(model string, n int, stream bool) []byte {
	const frame = 200
	half := max(n-frame, 2) / 2
	text := strings.Repeat(prose, half/len(prose)+1)[:half]
	more := ""
	if stream {
		more = `,"stream":true,"stream_options":{"include_usage":true}`
	}
	return fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"system","content":"%s"},{"role":"user","content":"%s %s"}],"temperature":0.7,"max_tokens":256%s}`,
		model, text, load.Stamp, text, more)
}

// Samples to count, beside prose.
const (
	code = `// admit asks all meters, and holds all of them or none.
func (m *meters) admit(now time.Duration, c *claim) (*hold, error) {
	for i := range c.dims[:c.n] {
		if d := &c.dims[i]; m.of(d.id).left(now) < d.cost {
			return nil, fmt.Errorf("meter %s: %w", d.id, errFull)
		}
	}
	h := m.pool.Get().(*hold)
	h.began, h.parts = now, append(h.parts[:0], c.dims[:c.n]...)
	return h, nil
}

`
	data    = `{"id":"evt_1042","type":"meter.read","created":1767225600,"data":{"meter":"weir-7","height_mm":412,"flow_l_s":1180.25,"ok":true,"tags":["upper","mill"],"next":null}},`
	chinese = "水能载舟，亦能覆舟。堰不是坝，它只把水位抬高一点，让其余的水从上面流过去。谁知道水有多高，谁就知道流量有多大。"
	base64  = "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAYAAACNMs+9AAAAFUlEQVR42mNk+M9Qz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC4QAYdGhpcyBpcyBub3QgYSBwaWN0dXJl"
)
