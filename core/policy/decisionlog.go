package policy

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"
)

// Bounds of the decision log.
const (
	defaultSample = 1000
	queuedLogged  = 1024
	maxLogged     = 64 << 10 // bytes of a line; longer ones are dropped
	logPatience   = 2 * time.Second
)

// decisionLog writes a sample of the decisions. A request in the sample pays for its line; every other one pays for
// one look at its entropy.
type decisionLog struct {
	every       uint64
	sink        func([]byte) error
	log         *slog.Logger
	failing     bool // of the writing goroutine
	queue       chan []byte
	written     chan struct{} // closed when the writing goroutine has ended
	patience    time.Duration // how long Close waits for it
	lines, lost atomic.Uint64
}

func newDecisionLog(o DecisionLog, log *slog.Logger) *decisionLog {
	if o.Sink == nil {
		return nil
	}
	if o.Sample <= 0 {
		o.Sample = defaultSample
	}
	return &decisionLog{every: uint64(o.Sample), sink: o.Sink, log: log, queue: make(chan []byte, queuedLogged),
		written: make(chan struct{}), patience: logPatience}
}

// sample is a module's own answer, kept before the envelope touches it.
type sample struct {
	fuel   uint64
	answer Decision
}

// sample gives a request of the sample something to be noted in; nil: it is not in it.
func (l *decisionLog) sample(f *Facts) *sample {
	if l == nil || mix(f.Entropy)%l.every != 0 {
		return nil
	}
	return new(sample)
}

// again is a second sample of the same request; nil of nil.
func (s *sample) again() *sample {
	if s == nil {
		return nil
	}
	return new(sample)
}

func (s *sample) take(in *instance, d *Decision) { s.fuel, s.answer = in.spent(), *d }

// add queues the line of what q.by was asked and answered.
func (l *decisionLog) add(q *question, f *Facts, clamped bool) {
	s, g, h := q.smp, q.by, q.h
	if q.ft != faultNone {
		s.answer.abstain()
		s.answer.Fault = q.ft.String()
	}
	s.answer.Clamped = false
	facts, err := MarshalFacts(f, h.o.Tiers, h.o.Labels)
	if err != nil {
		l.lost.Add(1)
		return
	}
	decision, err := MarshalDecision(&s.answer, h.o.Tiers)
	if err != nil {
		l.lost.Add(1)
		return
	}
	line, err := json.Marshal(Logged{Time: h.o.Clock.Wall().UTC().Format("2006-01-02T15:04:05.000Z07:00"), Owner: g.lane.owner.String(),
		Module: g.Name, Version: g.version, Generation: g.number, Facts: facts, Decision: decision, Clamped: clamped,
		Fault: s.answer.Fault, Fuel: s.fuel})
	if err != nil || len(line) > maxLogged {
		l.lost.Add(1)
		return
	}
	select {
	case l.queue <- append(line, '\n'):
	default:
		l.lost.Add(1)
	}
}

// write hands the lines to the sink until life ends, and then what is queued. The host's Close waits for it by finish.
func (l *decisionLog) write(life context.Context) {
	defer close(l.written)
	for {
		select {
		case line := <-l.queue:
			l.keep(line)
			continue
		default:
		}
		select {
		case line := <-l.queue:
			l.keep(line)
		case <-life.Done():
			if len(l.queue) == 0 {
				return
			}
		}
	}
}

// finish waits until what is queued is written, after life has ended. A sink that blocks, such as a file on a server that
// is gone, does not keep the gateway from ending: after patience the lines are dropped, and the log says how many.
func (l *decisionLog) finish() {
	if l == nil {
		return
	}
	late := time.NewTimer(l.patience)
	defer late.Stop()
	select {
	case <-l.written:
		return
	case <-late.C:
	}
	dropped := uint64(1) // the one being written
	for {
		select {
		case <-l.queue:
			dropped++
			continue
		default:
		}
		break
	}
	l.lost.Add(dropped)
	l.log.Error("the decision log does not take its last lines; they are dropped", "dropped", dropped, "waited", l.patience)
}

// keep hands a line to the sink. Of failures in a row the first is logged, and all are counted.
func (l *decisionLog) keep(line []byte) {
	err := l.sink(line)
	if err == nil {
		l.lines.Add(1)
	} else if l.lost.Add(1); !l.failing {
		l.log.Error("the decision log is not written", "error", err)
	}
	l.failing = err != nil
}

func (l *decisionLog) counts() (written, dropped uint64) {
	if l == nil {
		return 0, 0
	}
	return l.lines.Load(), l.lost.Load()
}
