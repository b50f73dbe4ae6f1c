package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
)

// The audit chain: line n carries the hash of line n-1, and its own hash covers that and its content. A line that
// is changed, taken out or put in breaks every hash after it; the newest line's number and hash are kept a second time,
// so that the end cannot go missing either.

// auditHead is the newest line of the chain.
type auditHead struct {
	seq  uint64
	hash [32]byte
}

// writeAudit appends a line to the group.
func (o *owner) writeAudit(atMS int64, c *Change) {
	g := &o.group
	line := AuditLine{Seq: g.audit.seq + 1, AtMS: atMS, Change: *c, Prev: g.audit.hash}
	line.Hash = line.sum()
	g.put(numKey(keyAudit, line.Seq), appendAudit(nil, &line))
	g.audit = auditHead{line.Seq, line.Hash}
	g.put([]byte(auditKey), g.audit.value())
}

func (h auditHead) value() []byte { return append(putNumbers(int64(h.seq)), h.hash[:]...) }

func readAuditHead(b []byte) (h auditHead, err error) {
	if len(b) == 0 || b[0] != codecVersion {
		return h, errVersion
	}
	c := coder{buf: b[1:]}
	h.seq = uint64(c.varint())
	if c.err != nil || len(c.buf) != len(h.hash) {
		return h, errShort
	}
	h.hash = [32]byte(c.buf)
	return h, nil
}

// sum is the hash of a line: SHA-256 of the previous hash, then the content.
func (a *AuditLine) sum() [32]byte {
	return sha256.Sum256(a.content(a.Prev[:len(a.Prev):len(a.Prev)]))
}

// content appends what the hash covers. Every part has its length before it, so that no two lines read the same.
func (a *AuditLine) content(b []byte) []byte {
	b = binary.AppendUvarint(b, a.Seq)
	b = binary.AppendVarint(b, a.AtMS)
	c := &a.Change
	for _, s := range []string{c.Actor, c.Action, c.Target, c.Idempotency} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	for _, s := range [][]byte{c.Before, c.After} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

func appendAudit(b []byte, a *AuditLine) []byte {
	b = append(b, codecVersion)
	b = append(append(b, a.Hash[:]...), a.Prev[:]...)
	return a.content(b)
}

func readAudit(b []byte) (a AuditLine, err error) {
	if len(b) < 1+64 {
		return a, errShort
	}
	if b[0] != codecVersion {
		return a, errVersion
	}
	a.Hash, a.Prev = [32]byte(b[1:]), [32]byte(b[33:])
	b = b[65:]
	seq, n := binary.Uvarint(b)
	at, m := binary.Varint(b[max(n, 0):])
	if n <= 0 || m <= 0 {
		return a, errShort
	}
	a.Seq, a.AtMS, b = seq, at, b[n+m:]
	parts := make([][]byte, 6)
	for i := range parts {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return a, errShort
		}
		parts[i], b = append([]byte(nil), b[n:n+int(size)]...), b[n+int(size):]
	}
	if len(b) != 0 {
		return a, errTrailing
	}
	a.Change = Change{Actor: string(parts[0]), Action: string(parts[1]), Target: string(parts[2]),
		Idempotency: string(parts[3]), Before: parts[4], After: parts[5]}
	return a, nil
}

// Audit visits the audit chain, newest first, from a sequence (0: the newest).
func (l *Ledger) Audit(from uint64) iter.Seq2[AuditLine, error] {
	return func(yield func(AuditLine, error) bool) {
		for {
			page, err := l.auditPage(from)
			if err != nil {
				yield(AuditLine{}, err)
				return
			}
			for _, a := range page {
				if !yield(a, nil) {
					return
				}
				from = a.Seq - 1
			}
			if len(page) == 0 || from == 0 {
				return
			}
		}
	}
}

func (l *Ledger) auditPage(from uint64) (page []AuditLine, err error) {
	var start []byte
	if from != 0 {
		start = numKey(keyAudit, from)
	}
	var bad error
	err = l.store.Scan([]byte{keyAudit}, start, true, func(k, v []byte) bool {
		a, err := readAudit(v)
		if err != nil {
			bad = corrupt(k, err.Error())
			return false
		}
		page = append(page, a)
		return len(page) < 64
	})
	if err == nil {
		err = bad
	}
	return page, err
}
