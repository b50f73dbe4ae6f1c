package upstream

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

func TestAddressesThatAreNeverConnectedTo(t *testing.T) {
	for _, in := range []string{
		"169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1",
		"::169.254.169.254", "::ffff:0:169.254.169.254", "64:ff9b:1::a9fe:a9fe", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe",
		"fd00:42::42", "fd00:a9fe:a9fe::1", "fd00:100::100:200", "100.100.100.200", "168.63.129.16", "192.0.0.192", "0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0",
		"224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1",
	} {
		ip := netip.MustParseAddr(in)
		g := guard{channel: "a", local: true, reach: ReachPrivate}
		if g.check(ip) == nil {
			t.Errorf("%s is connected to", in)
		}
		host := in
		if ip.Is6() {
			host = "[" + strings.ReplaceAll(in, "%", "%25") + "]"
		}
		_, err := NewCatalog(nil, []Channel{{Name: "a", Provider: "openai", BaseURL: "http://" + host + "/v1"}})
		if e := asError(t, err, llm.KindInvalid); !strings.Contains(e.Message, "never connected to") {
			t.Error(e)
		}
	}
}

func TestWhatIsNotPublic(t *testing.T) {
	for in, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "10.1.2.3": true, "172.16.0.1": true, "192.168.1.1": true, "fd12::1": true,
		"100.64.0.1": true, "198.18.0.1": true, "::ffff:10.0.0.1": true, "64:ff9b::7f00:1": true, "2002:c0a8:101::1": true, "::127.0.0.1": true,
		"8.8.8.8": false, "172.32.0.1": false, "2606:4700::1111": false, "64:ff9b::808:808": false, "64:ff9b:1::808:808": false, "64:ff9b:1::7f00:1": true, "::ffff:0:10.0.0.1": true, "fd00:ec3::254": true, "100.128.0.1": false,
	} {
		ip := netip.MustParseAddr(in)
		if local(ip) != want {
			t.Errorf("%s is local: %v", in, !want)
		}
		g := guard{channel: "a", reach: ReachPublic}
		if refused := g.check(ip) != nil; refused != want {
			t.Errorf("%s is refused: %v", in, refused)
		}
	}
}

// naming makes every name resolve to one address.
func naming(address string) *net.Resolver {
	ip := netip.MustParseAddr(address)
	answer := func(c net.Conn) {
		defer c.Close()
		for {
			var size [2]byte
			if _, err := io.ReadFull(c, size[:]); err != nil {
				return
			}
			q := make([]byte, binary.BigEndian.Uint16(size[:]))
			if _, err := io.ReadFull(c, q); err != nil {
				return
			}
			end := 12
			for q[end] != 0 {
				end += int(q[end]) + 1
			}
			end += 5 // the root, type and class
			kind, found := binary.BigEndian.Uint16(q[end-4:]), byte(0)
			a := append(append([]byte{}, q[:2]...), 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0)
			a = append(a, q[12:end]...)
			if raw := ip.AsSlice(); kind == 1 && len(raw) == 4 || kind == 28 && len(raw) == 16 {
				found = 1
				a = append(append(a, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(raw))), raw...)
			}
			a[7] = found
			if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
				return
			}
		}
	}
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go answer(theirs)
		return ours, nil
	}}
}

// The address is checked when it is connected to: no name leads where its channel may not go.
func TestReach(t *testing.T) {
	st := newStub(t, fine)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(st.url, "http://"))
	for _, tt := range []struct {
		reach, host, resolves string
		want                  string // empty: an answer
	}{
		{ReachWritten, "127.0.0.1", "", ""},
		{ReachWritten, "localhost", "127.0.0.1", ""},
		{ReachWritten, "innocent.test", "127.0.0.1", "leads to 127.0.0.1, which is not public"},
		{ReachWritten, "innocent.test", "10.1.2.3", "leads to 10.1.2.3, which is not public"},
		{ReachPrivate, "vllm.test", "127.0.0.1", ""},
		{ReachPrivate, "metadata.test", "169.254.169.254", "leads to 169.254.169.254; link-local and metadata addresses are never connected to"},
		{ReachPrivate, "metadata6.test", "fd00:ec2::254", "never connected to"},
		{ReachPublic, "127.0.0.1", "", "not public, and upstream.reach is public"},
		{ReachPublic, "localhost", "127.0.0.1", "upstream.reach is public"},
	} {
		t.Run(tt.reach+" "+tt.host+" "+tt.resolves, func(t *testing.T) {
			before := st.accepted.Load()
			r := newRig(t, Options{Reach: tt.reach}, openai("a", "http://"+tt.host+":"+port))
			if tt.resolves != "" {
				r.client.dialer.Resolver = naming(tt.resolves)
			}
			_, _, err := r.call()
			if tt.want == "" {
				if err != nil {
					t.Error(err, asError(t, err, llm.KindUpstream).Err)
				}
				return
			}
			contains(t, asError(t, err, llm.KindUpstream).Err.Error(), tt.want)
			if st.accepted.Load() != before {
				t.Error("it was connected to all the same")
			}
		})
	}
}

// A redirect leads nowhere: the next channel is asked.
func TestRedirectsAreNotFollowed(t *testing.T) {
	target := newStub(t, fine)
	for _, code := range []int{301, 302, 303, 307, 308} {
		st := newStub(t, status(code, "Location: "+target.url+"/v1/chat/completions\r\n"))
		r := newRig(t, Options{}, openai("a", st.url))
		_, _, err := r.call()
		asError(t, err, llm.KindUpstream)
		if target.accepted.Load() != 0 || st.requests.Load() != 1 {
			t.Errorf("%d: %d connections to where it points", code, target.accepted.Load())
		}
	}
}
