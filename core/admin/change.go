package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// change is what one request alters: one audit line, documents and money.
type change struct {
	actor          string // empty: "admin"
	action, target string // "key.create", "key:42"
	before, after  any    // as the API shows them, so without secrets
	docs           []ledger.Doc
	credits        []llm.Entry
}

// take waits for the turn; done gives it back.
func (a *API) take(ctx context.Context) (done func(), err error) {
	select {
	case a.turn <- struct{}{}:
		return func() { <-a.turn }, nil
	case <-ctx.Done():
		return nil, &llm.Error{Kind: llm.KindUnavailable, Message: "the change did not get its turn in time; nothing changed", Err: ctx.Err()}
	}
}

// put makes a change durable. REQUIRES: the turn. c is nil when no client asked. Nothing is applied to memory here.
func (a *API) put(ctx context.Context, c *call, ch change, ans answer) error {
	record := ledger.Change{Actor: ch.actor, Action: ch.action, Target: ch.target, Before: encode(ch.before), After: encode(ch.after)}
	if record.Actor == "" {
		record.Actor = "admin"
	}
	if c != nil && c.once != "" {
		record.Idempotency, record.Request = c.once, c.stamp
		record.Answer = append(strconv.AppendInt(nil, int64(ans.status), 10), ' ')
		record.Answer = append(record.Answer, encode(ans.value)...)
	}
	err := a.Ledger.Put(ctx, record, ch.docs, ch.credits)
	var e *llm.Error
	if err == nil || errors.As(err, &e) && e.Kind != llm.KindUnavailable {
		return err
	}
	return &llm.Error{Kind: llm.KindUnavailable, Message: "the ledger cannot write; nothing changed", Err: err}
}

// encode is JSON of a value of this package; nil stays nil.
func encode(v any) []byte {
	if v == nil {
		return nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("admin: a document that is not JSON: %v", err))
	}
	return raw
}

// doc is a numbered object's document; v nil is its tombstone.
func doc(kind string, id uint64, v any) ledger.Doc {
	return named(kind, strconv.FormatUint(id, 10), v)
}

func named(kind, id string, v any) ledger.Doc {
	return ledger.Doc{Kind: kind, ID: id, Data: encode(v)}
}

// target is how the audit names an object.
func target(kind string, id uint64) string { return fmt.Sprintf("%s:%d", kind, id) }
