package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/cert"
)

// issue writes a certificate of its own for 127.0.0.1 that ends after the given time.
func issue(t *testing.T, f cert.Files, serial int64, left time.Duration) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "weir"}, NotBefore: now.Add(-365 * 24 * time.Hour), NotAfter: now.Add(left),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, f.Cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, f.Key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

const longLife = 90 * 24 * time.Hour

// serveTLS is serve with one pair for both listeners.
func serveTLS(t *testing.T) (*process, cert.Files) {
	t.Helper()
	dir := t.TempDir()
	f := cert.Files{Cert: filepath.Join(dir, "weir.pem"), Key: filepath.Join(dir, "weir.key")}
	issue(t, f, 1, longLife)
	p := serve(t, "")
	p.kill()
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	block := fmt.Sprintf(", tls: {cert: %q, key: %q}}\n", f.Cert, f.Key)
	write(t, p.file, strings.Replace(strings.Replace(string(text), "}\nadmin", block+"admin", 1), "}\"}\ndata", "}\""+block+"data", 1))
	for _, name := range []string{"WEIR_URL", "WEIR_ADMIN_URL"} {
		p.env[name] = strings.Replace(p.env[name], "http:", "https:", 1)
	}
	p.env["SSL_CERT_FILE"] = f.Cert
	p.launch()
	eventually(t, "both listeners speak TLS", func() bool { return strings.Contains(p.log(), "clients="+p.env["WEIR_URL"]+" admin=https:") })
	return p, f
}

