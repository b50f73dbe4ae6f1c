package cert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// issue writes a certificate of its own for 127.0.0.1 that ends at the given time.
func issue(t *testing.T, f Files, serial int64, ends time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "weir"}, NotBefore: ends.Add(-365 * 24 * time.Hour),
		NotAfter: ends, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	must(t, os.WriteFile(f.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(f.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T, name string) Files {
	dir := t.TempDir()
	return Files{filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")}
}

func noon() time.Time { return time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC) }

// TestLoadSaysWhatIsWrong: each error names the file and what is the matter with it.
func TestLoadSaysWhatIsWrong(t *testing.T) {
	good, other, old, broken := files(t, "good"), files(t, "other"), files(t, "old"), files(t, "broken")
	issue(t, good, 1, noon().Add(90*24*time.Hour))
	issue(t, other, 2, noon().Add(90*24*time.Hour))
	issue(t, old, 3, noon().Add(-time.Second))
	issue(t, broken, 4, noon().Add(90*24*time.Hour))
	must(t, os.WriteFile(broken.Cert, []byte("no PEM"), 0o600))
	if _, err := good.Load(noon()); err != nil {
		t.Errorf("a good pair: %v", err)
	}
	for want, f := range map[string]Files{
		"there is a cert, but no key":                 {Cert: good.Cert},
		"there is a key, but no cert":                 {Key: good.Key},
		"cert: open " + good.Cert + "x: no such":      {good.Cert + "x", good.Key},
		"key: open " + good.Key + "x: no such":        {good.Cert, good.Key + "x"},
		"private key does not match public key":       {good.Cert, other.Key},
		"has expired at 2026-03-04T11:59:59Z":         old,
		"failed to find any PEM data":                 broken,
		good.Cert + " and " + other.Key + ": tls: pr": {good.Cert, other.Key},
	} {
		if _, err := f.Load(noon()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %s", f, err, want)
		}
	}
}

// TestEmptyFiles: a pair of empty files is no pair, however much they are like nothing read before.
func TestEmptyFiles(t *testing.T) {
	f := files(t, "empty")
	must(t, os.WriteFile(f.Cert, nil, 0o600))
	must(t, os.WriteFile(f.Key, nil, 0o600))
	if _, err := Open(f, noon()); err == nil || !strings.Contains(err.Error(), "failed to find any PEM data") {
		t.Errorf("open says %v", err)
	}
}

// TestExpiry: it is told from Soon on.
func TestExpiry(t *testing.T) {
	f := files(t, "a")
	issue(t, f, 1, noon().Add(Soon))
	c, err := f.Load(noon())
	must(t, err)
	if text := Expiry(c, noon()); text != "" {
		t.Error(text)
	}
	if text := Expiry(c, noon().Add(time.Second)); text != "the certificate expires in 13 days, at 2026-03-18T12:00:00Z" {
		t.Error(text)
	}
}

// TestRenew: a changed pair serves from the next connection on; a bad one is told once and changes nothing.
func TestRenew(t *testing.T) {
	f := files(t, "a")
	far := noon().Add(90 * 24 * time.Hour)
	issue(t, f, 1, far)
	p, err := Open(f, noon())
	must(t, err)
	serial := func() int64 {
		c, err := p.Server().GetCertificate(&tls.ClientHelloInfo{})
		must(t, err)
		return c.Leaf.SerialNumber.Int64()
	}
	renew := func(changed bool, want string) {
		t.Helper()
		got, err := p.Renew(noon())
		if got != changed || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("changed %v, %v; want %v and %q", got, err, changed, want)
		}
	}
	renew(false, "")
	issue(t, f, 2, far)
	renew(true, "")
	if serial() != 2 {
		t.Errorf("certificate %d serves, want 2", serial())
	}
	issue(t, f, 3, noon().Add(-time.Hour))
	renew(true, "expired")
	renew(false, "")
	must(t, os.Remove(f.Key))
	renew(true, "no such file")
	if serial() != 2 {
		t.Errorf("certificate %d serves, want 2 still", serial())
	}
	issue(t, f, 4, far)
	renew(true, "")
	if serial() != 4 {
		t.Errorf("certificate %d serves, want 4", serial())
	}
}

// TestServerRefusesOldTLS: what is older than 1.2 is not spoken, and 1.2 is.
func TestServerRefusesOldTLS(t *testing.T) {
	f := files(t, "a")
	issue(t, f, 1, noon().Add(90*24*time.Hour))
	p, err := Open(f, noon())
	must(t, err)
	for version, spoken := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		ours, theirs := net.Pipe()
		go func() {
			_ = tls.Server(ours, p.Server()).Handshake()
			_ = ours.Close()
		}()
		client := tls.Client(theirs, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: version, InsecureSkipVerify: true})
		if err := client.Handshake(); (err == nil) != spoken {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		_ = theirs.Close()
	}
}
