package bench

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// child is one process of the rig.
type child struct {
	cmd     *exec.Cmd
	address string // that it serves on
	said    *bytes.Buffer
	ended   chan struct{} // closed when it has ended, and said may be read
}

// readyTime bounds the start of a process, and stopTime its end.
const (
	readyTime = 30 * time.Second
	stopTime  = 5 * time.Second
)

// launch starts a process and waits until url answers 200.
func (b *bench) launch(address, url, name string, args ...string) (*child, error) {
	c := &child{cmd: exec.Command(name, args...), address: address, said: new(bytes.Buffer), ended: make(chan struct{})}
	c.cmd.Stderr = c.said
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	b.children = append(b.children, c)
	for deadline := b.Clock.Mono() + readyTime; ; {
		if answers(b.ctx, url) {
			return c, nil
		}
		select {
		case <-c.ended:
			return nil, fmt.Errorf("%s %s ended at once: %.500s", filepath.Base(name), strings.Join(args, " "), strings.TrimSpace(c.said.String()))
		case <-b.ctx.Done():
			return nil, b.ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
		if b.Clock.Mono() > deadline {
			return nil, fmt.Errorf("%s %s is not ready after %v", filepath.Base(name), strings.Join(args, " "), readyTime)
		}
	}
}

func answers(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// stop asks a process to end, and insists after a while.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.ended:
	case <-time.After(stopTime):
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// free is an address on the loopback that nothing listens on. Its port is below those that the system gives to connections,
// so none of the many that follow takes it.
func (b *bench) free() (string, error) {
	const first, ports = 20_000, 12_000
	for range ports {
		b.looked++
		address := fmt.Sprintf("127.0.0.1:%d", first+(os.Getpid()*97+b.looked)%ports)
		if ln, err := net.Listen("tcp", address); err == nil {
			return address, ln.Close()
		}
	}
	return "", errors.New("no free port from 20000 to 31999")
}

// shape is the simulation's answer to every request: about 600 bytes, or about 50 events.
const shape = "out=47"

func (b *bench) startSim() (*child, error) {
	address, err := b.free()
	if err != nil {
		return nil, err
	}
	return b.launch(address, "http://"+address+"/v1/models", b.Self, "upstream-sim", "--listen", address, "--default", shape)
}

func (b *bench) startBare(upstream string) (*child, error) {
	address, err := b.free()
	if err != nil {
		return nil, err
	}
	return b.launch(address, "http://"+address+"/v1/models", b.Self, BareName, "--listen", address, "--upstream", upstream)
}

// BareName is the hidden command that runs Bare with --listen and --upstream.
const BareName = "bench-bare"

const nginxConf = `
daemon off;
worker_processes %d;
worker_rlimit_nofile 20000;
pid %[2]s/nginx.pid;
error_log stderr crit;
events { worker_connections 8192; }
http {
	access_log off;
	client_body_temp_path %[2]s/body; proxy_temp_path %[2]s/proxy; fastcgi_temp_path %[2]s/fastcgi; uwsgi_temp_path %[2]s/uwsgi; scgi_temp_path %[2]s/scgi;
	client_max_body_size 32m; client_body_buffer_size 2m;
	keepalive_requests 1000000000;
	upstream sim { server %[3]s; keepalive 256; keepalive_requests 1000000000; }
	server {
		listen %[4]s;
		location / { proxy_pass http://sim; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }
	}
}
`

// startNginx starts nginx with a worker for each core; nil when it is not installed.
func (b *bench) startNginx(upstream string) (*child, error) {
	path, err := exec.LookPath("nginx")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/nginx") // which is not on everybody's path
	}
	if err != nil {
		return nil, nil
	}
	address, err := b.free()
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(b.dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, runtime.NumCPU(), b.dir, upstream, address), 0o600); err != nil {
		return nil, err
	}
	return b.launch(address, "http://"+address+"/v1/models", path, "-e", "stderr", "-p", b.dir, "-c", conf)
}

