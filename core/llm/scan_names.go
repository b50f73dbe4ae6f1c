package llm

import (
	"unicode/utf8"
)

// member is a name that the scanner acts on: at the top of a body, or inside stream_options and metadata.
type member uint8

const (
	mNone member = iota
	mModel
	mStream
	mStreamOptions
	mIncludeUsage
	mMaxTokens
	mMaxOutputTokens
	mMaxCompletionTokens
	mN
	mBestOf
	mMessages
	mPrompt
	mInput
	mInstructions
	mSystem
	mSuffix
	mPrediction
	mTools
	mFunctions
	mToolChoice
	mFunctionCall
	mResponseFormat
	mText
	mUser
	mMetadata
	mUserID
	mLogitBias
	mBackground
	mPreviousResponseID
	mConversation
	mServiceTier
	mType
	mMaxUses
	mMaxToolCalls
	mWebSearchOptions
	mMCPServers
	mContainer
	mVectorStoreIDs
	mSpeed
	mInferenceGeo
	mModalities
	mModels
	mFallbacks
	mRoute
	mPreset
	mPlugins
	members
)

var memberNames = [members]string{
	mModel: "model", mStream: "stream", mStreamOptions: "stream_options", mIncludeUsage: "include_usage",
	mMaxTokens: "max_tokens", mMaxOutputTokens: "max_output_tokens", mMaxCompletionTokens: "max_completion_tokens",
	mN: "n", mBestOf: "best_of", mMessages: "messages", mPrompt: "prompt", mInput: "input",
	mInstructions: "instructions", mSystem: "system", mSuffix: "suffix", mPrediction: "prediction",
	mTools: "tools", mFunctions: "functions", mToolChoice: "tool_choice", mFunctionCall: "function_call",
	mResponseFormat: "response_format", mText: "text", mUser: "user", mMetadata: "metadata", mUserID: "user_id",
	mLogitBias: "logit_bias", mBackground: "background", mPreviousResponseID: "previous_response_id",
	mConversation: "conversation", mServiceTier: "service_tier", mType: "type",
	mMaxUses: "max_uses", mMaxToolCalls: "max_tool_calls", mWebSearchOptions: "web_search_options", mMCPServers: "mcp_servers",
	mContainer: "container", mVectorStoreIDs: "vector_store_ids", mSpeed: "speed", mInferenceGeo: "inference_geo", mModalities: "modalities",
	mModels: "models", mFallbacks: "fallbacks", mRoute: "route", mPreset: "preset", mPlugins: "plugins",
}

// caps are the output caps that each endpoint has. Of several, the highest bit is the one to recommend.
var caps = [...]uint64{
	Chat:        1<<mMaxTokens | 1<<mMaxCompletionTokens,
	Completions: 1 << mMaxTokens,
	Responses:   1 << mMaxOutputTokens,
	Messages:    1 << mMaxTokens,
	CountTokens: 1 << mMaxTokens,
}

// required is the one member beside model that each endpoint cannot do without.
var required = [...]member{Chat: mMessages, Embeddings: mInput, Messages: mMessages, CountTokens: mMessages}

// lookup finds a name written exactly.
func lookup(name []byte) member {
	switch string(name) {
	case "model":
		return mModel
	case "stream":
		return mStream
	case "stream_options":
		return mStreamOptions
	case "include_usage":
		return mIncludeUsage
	case "max_tokens":
		return mMaxTokens
	case "max_output_tokens":
		return mMaxOutputTokens
	case "max_completion_tokens":
		return mMaxCompletionTokens
	case "n":
		return mN
	case "best_of":
		return mBestOf
	case "messages":
		return mMessages
	case "prompt":
		return mPrompt
	case "input":
		return mInput
	}
	return lookupRest(name)
}

func lookupRest(name []byte) member {
	switch string(name) {
	case "instructions":
		return mInstructions
	case "system":
		return mSystem
	case "suffix":
		return mSuffix
	case "prediction":
		return mPrediction
	case "tools":
		return mTools
	case "functions":
		return mFunctions
	case "tool_choice":
		return mToolChoice
	case "function_call":
		return mFunctionCall
	case "response_format":
		return mResponseFormat
	case "text":
		return mText
	case "user":
		return mUser
	case "metadata":
		return mMetadata
	case "user_id":
		return mUserID
	case "logit_bias":
		return mLogitBias
	case "background":
		return mBackground
	case "previous_response_id":
		return mPreviousResponseID
	case "conversation":
		return mConversation
	case "service_tier":
		return mServiceTier
	case "type":
		return mType
	case "max_uses":
		return mMaxUses
	case "max_tool_calls":
		return mMaxToolCalls
	case "web_search_options":
		return mWebSearchOptions
	case "mcp_servers":
		return mMCPServers
	case "container":
		return mContainer
	case "vector_store_ids":
		return mVectorStoreIDs
	case "speed":
		return mSpeed
	case "inference_geo":
		return mInferenceGeo
	case "modalities":
		return mModalities
	}
	return lookupReroute(name)
}

