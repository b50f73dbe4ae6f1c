package sim

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Behaviour says how a request is answered. The zero value is a prompt, well-formed answer. Durations are real
// time; counts of 0 mean "not asked for".
type Behaviour struct {
	Latency time.Duration // before the head
	Silent  time.Duration // a stream's head is sent, then nothing for so long
	Pace    time.Duration // between two events

	Text  string // the reply; empty: a fixed text
	Out   int    // output tokens wanted per choice; 0: the whole text once
	NoCap bool   // ignore max_tokens and its kin
	Echo  Echo

	Calls    int // tool calls wanted, of the tools that the request offers; 0: one if it demands one
	Thinking int // output tokens of thinking before the answer

	Usage      UsageMode
	UsageIn    int // reported input tokens, cached and cache-write included; 0: counted
	UsageOut   int
	Cached     int
	CacheWrite int

	Framing  Framing
	Batch    int   // events per write; 0: 1
	BigEvent int64 // bytes of text in one event
	Bytes    int64 // bytes of text in all

	Status     int // an error instead of an answer
	RetryAfter int // seconds, with Status

	ResetHeaders bool // TCP reset instead of a head
	ResetAfter   int  // TCP reset after so many events
	HangAfter    int  // silence after so many events
	NoDone       bool // no terminal event
}

// Echo says whether the request's body comes back.
type Echo uint8

// The kinds of echo.
const (
	EchoNone   Echo = iota
	EchoText        // as the text of a well-formed answer
	EchoRaw         // as the whole answer
	EchoEvents      // its input is a list of events, which are the stream
)

// UsageMode says how usage is reported.
type UsageMode uint8

// The modes.
const (
	UsageReported UsageMode = iota
	UsageNone               // no member of that name
	UsageNull               // "usage": null
)

// Framing is a set of ways to write the same events.
type Framing uint8

// The framings. LF line ends, one "data: " line and whole events are the default.
const (
	FrameCRLF      Framing = 1 << iota
	FrameCR                // a lone CR ends a line
	FrameBytes             // one byte per packet
	FrameNoSpace           // "data:{" instead of "data: {"
	FrameMultiline         // the data in two lines
	FrameComments          // comments, id and retry lines between the events
)

// maxSize bounds what one answer may be asked to weigh.
const maxSize = 1 << 30

// ParseBehaviour applies a text of options (see the package's documentation) to b and returns the result. An error
// names the option, what was expected, and the nearest valid name.
func ParseBehaviour(b Behaviour, text string) (Behaviour, error) {
	for opt := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ';' }) {
		name, value, _ := strings.Cut(opt, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if name == "" && value == "" {
			continue
		}
		set, ok := options[name]
		if !ok {
			hint := "; the options are " + strings.Join(sortedKeys(options), ", ")
			if near := llm.Nearest(name, sortedKeys(options)); near != "" {
				hint = fmt.Sprintf("; did you mean %q?", near)
			}
			return b, fmt.Errorf("unknown option %.40q%s", name, hint)
		}
		if err := set(&b, value); err != nil {
			return b, fmt.Errorf("option %s=%s: %w", name, value, err)
		}
	}
	return b, nil
}

