package limit

import "github.com/weir-gateway/weir/core/llm"

// stage is how far a request has come. It only grows, but for Refused.
type stage uint8

const (
	stageUnsent  stage = iota
	stageSent          // an attempt began to write: the input is owed
	stageRelayed       // the client has had output
	stageKnown         // the provider has reported its usage
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

// endings is the one place where it is decided what an ending costs, in tokens and in money alike. A deferred Release,
// a panic, a Close and the leak net all come through here, so that none of them can be free by accident.
func endings(p *progress, e *ending) outcome {
	known := p.stage == stageKnown
	switch {
	case e.complete && (e.reported || !known):
		return outcome{llm.StatusFinalized, e.usage, !e.reported}
	case e.complete:
		return outcome{llm.StatusFinalized, p.usage, false}
	case known:
		return outcome{llm.StatusPartial, p.usage, false}
	case p.stage >= stageSent:
		return outcome{llm.StatusPartial, llm.Usage{InputTokens: p.input, OutputTokens: p.relayed}, true}
	case p.status >= 500:
		return outcome{status: llm.StatusFailed}
	}
	return outcome{status: llm.StatusRefunded}
}

// owed tells whether money moves.
func (o outcome) owed() bool { return o.status == llm.StatusFinalized || o.status == llm.StatusPartial }