// lookupReroute finds what only routers of models know.
func lookupReroute(name []byte) member {
	switch string(name) {
	case "models":
		return mModels
	case "fallbacks":
		return mFallbacks
	case "route":
		return mRoute
	case "preset":
		return mPreset
	case "plugins":
		return mPlugins
	}
	return mNone
}

// known reads a member's name and says which it is. A second one of the same name in seen, and a look-alike, are
// refused; scope is what stands before the name in an error's param.
func (s *scanner) known(seen *uint64, scope string) member {
	s.name = s.key()
	raw := s.name.In(s.b)
	return s.once(raw, lookup(raw), seen, scope)
}

// once refuses a name that is not to be taken for m.
func (s *scanner) once(raw []byte, m member, seen *uint64, scope string) member {
	if s.err != nil {
		return mNone
	}
	if m == mNone || s.escaped {
		if m = folded(raw); m != mNone {
			s.reads(raw, scope, memberNames[m])
		}
		return mNone
	}
	if *seen&(1<<m) != 0 {
		s.fail(scope+memberNames[m], "%s is given twice; give it once", scope+memberNames[m])
	}
	*seen |= 1 << m
	return m
}

// folded finds the known name that raw turns into when escapes are undone and case is folded, the way lenient JSON
// readers match names. A name of plain lower-case letters folds to itself, so it is none.
func folded(raw []byte) member {
	if plainName(raw) {
		return mNone
	}
	var buf [32]byte
	return lookup(fold(buf[:0], raw))
}

// fold appends what raw turns into; nothing when that is not ASCII or longer than dst can hold.
func fold(dst, raw []byte) []byte {
	for len(raw) > 0 {
		r, n := decodeRune(raw)
		raw = raw[n:]
		c, ok := foldASCII(r)
		if !ok || len(dst) == cap(dst) {
			return nil
		}
		dst = append(dst, c)
	}
	return dst
}

func plainName(raw []byte) bool {
	for _, c := range raw {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_') {
			return false
		}
	}
	return true
}

// foldASCII maps every rune that some case mapping turns into an ASCII character: besides A-Z these are the
// Kelvin sign, the long s and the two Turkish i's.
func foldASCII(r rune) (byte, bool) {
	switch {
	case r >= 'A' && r <= 'Z':
		return byte(r) + 'a' - 'A', true
	case r < utf8.RuneSelf:
		return byte(r), true
	case r == '\u212a':
		return 'k', true
	case r == '\u017f':
		return 's', true
	case r == '\u0130' || r == '\u0131':
		return 'i', true
	}
	return 0, false
}

// decodeRune gives the first rune of a string's content, with its escape undone, and its length as written.
// Halves of surrogate pairs come out as U+FFFD: no known name has one.
func decodeRune(raw []byte) (rune, int) {
	if raw[0] != '\\' || len(raw) < 2 {
		return utf8.DecodeRune(raw)
	}
	switch raw[1] {
	case 'u':
		if len(raw) < 6 {
			return utf8.RuneError, len(raw)
		}
		return hex4(raw[2:]), 6
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	}
	return rune(raw[1]), 2
}

// field is what a member's name means inside a part.
type field uint8

const (
	fieldNone field = iota
	fieldContent
	fieldType
	fieldImage
	fieldFile
	fieldSource
	fieldBytes
	fieldID
	fieldFileID
	fieldSealed
	fieldSetting
	fieldSkipped
	fieldName
)

// fieldNamed finds a name written exactly.
func fieldNamed(name []byte) field {
	switch string(name) {
	case "role", "text", "content", "tool_calls", "function", "function_call", "output", "summary":
		return fieldContent
	case "type":
		return fieldType
	case "image_url":
		return fieldImage
	case "input_audio", "audio", "file", "file_data", "file_url":
		return fieldFile
	case "source":
		return fieldSource
	case "data", "result":
		return fieldBytes
	case "id":
		return fieldID
	case "file_id":
		return fieldFileID
	case "encrypted_content":
		return fieldSealed
	case "call_id", "tool_call_id", "tool_use_id", "status", "detail", "media_type", "cache_control":
		return fieldSetting
	case "url", "signature":
		return fieldSkipped
	case "name":
		return fieldName
	}
	return fieldNone
}

// reads refuses a name that some upstreams would take for another; scope is what stands before that in the error's param.
func (s *scanner) reads(name []byte, scope, like string) {
	s.fail(scope+like, "%s reads like %s; write it exactly so", Quote(name, 64), like)
}

// unlisted refuses a name that means nothing inside a part but reads like one that does.
func (s *scanner) unlisted(name []byte) {
	if plainName(name) {
		return
	}
	var buf [32]byte
	if like := fold(buf[:0], name); fieldNamed(like) != fieldNone {
		s.reads(name, "", string(like))
	}
}

// kindNamed is the kind of part that a type means.
func kindNamed(kind []byte) int {
	switch string(kind) {
	case "image", "image_url", "input_image", "computer_screenshot":
		return kindImage
	case "file", "input_file", "document", "input_audio", "audio", "container_upload":
		return kindFile
	case "text", "content":
		return kindText
	case "base64":
		return kindBase64
	case "image_generation_call":
		return kindPicture
	case "item_reference":
		return kindReference
	case "reasoning":
		return kindReasoning
	}
	return kindOther
}
