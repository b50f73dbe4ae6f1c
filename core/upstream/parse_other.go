package upstream

// other passes over a member that no reader takes for text. Unless it is known to be none, its bytes are noted, for an
// event in which nothing else is found: a name nobody has met yet must not make an answer free.
func (p *Parser) other(name []byte, c *cursor) {
	v := c.value()
	if len(v) <= len(`""`) || structural(name) {
		return
	}
	switch v[0] {
	case '"', '{', '[':
		p.unread += len(v)
	}
}

// structural tells the members that providers are known to send beside the text: identifiers, settings, sources, sound
// and pictures, signatures. A name with escapes is none of them.
func structural(name []byte) bool {
	switch string(name) {
	case "id", "object", "created", "created_at", "model", "system_fingerprint", "service_tier", "provider", "type", "role", "status":
		return true
	case "finish_reason", "native_finish_reason", "stop_reason", "stop_sequence", "stop_details", "matched_stop", "stop_token", "finish_details":
		return true
	case "logprobs", "prompt_logprobs", "token_ids", "prompt_token_ids", "obfuscation", "usage", "error":
		return true
	case "prompt_filter_results", "content_filter_results", "content_filter_result", "content_filter_offsets", "content_filters":
		return true
	case "x_groq", "timings", "time_info", "metadata", "request_id", "trace_id", "extra_content", "provider_specific_fields", "kv_transfer_params", "moderation":
		return true
	case "citations", "citation", "annotations", "annotation", "search_results", "context_management", "container", "caller":
		return true
	case "image_url", "images", "url", "data", "result", "results", "signature", "encrypted_content", "thought_signature", "format", "mime_type":
		return true
	case "index", "call_id", "tool_call_id", "tool_use_id", "item_id", "response_id", "phase":
		return true
	}
	return false
}
