package llm

import (
	"errors"
	"fmt"
	"strings"
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
	for body, refers := range map[string]string{
		`{"model":"m","input":"x"}`:                                                                        "",
		`{"model":"m","input":"x","store":true}`:                                                           "",
		`{"model":"m","input":"x","previous_response_id":"resp_1"}`:                                        "previous_response_id",
		`{"model":"m","input":"x","conversation":{"id":"conv_1"}}`:                                         "conversation",
		`{"model":"m","input":"x","container":"c"}`:                                                        "",
		`{"model":"m","prompt":{"id":"pmpt_1"}}`:                                                           "prompt",
		`{"model":"m","prompt":null,"input":"x"}`:                                                          "",
		`{"model":"m","input":[{"type":"item_reference","id":"msg_1","status":"x","foo":1}]}`:              "input",
		`{"model":"m","input":[{"type":"item\u005freference","id":"msg_1","foo":1}]}`:                      "input",
		`{"model":"m","input":[{"type":"image_generation_call","id":"ig_1"}]}`:                             "input",
		`{"model":"m","input":[{"type":"reasoning","id":"rs_1","summary":[]}]}`:                            "",
		`{"model":"m","input":[{"type":"reasoning","id":"rs_1","encrypted_content":null}]}`:                "",
		`{"model":"m","input":[{"type":"reasoning","id":"rs_1","encrypted_content":""}]}`:                  "",
		`{"model":"m","input":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}]}`: "",
		`{"model":"m","input":[{"type":"reasoning","type":"item_reference","id":"rs_1"}]}`:                 "input",
		`{"model":"m","input":[{"type":"reasoning","type":"message","id":"rs_1"}]}`:                        "input",
		`{"model":"m","input":[{"type":"reasoning","summary":[]}]}`:                                        "",
		`{"model":"m","input":[{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"1"}]}`: "",
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}]}`:                                                                      "file_id",
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","file_id":null,"image_url":"data:x"}]}]}`:                                                    "",
		`{"model":"m","input":"x","tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]}`:                                                                            "tools.vector_store_ids",
		`{"model":"m","input":"x","tools":[{"type":"function","name":"f","parameters":{"vector_store_ids":["vs_1"],"file_id":"x"}}]}`:                                       "",
	} {
		var h Head
		if err := ScanHead(Responses, []byte(body), &h); err != nil || h.Refers != refers {
			t.Errorf("%s: refers by %q, %v", body, h.Refers, err)
		}
	}
	for body, refers := range map[string]string{
		`[{"role":"user","content":[{"type":"file","file":{"file_id":"file-1"}}]}]`:                                                              "file_id",
		`[{"role":"user","content":[{"type":"file","file":{"filename":"a","file_data":"data:x"}}]}]`:                                             "",
		`[{"role":"assistant","audio":{"id":"audio_1"}}]`:                                                                                        "audio",
		`[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]}]`:                                      "",
		`[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"file_1"}}]}]`:                                          "file_id",
		`[{"role":"user","content":[{"type":"container_upload","file_id":"file_1"}]}]`:                                                           "file_id",
		`[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"file_id":"x"}}]}]`:                                     "",
		`[{"role":"assistant","content":"x","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"file_id\":1}"}}]}]`: "",
	} {
		var h Head
		if err := ScanHead(Chat, []byte(`{"model":"m","messages":`+body+`}`), &h); err != nil || h.Refers != refers {
			t.Errorf("%s: refers by %q, %v", body, h.Refers, err)
		}
	}
	for _, hidden := range []string{`{"type":"file","file":{"file\u005fid":"f"}}`, `{"type":"document","source":{"type":"file","fil\u0065_id":"f"}}`, `{"typ\u0065":"input_file"}`} {
		var h Head
		if err := ScanHead(Messages, []byte(`{"model":"m","messages":[{"role":"user","content":[`+hidden+`]}]}`), &h); err == nil {
			t.Errorf("%s passes", hidden)
		}
	}
	for body, refers := range map[string]string{`"container":"container_1"`: "container", `"container":{"id":"c"}`: "container", `"container":null`: ""} {
		var h Head
		if err := ScanHead(Messages, []byte(`{"model":"m","messages":[{"role":"user","content":"x"}],`+body+`}`), &h); err != nil || h.Refers != refers {
			t.Errorf("%s: refers by %q, %v", body, h.Refers, err)
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

// An upstream that takes names without regard to case, as encoding/json does, must not find a reference, or what holds one,
// under a name that is none here. A type decides too; one in another case is taken both ways.
func TestReferencesUnderNamesInAnotherCase(t *testing.T) {
	const chat, responses, messages = `{"model":"m","messages":[%s]}`, `{"model":"m","input":[%s]}`, `{"model":"m","messages":[{"role":"user","content":[%s]}]}`
	for _, x := range []struct {
		ep           Endpoint
		frame, where string
		param        string
	}{
		{Responses, responses, `{"role":"user","content":[{"type":"input_file","FILE_ID":"f"}]}`, "file_id"},
		{Responses, responses, `{"role":"user","Content":[{"type":"input_file","file_id":"f"}]}`, "content"},
		{Responses, responses, `{"role":"user","content":[{"type":"input_file","f\u0131le_id":"f"}]}`, "file_id"},
		{Responses, responses, `{"role":"user","content":[{"type":"input_file","fıle_id":"f"}]}`, "file_id"},
		{Responses, responses, `{"Type":"item_reference","id":"msg_1"}`, "type"},
		{Responses, responses, `{"role":"user","content":"a","TYPE":"item_reference","id":"msg_1"}`, "type"},
		{Responses, responses, `{"type":"message","ID":"msg_1"}`, "id"},
		{Responses, responses, `{"type":"reasoning","id":"rs_1","Encrypted_Content":"gAAA"}`, "encrypted_content"},
		{Responses, responses, `{"type":"function_call_output","call_id":"c","OUTPUT":[{"type":"input_file","file_id":"f"}]}`, "output"},
		{Responses, `{"model":"m","input":"x","tools":[%s]}`, `{"type":"file_search","Vector_Store_IDs":["vs_1"]}`, "tools.vector_store_ids"},
		{Chat, chat, `{"role":"user","content":[{"type":"file","file":{"File_Id":"x"}}]}`, "file_id"},
		{Chat, chat, `{"role":"user","content":[{"type":"file","File":{"file_id":"x"}}]}`, "file"},
		{Chat, chat, `{"role":"assistant","Audio":{"id":"audio_1"}}`, "audio"},
		{Chat, chat, `{"role":"assistant","audio":{"Id":"audio_1"}}`, "id"},
		{Messages, messages, `{"type":"document","source":{"type":"file","FILE_ID":"f"}}`, "file_id"},
		{Messages, messages, `{"type":"document","\u017fource":{"type":"file","file_id":"f"}}`, "source"},
		{Messages, messages, `{"type":"container_upload","File_ID":"f"}`, "file_id"},
	} {
		var h Head
		var e *Error
		body := fmt.Sprintf(x.frame, x.where)
		if err := ScanHead(x.ep, []byte(body), &h); !errors.As(err, &e) || e.Param != x.param || !strings.Contains(e.Message, "reads like") {
			t.Errorf("%s: %v, refers by %q", body, err, h.Refers)
		}
	}
	for body, want := range map[string]Head{
		`{"type":"Item_Reference","id":"msg_1","status":"x"}`:                                 {Refers: "input", Stored: true},
		`{"type":"ITEM_REFERENCE","id":"msg_1","content":"a"}`:                                {Refers: "input", Stored: true},
		`{"type":"Reasoning","id":"rs_1","summary":[]}`:                                       {Refers: "input", Stored: true},
		`{"role":"user","content":[{"type":"Input_Image","image_url":"data:x"}]}`:             {Images: 1},
		`{"role":"user","content":[{"type":"input_F\u0131le","filename":"a"}]}`:               {Files: true},
		`{"role":"user","content":[{"type":"document","source":{"type":"TEXT","data":"a"}}]}`: {Files: true},
		`{"role":"user","content":[{"type":"Message","Foo":"a","toolCallId":"b"}]}`:           {},
	} {
		var h Head
		err := ScanHead(Responses, fmt.Appendf(nil, responses, body), &h)
		if err != nil || h.Refers != want.Refers || h.Stored != want.Stored || h.Images != want.Images || h.Files != want.Files {
			t.Errorf("%s: refers by %q, stored %v, %d images, files %v, %v", body, h.Refers, h.Stored, h.Images, h.Files, err)
		}
	}
}
