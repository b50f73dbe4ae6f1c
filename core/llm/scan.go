package llm

import (
	"math"
	"math/bits"
)

// The bounds of what ScanHead accepts.
const (
	MaxDepth      = 64            // nesting of the body
	MaxTokens     = 100_000       // names and values in one body; numbers of the model's tokens are none
	MaxKeyBytes   = 256           // a member's name, as written
	MaxModelBytes = 256           // the model's name; where it has escapes, six times as many as written
	MaxChoices    = 128           // n and best_of, each
	MaxPrompts    = 2048          // prompts or embedding inputs in one body
	MaxOutputCap  = math.MaxInt32 // max_tokens and its siblings, and caps on tool calls
	MaxHosted     = 64            // tools that the provider runs

	keptTexts    = 4096 // a Head that grew beyond this gives its memory back
	otherCounted = 256  // bytes of an unlisted top-level value from which it counts as input
)

// ScanHead fills h from one strict pass over a request body, and refuses with a *Error of KindInvalid that names
// the field. What it accepts is what is forwarded, so it must read a body exactly as any upstream might:
//
//  1. Syntax is RFC 8259 to the letter: one object, UTF-8, no control characters, no second document; at most
//     MaxDepth deep, with MaxTokens names and values, and names of MaxKeyBytes.
//  2. A known member is written exactly so and once. A name that is not byte-equal to a known one but becomes it
//     by undoing escapes and folding case ("MODEL", "max_to\u212aens", "\u006dodel") is refused: some upstreams
//     would obey it, others not. The same holds inside stream_options and metadata, in tools and in every part of an input. A
//     type in other letters is what it folds to, and text.
//  3. Whatever stands inside a known input container counts: a string under an unknown name as text, an object or
//     array under an unknown name as raw JSON. Only places that providers bill by the image or by the file are left
//     out, so a body can cost too many tokens here, never too few.
//  4. A cap is a whole number in plain digits, 1 to MaxOutputCap. "100", 1e2, 1.0, -1 and 0 are refused (some
//     servers read 0 and -1 as unlimited); null is the same as absent. A cap that the endpoint does not have is
//     refused, for an upstream that ignores it would answer without any.
//  5. Input that the provider keeps (previous_response_id, conversation, a prompt by its id, item references, reasoning
//     without its content) cannot be counted and is noted as Stored; that, and every other id of a thing the provider keeps,
//     is noted in Refers. An answer in the background cannot be settled and is refused.
//  6. A tool whose type is not known to be run by the client is Hosted, so that a type nobody here knows is not free.
//  7. What has a router of models take another one than model (models, fallbacks, route, preset), or add to it (plugins), is
//     refused.
//  8. The model's name may have escapes, as some JSON writers make them ("org\/model", "mod\u00e9"): it is looked up
//     with its escapes undone and forwarded as it stands. Names of members may not: rule 2.
//
// The pass, without allocation once h has grown:
//
//	document: '{' member* '}' end
//	member:   name -> lookup (exact, else folded) -> once? -> its reader; an unlisted one is checked and skipped
//	input:    string -> Text; [ input* ]; { type, images, files, known parts -> input; any other -> Text }
//	finish:   model there? caps settled, choices times prompts
//
// The rejected design is a general parser (encoding/json, or a tree of nodes): 15 times slower at 1 kB, silent
// about duplicates and folding, and its strings would have to be copied to be counted.
func ScanHead(ep Endpoint, body []byte, h *Head) error {
	if cap(h.Texts) > keptTexts {
		h.Texts = nil
	}
	*h = Head{Endpoint: ep, OutputCap: -1, ToolCap: -1, Choices: 1, Texts: h.Texts[:0], Caps: h.Caps[:0], Hosted: h.Hosted[:0]}
	if len(body) > math.MaxInt32 {
		return Invalid("body", "the body has %d bytes; at most %d can be read", len(body), math.MaxInt32)
	}
	s := scanner{b: body, h: h, prompts: 1, tokens: 1}
	s.document()
	s.finish()
	if s.err != nil {
		return s.err
	}
	return nil
}

