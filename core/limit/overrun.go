package limit

import "slices"

// Overrun is a user's rule for what a request uses beyond its hold, once no more can be held.
type Overrun uint8

// The rules. Only under Cut can a TPM limit refuse a stream more room: under the others its tokens are posted as debt.
const (
	Cut  Overrun = iota // the stream ends where its hold does
	Debt                // what the provider reports is owed, be it below the floor; a user's rule unless it has another
	Clip                // no more than the first hold is charged; the house pays the difference, and it is counted
)

// String is the rule's word in the API.
func (o Overrun) String() string { return overrunNames[min(o, Clip)] }

// ParseOverrun reads a rule's word; none is Debt. False: there is no such rule.
func ParseOverrun(s string) (Overrun, bool) {
	for i, name := range overrunNames {
		if s == name {
			return Overrun(i), true
		}
	}
	return Debt, s == ""
}

// OverrunNames lists the words that ParseOverrun knows.
func OverrunNames() []string { return slices.Clone(overrunNames[:]) }

var overrunNames = [...]string{"cut", "debt", "clip"}
