package limit

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// String is the word of the kind in limit keys, configuration and metrics.
func (k Kind) String() string {
	switch k {
	case Global:
		return "global"
	case Key:
		return "key"
	case Model:
		return "model"
	case User:
		return "user"
	case Org:
		return "org"
	case Channel:
		return "channel"
	case IP:
		return "ip"
	case EndUser:
		return "end_user"
	case KeyModel:
		return "key+model"
	case ModelChannel:
		return "model+channel"
	case Custom:
		return "custom"
	}
	return "kind" + strconv.Itoa(int(k))
}

// scoped and named say which fields of an ID the kind uses.
func (k Kind) scoped() bool {
	switch k {
	case Global, Model, IP:
		return false
	}
	return true
}

func (k Kind) named() bool {
	switch k {
	case Global, Key, User, Org, Channel:
		return false
	}
	return true
}

// clientChosen kinds take their names from whoever sends the request, so their number per key is capped.
func (k Kind) clientChosen() bool { return k == EndUser || k == Custom || k == IP }

// String is the limit_key of contracts: "key:42", "model:gpt-4o", "end_user:7:bob", "key+model:42:gpt-4o", "global".
// No two IDs share one: the number of fields is fixed per kind and the name comes last; an ID that sets a field its
// kind does not use is written with '#', which follows no kind otherwise.
func (id ID) String() string {
	k := id.Kind
	var b strings.Builder
	b.WriteString(k.String())
	if (!k.scoped() && id.Scope != 0) || (!k.named() && id.Name != "") {
		fmt.Fprintf(&b, "#%d:", id.Scope)
		escape(&b, id.Name)
		return b.String()
	}
	if k.scoped() {
		b.WriteByte(':')
		b.WriteString(strconv.FormatUint(id.Scope, 10))
	}
	if k.named() {
		b.WriteByte(':')
		escape(&b, id.Name)
	}
	return b.String()
}

// escape writes name with everything that does not print, and the escape sign itself, as %XX.
func escape(b *strings.Builder, name string) {
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		plain := r != '%' && r != ' ' && unicode.IsPrint(r) && !(r == utf8.RuneError && n == 1)
		for i := 0; i < n; i++ {
			if plain {
				b.WriteByte(name[i])
			} else {
				fmt.Fprintf(b, "%%%02X", name[i])
			}
		}
		name = name[n:]
	}
}

// IPName is the name of an address in an IP dimension: IPv4 whole, IPv6 by /64, since one subscriber is given that
// many addresses at once. An IPv4 address mapped into IPv6 counts as IPv4.
func IPName(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a.String()
	}
	p, err := a.Prefix(64)
	if err != nil {
		return a.String()
	}
	return p.String()
}
