package sim

import "strconv"

// responseBody is a buffered answer of the responses route.
func (r *reply) responseBody(dst []byte) []byte {
	status := "completed"
	if r.capped {
		status = "incomplete"
	}
	return r.response(dst, status, true)
}

// response is the response object: in full at the end, without output and usage while it is in progress.
func (r *reply) response(dst []byte, status string, full bool) []byte {
	dst = append(dst, `{"id":"resp_`...)
	dst = append(dst, r.id...)
	dst = append(dst, `","object":"response","created_at":`...)
	dst = strconv.AppendInt(dst, r.created, 10)
	dst = append(dst, `,"status":"`...)
	dst = append(dst, status...)
	dst = append(dst, `","error":null,"incomplete_details":`...)
	if status == "incomplete" {
		dst = append(dst, `{"reason":"max_output_tokens"}`...)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"instructions":null,"max_output_tokens":`...)
	if r.cap > 0 {
		dst = strconv.AppendInt(dst, int64(r.cap), 10)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"model":"`...)
	dst = append(dst, quoted(r.model)...)
	dst = append(dst, `","output":[`...)
	if full {
		dst = r.outputItem(dst, status, true)
	}
	dst = append(dst, `],"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},`...)
	dst = append(dst, `"store":true,"temperature":1,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":1,`...)
	dst = append(dst, `"truncation":"disabled","user":null,"metadata":{}`...)
	dst = r.responseUsage(dst, full)
	return append(dst, '}')
}

func (r *reply) responseUsage(dst []byte, full bool) []byte {
	switch {
	case r.b.Usage == UsageNone:
		return dst
	case r.b.Usage == UsageNull || !full:
		return append(dst, `,"usage":null`...)
	}
	dst = append(dst, `,"usage":{"input_tokens":`...)
	dst = appendTokens(dst, r.usage.InputTokens)
	dst = append(dst, `,"input_tokens_details":{"cached_tokens":`...)
	dst = appendTokens(dst, r.usage.CachedInputTokens)
	dst = append(dst, `},"output_tokens":`...)
	dst = appendTokens(dst, r.usage.OutputTokens)
	dst = append(dst, `,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":`...)
	dst = appendTokens(dst, r.usage.Total())
	return append(dst, '}')
}

// outputItem is the message, with its text or before it.
func (r *reply) outputItem(dst []byte, status string, full bool) []byte {
	dst = append(dst, `{"id":"msg_`...)
	dst = append(dst, r.id...)
	dst = append(dst, `","type":"message","status":"`...)
	dst = append(dst, status...)
	dst = append(dst, `","role":"assistant","content":[`...)
	if full {
		dst = r.contentPart(dst, true)
	}
	return append(dst, "]}"...)
}

func (r *reply) contentPart(dst []byte, full bool) []byte {
	dst = append(dst, `{"type":"output_text","text":"`...)
	if full {
		dst = r.text.all(dst)
	}
	return append(dst, `","annotations":[],"logprobs":[]}`...)
}

// responseScript is the event sequence of a streamed response with one message.
func (r *reply) responseScript() script {
	var seq int64
	add := func(list []event, name string, rest func(dst []byte) []byte) []event {
		dst := appendSequence(append([]byte(`{"type":"`), name...), seq)
		seq++
		return append(list, event{name, append(rest(dst), '}')})
	}
	item := `,"item_id":"msg_` + string(r.id) + `","output_index":0,"content_index":0`
	object := func(status string, full bool) func([]byte) []byte {
		return func(dst []byte) []byte { return r.response(append(dst, `,"response":`...), status, full) }
	}
	output := func(status string, full bool) func([]byte) []byte {
		return func(dst []byte) []byte {
			return r.outputItem(append(dst, `,"output_index":0,"item":`...), status, full)
		}
	}
	part := func(full bool) func([]byte) []byte {
		return func(dst []byte) []byte {
			return r.contentPart(append(append(dst, item...), `,"part":`...), full)
		}
	}
	s := script{deltas: r.text.n, name: "response.output_text.delta"}
	s.before = add(s.before, "response.created", object("in_progress", false))
	s.before = add(s.before, "response.in_progress", object("in_progress", false))
	s.before = add(s.before, "response.output_item.added", output("in_progress", false))
	s.before = add(s.before, "response.content_part.added", part(false))
	first := seq
	s.delta = func(dst []byte, i int) []byte {
		dst = appendSequence(append(dst, `{"type":"response.output_text.delta`...), first+int64(i))
		dst = append(append(dst, item...), `,"delta":"`...)
		dst = r.text.append(dst, i)
		return append(dst, `","logprobs":[]}`...)
	}
	seq += int64(s.deltas)
	status := "completed"
	if r.capped {
		status = "incomplete"
	}
	s.after = add(s.after, "response.output_text.done", func(dst []byte) []byte {
		dst = r.text.all(append(append(dst, item...), `,"text":"`...))
		return append(dst, `","logprobs":[]`...)
	})
	s.after = add(s.after, "response.content_part.done", part(true))
	s.after = add(s.after, "response.output_item.done", output(status, true))
	if !r.b.NoDone {
		s.after = add(s.after, "response."+status, object(status, true))
	}
	return s
}

// appendSequence closes the type and adds the sequence number.
func appendSequence(dst []byte, n int64) []byte {
	return strconv.AppendInt(append(dst, `","sequence_number":`...), n, 10)
}
