package upstream

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// tunnel is a proxy: it connects to where CONNECT says, and writes down what it was asked.
func tunnel(t *testing.T, to string, asked *atomic.Value) string {
	st := newStub(t, func(x *exchange) bool {
		asked.Store(x.req.Method + " " + x.req.RequestURI + " " + x.req.Header.Get("Proxy-Authorization"))
		if x.req.Method != http.MethodConnect {
			return fine(x)
		}
		if x.req.Header.Get("Proxy-Authorization") == "" {
			x.answer(407, "", "who are you?")
			return false
		}
		up, err := net.Dial("tcp", to)
		if err != nil {
			t.Error(err)
			return false
		}
		defer up.Close()
		x.send("HTTP/1.1 200 Connection established\r\n\r\n")
		go func() { _, _ = io.Copy(up, x.Conn); up.Close() }()
		_, _ = io.Copy(x.Conn, up)
		return false
	})
	return st.url
}

// behind is a rig whose requests leave through a proxy.
func behind(t *testing.T, proxy string, o Options, ch Channel) *rig {
	r := newRig(t, o, ch)
	u, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	r.client.proxy = func(*url.URL) (*url.URL, error) { return u, nil }
	return r
}

func TestThroughAProxy(t *testing.T) {
	var heard atomic.Value
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		heard.Store(q.Host + " " + q.Header.Get("Proxy-Authorization"))
		_, _ = io.WriteString(w, `{"model":"m"}`)
	}))
	defer srv.Close()
	var asked atomic.Value
	proxy := tunnel(t, srv.Listener.Addr().String(), &asked)
	known := strings.Replace(proxy, "http://", "http://me:secret@", 1)

	r := behind(t, known, Options{}, openai("a", "https://example.com"))
	r.client.trust.RootCAs = x509.NewCertPool()
	r.client.trust.RootCAs.AddCert(srv.Certificate())
	for range 2 {
		if _, body, err := r.call(); body != `{"model":"m"}` || err != nil {
			t.Fatal(body, err, asError(t, err, llm.KindUpstream).Err)
		}
	}
	if asked.Load() != "CONNECT example.com:443 Basic bWU6c2VjcmV0" || heard.Load() != "example.com " {
		t.Errorf("the proxy heard %q, the upstream %q", asked.Load(), heard.Load())
	}
	r.client.Close()

	r = behind(t, proxy, Options{}, openai("a", "https://example.com"))
	_, _, err := r.call()
	contains(t, asError(t, err, llm.KindUpstream).Err.Error(), "CONNECT was answered with 407")

	r = behind(t, known, Options{}, openai("a", "http://example.com/x"))
	if _, _, err := r.call(); err != nil {
		t.Fatal(err)
	}
	if asked.Load() != "POST http://example.com/x/v1/chat/completions Basic bWU6c2VjcmV0" {
		t.Errorf("for http the proxy heard %q", asked.Load())
	}
}

// A proxy is no way around what a base URL may reach.
func TestAProxyIsNoWayAround(t *testing.T) {
	var asked atomic.Value
	proxy := tunnel(t, "", &asked)
	r := behind(t, proxy, Options{Reach: ReachPublic}, openai("a", "http://10.1.2.3"))
	_, _, err := r.call()
	contains(t, asError(t, err, llm.KindUpstream).Err.Error(), "leads to 10.1.2.3, which is not public")
	r = behind(t, "socks5://127.0.0.1:1", Options{}, openai("a", "http://example.com"))
	_, _, err = r.call()
	contains(t, asError(t, err, llm.KindUpstream).Err.Error(), "expected http:// or https://")
	if asked.Load() != nil {
		t.Errorf("the proxy was asked %q", asked.Load())
	}
}

// A proxy that says nothing is left when connecting has taken too long, or the client is gone.
func TestASilentProxy(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, never answers
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	r := behind(t, "http://"+ln.Addr().String(), Options{ConnectTimeoutMS: 50, Attempts: 1}, openai("a", "https://example.com"))
	start := time.Now()
	_, _, err = r.call()
	contains(t, asError(t, err, llm.KindUpstream).Err.Error(), "proxy: ")
	r = behind(t, "http://"+ln.Addr().String(), Options{ConnectTimeoutMS: 60_000}, openai("a", "https://example.com"))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, err := r.do(ctx, plainBody, new(watcher)); err != context.DeadlineExceeded || time.Since(start) > 10*time.Second {
		t.Error(err, time.Since(start))
	}
}

// TestProxyOfTheEnvironment asks a child, since a process reads its environment once.
func TestProxyOfTheEnvironment(t *testing.T) {
	if os.Getenv("WEIR_TEST_PROXY") != "" {
		out := newOutside()
		for _, base := range []string{"https://api.openai.com/v1", "http://vllm.test:8000", "https://inner.corp.test", "http://127.0.0.1:11434", "http://localhost:1"} {
			s, err := parseBase(base)
			if err != nil {
				t.Fatal(err)
			}
			f, err := newForward(&s, out.proxy)
			if err != nil {
				t.Fatal(err)
			}
			if f == nil {
				f = &forward{address: "direct"}
			}
			fmt.Println(base, f.address, f.secure)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestProxyOfTheEnvironment$")
	cmd.Env = append(os.Environ(), "WEIR_TEST_PROXY=1", "HTTPS_PROXY=http://me:secret@out.test:3128", "HTTP_PROXY=https://out.test", "NO_PROXY=.corp.test",
		"https_proxy=", "http_proxy=", "no_proxy=.corp.test")
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(err, string(said))
	}
	for _, want := range []string{"https://api.openai.com/v1 out.test:3128 false", "http://vllm.test:8000 out.test:443 true",
		"https://inner.corp.test direct", "http://127.0.0.1:11434 direct", "http://localhost:1 direct"} {
		contains(t, string(said), want)
	}
}

// TestSystemRoots asks a child, since a process reads the system's certificates once: they are what TLS is checked against.
func TestSystemRoots(t *testing.T) {
	if base := os.Getenv("WEIR_TEST_ROOTS"); base != "" {
		_, err := Connect(t.Context(), openai("a", base), Options{}, llm.NewSystemClock())
		fmt.Println("connecting:", err)
		return
	}
	srv := httptest.NewUnstartedServer(nil)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{roots: "connecting: <nil>", os.DevNull: "connecting: TLS handshake: tls: failed to verify certificate"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSystemRoots$")
		cmd.Env = append(os.Environ(), "WEIR_TEST_ROOTS="+srv.URL, "SSL_CERT_FILE="+file, "SSL_CERT_DIR="+t.TempDir())
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatal(err, string(said))
		}
		contains(t, string(said), want)
	}
}
