package auth

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/weir-gateway/weir/core/llm"
)

var start = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)

type fixture struct {
	*Directory
	clock *llm.FakeClock
	token []byte
	key   Key
}

// newFixture has org 1, user 2 and key 3.
func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{clock: llm.NewFakeClock(start)}
	f.Directory = NewDirectory(bytes.Repeat([]byte{7}, 32), f.clock)
	f.SetOrg(Org{ID: 1, Name: "Acme"})
	f.SetUser(User{ID: 2, OrgID: 1, Name: "alice"})
	f.key, f.token = f.mint(t, 3, 2)
	return f
}

func (f *fixture) mint(t testing.TB, id, user uint64) (Key, []byte) {
	t.Helper()
	text, k, err := f.Mint(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	k.ID, k.UserID = id, user
	f.SetKey(k)
	return k, []byte(text)
}

// changed is the token with another character at i: b, or the one after it.
func changed(token []byte, i int, b byte) []byte {
	x := bytes.Clone(token)
	if x[i] == b {
		b++
	}
	x[i] = b
	return x
}

func refused(t *testing.T, d *Directory, token []byte, word string) {
	t.Helper()
	c, err := d.Resolve(token)
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != llm.KindUnauthorized || c != nil {
		t.Fatalf("got %v, %v; want an unauthorized error", c, err)
	}
	if !strings.Contains(e.Message, word) {
		t.Errorf("message %q does not say %q", e.Message, word)
	}
	if len(token) > 30 && strings.Contains(e.Message, string(token[20:])) {
		t.Errorf("the message echoes the secret: %q", e.Message)
	}
}

func TestMintedKeyResolves(t *testing.T) {
	f := newFixture(t)
	if len(f.token) != 60 || !bytes.HasPrefix(f.token, []byte("sk-weir-")) || f.token[16] != '-' {
		t.Fatalf("shape of %s", f.token)
	}
	for range 2 { // the first call takes the HMAC's way, the second the remembered digest's
		c, err := f.Resolve(f.token)
		if err != nil || c.Key.ID != 3 || c.User.ID != 2 || c.Org.ID != 1 || c.Zone != time.UTC {
			t.Fatalf("%+v %v", c, err)
		}
	}
	secret := string(f.token[17:])
	if kept := fmt.Sprintf("%+v", f.key); strings.Contains(kept, secret) || strings.Contains(kept, secret[:20]) {
		t.Errorf("the stored key holds the secret: %s", kept)
	}
	if !strings.HasSuffix(f.key.Preview, secret[39:]) || !strings.HasPrefix(f.key.Preview, string(f.token[:16])) {
		t.Errorf("preview %q", f.key.Preview)
	}
}

func TestResolveRefuses(t *testing.T) {
	f := newFixture(t)
	if _, err := f.Resolve(f.token); err != nil {
		t.Fatal(err)
	}
	change := func(i int, b byte) []byte { return changed(f.token, i, b) }
	for name, c := range map[string]struct {
		token []byte
		word  string
	}{
		"nothing":             {nil, "no API key"},
		"another provider's":  {[]byte("sk-proj-abcdef"), "malformed"},
		"short":               {f.token[:59], "malformed"},
		"long":                {append(bytes.Clone(f.token), 'a'), "malformed"},
		"dash moved":          {change(16, 'x'), "malformed"},
		"punctuation in id":   {change(9, '_'), "malformed"},
		"space in secret":     {change(30, ' '), "malformed"},
		"high bit":            {change(30, 0xC3), "malformed"},
		"zero byte":           {change(30, 0), "malformed"},
		"other prefix case":   {change(0, 'S'), "malformed"},
		"unknown id":          {change(8, 'q'), "unknown or revoked"},
		"first secret char":   {change(17, 'a'), "unknown or revoked"},
		"last secret char":    {change(59, 'a'), "unknown or revoked"},
		"secret in base64url": {change(40, '_'), "unknown or revoked"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, f.Directory, c.token, c.word) })
	}
	if _, err := f.Resolve(f.token); err != nil {
		t.Fatalf("the right key is refused after wrong ones: %v", err)
	}
}

