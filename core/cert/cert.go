package cert

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Soon is how long before its end a certificate is said to expire soon.
const Soon = 14 * 24 * time.Hour

// Files name a certificate and its key, both PEM. The zero value is no TLS.
type Files struct {
	Cert string `yaml:"cert"` // the leaf first, then what leads to the root
	Key  string `yaml:"key"`
}

// Set tells whether there is to be TLS.
func (f Files) Set() bool { return f != Files{} }

// Load reads the pair and checks it: both files are there, they belong together, and the certificate has not expired
// at now. The error says which file is wrong, and how.
func (f Files) Load(now time.Time) (*tls.Certificate, error) {
	c, _, err := f.load(now)
	return c, err
}

// load also returns the bytes of both files.
func (f Files) load(now time.Time) (*tls.Certificate, []byte, error) {
	switch {
	case f.Cert == "":
		return nil, nil, errors.New("there is a key, but no cert")
	case f.Key == "":
		return nil, nil, errors.New("there is a cert, but no key")
	}
	chain, err := os.ReadFile(f.Cert)
	if err != nil {
		return nil, nil, fmt.Errorf("cert: %w", err)
	}
	key, err := os.ReadFile(f.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("key: %w", err)
	}
	raw := bytes.Join([][]byte{chain, key}, nil)
	c, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, raw, fmt.Errorf("%s and %s: %w", f.Cert, f.Key, err)
	}
	if now.After(c.Leaf.NotAfter) {
		return nil, raw, fmt.Errorf("%s: the certificate has expired at %s", f.Cert, c.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return &c, raw, nil
}

// Expiry says in words when c ends, if that is soon at now; else it is empty.
func Expiry(c *tls.Certificate, now time.Time) string {
	left := c.Leaf.NotAfter.Sub(now)
	if left >= Soon {
		return ""
	}
	return fmt.Sprintf("the certificate expires in %d days, at %s", left/(24*time.Hour), c.Leaf.NotAfter.UTC().Format(time.RFC3339))
}

// Pair is the certificate of a listener. Safe for concurrent use.
type Pair struct {
	files   Files
	current atomic.Pointer[tls.Certificate]
	mu      struct {
		sync.Mutex
		seen []byte // the files as they were read last, good or bad; nil: one could not be read
	}
}

// Open reads the pair as it is at the start.
func Open(f Files, now time.Time) (*Pair, error) {
	p := &Pair{files: f}
	if _, err := p.Renew(now); err != nil {
		return nil, err
	}
	return p, nil
}

// Files are those that it is read from.
func (p *Pair) Files() Files { return p.files }

// Current is the certificate that new connections get.
func (p *Pair) Current() *tls.Certificate { return p.current.Load() }

// Renew reads the files again. Connections that begin from then on get the new certificate; on error, the old one.
// It reports whether the files have changed since it was called last; where they have not, there is no error.
func (p *Pair) Renew(now time.Time) (changed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, raw, err := p.files.load(now)
	if raw != nil && p.mu.seen != nil && bytes.Equal(raw, p.mu.seen) {
		return false, nil
	}
	p.mu.seen = raw
	if err != nil {
		return true, err
	}
	p.current.Store(c)
	return true, nil
}

// Server is what a listener needs: TLS 1.2 or newer, HTTP/1.1 inside.
func (p *Pair) Server() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.current.Load(), nil },
	}
}
