package llm

// part kinds, from the member "type" of an object inside an input container.
const (
	kindOther     = iota // unknown: billed by its text
	kindText             // text and content: billed by its text
	kindImage            // billed flat
	kindFile             // audio and files, billed flat
	kindBase64           // a source whose data is bytes
	kindPicture          // image_generation_call, whose result is bytes
	kindReference        // an item by its id
	kindReasoning        // which is in the body only when it is encrypted
)

// shortSetting is the length up to which identifiers and settings inside a part are not input.
const shortSetting = 64

// push adds a text that counts; an empty one does not.
func (s *scanner) push(start, end int, raw bool) {
	if end > start && s.err == nil {
		s.h.Texts = append(s.h.Texts, Text{Span{int32(start), int32(end)}, raw})
	}
}

func (s *scanner) text() {
	v := s.str()
	s.push(int(v.Off), int(v.End), false)
}

// raw counts a value as JSON: tools, schemas, arguments. Numbers and literals are too short to matter.
func (s *scanner) raw() {
	switch s.peek() {
	case '"':
		s.text()
	case '{', '[':
		start := s.i
		s.skip()
		s.push(start, s.i, true)
	default:
		s.skip()
	}
}

// content counts a string, a part, or an array of them.
func (s *scanner) content() {
	switch s.peek() {
	case '"':
		s.text()
	case '[':
		for more := s.enter(']'); more; more = s.more(']') {
			s.content()
		}
	case '{':
		s.part(false)
	default:
		s.skip()
	}
}

func (s *scanner) messages() {
	if s.peek() != '[' {
		s.wrong("messages", "an array of messages")
		return
	}
	for more := s.enter(']'); more; more = s.more(']') {
		if s.peek() != '{' {
			s.wrong("messages", "an array of objects")
			return
		}
		s.h.Messages++
		s.part(true)
	}
	if s.err == nil && s.h.Messages == 0 {
		s.fail("messages", "messages is empty; expected at least one message")
	}
}

// input reads prompt and input, which mean prompts on some endpoints and content on the others.
func (s *scanner) input(m member) {
	switch {
	case m == mPrompt && s.h.Endpoint == Completions:
		s.prompts = max(s.promptList("prompt"), 1)
	case m == mInput && s.h.Endpoint == Embeddings:
		s.h.Messages = s.promptList("input")
	case m == mInput && s.h.Endpoint == Responses:
		s.items()
	default:
		if m == mPrompt && s.h.Endpoint == Responses && s.peek() == '{' {
			s.h.Stored = true
			s.refers("prompt")
		}
		s.content()
	}
}

// items reads the input of /v1/responses.
func (s *scanner) items() {
	if s.peek() != '[' {
		s.h.Messages++
		s.content()
		return
	}
	for more := s.enter(']'); more; more = s.more(']') {
		s.h.Messages++
		s.content()
	}
}

// promptList reads a string, an array of token numbers (one prompt), or an array of either, and counts the prompts.
func (s *scanner) promptList(param string) (count int) {
	switch s.peek() {
	case '"':
		s.text()
		return 1
	case 'n':
		if s.h.Endpoint == Completions {
			s.literal("null")
			return 1
		}
	case '[':
		return s.promptArray(param)
	}
	s.wrong(param, "a string or an array")
	return 0
}

func (s *scanner) promptArray(param string) (count int) {
	var first byte
	for more := s.enter(']'); more; more = s.more(']') {
		c := s.peek()
		if c >= '0' && c <= '9' {
			c = '0'
		}
		if count++; count == 1 {
			first = c
		}
		switch {
		case c != first:
			s.wrong(param, "an array of one kind: strings, token numbers or arrays of token numbers")
		case count > MaxPrompts && c != '0':
			s.fail(param, "%s has more than %d elements; send it in several requests", param, MaxPrompts)
		default:
			s.promptElement(param, c)
		}
	}
	switch {
	case s.err != nil:
		return 0
	case count == 0:
		s.fail(param, "%s is empty; expected at least one element", param)
	case first == '0':
		return 1
	}
	return count
}

func (s *scanner) promptElement(param string, c byte) {
	switch {
	case c == '"':
		s.text()
	case c == '0':
		s.token(param)
	case c == '[':
		for more := s.enter(']'); more; more = s.more(']') {
			s.token(param)
		}
	case c == '{' && s.h.Endpoint == Embeddings:
		s.part(false)
	default:
		s.wrong(param, "an array of strings or token numbers")
	}
}

// token counts one token given by its number.
func (s *scanner) token(param string) {
	if _, _, given := s.integer(param, 0, MaxOutputCap); given {
		s.tokens--
		s.h.TextTokens++
	} else if s.err == nil {
		s.fail(param, "%s must hold token numbers, not null", param)
	}
}

