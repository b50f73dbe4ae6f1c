package config

import "regexp"

// sampleWords are what documentation and people in a hurry make tokens of.
var sampleWords = regexp.MustCompile(`(?i)change[-_ ]?(me|this|it)|replace[-_ ]?(me|this|it)|place[-_ ]?holder|example|sample|dummy|secret|passw(or)?d|default|insecure` +
	`|(admin|random|your|my|weir|the)[-_ ]?token|token[-_ ]?here|your|admin|weir|qwertyuiop|asdfghjkl|zxcvbnm|letmein|todo|foobar|test[-_ ]?test`)

// telltale is what only a sample says, whatever is written around it.
var telltale = regexp.MustCompile(`(?i)(change|replace|fill)[-_ ]?(me|this|it|in)|place[-_ ]?holder|example|your[-_ ]`)

// A token that is not a sample has at least so many characters, and so many different ones, beside sample words and runs.
const (
	leastOwn      = 8
	leastDistinct = 6
)

// isSample says that a token is one that documentation shows or that is made like one: a gateway that accepted it would
// be open. What counts is what is left without well-known words, and with runs (aaaa, 0123, 4321) as one character.
func isSample(token string) bool {
	if telltale.MatchString(token) {
		return true
	}
	own := withoutRuns(sampleWords.ReplaceAllString(token, ""))
	distinct := map[byte]bool{}
	for i := range len(own) {
		distinct[own[i]] = true
	}
	return len(own) < leastOwn || len(distinct) < leastDistinct
}

// withoutRuns leaves the first of every four or more characters that stand in order: up, down or equal.
func withoutRuns(s string) string {
	const long = 4
	var out []byte
	for i := 0; i < len(s); {
		n := runAt(s[i:])
		if n < long {
			n = 1
		}
		out = append(out, s[i])
		i += n
	}
	return string(out)
}

// runAt counts the characters at the start of s, which is not empty, that stand in order.
func runAt(s string) int {
	n := 1
	for n < len(s) {
		step := int(s[n]) - int(s[n-1])
		if step < -1 || step > 1 || step != int(s[1])-int(s[0]) {
			break
		}
		n++
	}
	return n
}
