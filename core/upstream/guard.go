package upstream

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// How far a base URL may reach: which addresses of this machine and its networks are connected to. Link-local addresses and
// those where clouds hand out their machines' credentials never are.
const (
	ReachPublic  = "public"  // none
	ReachWritten = "written" // those that stand in the base URL itself, localhost included; a name that leads to one is refused
	ReachPrivate = "private" // any, by name, too
)

// secretive are addresses of metadata services beside the link-local ones.
var secretive = [...]netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"),                                                   // AWS, and who hands out its credentials
	netip.MustParsePrefix("fd20:ce::254/128"),                                                // Google
	netip.MustParsePrefix("168.63.129.16/32"),                                                // Azure
	netip.MustParsePrefix("192.0.0.192/32"), netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), // Oracle
	netip.MustParsePrefix("100.100.100.200/32"), netip.MustParsePrefix("fd00:100::100:200/128"), // Alibaba
	netip.MustParsePrefix("fd00:a9fe:a9fe::1/128"), netip.MustParsePrefix("fd00:42::42/128"), // Akamai, Scaleway
}

// private are what IsPrivate leaves out: the networks of carriers, of protocols and of benchmarks.
var private = [...]netip.Prefix{
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("fec0::/10"),
}

// carriers are networks whose addresses stand for one of IPv4, in the four bytes from at on.
var carriers = [...]struct {
	in netip.Prefix
	at int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // SIIT
	{netip.MustParsePrefix("::/96"), 12},
	{netip.MustParsePrefix("2002::/16"), 2}, // 6to4
}

// plain is the address that ip leads to.
func plain(ip netip.Addr) netip.Addr {
	ip = ip.WithZone("").Unmap()
	for _, c := range carriers {
		if ip.Is6() && !ip.IsLoopback() && c.in.Contains(ip) {
			b := ip.As16()
			return netip.AddrFrom4([4]byte(b[c.at : c.at+4]))
		}
	}
	return ip
}

// forbidden tells addresses that are never connected to.
func forbidden(ip netip.Addr) bool {
	ip = plain(ip)
	for _, p := range secretive {
		if p.Contains(ip) {
			return true
		}
	}
	return ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || ip.Is4() && (ip.As4()[0] == 0 || ip.As4()[0] >= 240)
}

// local tells addresses of this machine and of networks that are not everybody's.
func local(ip netip.Addr) bool {
	ip = plain(ip)
	for _, p := range private {
		if p.Contains(ip) {
			return true
		}
	}
	return ip.IsLoopback() || ip.IsPrivate()
}

// guard refuses connections that the base URL may not bring about. It is asked with the address that is about to be
// connected to, behind all resolving, so that no name can say one thing when it is checked and another when it is used.
type guard struct {
	channel string
	local   bool // may be connected to
	reach   string
}

func newGuard(ch *Channel, s *site, reach string) guard {
	return guard{ch.Name, reach == ReachPrivate || reach == ReachWritten && s.local, reach}
}

func (g *guard) check(ip netip.Addr) error {
	switch {
	case forbidden(ip):
		return fmt.Errorf("channel %q leads to %s; link-local and metadata addresses are never connected to", g.channel, ip)
	case local(ip) && !g.local:
		return fmt.Errorf("channel %q leads to %s, which is not public, and upstream.reach is %s; %s", g.channel, ip, g.reach, g.remedy())
	}
	return nil
}

func (g *guard) remedy() string {
	if g.reach == ReachPublic {
		return "set it to written if that address shall stand in base_url, or to private"
	}
	return "write that address into base_url, or set upstream.reach to private"
}

// control goes between a dialer and the kernel; next is what was there before.
func (g *guard) control(next dialControl) dialControl {
	return func(network, address string, c syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("channel %q leads to %q, which is no address: %w", g.channel, address, err)
		}
		if err := g.check(at.Addr()); err != nil {
			return err
		}
		if next != nil {
			return next(network, address, c)
		}
		return nil
	}
}

type dialControl = func(network, address string, c syscall.RawConn) error

// isLocalName tells names that are this machine's by definition.
func isLocalName(host string) bool {
	return strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
}
