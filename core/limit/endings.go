package limit

import "github.com/weir-gateway/weir/core/llm"

// stage is how far a request has come. It only grows, but for Refused.
type stage uint8

const (
	stageUnsent  stage = iota
	stageSent          // an attempt began to write: the input is owed
	stageRelayed       // the client has had output
	stageKnown         // the provider has reported usage; unless the answer is complete, it may grow
)

// progress is everything an ending is decided by.
type progress struct {
	stage   stage
	input   llm.Tokens // the estimate of admission
	relayed llm.Tokens // running total of output passed on
	usage   llm.Usage  // the provider's, at stageKnown
	status  int        // what the client was told; 0: nothing
}

// ending is how a reservation is closed: complete by Commit, or at whatever point by Release.
type ending struct {
	complete bool
	usage    llm.Usage // of Commit
	reported bool      // usage is the provider's, not counted text
}

// outcome is what an ending comes to. Only finalized and partial are owed.
type outcome struct {
	status    llm.Status
	usage     llm.Usage
	estimated bool
}

// counted is what an answer that is not complete has come to. Reported usage may be older than the latest output, so the
// client owes at least what it has had.
func (p *progress) counted() (u llm.Usage, estimated bool) {
	if p.stage != stageKnown {
		return llm.Usage{InputTokens: p.input, OutputTokens: p.relayed}, true
	}
	return atLeast(p.usage, p.relayed)
}

// atLeast raises the output of u; estimated tells that it did.
func atLeast(u llm.Usage, output llm.Tokens) (raised llm.Usage, estimated bool) {
	estimated = u.OutputTokens < output
	u.OutputTokens = max(u.OutputTokens, output)
	return u, estimated
}

// endings is the one place where it is decided what an ending costs, in tokens and in money alike. A deferred Release,
// a panic, a Close and the leak net all come through here, so that none of them can be free by accident.
func endings(p *progress, e *ending) outcome {
	known := p.stage == stageKnown
	switch {
	case e.complete && (e.reported || !known):
		return outcome{llm.StatusFinalized, e.usage, !e.reported}
	case e.complete:
		u, estimated := atLeast(p.usage, e.usage.OutputTokens)
		return outcome{llm.StatusFinalized, u, estimated}
	case p.stage >= stageSent:
		u, estimated := p.counted()
		return outcome{llm.StatusPartial, u, estimated}
	case p.status >= 500:
		return outcome{status: llm.StatusFailed}
	}
	return outcome{status: llm.StatusRefunded}
}

// owed tells whether money moves.
func (o outcome) owed() bool { return o.status == llm.StatusFinalized || o.status == llm.StatusPartial }
