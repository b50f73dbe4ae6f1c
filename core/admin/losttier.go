package admin

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

// CodeTierLost is the code of the error that names the tiers of keys that the configuration does not have.
const CodeTierLost = "tier_lost"

// CheckTiers says of stored documents of kind key whether every key's tier is configured, as Restore would. The error is a
// *llm.Error with CodeTierLost, or that of a document that cannot be read.
func CheckTiers(keys iter.Seq2[ledger.Doc, error], tiers map[string]limit.Limits) error {
	lost := lostTiers{known: tiers}
	if err := each(keys, lost.note); err != nil {
		return err
	}
	return lost.err()
}

// lostTiers collects the tiers of keys that are not configured: such a key would be served without limits.
type lostTiers struct {
	known map[string]limit.Limits // nil: any name is
	keys  map[string]lostKeys
}

type lostKeys struct {
	n     int
	first auth.Key
}

func (l *lostTiers) note(k auth.Key) {
	if _, known := l.known[k.Tier]; known || k.Tier == "" || l.known == nil {
		return
	}
	if l.keys == nil {
		l.keys = map[string]lostKeys{}
	}
	of := l.keys[k.Tier]
	if of.n++; of.n == 1 {
		of.first = k
	}
	l.keys[k.Tier] = of
}

func (l *lostTiers) err() error {
	if len(l.keys) == 0 {
		return nil
	}
	var texts []string
	for _, tier := range slices.Sorted(maps.Keys(l.keys)) {
		of := l.keys[tier]
		text := fmt.Sprintf("%q is gone, and 1 key is in it: %d (%q)", tier, of.first.ID, of.first.Name)
		if of.n > 1 {
			text = fmt.Sprintf("%q is gone, and %d keys are in it, the first %d (%q)", tier, of.n, of.first.ID, of.first.Name)
		}
		texts = append(texts, text)
	}
	e := llm.Errorf(llm.KindInvalid, "%s; its limits would be lifted without a word: put it back, and give its keys another with `weir key update` before it goes", strings.Join(texts, "; "))
	e.Code = CodeTierLost
	return e
}
