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
		for i := range r.outputs() {
			dst = r.outputItem(append(dst, comma(i)...), i, status, true)
		}
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
	dst = append(dst, `,"output_tokens_details":{"reasoning_tokens":`...)
	dst = strconv.AppendInt(dst, int64(r.thought.n), 10)
	dst = append(dst, `},"total_tokens":`...)
	dst = appendTokens(dst, r.usage.Total())
	return append(dst, '}')
}

// outputs is how many items the output has: the reasoning, if any, and the message or the calls.
func (r *reply) outputs() int { return min(r.thought.n, 1) + max(len(r.calls), 1) }

// outputItem is the i-th item, in full or as it starts.
func (r *reply) outputItem(dst []byte, i int, status string, full bool) []byte {
	if r.thought.n > 0 {
		if i == 0 {
			return r.reasoningItem(dst, full)
		}
		i--
	}
	if len(r.calls) > 0 {
		return r.functionCall(dst, i, status, full)
	}
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

// reasoningItem has a summary of one part.
func (r *reply) reasoningItem(dst []byte, full bool) []byte {
	dst = append(append(dst, `{"id":"rs_`...), r.id...)
	dst = append(dst, `","type":"reasoning","summary":[`...)
	if full {
		dst = r.summaryPart(dst, true)
	}
	return append(dst, "]}"...)
}

func (r *reply) summaryPart(dst []byte, full bool) []byte {
	dst = append(dst, `{"type":"summary_text","text":"`...)
	if full {
		dst = r.thought.all(dst)
	}
	return append(dst, `"}`...)
}

// functionCall is the item of the i-th call.
func (r *reply) functionCall(dst []byte, i int, status string, full bool) []byte {
	dst = r.callID(append(dst, `{"id":"`...), "fc_", i)
	dst = append(append(dst, `","type":"function_call","status":"`...), status...)
	dst = append(append(dst, `","name":"`...), quoted(r.calls[i].name)...)
	dst = r.callID(append(dst, `","call_id":"`...), "call_", i)
	dst = append(dst, `","arguments":"`...)
	if full {
		dst = append(dst, r.calls[i].escaped()...)
	}
	return append(dst, `"}`...)
}

// responseStream is a response's events while they are numbered.
type responseStream struct {
	reply *reply
	seq   int64
	list  []event
}

// add numbers an event; rest is what follows its number.
func (s *responseStream) add(name string, tokens int, rest []byte) {
	dst := appendSequence(append([]byte(`{"type":"`), name...), s.seq)
	s.seq++
	s.list = append(s.list, event{name: name, data: append(append(dst, rest...), '}'), tokens: tokens})
}

func (s *responseStream) object(name, status string, full bool) {
	s.add(name, 0, s.reply.response([]byte(`,"response":`), status, full))
}

func (s *responseStream) item(name string, i int, status string, full bool) {
	dst := append(strconv.AppendInt([]byte(`,"output_index":`), int64(i), 10), `,"item":`...)
	s.add(name, 0, s.reply.outputItem(dst, i, status, full))
}

// reasoning is the whole reasoning item.
func (s *responseStream) reasoning() {
	r := s.reply
	if r.thought.n == 0 {
		return
	}
	at := `,"item_id":"rs_` + string(r.id) + `","output_index":0,"summary_index":0`
	s.item("response.output_item.added", 0, "in_progress", false)
	s.add("response.reasoning_summary_part.added", 0, r.summaryPart([]byte(at+`,"part":`), false))
	for i := range r.thought.n {
		s.add("response.reasoning_summary_text.delta", 1, append(r.thought.append([]byte(at+`,"delta":"`), i), '"'))
	}
	s.add("response.reasoning_summary_text.done", 0, append(r.thought.all([]byte(at+`,"text":"`)), '"'))
	s.add("response.reasoning_summary_part.done", 0, r.summaryPart([]byte(at+`,"part":`), true))
	s.item("response.output_item.done", 0, "completed", true)
}

// call is the whole item of the i-th call.
func (s *responseStream) call(i int) {
	r := s.reply
	c, output := &r.calls[i], min(r.thought.n, 1)+i
	at := string(r.callID([]byte(`,"item_id":"`), "fc_", i)) + `","output_index":` + strconv.Itoa(output)
	s.item("response.output_item.added", output, "in_progress", false)
	for _, part := range c.parts {
		s.add("response.function_call_arguments.delta", 0, []byte(at+`,"delta":"`+part+`"`))
	}
	s.add("response.function_call_arguments.done", c.tokens(), []byte(at+`,"name":"`+quoted(c.name)+`","arguments":"`+c.escaped()+`"`))
	s.item("response.output_item.done", output, "completed", true)
}

// responseScript is the event sequence of a streamed response: reasoning, then the calls or one message.
func (r *reply) responseScript() script {
	s := &responseStream{reply: r}
	s.object("response.created", "in_progress", false)
	s.object("response.in_progress", "in_progress", false)
	s.reasoning()
	for i := range r.calls {
		s.call(i)
	}
	status := "completed"
	if r.capped {
		status = "incomplete"
	}
	sc := script{name: "response.output_text.delta"}
	if len(r.calls) == 0 {
		r.messageEvents(s, &sc, status)
	}
	if sc.before == nil {
		sc.before, s.list = s.list, nil
	}
	if !r.b.NoDone {
		s.object("response."+status, status, true)
	}
	sc.after = s.list
	return sc
}

// messageEvents are those of the one message; its text are the script's deltas.
func (r *reply) messageEvents(s *responseStream, sc *script, status string) {
	output := min(r.thought.n, 1)
	item := `,"item_id":"msg_` + string(r.id) + `","output_index":` + strconv.Itoa(output) + `,"content_index":0`
	s.item("response.output_item.added", output, "in_progress", false)
	s.add("response.content_part.added", 0, r.contentPart([]byte(item+`,"part":`), false))
	sc.before, s.list = s.list, nil
	sc.deltas = r.text.n
	first := s.seq
	sc.delta = func(dst []byte, i int) []byte {
		dst = appendSequence(append(dst, `{"type":"response.output_text.delta`...), first+int64(i))
		dst = append(append(dst, item...), `,"delta":"`...)
		dst = r.text.append(dst, i)
		return append(dst, `","logprobs":[]}`...)
	}
	s.seq += int64(sc.deltas)
	s.add("response.output_text.done", 0, append(r.text.all([]byte(item+`,"text":"`)), `","logprobs":[]`...))
	s.add("response.content_part.done", 0, r.contentPart([]byte(item+`,"part":`), true))
	s.item("response.output_item.done", output, status, true)
}

// appendSequence closes the type and adds the sequence number.
func appendSequence(dst []byte, n int64) []byte {
	return strconv.AppendInt(append(dst, `","sequence_number":`...), n, 10)
}
