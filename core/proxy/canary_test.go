package proxy_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/auth"
)

// canaries are what looks like a secret: how it begins, which may be said, and the rest. The first does not look like one.
var canaries = [][2]string{
	{"", "CANARY00zQ"},
	{"sk-", "proj-Canary01abcdef"}, {"sk_live_", "4eC39HqLyjWDarj"}, {"rk_live_", "4eC39HqLyjWDar2"}, {"pk_", "live_Canary02abcdef"},
	{"ghp_", "Canary03abcdefghij"}, {"gho_", "Canary04abcdefghij"}, {"github_pat_", "11ABCanary05_abcdef"}, {"glpat-", "Canary06-abcdef"},
	{"xoxb-", "1234-5678-Canary07"}, {"xoxp-", "1234-5678-Canary08"}, {"AKIA", "IOSFODNN7CANARY9"}, {"ASIA", "IOSFODNN7CANARY8"},
	{"AIza", "SyCanary11-abcdefghi"}, {"hf_", "canarytwelveabcdef"}, {"ya29.", "a0Canary13-abc_def"}, {"eyJ", "hbGciOi.eyJDYW5hcnk.c2ln"},
	{"Bearer ", "Canary14abcdef"}, {"Basic ", "Q2FuYXJ5OjE1+/=="}, {"-----BEGIN ", `PRIVATE KEY-----\nCanary16==`},
	{"", "wJalrXUtnFEMI/K7MDENG/bPxRfiCANARY17"}, {"", "0123456789abcdef0123456789abcdef"}, {"", "Canary19CanaryCanaryCanary"},
}

// places are all that an error or the log may say something of.
var places = []struct {
	name string
	send func(r *rig, canary string) string
}{
	{"model", inBody("/v1/chat/completions", `{"model":%s,"messages":[{"role":"user","content":"x"}]}`)},
	{"model of messages", inBody("/v1/messages", `{"model":%s,"max_tokens":5,"messages":[{"role":"user","content":"x"}]}`)},
	{"where it is cut", func(r *rig, canary string) string {
		return inBody("/v1/chat/completions", `{"model":%s,"messages":[]}`)(r, strings.Repeat("x ", 56)+canary)
	}},
	{"user", inBody("/v1/chat/completions", `{"model":"gpt-4o","user":%s,"messages":[{"role":"user","content":"x"}],"max_tokens":5}`)},
	{"service tier", inBody("/v1/chat/completions", `{"model":"gpt-4o","service_tier":%s,"messages":[{"role":"user","content":"x"}]}`)},
	{"type of a tool", inBody("/v1/responses", `{"model":"gpt-4o","input":"x","tools":[{"type":%s}]}`)},
	{"modalities", inBody("/v1/chat/completions", `{"model":"gpt-4o","modalities":["text",%s],"messages":[{"role":"user","content":"x"}]}`)},
	{"speed", inBody("/v1/messages", `{"model":"claude-sonnet-4-5","speed":%s,"max_tokens":5,"messages":[{"role":"user","content":"x"}]}`)},
	{"inference_geo", inBody("/v1/messages", `{"model":"claude-sonnet-4-5","inference_geo":%s,"max_tokens":5,"messages":[{"role":"user","content":"x"}]}`)},
	{"a cap", inBody("/v1/chat/completions", `{"model":"gpt-4o","max_tokens":%s,"messages":[{"role":"user","content":"x"}]}`)},
	{"a name", inBody("/v1/chat/completions", `{"model":"gpt-4o",%s:1,"MODEL":1}`)},
	{"what follows", inBody("/v1/chat/completions", `{"model":"gpt-4o"} %s`)},
	{"Content-Type", inHead("POST /v1/chat/completions HTTP/1.1", "Content-Type: %s")},
	{"Content-Encoding", inHead("POST /v1/chat/completions HTTP/1.1", "Content-Encoding: %s")},
	{"Transfer-Encoding", inHead("POST /v1/chat/completions HTTP/1.1", "Transfer-Encoding: %s")},
	{"Content-Length", inHead("POST /v1/chat/completions HTTP/1.1", "Content-Length: %s")},
	{"Expect", inHead("POST /v1/chat/completions HTTP/1.1", "Expect: %s")},
	{"Authorization", inHead("POST /v1/chat/completions HTTP/1.1", "Authorization: %s")},
	{"X-Api-Key", inHead("POST /v1/chat/completions HTTP/1.1", "X-Api-Key: %s")},
	{"a header's name", inHead("POST /v1/chat/completions HTTP/1.1", "X %s: 1")},
	{"a header", inHead("POST /v1/chat/completions HTTP/1.1", "X-A: \x01%s")},
	{"path", inHead("POST /v1/%s HTTP/1.1", "")},
	{"query", inHead("POST /v1/foo?key=%s HTTP/1.1", "")},
	{"model in the path", inHead("GET /v1/models/%s HTTP/1.1", "")},
	{"method", inHead("%s /v1/chat/completions HTTP/1.1", "")},
	{"method of a model", inHead("PUT /v1/models/%s HTTP/1.1", "")},
	{"version", inHead("POST /v1/chat/completions HTTP/%s", "")},
	{"version 1", inHead("POST /v1/chat/completions HTTP/1.1%s", "")},
}

