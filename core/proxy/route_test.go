package proxy

import (
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// S13: only the exact bytes of a route are the route.
func TestS13Lookup(t *testing.T) {
	for target, want := range map[string]route{
		"/v1/chat/completions":      route(llm.Chat),
		"/v1/chat/completions?x=/y": route(llm.Chat),
		"/v1/completions":           route(llm.Completions),
		"/v1/embeddings":            route(llm.Embeddings),
		"/v1/responses":             route(llm.Responses),
		"/v1/messages":              route(llm.Messages),
		"/v1/messages?beta=true":    route(llm.Messages),
		"/v1/messages/count_tokens": route(llm.CountTokens),
		"/v1/models":                routeModels,
		"/v1/models/gpt-4o":         routeModel,
		"/v1/models/meta%2Fllama":   routeModel,
		"/v1/key":                   routeKey,
		"/healthz":                  routeHealthz,
		"/readyz":                   routeReadyz,

		"/v1/chat/completions/":     routeNone,
		"//v1/chat/completions":     routeNone,
		"/v1//chat/completions":     routeNone,
		"/V1/chat/completions":      routeNone,
		"/v1/Chat/completions":      routeNone,
		"/v1/chat%2fcompletions":    routeNone,
		"/v1/./chat/completions":    routeNone,
		"/v1/x/../chat/completions": routeNone,
		"/v1/chat/completions#x":    routeNone,
		"/v1/chat/completions;x":    routeNone,

		"http://h/v1/chat/completions":      route(llm.Chat),
		"HTTPS://[::1]:443/v1/messages?a=b": route(llm.Messages),
		"http://h:80/v1/models/gpt-4o":      routeModel,
		"http://weir_1.internal-x/healthz":  routeHealthz,
		"http://h/admin/keys":               routeNone,
		"http://h/metrics":                  routeNone,
		"http:///v1/chat/completions":       routeNone,
		"http://h//v1/chat/completions":     routeNone,
		"http://h/http://h/v1/messages":     routeNone,
		"http://h":                          routeNone,
		"http://h?/v1/messages":             routeNone,
		"http://h#/v1/messages":             routeNone,
		"http://u@h/v1/messages":            routeNone,
		"http://u:p@h/v1/messages":          routeNone,
		"http://h\\x/v1/messages":           routeNone,
		"http://h%2f/v1/messages":           routeNone,
		"http:/h/v1/messages":               routeNone,
		"ftp://h/v1/messages":               routeNone,
		"://h/v1/messages":                  routeNone,
		"//h/v1/messages":                   routeNone,
		"h/v1/messages":                     routeNone,
		"/v1/models/":                       routeNone,
		"/v1/models/a/b":                    routeNone,
		"/v1/messages/count_tokens/":        routeNone,
		"/v1/chat/..%2f..%2fadmin":          routeNone,
		"":                                  routeNone,
		"?":                                 routeNone,
		"/":                                 routeNone,
		"/admin/keys":                       routeNone,
		"/metrics":                          routeNone,
		"/v1/chat/completions%3Fa":          routeNone,
		"/v1/chat/completions\x00":          routeNone,
		"/v1/audio/transcriptions":          routeNone,
		"/v1/responses/resp_1/cancel":       routeNone,
		"/v1/chat/completions/?a=b":         routeNone,
		"/v1/chat/completions%20":           routeNone,
		"/v1/messages/count_tokens//":       routeNone,
		"/v1/models/gpt-4o/permissions?":    routeNone,
	} {
		if got, _ := lookup([]byte(target)); got != want {
			t.Errorf("lookup(%q) = %s, want %s", target, names[got], names[want])
		}
	}
	if _, rest := lookup([]byte("/v1/models/a%2Fb?x")); string(rest) != "a%2Fb" {
		t.Errorf("the model's name is %q", rest)
	}
}

// S15: what two parsers could read in two ways is refused.
func TestS15Hygiene(t *testing.T) {
	for raw, refused := range map[string]bool{
		"Host: h\r\nContent-Length: 2\r\n\r\n":                             false,
		"host: h\r\nAuthorization: Bearer a\r\nX-Api-Key: a\r\n\r\n":       false,
		"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n":          true,
		"transfer-encoding: identity\r\ncontent-length: 2\r\n\r\n":         true,
		"Authorization: Bearer a\r\nauthorization: Bearer a\r\n\r\n":       true,
		"X-Api-Key: a\r\nx-api-key: b\r\n\r\n":                             true,
		"Authorization: Bearer\r\n a\r\n\r\n":                              true,
		"X-Other: a\r\n\tb\r\n\r\n":                                        true,
		"Authorizations: Bearer a\r\nAuthorization: Bearer a\r\n\r\n":      false,
		"X-A: Authorization: x\r\nAuthorization: Bearer a\r\n\r\n":         false,
		"X-A: 1\nAuthorization: Bearer a\nAUTHORIZATION: Bearer a\r\n\r\n": true,
		"X-A: 1\nX-B: 2\r\n\r\n":                                           true,
		"X-A: 1\r\nX-B: 2\r\n\n":                                           true,
		"X A: 1\r\n\r\n":                                                   true,
		"Transfer-Encoding: identity\r\n\r\n":                              true,
		"Transfer-Encoding: \tChunked \r\n\r\n":                            false,
		"Transfer-Encodings: gzip\r\nX: a b\r\n\r\n":                       false,
		"": false,
	} {
		if err := hygiene([]byte(raw)); (err != nil) != refused {
			t.Errorf("hygiene(%q) = %v, refused should be %v", raw, err, refused)
		}
	}
}

func TestJSONType(t *testing.T) {
	for typ, want := range map[string]bool{
		"": true, "application/json": true, "application/json; charset=utf-8": true, "Application/JSON": true, "text/json": true,
		"application/vnd.api+json": true, "application/x-www-form-urlencoded": false, "multipart/form-data; boundary=x": false, "text/plain": false,
	} {
		if jsonType([]byte(typ)) != want {
			t.Errorf("jsonType(%q) should be %v", typ, want)
		}
	}
}

func BenchmarkHygiene(b *testing.B) {
	raw := []byte("Host: 127.0.0.1:3000\r\nUser-Agent: OpenAI/JS 4.0\r\nAuthorization: Bearer sk-weir-abcdefgh-0123456789012345678901234567890123456789012\r\n" +
		"Content-Type: application/json\r\nAccept: application/json\r\nX-Stainless-Lang: js\r\nX-Stainless-Package-Version: 4.0.0\r\nX-Stainless-Os: Linux\r\n" +
		"X-Stainless-Arch: x64\r\nX-Stainless-Runtime: node\r\nX-Stainless-Runtime-Version: v20\r\nContent-Length: 1000\r\n\r\n")
	b.ReportAllocs()
	for b.Loop() {
		if hygiene(raw) != nil {
			b.Fatal()
		}
	}
}