// A wrong key costs nothing that lasts; what it could reveal, an unknown id and a wrong secret, reads the same.
func TestUnknownAndWrongSecretReadTheSame(t *testing.T) {
	f := newFixture(t)
	wrong, unknown := changed(f.token, 59, 'a'), bytes.Clone(f.token)
	copy(unknown[8:], "zzzzzzzz")
	_, a := f.Resolve(wrong)
	_, b := f.Resolve(unknown)
	f.DeleteKey(3)
	_, c := f.Resolve(f.token)
	if a.Error() != b.Error() || b.Error() != c.Error() {
		t.Errorf("%q, %q, %q differ", a, b, c)
	}
}

func TestL10BogusKeysLeaveNothing(t *testing.T) {
	f := newFixture(t)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	bogus := bytes.Clone(f.token)
	rnd := mrand.New(mrand.NewPCG(1, 2))
	for range 1_000_000 {
		for i := 8; i < 16; i++ {
			bogus[i] = publicAlphabet[rnd.IntN(len(publicAlphabet))]
		}
		if _, err := f.Resolve(bogus); err == nil {
			t.Fatal("a made-up key resolved")
		}
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("a million bogus keys left %d bytes", after-before)
	}
}

func TestEveryChangeReplacesTheCaller(t *testing.T) {
	f := newFixture(t)
	seen, _ := f.Resolve(f.token)
	old := *seen
	k := f.key
	k.QPSLimit, k.Labels = 5, map[string]string{"tier": "gold"}
	f.SetKey(k)
	k.Labels["tier"] = "changed by its owner afterwards"
	f.SetUser(User{ID: 2, OrgID: 1, Name: "alice", Unmetered: true})
	f.SetOrg(Org{ID: 1, Name: "Acme", TPMLimit: 9})
	c, err := f.Resolve(f.token)
	if err != nil {
		t.Fatal(err)
	}
	if c == seen || c.Key.QPSLimit != 5 || c.Key.Labels["tier"] != "gold" || !c.User.Unmetered || c.Org.TPMLimit != 9 {
		t.Errorf("stale: %+v", c)
	}
	if diff := cmp.Diff(old, *seen, cmp.AllowUnexported(Caller{}), cmp.Comparer(func(a, b *time.Location) bool { return a == b })); diff != "" {
		t.Errorf("a caller in flight changed: %s", diff)
	}
}

func TestMovedUserAndAbsentOwners(t *testing.T) {
	f := newFixture(t)
	f.SetOrg(Org{ID: 9, Name: "Other"})
	f.SetUser(User{ID: 2, OrgID: 9, Name: "alice"})
	f.SetOrg(Org{ID: 1, Name: "renamed"})
	if c, err := f.Resolve(f.token); err != nil || c.Org.Name != "Other" {
		t.Fatalf("%+v %v", c, err)
	}
	f.DeleteOrg(9)
	refused(t, f.Directory, f.token, "unknown or revoked")
	f.SetOrg(Org{ID: 9, Name: "back"})
	if _, err := f.Resolve(f.token); err != nil {
		t.Fatal(err)
	}
	f.DeleteUser(2)
	refused(t, f.Directory, f.token, "unknown or revoked")
	if _, ok := f.Caller(3); ok {
		t.Error("a key without its user has a caller")
	}
	f.SetUser(User{ID: 2, OrgID: 9})
	f.DeleteKey(3)
	refused(t, f.Directory, f.token, "unknown or revoked")
	f.SetKey(f.key)
	if _, err := f.Resolve(f.token); err != nil {
		t.Fatal(err)
	}
}

func TestRotatedSecret(t *testing.T) {
	f := newFixture(t)
	if _, err := f.Resolve(f.token); err != nil {
		t.Fatal(err)
	}
	_, token := f.mint(t, 3, 2)
	refused(t, f.Directory, f.token, "unknown or revoked")
	if c, err := f.Resolve(token); err != nil || c.Key.ID != 3 {
		t.Fatalf("%+v %v", c, err)
	}
}

func TestExpiry(t *testing.T) {
	f := newFixture(t)
	k := f.key
	k.ExpiresAtMS = start.Add(time.Hour).UnixMilli()
	f.SetKey(k)
	f.clock.Advance(time.Hour - time.Millisecond)
	if _, err := f.Resolve(f.token); err != nil {
		t.Fatal(err)
	}
	f.clock.Advance(time.Millisecond)
	refused(t, f.Directory, f.token, "expired")
	wrong := changed(f.token, 59, 'a')
	refused(t, f.Directory, wrong, "unknown or revoked") // only its owner learns that a key has expired
}

