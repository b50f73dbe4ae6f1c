package ledger

import "github.com/weir-gateway/weir/core/llm"

// A store may keep the totals in columns of their own, so that something else than this program can hold them to rules.
// It tells them by their keys, and takes their values apart and puts them together by these.

// IsBalance tells whether a key is that of a user's totals, credits and posted.
func IsBalance(key []byte) bool { return len(key) == 1+8 && key[0] == keyUser }

// IsUse tells whether a key is that of what a key of the gateway has used in a period.
func IsUse(key []byte) bool { return len(key) == 1+8+4 && key[0] == keyQuota }

// ReadBalance takes the value of a balance apart.
func ReadBalance(value []byte) (b Balance, err error) {
	err = getNumbers(value, (*int64)(&b.Credits), (*int64)(&b.Posted))
	return b, err
}

// Value is what ReadBalance read.
func (b Balance) Value() []byte { return putNumbers(int64(b.Credits), int64(b.Posted)) }

// ReadUse takes the value of a use apart.
func ReadUse(value []byte) (used llm.Micro, err error) {
	err = getNumbersInto(value, &used)
	return used, err
}

// UseValue is what ReadUse read.
func UseValue(used llm.Micro) []byte { return putNumbers(int64(used)) }
