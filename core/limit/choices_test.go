package limit

import (
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// M09: what many choices may say is held for all of them, or refused; never sixteen tokens for the lot.
func TestM09EveryChoiceHasItsShareOrTheRequestIsRefused(t *testing.T) {
	for _, x := range []struct {
		choices int
		tpm     int64
		granted llm.Tokens // 0: refused
	}{
		{1, 36, 16}, {1, 35, 0},
		{128, 20 + 128*16, 128 * 16}, {128, 20 + 128*16 - 1, 0},
		{128 * 2048, 1 << 20, 0}, {4, 0, 4 * 4096},
	} {
		r := newRig(t, Options{})
		c := claim(20, dim(keyID(3), Limits{TPM: x.tpm}))
		c.Choices, c.Output, c.SoftOutput = x.choices, 4096*llm.Tokens(x.choices), true
		if x.granted > 0 {
			if g := r.admit(c).Granted(); g != x.granted {
				t.Errorf("%d choices at TPM %d: granted %d, want %d", x.choices, x.tpm, g, x.granted)
			}
			continue
		}
		if d := r.refuse(c); !d.TooLarge || d.Axis != AxisTPM || d.Requested != int64(20+c.Output) {
			t.Errorf("%d choices at TPM %d: %+v", x.choices, x.tpm, d)
		}
	}
}

func TestM09TheBalancePaysForEveryChoiceOrTheRequestIsRefused(t *testing.T) {
	r := newRig(t, Options{})
	price := llm.Price{Input: 1_000_000, CachedInput: 1_000_000, CacheWrite: 1_000_000, Output: 1_000_000}
	c := claim(20, dim(keyID(3), Limits{}))
	c.Choices, c.Output, c.SoftOutput = 128, 128*4096, true
	c.Money = Money{Price: price, Billed: true, Balance: true}
	r.LoadBalance(2, price.Hold(20, 128*16)-1, 0)
	if d := r.refuse(c); d.Axis != AxisBalance || d.Required != price.Hold(20, 128*16) || d.Available != d.Required-1 {
		t.Fatalf("%+v", d)
	}
	r.LoadBalance(2, price.Hold(20, 128*16), 0)
	if g := r.admit(c).Granted(); g != 128*16 {
		t.Fatalf("granted %d", g)
	}
}

// A cap below one token for each choice cannot be sent, so it is not what is held.
func TestM09NoChoiceIsHeldForLessThanOneToken(t *testing.T) {
	r := newRig(t, Options{})
	c := claim(20, dim(keyID(3), Limits{TPM: 120}))
	c.Choices, c.Output = 128, 10
	if d := r.refuse(c); d.Requested != 148 {
		t.Fatalf("%+v", d)
	}
}