func TestM12ZoneChangesWhenThePeriodEnds(t *testing.T) {
	f := newFixture(t)
	k := f.key
	k.Timezone = "Asia/Shanghai"
	shanghai, _ := Zone("Asia/Shanghai")
	_, ends := month(start, shanghai)
	k.NextTimezone, k.NextTimezoneAtMS = "America/New_York", ends.UnixMilli()
	k.ExpiresAtMS = ends.Add(time.Hour).UnixMilli()
	f.SetKey(k)
	f.clock.Advance(ends.Sub(start) - time.Millisecond)
	for _, name := range []string{"Asia/Shanghai", "America/New_York"} {
		c, err := f.Resolve(f.token)
		if err != nil || c.Zone.String() != name || c.Key.Timezone != name {
			t.Fatalf("%+v %v, want %s", c, err, name)
		}
		if byID, ok := f.Caller(3); !ok || byID.Zone.String() != name {
			t.Errorf("Caller: %v", byID.Zone)
		}
		if got, _ := f.Key(3); got.Timezone != name {
			t.Errorf("Key: %s", got.Timezone)
		}
		f.clock.Advance(time.Millisecond)
	}
	if got, _ := f.Key(3); got.NextTimezone != "" || got.NextTimezoneAtMS != 0 {
		t.Errorf("still pending: %+v", got)
	}
	f.clock.Advance(time.Hour)
	refused(t, f.Directory, f.token, "expired")
}

// TestTurnOfAnOrphan: a key whose org goes between the look at the caller and the change of its zone has no caller.
func TestTurnOfAnOrphan(t *testing.T) {
	f := newFixture(t)
	if c, err := f.turn(3, start); err != nil || !c.whole {
		t.Errorf("%+v, %v", c, err)
	}
	f.DeleteOrg(1)
	if c, err := f.turn(3, start); err == nil {
		t.Errorf("without its org it is %+v", c)
	}
}

