package limit

import (
	"math"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func TestIDString(t *testing.T) {
	for _, c := range []struct {
		id   ID
		want string
	}{
		{ID{Kind: Global}, "global"},
		{ID{Kind: Key, Scope: 42}, "key:42"},
		{ID{Kind: Model, Name: "gpt-4o"}, "model:gpt-4o"},
		{ID{Kind: Model, Name: "llama:8b"}, "model:llama:8b"},
		{ID{Kind: User, Scope: 7}, "user:7"},
		{ID{Kind: Org, Scope: 1}, "org:1"},
		{ID{Kind: Channel, Scope: 3}, "channel:3"},
		{ID{Kind: IP, Name: "2001:db8:0:1::/64"}, "ip:2001:db8:0:1::/64"},
		{ID{Kind: EndUser, Scope: 7, Name: "bob"}, "end_user:7:bob"},
		{ID{Kind: EndUser, Scope: 7, Name: "b b%\n\xff"}, "end_user:7:b%20b%25%0A%FF"},
		{ID{Kind: EndUser, Scope: 7, Name: "小明"}, "end_user:7:小明"},
		{ID{Kind: KeyModel, Scope: 42, Name: "gpt-4o"}, "key+model:42:gpt-4o"},
		{ID{Kind: ModelChannel, Scope: 2, Name: "gpt-4o"}, "model+channel:2:gpt-4o"},
		{ID{Kind: Custom, Scope: 7, Name: "team"}, "custom:7:team"},
		{ID{Kind: Model, Scope: 7, Name: "5"}, "model#7:5"},
		{ID{Kind: Key, Scope: 7, Name: "x"}, "key#7:x"},
	} {
		if got := c.id.String(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.id, got, c.want)
		}
	}
}

func TestNoTwoIDsShareALimitKey(t *testing.T) {
	kinds := []Kind{Global, Key, Model, User, Org, Channel, IP, EndUser, KeyModel, ModelChannel, Custom, 77}
	gen := rapid.Custom(func(t *rapid.T) ID {
		return ID{
			Kind:  rapid.SampledFrom(kinds).Draw(t, "kind"),
			Scope: rapid.SampledFrom([]uint64{0, 1, 11, math.MaxUint64}).Draw(t, "scope"),
			Name:  rapid.StringMatching(`[a1:#%+ \x00é]{0,4}`).Draw(t, "name"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		if a != b && a.String() == b.String() {
			t.Fatalf("%+v and %+v are both %q", a, b, a.String())
		}
	})
}

func TestIPName(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.7":              "192.0.2.7",
		"::ffff:192.0.2.7":       "192.0.2.7",
		"2001:db8:1:2:3:4:5:6":   "2001:db8:1:2::/64",
		"2001:db8:1:2::9%eth0":   "2001:db8:1:2::/64",
		"fe80::1":                "fe80::/64",
		"2001:db8:1:3::":         "2001:db8:1:3::/64",
		"::ffff:198.51.100.1%e0": "198.51.100.1",
	} {
		a, err := netip.ParseAddr(in)
		if err != nil {
			continue // a zone on a mapped address is not an address everywhere
		}
		if got := IPName(a); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func TestScale(t *testing.T) {
	for _, c := range []struct {
		limit    int64
		permille uint32
		want     int64
	}{
		{0, 500, 0}, {10, 0, 10}, {10, 1000, 10}, {10, 1500, 15}, {3, 500, 1}, {1, 1, 1}, {7, 333, 2},
		{math.MaxInt64, 2000, math.MaxInt64}, {math.MaxInt64 / 2, 2000, math.MaxInt64 - 1},
	} {
		if got := Scale(c.limit, c.permille); got != c.want {
			t.Errorf("Scale(%d, %d) = %d, want %d", c.limit, c.permille, got, c.want)
		}
	}
}

// TestFittingIsTheInverseOfScaleUp: the most tokens that fit are the most whose weight fits.
func TestFittingIsTheInverseOfScaleUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(0, 1<<40).Draw(t, "capacity")
		cost := rapid.Uint32Range(1, 10_000).Draw(t, "cost")
		n := fitting(capacity, cost)
		if scaleUp(n, cost) > capacity || scaleUp(n+1, cost) <= capacity {
			t.Fatalf("fitting(%d, %d) = %d weighs %d, one more %d", capacity, cost, n, scaleUp(n, cost), scaleUp(n+1, cost))
		}
	})
}