func inBody(path, format string) func(*rig, string) string {
	return func(r *rig, canary string) string {
		quoted, _ := json.Marshal(canary)
		return string(r.post(path, fmt.Sprintf(format, quoted)).body)
	}
}

// inHead puts it into the request line or a header, whichever has a place for it.
func inHead(line, header string) func(*rig, string) string {
	return func(r *rig, canary string) string {
		head := line + "\r\nHost: x\r\nConnection: close\r\n"
		if !strings.HasPrefix(header, "Authorization") {
			head += "Authorization: Bearer " + r.token + "\r\n"
		}
		if header != "" {
			head += header + "\r\n"
		}
		return r.raw(strings.Replace(head, "%s", canary, 1) + "\r\n{}")
	}
}

// What looks like a secret is neither said nor logged, wherever a client puts it; and the log, however talkative, says of what
// was refused no word of the client's.
func TestSecretsAreNeitherSaidNorLogged(t *testing.T) {
	r := newRig(t, limits(auth.Key{}), func(s *setup) { s.logLevel = slog.LevelDebug })
	for _, place := range places {
		for _, c := range canaries {
			answer := place.send(r, c[0]+c[1])
			if c[0]+c[1] != canaries[0][1] && strings.Contains(answer, c[1]) {
				t.Errorf("%s: %s%s is answered: %s", place.name, c[0], c[1], answer)
			}
			if log := r.log.String(); strings.Contains(log, c[1]) {
				t.Errorf("%s: %s%s is logged: %s", place.name, c[0], c[1], log)
			}
			r.log.Reset()
		}
	}
}

// The log names the field that a refusal is about, and keeps what was expected of it.
func TestTheLogSaysWhyWithoutTheClientsWords(t *testing.T) {
	r := newRig(t)
	for body, want := range map[string]string{
		chat("gpt-4p", ""):                             `code=model_not_found why="model … does not exist or is not for this key; did you mean gpt-4o?"`,
		chat("gpt-4o", `,"service_tier":"fast"`):       `code=invalid_request_error param=service_tier why="model … has no price for service tier …; it has `,
		chat("gpt-4o", `,"MODEL":"x"`):                 `code=invalid_request_error param=model why="… reads like model; write it exactly so"`,
		chat("gpt-4o", `,"tools":[{"type":"canary"}]`): `code=invalid_request_error param=tools why="tool … is run by the provider`,
	} {
		p := r.post("/v1/chat/completions", body)
		if line := r.accessLine(p.header.Get("X-Request-Id")); !strings.Contains(line, want) {
			t.Errorf("%s: %s", body, line)
		}
	}
}