func TestAdopt(t *testing.T) {
	f := newFixture(t)
	text := "sk-weir-demodemo-" + strings.Repeat("d-_0", 10) + "abc"
	k, err := f.Adopt(text)
	if err != nil || k.Public != "demodemo" {
		t.Fatalf("%+v %v", k, err)
	}
	k.ID, k.UserID = 4, 2
	f.SetKey(k)
	if c, err := f.Resolve([]byte(text)); err != nil || c.Key.ID != 4 {
		t.Fatalf("%+v %v", c, err)
	}
	var e *llm.Error
	if _, err := f.Adopt(text); !errors.As(err, &e) || e.Kind != llm.KindConflict {
		t.Errorf("taken id characters: %v", err)
	}
	for _, bad := range []string{"", "sk-weir-demo", text + "x", strings.Replace(text, "sk-weir", "sk-wear", 1)} {
		if _, err := f.Adopt(bad); !errors.As(err, &e) || e.Kind != llm.KindInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A directory with another secret must not know the key: stored hashes are worthless without it.
func TestHashIsKeyed(t *testing.T) {
	f := newFixture(t)
	other := NewDirectory(bytes.Repeat([]byte{8}, 32), f.clock)
	other.SetOrg(Org{ID: 1})
	other.SetUser(User{ID: 2, OrgID: 1})
	other.SetKey(f.key)
	refused(t, other, f.token, "unknown or revoked")
}

// What is kept of a key must not hold on to the memory of its text.
func TestKeyDoesNotPinItsText(t *testing.T) {
	f := newFixture(t)
	text := "sk-weir-demodemo-" + strings.Repeat("s", 43)
	k, err := f.Adopt(text)
	if err != nil {
		t.Fatal(err)
	}
	from := uintptr(unsafe.Pointer(unsafe.StringData(text)))
	for _, kept := range []string{k.Public, k.Preview} {
		if at := uintptr(unsafe.Pointer(unsafe.StringData(kept))); at >= from && at < from+uintptr(len(text)) {
			t.Errorf("%q is a part of the text", kept)
		}
	}
}

func TestMintFailsWithItsRandomness(t *testing.T) {
	f := newFixture(t)
	if text, _, err := f.Mint(io.LimitReader(rand.Reader, 70)); err == nil || text != "" {
		t.Errorf("minted %q from spent randomness", text)
	}
	fixed := bytes.Repeat([]byte{5}, 1<<20)
	_, k, err := f.Mint(bytes.NewReader(fixed))
	if err != nil {
		t.Fatal(err)
	}
	k.ID, k.UserID = 8, 2
	f.SetKey(k)
	if _, _, err := f.Mint(bytes.NewReader(fixed)); err == nil {
		t.Error("the same id characters were minted twice")
	}
}

func TestDrawIsEven(t *testing.T) {
	text, err := draw(nil, mrand.NewChaCha8([32]byte{1}), secretAlphabet, 62_000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range secretAlphabet {
		if n := bytes.Count(text, []byte{secretAlphabet[i]}); n < 850 || n > 1150 {
			t.Errorf("%c came %d times of about 1000", secretAlphabet[i], n)
		}
	}
}

func TestLists(t *testing.T) {
	f := newFixture(t)
	f.SetOrg(Org{ID: 20})
	f.SetOrg(Org{ID: 10})
	f.SetUser(User{ID: 30, OrgID: 10})
	f.SetUser(User{ID: 25, OrgID: 10})
	f.mint(t, 40, 30)
	f.mint(t, 35, 30)
	var got []uint64
	for _, o := range f.Orgs() {
		got = append(got, o.ID)
	}
	for _, u := range f.Users() {
		got = append(got, u.ID)
	}
	for _, k := range f.Keys() {
		got = append(got, k.ID)
	}
	if diff := cmp.Diff([]uint64{1, 10, 20, 2, 25, 30, 3, 35, 40}, got); diff != "" {
		t.Error(diff)
	}
	if _, ok := f.Org(11); ok {
		t.Error("org 11")
	}
	if u, ok := f.User(25); !ok || u.OrgID != 10 {
		t.Error("user 25")
	}
}

func TestAllows(t *testing.T) {
	for _, c := range []struct {
		models []string
		model  string
		want   bool
	}{
		{nil, "gpt-4o", true},
		{[]string{"gpt-4o"}, "gpt-4o", true},
		{[]string{"gpt-4o"}, "gpt-4o-mini", false},
		{[]string{"gpt-4o*"}, "gpt-4o-mini", true},
		{[]string{"claude-*", "gpt-4o"}, "claude-x", true},
		{[]string{"*"}, "anything", true},
		{[]string{"gpt-4o*"}, "GPT-4o", false},
	} {
		if k := (Key{Models: c.models}); k.Allows(c.model) != c.want {
			t.Errorf("%v allows %s: want %v", c.models, c.model, c.want)
		}
	}
}

func TestResolveWhileEverythingChanges(t *testing.T) {
	f := newFixture(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := f.Resolve(f.token)
				if err != nil || c.Key.QPSLimit != c.Key.TPMLimit {
					t.Errorf("torn or lost: %+v %v", c, err)
					return
				}
			}
		})
	}
	for i := range int64(2000) {
		k := f.key
		k.QPSLimit, k.TPMLimit = i, i
		f.SetKey(k)
		f.SetOrg(Org{ID: 1, QPSLimit: i})
		f.SetUser(User{ID: 2, OrgID: 1, QPSLimit: i})
		k.ID, k.Public = 77, "otherkey"
		f.SetKey(k)
		f.DeleteKey(77)
	}
	close(stop)
	wg.Wait()
}

func FuzzResolve(f *testing.F) {
	x := newFixture(f)
	f.Add(x.token)
	f.Add([]byte("sk-weir-"))
	f.Fuzz(func(t *testing.T, token []byte) {
		if c, err := x.Resolve(token); (err == nil) != bytes.Equal(token, x.token) {
			t.Fatalf("%q: %v %v", token, c, err)
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	f := newFixture(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Resolve(f.token); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkResolveOf100000(b *testing.B) {
	f := newFixture(b)
	tokens := make([][]byte, 100_000)
	for i := range tokens {
		_, tokens[i] = f.mint(b, uint64(10+i), 2)
		_, _ = f.Resolve(tokens[i])
	}
	var n int
	b.ReportAllocs()
	for b.Loop() {
		n = (n + 7919) % len(tokens)
		if _, err := f.Resolve(tokens[n]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkResolveBogus(b *testing.B) {
	f := newFixture(b)
	bogus := bytes.Clone(f.token)
	copy(bogus[8:], "zzzzzzzz")
	b.ReportAllocs()
	for b.Loop() {
		_, _ = f.Resolve(bogus)
	}
}

func BenchmarkResolveWrongSecret(b *testing.B) {
	f := newFixture(b)
	bogus := changed(f.token, 59, 'a')
	b.ReportAllocs()
	for b.Loop() {
		_, _ = f.Resolve(bogus)
	}
}
