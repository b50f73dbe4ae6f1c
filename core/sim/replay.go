package sim

import "encoding/json"

// replay takes the stream's events from the request: the text of its input, all strings together, is an array of them.
func (r *reply) replay() *failure {
	text := ""
	members(r.body, func(key string, val []byte) {
		if key == "input" || key == "messages" {
			text = textIn(val)
		}
	})
	if !json.Valid([]byte(text)) || firstElement([]byte(text)) == nil {
		return badRequest("input", "echo=events: expected the input's text to be a JSON array of events")
	}
	elements([]byte(text), func(val []byte) {
		e := event{data: val}
		members(val, func(key string, val []byte) {
			if key == "type" {
				e.name = unquote(val)
			}
		})
		r.replayed = append(r.replayed, e)
	})
	return nil
}

// textIn is what the strings in an input say, without roles and types.
func textIn(val []byte) (text string) {
	if val[0] == '"' {
		return unquote(val)
	}
	elements(val, func(val []byte) { text += textIn(val) })
	members(val, func(key string, val []byte) {
		if key == "content" || key == "text" {
			text += textIn(val)
		}
	})
	return text
}
