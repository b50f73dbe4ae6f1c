package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/weir-gateway/weir/core/cert"
	"github.com/weir-gateway/weir/core/config"
)

// certificates are those of the listeners that speak TLS, by the listener's block in the configuration.
type certificates map[string]*cert.Pair

// openPairs reads the pairs that cfg names; the error is placed in the file.
func openPairs(cfg *config.Config, now time.Time) (certificates, error) {
	ps := certificates{}
	for block, f := range map[string]cert.Files{"listen": cfg.Listen.TLS, "admin": cfg.Admin.TLS} {
		if !f.Set() {
			continue
		}
		p, err := cert.Open(f, now)
		if err != nil {
			return nil, cfg.At(block+".tls", err)
		}
		ps[block] = p
	}
	return ps, nil
}

// listen opens the listener of a block.
func (ps certificates) listen(block, address string) (net.Listener, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s.address: %w", block, err)
	}
	if p := ps[block]; p != nil {
		ln = tls.NewListener(ln, p.Server())
	}
	return ln, nil
}

// baseURL is where the listener of a block is reached.
func (ps certificates) baseURL(block string, ln net.Listener) string {
	if ps[block] != nil {
		return "https://" + ln.Addr().String()
	}
	return "http://" + ln.Addr().String()
}

// renew reads the pairs again. One that is not fit is told, and the one before serves on.
func (ps certificates) renew(log *slog.Logger, now time.Time) {
	for _, block := range slices.Sorted(maps.Keys(ps)) {
		p := ps[block]
		changed, err := p.Renew(now)
		switch {
		case err != nil:
			log.Error("certificate refused, the old one serves on", "listener", block, "error", err, "until", p.Current().Leaf.NotAfter)
		case changed:
			log.Info("certificate renewed", "listener", block, "until", p.Current().Leaf.NotAfter)
		}
	}
	ps.remind(log, now)
}

// remind warns of what expires soon.
func (ps certificates) remind(log *slog.Logger, now time.Time) {
	for _, block := range slices.Sorted(maps.Keys(ps)) {
		if text := cert.Expiry(ps[block].Current(), now); text != "" {
			log.Warn(text, "listener", block, "file", ps[block].Files().Cert)
		}
	}
}

// notes are the same warnings for a file that is only checked.
func (ps certificates) notes(now time.Time) (texts []string) {
	for _, block := range slices.Sorted(maps.Keys(ps)) {
		if text := cert.Expiry(ps[block].Current(), now); text != "" {
			texts = append(texts, block+".tls: "+text)
		}
	}
	return texts
}

// folders are those that hold the pairs' files.
func (ps certificates) folders() (dirs []string) {
	for _, p := range ps {
		dirs = append(dirs, filepath.Dir(p.Files().Cert), filepath.Dir(p.Files().Key))
	}
	return dirs
}

// have tells whether a change of the file named may be one of a pair.
func (ps certificates) have(name string) bool {
	for _, p := range ps {
		if concerns(name, p.Files().Cert) || concerns(name, p.Files().Key) {
			return true
		}
	}
	return false
}

func (ps certificates) writeMetrics(w io.Writer) {
	const family = "weir_certificate_expires_timestamp_seconds"
	if len(ps) > 0 {
		metrics.WriteMetadataIfNeeded(w, family, "gauge")
	}
	for _, block := range slices.Sorted(maps.Keys(ps)) {
		_, _ = fmt.Fprintf(w, "%s{listener=%q} %d\n", family, block, max(ps[block].Current().Leaf.NotAfter.Unix(), 0))
	}
}

// hinted adds what to do to a failure to trust a gateway's certificate.
func hinted(err error) error {
	if _, unknown := errors.AsType[*tls.CertificateVerificationError](err); unknown {
		return fmt.Errorf("%w; for a certification authority of your own, set SSL_CERT_FILE to its PEM file", err)
	}
	return err
}
