package config

import (
	"encoding/base64"
	"encoding/hex"
	"math/rand/v2"
	"testing"
)

// TestSampleTokens: samples are refused by their shape, so that a sample with a digit more is one, too.
func TestSampleTokens(t *testing.T) {
	for _, token := range []string{
		"changeme-changeme", "changeme-changeme-1", "ChangeMe-ChangeMe-2026", "change-me-change-me-now", "your-admin-token-here", "example-admin-token-1",
		"placeholder-placeholder", "my-secret-password-1", "weir-admin-token-2", "aaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaab", "0123456789abcdef",
		"0123456789abcdefgh", "fedcba9876543210", "1234567812345678", "abababababababab", "abcabcabcabcabcabc", "f00df00d-f00df00d", "qwertyuiopasdfghjkl",
		"----------------------", "replace-me-replace-me", "replace-me-with-a-long-token", "CHANGE_ME_to_something_random", "put-your-own-secret-xkcd42",
	} {
		if !isSample(token) {
			t.Errorf("%s passes", token)
		}
	}
	for _, token := range []string{"test-token-0123456789", "3f8a1c5e9b2d4f607182a3b4c5d6e7f8", "correct horse battery staple"} {
		if isSample(token) {
			t.Errorf("%s is refused", token)
		}
	}
}

// TestRandomTokensAreNoSamples: what openssl, od and the demo make is accepted.
func TestRandomTokensAreNoSamples(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	raw := make([]byte, 20)
	for range 4_000 {
		_, _ = random.Read(raw)
		for _, token := range []string{hex.EncodeToString(raw), base64.StdEncoding.EncodeToString(raw), hex.EncodeToString(raw[:12])} {
			if isSample(token) {
				t.Fatalf("%s is refused", token)
			}
		}
	}
}