// options is the compiled table of option names.
var options = map[string]func(*Behaviour, string) error{
	"latency":     func(b *Behaviour, v string) error { return parseDuration(&b.Latency, v) },
	"silent":      func(b *Behaviour, v string) error { return parseDuration(&b.Silent, v) },
	"pace":        func(b *Behaviour, v string) error { return parseDuration(&b.Pace, v) },
	"out":         func(b *Behaviour, v string) error { return parseInt(&b.Out, v, 1, 10_000_000) },
	"nocap":       func(b *Behaviour, v string) error { return parseFlag(&b.NoCap, v) },
	"echo":        func(b *Behaviour, v string) error { return parseWord(&b.Echo, v, echoes) },
	"calls":       func(b *Behaviour, v string) error { return parseInt(&b.Calls, v, 1, 128) },
	"thinking":    func(b *Behaviour, v string) error { return parseInt(&b.Thinking, v, 1, 100_000) },
	"usage":       func(b *Behaviour, v string) error { return parseWord(&b.Usage, v, usages) },
	"usage_in":    func(b *Behaviour, v string) error { return parseInt(&b.UsageIn, v, 1, math.MaxInt32) },
	"usage_out":   func(b *Behaviour, v string) error { return parseInt(&b.UsageOut, v, 1, math.MaxInt32) },
	"cached":      func(b *Behaviour, v string) error { return parseInt(&b.Cached, v, 0, math.MaxInt32) },
	"cache_write": func(b *Behaviour, v string) error { return parseInt(&b.CacheWrite, v, 0, math.MaxInt32) },
	"framing":     func(b *Behaviour, v string) error { return parseFraming(&b.Framing, v) },
	"batch":       func(b *Behaviour, v string) error { return parseInt(&b.Batch, v, 1, 10_000) },
	"big_event":   func(b *Behaviour, v string) error { return parseSize(&b.BigEvent, v) },
	"bytes":       func(b *Behaviour, v string) error { return parseSize(&b.Bytes, v) },
	"status":      func(b *Behaviour, v string) error { return parseInt(&b.Status, v, 400, 599) },
	"retry_after": func(b *Behaviour, v string) error { return parseInt(&b.RetryAfter, v, 1, 86_400) },
	"reset":       func(b *Behaviour, v string) error { return parseWord(&b.ResetHeaders, v, resets) },
	"reset_after": func(b *Behaviour, v string) error { return parseInt(&b.ResetAfter, v, 1, math.MaxInt32) },
	"hang_after":  func(b *Behaviour, v string) error { return parseInt(&b.HangAfter, v, 1, math.MaxInt32) },
	"no_done":     func(b *Behaviour, v string) error { return parseFlag(&b.NoDone, v) },
}

// The words some options take.
var (
	echoes  = map[string]Echo{"": EchoText, "text": EchoText, "raw": EchoRaw, "events": EchoEvents}
	usages  = map[string]UsageMode{"reported": UsageReported, "none": UsageNone, "null": UsageNull}
	resets  = map[string]bool{"headers": true}
	framing = map[string]Framing{"lf": 0, "crlf": FrameCRLF, "cr": FrameCR, "bytes": FrameBytes,
		"nospace": FrameNoSpace, "multiline": FrameMultiline, "comments": FrameComments}
)

func parseDuration(d *time.Duration, v string) error {
	x, err := time.ParseDuration(v)
	if err != nil || x < 0 {
		return fmt.Errorf("expected a duration such as 20ms or 1.5s")
	}
	*d = x
	return nil
}

func parseInt(n *int, v string, low, high int) error {
	x, err := strconv.Atoi(v)
	if err != nil || x < low || x > high {
		return fmt.Errorf("expected a whole number from %d to %d", low, high)
	}
	*n = x
	return nil
}

func parseFlag(f *bool, v string) error {
	if v != "" {
		return fmt.Errorf("expected no value")
	}
	*f = true
	return nil
}

func parseWord[T any](to *T, v string, words map[string]T) error {
	x, ok := words[v]
	if !ok {
		return fmt.Errorf("expected one of %s", strings.Join(sortedKeys(words), ", "))
	}
	*to = x
	return nil
}

func parseFraming(f *Framing, v string) error {
	var all Framing
	for word := range strings.SplitSeq(v, "|") {
		var one Framing
		if err := parseWord(&one, strings.TrimSpace(word), framing); err != nil {
			return err
		}
		all |= one
	}
	*f = all
	return nil
}

func parseSize(n *int64, v string) error {
	unit := int64(1)
	digits := strings.TrimRight(strings.ToUpper(v), "KMGB")
	switch strings.ToUpper(v)[len(digits):] {
	case "", "B":
	case "K", "KB":
		unit = 1 << 10
	case "M", "MB":
		unit = 1 << 20
	case "G", "GB":
		unit = 1 << 30
	default:
		unit = 0
	}
	x, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || unit == 0 || x < 1 || x > maxSize/unit {
		return fmt.Errorf("expected a size such as 64KB or 2MB, at most 1GB")
	}
	*n = x * unit
	return nil
}

func sortedKeys[T any](m map[string]T) []string {
	var keys []string
	for k := range m {
		if k != "" {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}
