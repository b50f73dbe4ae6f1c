package llm

import (
	"fmt"
	"math"
	"strings"
)

// ParseMicro reads a decimal amount in units ("100", "0.00001", "-2.5") exactly. More than six decimals, an exponent,
// or a value beyond int64 is an error: money is never rounded on the way in.
func ParseMicro(s string) (Micro, error) {
	digits, negative := strings.CutPrefix(s, "-")
	whole, frac, dotted := strings.Cut(digits, ".")
	if whole == "" || dotted && frac == "" {
		return 0, fmt.Errorf("%.40q is not an amount; write it like 12.5", s)
	}
	if len(frac) > 6 {
		if strings.Trim(frac[6:], "0") != "" {
			return 0, fmt.Errorf("%.40q has more than six decimals; the smallest amount is 0.000001", s)
		}
		frac = frac[:6]
	}
	var m Micro
	for _, c := range []byte(whole + frac + "000000"[len(frac):]) {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%.40q is not an amount; write it like 12.5", s)
		}
		if m > (math.MaxInt64-Micro(c-'0'))/10 {
			return 0, fmt.Errorf("%.40q is too large; the largest amount is %s", s, Micro(math.MaxInt64))
		}
		m = m*10 + Micro(c-'0')
	}
	if negative {
		m = -m
	}
	return m, nil
}

// MaxFactor is the largest factor of a price, in 1/1000.
const MaxFactor = 1_000_000

// ParseFactor reads the factor of a price, such as "0.5" or "2", exactly, into 1/1000: 0.001 to 1000.
func ParseFactor(s string) (permille uint32, err error) {
	m, err := ParseMicro(s)
	if err != nil || m%1000 != 0 || m < 1000 || m/1000 > MaxFactor {
		return 0, fmt.Errorf("%.40q is not a factor from 0.001 to 1000 with at most three decimals; write it like 0.5", s)
	}
	return uint32(m / 1000), nil
}

// Factor writes 1/1000 as ParseFactor reads them: "0.5".
func Factor(permille uint32) string { return (Micro(permille) * 1000).String() }

// String writes m in units, without trailing zeros: "12.5".
func (m Micro) String() string {
	sign, u := "", uint64(m)
	if m < 0 {
		sign, u = "-", -u
	}
	s := fmt.Sprintf("%s%d.%06d", sign, u/uint64(MicroPerUnit), u%uint64(MicroPerUnit))
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
