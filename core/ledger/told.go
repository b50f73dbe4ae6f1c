package ledger

import (
	"context"

	"github.com/weir-gateway/weir/core/llm"
)

// Tell remembers that an alert was told, in place of what was told before of the same key and window. It returns when
// that is acknowledged. It moves no money and is no change of the operator's, so the audit chain does not have it.
func (l *Ledger) Tell(ctx context.Context, t Told) error {
	key := append(numKey(keyTold, t.Key), byte(llm.WindowOf(t.Label)))
	return l.submit(ctx, &put{writes: []Write{{key, putNumbers(int64(t.Label), int64(t.Percent))}}})
}

// readTold gives what was told, in the order of keys and windows.
func (l *Ledger) readTold() (all []Told, err error) {
	err = l.scan([]byte{keyTold}, nil, false, func(k, v []byte) (bool, error) {
		key, ok := keyNum(k, 0)
		var label, percent int64
		if !ok {
			return false, errShort
		}
		err := getNumbers(v, &label, &percent)
		all = append(all, Told{key, int32(label), int(percent)})
		return true, err
	})
	return all, err
}