// document reads the one object a body consists of.
func (s *scanner) document() {
	s.space()
	if s.peek() != '{' {
		s.fail("body", "the body must be a JSON object, as in {\"model\":\"...\"}")
		return
	}
	s.h.Insert = int32(s.i + 1)
	for more := s.enter('}'); more; more = s.more('}') {
		s.member(s.known(&s.seen, ""))
	}
	s.space()
	if s.err == nil && s.i != len(s.b) {
		s.fail("body", "the body must be one JSON object; more follows it at byte %d", s.i)
	}
}

// member reads the value of one top-level member.
func (s *scanner) member(m member) {
	switch m {
	case mModel:
		s.model()
	case mStream:
		s.h.Stream = s.boolean("stream") == True
	case mStreamOptions:
		s.streamOptions()
	case mMaxTokens, mMaxCompletionTokens, mMaxOutputTokens:
		s.outputCap(m)
	case mN, mBestOf:
		s.choices(m)
	case mMessages:
		s.messages()
	case mPrompt, mInput:
		s.input(m)
	case mInstructions, mSystem, mSuffix, mPrediction:
		s.content()
	case mTools, mFunctions:
		s.tools()
	case mResponseFormat, mText, mToolChoice, mFunctionCall:
		s.raw()
	case mUser:
		s.user()
	case mMetadata:
		s.metadata()
	case mLogitBias:
		s.skip()
	case mBackground:
		s.background()
	case mPreviousResponseID, mConversation:
		s.stored(m)
	case mContainer:
		if s.h.Endpoint.Dialect() == Anthropic && s.peek() != 'n' {
			s.refers("container")
		}
		s.other()
	case mMaxToolCalls:
		s.toolCap()
	case mWebSearchOptions, mMCPServers:
		s.standsForTool(m)
	case mServiceTier:
		s.h.ServiceTier, _ = s.optionalString("service_tier")
	case mSpeed:
		s.premium(m, &s.h.Speed)
	case mInferenceGeo:
		s.premium(m, &s.h.Geo)
	case mModalities:
		s.modalities()
	case mModels, mFallbacks, mRoute, mPreset, mPlugins:
		s.reroutes(m)
	default:
		s.other()
	}
}

// finish checks what can be known only at the end.
func (s *scanner) finish() {
	if s.err != nil {
		return
	}
	h := s.h
	if h.Model.Empty() {
		s.fail("model", "model is required: the name of a model, as a string")
		return
	}
	if need := required[min(h.Endpoint, CountTokens)]; need != mNone && s.seen&(1<<need) == 0 {
		s.fail(memberNames[need], "%s is required by %s", memberNames[need], h.Endpoint.Path())
		return
	}
	if h.OutputCap < 0 {
		h.Caps = append(h.Caps, s.nullCaps[:s.nulls]...)
	}
	if h.Endpoint == Completions {
		h.Choices *= s.prompts
		h.Messages = s.prompts
	}
}

// other checks a member nobody here knows. A long one may be something that a provider reads (documents, schemas),
// so it counts; a short one is a setting.
func (s *scanner) other() {
	start := s.i
	s.skip()
	if s.i-start > otherCounted {
		s.push(start, s.i, true)
	}
}

func (s *scanner) model() {
	if s.peek() != '"' {
		s.wrong("model", "a string")
		return
	}
	v := s.str()
	most := int32(MaxModelBytes)
	if s.escaped {
		most *= int32(len(`\u0000`))
	}
	switch {
	case s.err != nil:
	case v.End == v.Off:
		s.fail("model", "model is empty; expected the name of a model")
	case v.End-v.Off > most:
		s.fail("model", "model has %d bytes; at most %d are allowed", v.End-v.Off, most)
	}
	s.h.Model = v
}

func (s *scanner) streamOptions() {
	start := s.i
	switch s.peek() {
	case 'n':
		s.literal("null")
	case '{':
		var seen uint64
		for more := s.enter('}'); more; more = s.more('}') {
			if s.known(&seen, "stream_options.") != mIncludeUsage {
				s.skip()
				continue
			}
			at := s.i
			s.h.IncludeUsage = s.boolean("stream_options.include_usage")
			s.h.UsageValue = s.span(at)
		}
	default:
		s.wrong("stream_options", "an object")
	}
	s.h.StreamOptions = s.span(start)
}

