package llm_test

import (
	"testing"

	"github.com/weir-gateway/weir/core/llm"
	"pgregory.net/rapid"
)

func TestParseMicro(t *testing.T) {
	for in, want := range map[string]llm.Micro{
		"0": 0, "100": 100_000_000, "0.00001": 10, "-2.5": -2_500_000, "1.0000000": 1_000_000,
		"9223372036854.775807": 9223372036854775807,
	} {
		if got, err := llm.ParseMicro(in); err != nil || got != want {
			t.Errorf("ParseMicro(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-", ".5", "5.", "1e3", "0.0000001", "9223372036854.775808", "1,5", "NaN", "--1", "+1"} {
		if got, err := llm.ParseMicro(in); err == nil {
			t.Errorf("ParseMicro(%q) = %d; want an error", in, got)
		}
	}
}

func TestMicroStringRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := llm.Micro(rapid.Int64Min(-1<<63+1).Draw(t, "m"))
		if got, err := llm.ParseMicro(m.String()); err != nil || got != m {
			t.Fatalf("%d printed as %q came back as %d, %v", m, m.String(), got, err)
		}
	})
}
