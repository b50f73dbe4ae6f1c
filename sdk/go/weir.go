// Package weir is Weir's policy SDK for Go: types over the two buffers that the gateway shares with a policy module.
//
// The gateway writes the facts of a request into the module's memory, calls weir_decide, and reads the decision; Facts and
// Decision lie over the buffers exactly as the ABI says, so nothing is parsed, copied or allocated during a call. A policy is
// a package main with an empty main, which registers its two functions:
//
//	func init() { weir.Serve(configure, decide) }
//
// Standard Go makes a module of about 1.6 MB, which an operator uploads with profile large. A module has one thread and
// the gateway calls it one call at a time, so a policy may keep what it configured in package variables; what it keeps from
// one decision to the next makes it no longer a pure function, and its cases fail.
package weir

import "unsafe"

// GuestError is what Decision.Done returns when the decision does not fit.
const GuestError = 2

// Serve registers a policy; call it from init. Configure runs once per instance and refuses the activation with what it
// returns unless that is 0; nil accepts anything. Decide runs once per request and returns d.Done(), or Abstained for the
// gateway's own defaults; d is clear.
func Serve(configure func(c Config) int32, decide func(f *Facts, d *Decision) int32) {
	shared.configure, shared.decide = configure, decide
}

// Want asks for these attributes only (AttrModel, …); the gateway then does not write the others. Call it from init.
func Want(attributes ...int) {
	shared.want = 0
	for _, i := range attributes {
		shared.want |= 1 << i
	}
}

// guest is the module's one block of memory that the host knows, and what was registered.
type guest struct {
	facts     *Facts
	decision  *Decision
	params    []byte
	want      uint64
	configure func(Config) int32
	decide    func(*Facts, *Decision) int32
}

var shared = makeGuest()

func makeGuest() *guest {
	request, response := aligned(RequestSize), aligned(ResponseSize)
	return &guest{facts: (*Facts)(request), decision: (*Decision)(response), want: 1<<NAttr - 1}
}

// aligned is the start of size bytes at a multiple of BufferAlign; Go's heap never moves them.
func aligned(size int) unsafe.Pointer {
	raw := make([]byte, size+BufferAlign)
	skip := -uintptr(unsafe.Pointer(&raw[0])) % BufferAlign
	return unsafe.Pointer(&raw[skip])
}

// room makes the buffer for the configuration; nil: too big.
func (g *guest) room(size int32) []byte {
	if size < 0 || size > ParamsMax {
		return nil
	}
	g.params = make([]byte, max(size, 1))
	return g.params
}

func (g *guest) configured(size int32) int32 {
	if g.configure == nil {
		return 0
	}
	return g.configure(newConfig(string(g.params[:size])))
}

func (g *guest) decided() int32 {
	if g.decide == nil {
		return Abstained
	}
	g.decision.Reset()
	return g.decide(g.facts, g.decision)
}