// trusting is a client that trusts what is in a file now.
func trusting(t *testing.T, f cert.Files) *http.Client {
	t.Helper()
	text, err := os.ReadFile(f.Cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// run is a command in a process of its own, which reads SSL_CERT_FILE anew.
func (p *process) run(args ...string) (string, error) {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asMain+"=1")
	for name, value := range p.env {
		c.Env = append(c.Env, name+"="+value)
	}
	out, err := c.CombinedOutput()
	return string(out), err
}

// serial is that of the certificate that a new connection gets.
func serial(t *testing.T, base string) int64 {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(base, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// TestTLSOnBothListeners: commands and clients that trust the certificate speak to both listeners, a client that leaves
// ends its stream, and who does not trust it is told what to do.
func TestTLSOnBothListeners(t *testing.T) {
	p, f := serveTLS(t)
	for _, args := range [][]string{{"org", "create", "--name", "Acme"}, {"user", "create", "--org-id", "1", "--name", "alice", "--balance", "100"}} {
		if out, err := p.run(args...); err != nil {
			t.Fatalf("weir %s: %v %s", strings.Join(args, " "), err, out)
		}
	}
	out, err := p.run("key", "create", "--user-id", "1", "--name", "k", "--json")
	_, rest, _ := strings.Cut(out, `"plaintext": "`)
	key, _, ok := strings.Cut(rest, `"`)
	if err != nil || !ok {
		t.Fatalf("%v %s", err, out)
	}
	if out, err := p.run("attack", "--base", p.env["WEIR_URL"], "--key", key, "--total", "5"); err != nil || !strings.Contains(out, `"200": 5`) {
		t.Errorf("attack: %v %s", err, out)
	}
	client := trusting(t, f)
	for body, want := range map[string]string{hello: `"usage"`, strings.Replace(hello, "{", `{"stream":true,`, 1): "[DONE]"} {
		resp := p.postBy(client, t.Context(), key, body)
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%d %v %s", resp.StatusCode, err, text)
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	resp := p.postBy(client, ctx, key, `{"model":"slow","stream":true,"max_tokens":2000,"messages":[{"role":"user","content":"hello"}]}`)
	if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	leave()
	_ = resp.Body.Close()
	eventually(t, "the stream of a client that left has ended", func() bool { return strings.Contains(p.log(), "client_gone=true") })
	p.env["SSL_CERT_FILE"] = "/dev/null"
	if out, err := p.run("org", "list"); err == nil || !strings.Contains(out, "set SSL_CERT_FILE to its PEM file") {
		t.Errorf("a stranger's certificate: %v %s", err, out)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("serve ended with %v: %s", err, p.log())
	}
	p.verify()
}

func (p *process) postBy(client *http.Client, ctx context.Context, key, body string) *http.Response {
	p.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", p.env["WEIR_URL"]+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp
}

// TestCertificateIsRenewed: new files serve from the next connection on, by themselves and at SIGHUP; a pair that is not
// fit is told and changes nothing; what is open goes on.
func TestCertificateIsRenewed(t *testing.T) {
	p, f := serveTLS(t)
	open, err := tls.Dial("tcp", strings.TrimPrefix(p.env["WEIR_URL"], "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	issue(t, f, 2, longLife)
	for _, base := range []string{p.env["WEIR_URL"], p.env["WEIR_ADMIN_URL"]} {
		eventually(t, "the new certificate serves", func() bool { return serial(t, base) == 2 })
	}
	issue(t, f, 3, -time.Hour)
	eventually(t, "an expired one is refused", func() bool { return strings.Contains(p.log(), "certificate refused, the old one serves on") })
	write(t, f.Key, "nonsense")
	eventually(t, "what is no key is refused", func() bool { return strings.Contains(p.log(), "failed to find any PEM data in key input") })
	if got := serial(t, p.env["WEIR_URL"]); got != 2 {
		t.Errorf("certificate %d serves, want 2 still", got)
	}
	next := cert.Files{Cert: f.Cert + ".new", Key: f.Key + ".new"}
	issue(t, next, 4, cert.Soon-time.Hour)
	for from, to := range map[string]string{next.Cert: f.Cert, next.Key: f.Key} { // as tools that renew do
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the renamed files serve", func() bool { return serial(t, p.env["WEIR_URL"]) == 4 })
	eventually(t, "its early end is told", func() bool { return strings.Contains(p.log(), "the certificate expires in 13 days") })
	if _, err := io.WriteString(open, "GET /healthz HTTP/1.1\r\nHost: weir\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if n, err := open.Read(make([]byte, 100)); n == 0 {
		t.Errorf("a connection from before: %v", err)
	}
}

// TestCertificateIsChecked: what serve refuses of a pair, config check and doctor refuse, with the place in the file; what
// ends soon is noted.
func TestCertificateIsChecked(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) cert.Files {
		return cert.Files{Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key")}
	}
	issue(t, at("good"), 1, longLife)
	issue(t, at("soon"), 2, cert.Soon-time.Hour)
	issue(t, at("old"), 3, -time.Hour)
	for _, x := range []struct {
		pair cert.Files
		want string // empty: fit
		note string // of check
	}{
		{at("good"), "", ""},
		{at("soon"), "", "note: admin.tls: the certificate expires in 13 days"},
		{at("old"), "the certificate has expired", ""},
		{at("none"), "none.pem: no such file", ""},
		{cert.Files{Cert: at("good").Cert, Key: at("soon").Key}, "private key does not match public key", ""},
		{cert.Files{Cert: at("good").Cert}, "there is a cert, but no key", ""},
	} {
		file := filepath.Join(dir, "weir.yaml")
		write(t, file, fmt.Sprintf("listen: {address: \"127.0.0.1:0\"}\nadmin: {address: \"127.0.0.1:0\", token: %s, tls: {cert: %q, key: %q}}\ndata: %q\n", testToken, x.pair.Cert, x.pair.Key, t.TempDir()))
		stdout, stderr, code := weir(t, nil, "config", "check", "-c", file)
		findings, _, _ := weir(t, nil, "doctor", "-c", file)
		if x.want == "" {
			if code != exitDone || !strings.Contains(stderr, x.note) {
				t.Errorf("%+v: check: exit %d, %s%s", x.pair, code, stdout, stderr)
			}
			if status := map[bool]string{true: "ok  ", false: "warn"}[x.note == ""]; !strings.Contains(findings, status+"  certificate admin: ") {
				t.Errorf("%+v: doctor: %s", x.pair, findings)
			}
			continue
		}
		_, refused, served := weir(t, nil, "serve", "-c", file)
		if code != exitFail || served != exitFail || refused != stderr || !strings.HasPrefix(stderr, "weir: "+file+":2:") || !strings.Contains(stderr, "admin.tls: ") || !strings.Contains(stderr, x.want) {
			t.Errorf("%+v: check: exit %d, %s; serve: exit %d, %s; want %s", x.pair, code, stderr, served, refused, x.want)
		}
		if !strings.Contains(findings, "fail  certificate admin: ") || !strings.Contains(findings, x.want) {
			t.Errorf("%+v: doctor: %s", x.pair, findings)
		}
	}
}
