package upstream

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// forward is the proxy that a channel's requests leave through: as HTTPS_PROXY, HTTP_PROXY and NO_PROXY say, which never
// send loopback addresses through one. https is tunnelled; for http the proxy is asked for the whole URL.
type forward struct {
	address string // host:port
	name    string // of the host, for TLS
	secure  bool   // the connection to the proxy itself is TLS
	auth    string // of the header Proxy-Authorization; empty: none
}

// fromEnvironment finds a URL's proxy; nil is none. The environment is read once in a process's life.
func fromEnvironment(u *url.URL) (*url.URL, error) {
	return http.ProxyFromEnvironment(&http.Request{URL: u})
}

// newForward finds the proxy of a site; nil: there is none.
func newForward(s *site, find func(*url.URL) (*url.URL, error)) (*forward, error) {
	scheme := map[bool]string{false: "http", true: "https"}[s.secure]
	p, err := find(&url.URL{Scheme: scheme, Host: s.address})
	switch {
	case err != nil:
		return nil, errors.New("HTTPS_PROXY or HTTP_PROXY cannot be parsed; expected http://host:port") // the error would show its password
	case p == nil:
		return nil, nil
	case p.Scheme != "http" && p.Scheme != "https":
		return nil, fmt.Errorf("HTTPS_PROXY or HTTP_PROXY begins with %s://; expected http:// or https://", p.Scheme)
	}
	f := &forward{name: p.Hostname(), secure: p.Scheme == "https"}
	port := p.Port()
	if port == "" {
		port = map[bool]string{false: "80", true: "443"}[f.secure]
	}
	f.address = net.JoinHostPort(f.name, port)
	if p.User != nil {
		password, _ := p.User.Password()
		f.auth = "Basic " + base64.StdEncoding.EncodeToString([]byte(p.User.Username()+":"+password))
	}
	return f, nil
}

// header is what the proxy wants of each request that it sees.
func (f *forward) header() string {
	if f == nil || f.auth == "" {
		return ""
	}
	return "Proxy-Authorization: " + f.auth + "\r\n"
}

// reach makes sock, a connection to the proxy, one that leads to the site: for TLS through a tunnel.
func (f *forward) reach(ctx context.Context, sock net.Conn, s *site, trust *tls.Config) (net.Conn, error) {
	if f.secure {
		trust = trust.Clone()
		trust.ServerName = f.name
		outer := tls.Client(sock, trust)
		if err := outer.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("TLS handshake with the proxy: %w", err)
		}
		sock = outer
	}
	if !s.secure {
		return sock, nil
	}
	stop := context.AfterFunc(ctx, func() { _ = sock.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := sock.Write([]byte("CONNECT " + s.address + " HTTP/1.1\r\nHost: " + s.address + "\r\n" + f.header() + "\r\n")); err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	c, h := newConn(sock, sock), head{}
	if err := c.readHead(&h); err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	if h.status != 200 || c.r != c.w {
		return nil, fmt.Errorf("proxy: CONNECT was answered with %d and %d bytes behind it; expected 200", h.status, c.w-c.r)
	}
	return sock, nil
}
