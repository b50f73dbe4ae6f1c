package ledger

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/weir-gateway/weir/core/llm"
)

// The key space; doc.go has the whole of it. The first byte says what a key holds; numbers are big-endian, so that the
// order of keys is the order of numbers.
const (
	keyLog      = 'l'
	keyTime     = 't'
	keyOpen     = 'o'
	keyUser     = 'u'
	keyQuota    = 'q'
	keyDoc      = 'd'
	keyNumber   = 'n'
	keyAudit    = 'a'
	keyAnswer   = 'i'
	keyTold     = 'w'
	keyMeta     = 'm'
	epochKey    = "mepoch"
	currencyKey = "mcurrency"
	auditKey    = "maudit"
	idNumber    = 1 // tag of a document id that is a number
	idText      = 2
	maxKeyText  = 512 // bytes of a document kind, id or idempotency key
)

func numKey(kind byte, n ...uint64) []byte {
	return appendKey(make([]byte, 0, 1+8*len(n)), kind, n...)
}

func appendKey(b []byte, kind byte, n ...uint64) []byte {
	b = append(b, kind)
	for _, v := range n {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

func quotaKey(q quotaID) []byte { return appendQuotaKey(nil, q) }

func appendQuotaKey(b []byte, q quotaID) []byte {
	return binary.BigEndian.AppendUint32(appendKey(b, keyQuota, q.key), uint32(q.label))
}

// quotaOf undoes quotaKey.
func quotaOf(key []byte) (quotaID, bool) {
	if len(key) != 1+8+4 {
		return quotaID{}, false
	}
	return quotaID{binary.BigEndian.Uint64(key[1:]), int32(binary.BigEndian.Uint32(key[9:]))}, true
}

func textKey(kind byte, text string) []byte { return append([]byte{kind}, text...) }

// docPrefix is the start of every document of a kind.
func docPrefix(kind string) []byte { return append(textKey(keyDoc, kind), 0) }

// docKey sorts numeric ids by value and before all others.
func docKey(kind, id string) []byte {
	k := docPrefix(kind)
	if n, ok := docNumber(id); ok {
		return binary.BigEndian.AppendUint64(append(k, idNumber), n)
	}
	return append(append(k, idText), id...)
}

// docNumber reports whether id is the canonical decimal form of a number.
func docNumber(id string) (uint64, bool) {
	n, err := strconv.ParseUint(id, 10, 64)
	return n, err == nil && strconv.FormatUint(n, 10) == id
}

// docID undoes docKey.
func docID(kind string, key []byte) (string, bool) {
	rest := key[min(len(key), 1+len(kind)+1):]
	switch {
	case len(rest) == 9 && rest[0] == idNumber:
		return strconv.FormatUint(binary.BigEndian.Uint64(rest[1:]), 10), true
	case len(rest) >= 1 && rest[0] == idText:
		return string(rest[1:]), true
	}
	return "", false
}

// keyNum reads the n-th number of a key made by numKey.
func keyNum(key []byte, n int) (uint64, bool) {
	if len(key) < 1+8*(n+1) {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[1+8*n:]), true
}

func corrupt(key []byte, what string) error {
	return &llm.Error{Kind: llm.KindInternal, Code: "store_damaged", Message: fmt.Sprintf("the store is damaged: key %q: %s", key, what)}
}
