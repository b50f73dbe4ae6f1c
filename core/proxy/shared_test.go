package proxy_test

import (
	"testing"

	"github.com/weir-gateway/weir/core/auth"
)

// second adds another key of the same user and gives its header.
func (r *rig) second() []string {
	token := r.token
	r.token = ""
	r.addKey(auth.Key{ID: idKey + 1, UserID: idUser, Name: "second"})
	other := r.token
	r.token = token
	return []string{"Authorization", "Bearer " + other}
}

// What one key's requests bring upon the only channel is not the other keys' trouble.
func TestOneKeysStormDoesNotTakeTheChannelFromOthers(t *testing.T) {
	for _, sim := range []string{"status=500", "status=503", "status=403", "reset=headers"} {
		t.Run(sim, func(t *testing.T) {
			r := newRig(t)
			other := r.second()
			for range 12 {
				r.post("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", sim).want(t, 502)
			}
			for range 3 {
				r.post("/v1/chat/completions", chat("gpt-4o", ""), other...).want(t, 200)
			}
		})
	}
}