// outputCap reads one cap. Nulls are kept aside: they are rewritten only when no real cap is there, because an
// upstream may refuse two.
func (s *scanner) outputCap(m member) {
	name := memberNames[m]
	n, at, given := s.integer(name, 1, MaxOutputCap)
	allowed := caps[min(s.h.Endpoint, CountTokens)]
	switch {
	case s.err != nil:
	case allowed&(1<<m) == 0 && given:
		s.foreign(name, allowed)
	case allowed&(1<<m) == 0:
	case !given:
		s.nullCaps[s.nulls] = at
		s.nulls++
	default:
		s.h.OutputCap = max(s.h.OutputCap, Tokens(n))
		s.h.Caps = append(s.h.Caps, at)
	}
}

func (s *scanner) foreign(name string, allowed uint64) {
	if allowed == 0 {
		s.fail(name, "%s is not a member of %s, which generates nothing; remove it", name, s.h.Endpoint.Path())
		return
	}
	native := memberNames[bits.Len64(allowed)-1]
	s.fail(name, "%s is not a member of %s; use %s", name, s.h.Endpoint.Path(), native)
}

func (s *scanner) choices(m member) {
	if n, _, given := s.integer(memberNames[m], 1, MaxChoices); given {
		s.h.Choices = max(s.h.Choices, int(n))
	}
}

// background reads a wish to be answered later, elsewhere: what that costs would be known to nobody here.
func (s *scanner) background() {
	if s.h.Endpoint != Responses {
		s.other()
		return
	}
	if s.boolean("background") == True {
		s.fail("background", "background responses cannot be metered; leave background out or false, and stream a long answer")
	}
}

// reroutes refuses what a router of models behind a channel obeys: it takes another model than the one that is allowed and
// priced here, or adds what costs.
func (s *scanner) reroutes(m member) {
	if s.peek() != 'n' {
		s.fail(memberNames[m], "%s may have a provider run another model, or more than it, which nothing here prices; remove it and name the one model", memberNames[m])
		return
	}
	s.other()
}

// premium reads a setting of /v1/messages that changes the price.
func (s *scanner) premium(m member, to *Span) {
	if s.h.Endpoint.Dialect() != Anthropic {
		s.other()
		return
	}
	*to, _ = s.optionalString(memberNames[m])
}

// modalities reads what an answer of OpenAI's dialect is to have beside text.
func (s *scanner) modalities() {
	if s.h.Endpoint.Dialect() == Anthropic || s.peek() == 'n' {
		s.other()
		return
	}
	if s.peek() != '[' {
		s.wrong("modalities", "an array of strings")
		return
	}
	for more := s.enter(']'); more; more = s.more(']') {
		if s.peek() != '"' {
			s.wrong("modalities", "an array of strings")
			return
		}
		switch v := s.str(); {
		case s.err != nil || string(v.In(s.b)) == "text":
		case s.h.Modality.Empty():
			s.h.Modality = v
		default:
			s.fail("modalities", "modalities has two beside text; expected at most one, such as [\"text\",\"audio\"]")
		}
	}
}

// refers notes the first reference to something that the provider keeps.
func (s *scanner) refers(param string) {
	if s.h.Refers == "" {
		s.h.Refers = param
	}
}

// stored reads a reference to input that the provider keeps; null is none.
func (s *scanner) stored(m member) {
	if s.h.Endpoint == Responses && s.peek() != 'n' {
		s.h.Stored = true
		s.refers(memberNames[m])
	}
	s.other()
}

func (s *scanner) user() {
	v, given := s.optionalString("user")
	if given && s.h.Endpoint.Dialect() == OpenAI {
		s.h.EndUser = v
	}
}

func (s *scanner) metadata() {
	if s.h.Endpoint.Dialect() != Anthropic {
		s.skip()
		return
	}
	switch s.peek() {
	case 'n':
		s.literal("null")
	case '{':
		var seen uint64
		for more := s.enter('}'); more; more = s.more('}') {
			if s.known(&seen, "metadata.") != mUserID {
				s.skip()
			} else if v, given := s.optionalString("metadata.user_id"); given {
				s.h.EndUser = v
			}
		}
	default:
		s.wrong("metadata", "an object")
	}
}
