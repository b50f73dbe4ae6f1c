package llm

import "bytes"

// tools counts the definitions as JSON, and notes those that the provider runs.
func (s *scanner) tools() {
	start := s.i
	if s.peek() != '[' {
		s.skip()
	} else {
		for more := s.enter(']'); more; more = s.more(']') {
			s.h.Tools = true
			s.tool()
		}
	}
	s.push(start, s.i, true)
}

// tool reads one definition. What is no object may be a name that some upstream knows, so it is the provider's.
func (s *scanner) tool() {
	t := Hosted{Open: int32(s.i + 1), Uses: -1}
	if s.peek() != '{' {
		s.skip()
		t.Type = Span{int32(s.i), int32(s.i)}
		s.hosted(t)
		return
	}
	var seen uint64
	for more := s.enter('}'); more; more = s.more('}') {
		raw := s.key().In(s.b)
		switch s.once(raw, toolMember(raw), &seen, "tools.") {
		case mType:
			t.Type, _ = s.optionalString("tools.type")
		case mMaxUses:
			t.uses(s)
		case mVectorStoreIDs:
			if s.peek() != 'n' {
				s.refers("tools.vector_store_ids")
			}
			s.skip()
		default:
			s.skip()
		}
	}
	if s.err == nil && !t.Type.Empty() && !s.h.Endpoint.clients(t.Type.In(s.b)) {
		s.hosted(t)
	}
}

// toolMember is lookup for the few names that matter in a tool.
func toolMember(raw []byte) member {
	switch string(raw) {
	case "type":
		return mType
	case "max_uses":
		return mMaxUses
	case "vector_store_ids":
		return mVectorStoreIDs
	}
	return mNone
}

func (t *Hosted) uses(s *scanner) {
	n, at, given := s.integer("tools.max_uses", 1, MaxOutputCap)
	if t.NullUse = at; given {
		t.Uses, t.NullUse = n, Span{}
	}
}

func (s *scanner) hosted(t Hosted) {
	if len(s.h.Hosted) == MaxHosted {
		s.fail("tools", "tools has more than %d that the provider runs", MaxHosted)
		return
	}
	s.h.Hosted = append(s.h.Hosted, t)
}

// clients tells the types of tools that the client runs: the provider charges their tokens and no more.
func (e Endpoint) clients(kind []byte) bool {
	if e.Dialect() == OpenAI {
		switch string(kind) {
		case "function", "custom", "local_shell", "apply_patch":
			return true
		}
		return false
	}
	if string(kind) == "custom" {
		return true
	}
	for _, name := range [...]string{"bash_", "text_editor_", "computer_", "memory_"} {
		if date, ok := bytes.CutPrefix(kind, []byte(name)); ok && len(bytes.Trim(date, "0123456789")) == 0 {
			return true
		}
	}
	return false
}

// standsForTool reads a member that has the provider run a tool though none is among the tools: web_search_options of a
// chat, mcp_servers of messages. Null is none, and so is an empty list.
func (s *scanner) standsForTool(m member) {
	kind, start := s.name, s.i
	s.other()
	value := bytes.Trim(Span{int32(start), int32(s.i)}.In(s.b), "[] \t\r\n")
	switch {
	case s.err != nil || string(value) == "null" || len(value) == 0:
	case m == mWebSearchOptions && s.h.Endpoint == Chat:
		kind.End = kind.Off + int32(len("web_search"))
		s.hosted(Hosted{Type: kind, Uses: -1})
	case m == mMCPServers && s.h.Endpoint.Dialect() == Anthropic:
		kind.End = kind.Off + int32(len("mcp"))
		s.hosted(Hosted{Type: kind, Uses: -1})
	}
}

// toolCap reads the one cap that all hosted tools of a response share.
func (s *scanner) toolCap() {
	if s.h.Endpoint != Responses {
		s.other()
		return
	}
	n, at, given := s.integer("max_tool_calls", 1, MaxOutputCap)
	if s.h.NullToolCap = at; given {
		s.h.ToolCap, s.h.NullToolCap = n, Span{}
	}
}