// object is what is known of one part while it is read.
type object struct {
	kinds   uint8 // bit per kind that a "type" member named; text for an unknown one
	image   bool  // has a picture under a name that means one
	file    bool
	written bool // its source is text, so a document is no file
	id      bool
	more    bool // it says more than its id
	sealed  bool // has reasoning that only the provider can read
	open    bool // and once has none
	bytes   Span // the last data or result: bytes or text, known only when all types are
}

// part counts one object inside an input container: a message, a content part, a tool call, a source. Duplicate
// names are harmless here, since every value counts and every type must agree that bytes are bytes.
func (s *scanner) part(message bool) (kinds uint8) {
	var o object
	for more := s.enter('}'); more; more = s.more('}') {
		name := s.key()
		if s.err != nil {
			return 0
		}
		s.partMember(&o, name.In(s.b), message)
	}
	if s.err != nil {
		return 0
	}
	if o.kinds != 1<<kindBase64 && o.kinds != 1<<kindPicture {
		s.push(int(o.bytes.Off), int(o.bytes.End), false)
	}
	if o.image || o.kinds&(1<<kindImage|1<<kindPicture) != 0 {
		s.h.Images++
	}
	if s.h.Endpoint == Responses && o.kept() {
		s.h.Stored = true
		if o.kinds != 1<<kindReasoning { // which every client sends back with what it was answered, and nobody can read
			s.refers("input")
		}
	}
	if (o.file || o.kinds&(1<<kindFile) != 0) && !o.written {
		s.h.Files = true
		s.h.Attachments++
	}
	return o.kinds
}

// kept tells that the provider has what the item is about. An id beside the content is none's business.
func (o *object) kept() bool {
	return o.id && (!o.more || o.kinds&(1<<kindReference) != 0 || o.kinds&(1<<kindReasoning) != 0 && (o.open || !o.sealed))
}

func (s *scanner) partMember(o *object, name []byte, message bool) {
	f := fieldNamed(name)
	o.more = o.more || f != fieldID && f != fieldType
	switch f {
	case fieldContent:
		s.content()
	case fieldType:
		o.kinds |= s.partType()
	case fieldImage:
		o.image = true
		s.skip()
	case fieldFile:
		o.file = o.file || s.peek() != 'n'
		s.attachment()
	case fieldSource:
		s.source(o)
	case fieldBytes:
		s.bytes(o)
	case fieldID:
		o.id = o.id || s.peek() != 'n'
		s.setting()
	case fieldFileID:
		s.fileID("file_id")
	case fieldSealed:
		start := s.i
		s.raw()
		whole := s.i-start > len(`""`) && s.b[start] == '"'
		o.sealed, o.open = o.sealed || whole, o.open || !whole
	case fieldSetting:
		s.setting()
	case fieldSkipped:
		s.skip()
	case fieldName:
		if message && s.peek() == '"' {
			s.h.Names++
		}
		s.content()
	default:
		s.unlisted(name)
		s.raw()
	}
}

// attachment passes over a file or a sound that is not counted by its bytes, unless it is there by an id alone.
func (s *scanner) attachment() {
	if s.peek() != '{' {
		s.skip()
		return
	}
	for more := s.enter('}'); more; more = s.more('}') {
		switch name := s.key().In(s.b); fieldNamed(name) {
		case fieldFileID:
			s.fileID("file_id")
		case fieldID: // of a sound that an earlier answer made
			s.fileID("audio")
		case fieldNone:
			s.unlisted(name)
			s.skip()
		default:
			s.skip()
		}
	}
}

// fileID reads the id of something that was uploaded or made before; null is none.
func (s *scanner) fileID(param string) {
	if s.peek() != 'n' {
		s.refers(param)
	}
	s.raw()
}

// partType reads a type, as the bits of its kinds; an unknown one means text. One that an upstream must undo escapes or fold
// case to know is both.
func (s *scanner) partType() uint8 {
	if s.peek() != '"' {
		s.raw()
		return 1 << kindOther
	}
	v := s.str()
	kind := v.In(s.b)
	kinds := uint8(1) << kindNamed(kind)
	if !plainName(kind) {
		var buf [32]byte
		kinds |= 1 << kindNamed(fold(buf[:0], kind))
	}
	if kinds == 1<<kindOther && len(kind) > shortSetting {
		s.push(int(v.Off), int(v.End), false)
	}
	return kinds
}

// source reads where an image or a document comes from: bytes, a URL, or text.
func (s *scanner) source(o *object) {
	if s.peek() != '{' {
		s.content()
		return
	}
	o.written = s.part(false) == 1<<kindText
}

// bytes holds back a value that is bytes or text, depending on a type that may come later.
func (s *scanner) bytes(o *object) {
	if s.peek() != '"' {
		s.raw()
		return
	}
	s.push(int(o.bytes.Off), int(o.bytes.End), false)
	o.bytes = s.str()
}

// setting passes over a short value; a long one is counted, since it is no setting.
func (s *scanner) setting() {
	start := s.i
	s.skip()
	if s.i-start > shortSetting {
		s.push(start, s.i, true)
	}
}
