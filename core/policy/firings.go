package policy

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// maxReasons bounds what a tally, and an org's usage, tell apart.
const maxReasons = 32

// firings counts rules by what they call themselves: a number and a message. Safe for concurrent use without a lock;
// a rule met for the first time takes an allocation, and no other. Beyond maxReasons rules are counted together.
type firings struct {
	of     [maxReasons]atomic.Pointer[firing]
	others atomic.Uint64
}

type firing struct {
	code uint16
	text string
	n    atomic.Uint64
}

// count notes what a decision named; one that names nothing is no firing.
func (f *firings) count(code uint16, text string) {
	if code == 0 && text == "" {
		return
	}
	for i := range f.of {
		r := f.of[i].Load()
		if r == nil {
			fresh := &firing{code: code, text: text}
			fresh.n.Store(1)
			if f.of[i].CompareAndSwap(nil, fresh) {
				return
			}
			r = f.of[i].Load() // somebody else's, perhaps of the same rule
		}
		if r.code == code && r.text == text {
			r.n.Add(1)
			return
		}
	}
	f.others.Add(1)
}

// list is what fired, most often first.
func (f *firings) list() []ReasonCount {
	out := []ReasonCount{}
	for i := range f.of {
		r := f.of[i].Load()
		if r == nil {
			break
		}
		out = append(out, ReasonCount{r.code, r.text, r.n.Load()})
	}
	sortReasons(out)
	return out
}

func sortReasons(all []ReasonCount) {
	slices.SortFunc(all, func(a, b ReasonCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
}

// addReasons is all with more added up; what does not fit is counted in others.
func addReasons(all, more []ReasonCount, others *uint64) []ReasonCount {
	all = slices.Clone(all)
	for _, m := range more {
		i := slices.IndexFunc(all, func(r ReasonCount) bool { return r.Reason == m.Reason && r.Message == m.Message })
		switch {
		case i >= 0:
			all[i].Count += m.Count
		case len(all) < maxReasons:
			all = append(all, m)
		default:
			*others += m.Count
		}
	}
	sortReasons(all)
	return all
}
