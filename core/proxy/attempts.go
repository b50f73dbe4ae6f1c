package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/upstream"
)

// attempts stands between upstream.Do and the reservation: each attempt takes room on its channel first and gives it
// back when it fails.
type attempts struct {
	call     *call
	meter    *meters
	res      limit.Reservation
	wanted   [2]policy.Dimension // channel and model+channel, where the decision names them
	channel  bool
	model    bool
	extended bool
	tried    bool         // an attempt got room
	full     bool         // a channel had no room; denial says which limit
	denial   limit.Denial // of the one among them that has room first
	failure  error        // the limiter failed
}

var _ upstream.Hold = (*attempts)(nil)

// want remembers a channel dimension until a channel is known.
func (a *attempts) want(p policy.Dimension) {
	if limit.Kind(p.Kind) == limit.Channel {
		a.wanted[0], a.channel = p, true
		return
	}
	a.wanted[1], a.model = p, true
}

// Attempt implements upstream.Hold.
func (a *attempts) Attempt(ch *upstream.Channel) (room bool, wait time.Duration) {
	var dims [2]limit.Dim
	n := a.dims(&dims, ch)
	if n > 0 {
		denial, err := a.res.Extend(context.Background(), dims[:n], 0)
		switch {
		case err != nil:
			a.failure = err
			return false, 0
		case denial != nil:
			a.note(denial)
			if denial.TooLarge {
				return false, 0
			}
			return false, time.Duration(denial.RetryAfterMS) * time.Millisecond
		}
		a.extended = true
	}
	a.tried = true
	return true, 0
}

// dims are the dimensions of one attempt: those with limits, and those the decision asked for. A channel's own concurrency is
// not among them: upstream.Do bounds it, and can wait for a place.
func (a *attempts) dims(dims *[2]limit.Dim, ch *upstream.Channel) (n int) {
	c := a.call
	base := limit.Limits{QPS: ch.QPSLimit, TPM: ch.TPMLimit}
	if a.channel || base != (limit.Limits{}) {
		dims[n] = c.shape(limit.ID{Kind: limit.Channel, Scope: ch.ID}, base, a.wish(0, a.channel), multipliers{})
		n++
	}
	base = c.snap.Defaults[limit.ModelChannel]
	if a.model || base != (limit.Limits{}) {
		dims[n] = c.shape(limit.ID{Kind: limit.ModelChannel, Scope: ch.ID, Name: c.model.Name}, base, a.wish(1, a.model), multipliers{})
		n++
	}
	return n
}

func (a *attempts) wish(i int, given bool) *policy.Dimension {
	if !given {
		a.wanted[i] = policy.Dimension{Tier: noTier}
	}
	return &a.wanted[i]
}

// Sent implements upstream.Hold: from here on the input is owed.
func (a *attempts) Sent(ch *upstream.Channel) {
	a.res.Sent(ch.Name)
	a.meter.attempt(ch.Name).Inc()
	a.call.record.attempts++
	a.call.record.channel = ch.Name
}

// Refused implements upstream.Hold: nothing is owed for this attempt and its channel has room again.
func (a *attempts) Refused(*upstream.Channel) {
	a.res.Refused()
	if a.extended {
		a.res.Shrink()
		a.extended = false
	}
}

// note keeps the denial with the shortest wait. That is a hint: it knows of one channel, and not of the claim, which was
// granted.
func (a *attempts) note(d *limit.Denial) {
	if !a.full || !d.TooLarge && (a.denial.TooLarge || d.RetryAfterMS < a.denial.RetryAfterMS) {
		a.denial = *d
		a.denial.Exact = false
	}
	a.full = true
}

// explain gives the limiter's failure precedence over what upstream.Do made of it.
func (a *attempts) explain(err error) error {
	if a.failure != nil && !errors.Is(err, errGone) {
		return unavailable(a.failure)
	}
	return err
}
