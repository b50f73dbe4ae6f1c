package llm

import (
	"errors"
	"testing"
)

func TestABackgroundResponseIsRefused(t *testing.T) {
	for body, refused := range map[string]bool{
		`{"model":"m","input":"x","background":true}`:             true,
		`{"model":"m","input":"x","background":false}`:            false,
		`{"model":"m","input":"x","background":null}`:             false,
		`{"model":"m","input":"x","background":"yes"}`:            true,
		`{"model":"m","input":"x","Background":true}`:             true,
		`{"model":"m","input":"x","back\u0067round":true}`:        true,
		`{"background":true,"model":"m","input":"x"}`:             true,
		`{"model":"m","input":"x","tools":[{"background":true}]}`: false,
	} {
		var h Head
		err := ScanHead(Responses, []byte(body), &h)
		var e *Error
		if refused != errors.As(err, &e) || refused && (e.Kind != KindInvalid || e.Param != "background") {
			t.Errorf("%s: %v", body, err)
		}
	}
	var h Head
	if err := ScanHead(Chat, []byte(`{"model":"m","messages":[{"role":"user","content":"x"}],"background":true}`), &h); err != nil {
		t.Error("chat knows no background: ", err)
	}
}

func TestInputThatTheProviderKeepsIsNoted(t *testing.T) {
	for body, stored := range map[string]bool{
		`{"model":"m","input":"x","previous_response_id":"resp_1"}`:               true,
		`{"model":"m","input":"x","previous_response_id":null}`:                   false,
		`{"model":"m","input":"x","conversation":"conv_1"}`:                       true,
		`{"model":"m","input":"x","conversation":{"id":"conv_1"}}`:                true,
		`{"model":"m","input":"x","conversation":null}`:                           false,
		`{"model":"m","prompt":{"id":"pmpt_1","variables":{"a":"b"}}}`:            true,
		`{"model":"m","input":[{"type":"item_reference","id":"msg_1"}]}`:          true,
		`{"model":"m","input":[{"id":"msg_1"}]}`:                                  true,
		`{"model":"m","input":[{"type":null,"id":"msg_1"}]}`:                      true,
		`{"model":"m","input":[{"id":"msg_1","role":"assistant","content":"y"}]}`: false,
		`{"model":"m","input":[{"type":"message","role":"user","content":"y"}]}`:  false,
		`{"model":"m","input":"x"}`:                                               false,
	} {
		h := Head{Stored: true}
		if err := ScanHead(Responses, []byte(body), &h); err != nil || h.Stored != stored {
			t.Errorf("%s: stored %v, %v", body, h.Stored, err)
		}
	}
	for _, look := range []string{"Previous_Response_ID", "conver\u017fation"} {
		var h Head
		if err := ScanHead(Responses, []byte(`{"model":"m","input":"x","`+look+`":"r"}`), &h); err == nil {
			t.Errorf("%s passes", look)
		}
	}
	var h Head
	if err := ScanHead(Chat, []byte(`{"model":"m","messages":[{"id":"x"}],"conversation":"c"}`), &h); err != nil || h.Stored {
		t.Errorf("chat keeps nothing: %v, %v", h.Stored, err)
	}
}