// gateway is one Weir with everything on. It may be stopped and started again on its data.
type gateway struct {
	*child
	b     *bench
	file  string
	admin string // base URL
	token string // of the admin API
	key   string
}

// The gateway's limits are met by nobody and tested by every request; its models are the one that is measured, one whose
// upstream is in this process (delay.go), and one whose streams go on until their client leaves (memory.go).
const gatewayConf = `
listen: {address: %q}
admin: {address: %q, token: %q}
data: %q
ledger: {durability: %s}
log: {level: warn}
limits: {global: {qps: 1000000, tpm: 1000000000000, concurrency: 100000}}
upstream: {connections: 8192}
channels:
  - {name: sim, provider: openai, base_url: "http://%s", credential: sk-simulated}
  - {name: paced, provider: openai, base_url: "http://%s", credential: sk-simulated}
models:
  gpt-4o-mini: {channels: [sim], qps_limit: 1000000, tpm_limit: 1000000000000, price: {input_per_1m: 1.08, cached_input_per_1m: 0.54, output_per_1m: 4.32}}
  paced: {channels: [paced], qps_limit: 1000000, tpm_limit: 1000000000000, price: {input_per_1m: 1.08, output_per_1m: 4.32}}
  held: {channels: [sim], target: "gpt-4o-mini+pace=1s,out=100000,nocap", qps_limit: 1000000, tpm_limit: 1000000000000, price: {input_per_1m: 1.08, output_per_1m: 4.32}}
policies: {module: default}
`

// keyLimits are those of every key.
const keyLimits = `"qpsLimit":1000000,"tpmLimit":1000000000000,"concurrencyLimit":100000,"monthlyQuotaCny":10000000`

// openGateway starts a Weir on a new data folder, with one org, user and key.
func (b *bench) openGateway(durability string) (*gateway, error) {
	g := &gateway{b: b}
	dir, err := os.MkdirTemp(b.dir, durability)
	if err != nil {
		return nil, err
	}
	raw := make([]byte, 20)
	if _, err := io.ReadFull(b.Random, raw); err != nil {
		return nil, err
	}
	listen, err := b.free()
	if err != nil {
		return nil, err
	}
	admin, err := b.free()
	if err != nil {
		return nil, err
	}
	g.token, g.admin, g.file = hex.EncodeToString(raw), "http://"+admin, filepath.Join(dir, "weir.yaml")
	text := fmt.Sprintf(gatewayConf, listen, admin, g.token, filepath.Join(dir, "data"), durability, b.sim.address, b.paced.address())
	if err := os.WriteFile(g.file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if err := g.start(listen); err != nil {
		return nil, err
	}
	if _, err := g.create("orgs", `{"name":"Acme"}`); err != nil {
		return nil, err
	}
	if _, err := g.create("users", `{"orgId":1,"name":"alice","balanceCny":10000000}`); err != nil {
		return nil, err
	}
	g.key, err = g.newKey("first")
	return g, err
}

func (g *gateway) start(listen string) (err error) {
	g.child, err = g.b.launch(listen, "http://"+listen+"/readyz", g.b.Self, "serve", "-c", g.file)
	return err
}

// again stops the gateway and starts it on what it has stored.
func (g *gateway) again() error {
	g.stop()
	return g.start(g.address)
}

// newKey makes a key and gives its text.
func (g *gateway) newKey(name string) (string, error) {
	return g.create("keys", `{"userId":1,"name":`+strconv.Quote(name)+`,`+keyLimits+`}`)
}

// create makes an object through the admin API, and gives a key's text.
func (g *gateway) create(kind, object string) (plaintext string, err error) {
	req, err := http.NewRequestWithContext(g.b.ctx, http.MethodPost, g.admin+"/admin/"+kind, strings.NewReader(object))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+g.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode >= 300 {
		return "", fmt.Errorf("making one of %s: %d %.300s", kind, resp.StatusCode, answer)
	}
	var made struct{ Plaintext string }
	err = json.Unmarshal(answer, &made)
	return made.Plaintext, err
}
