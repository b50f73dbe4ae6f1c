package admin

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/upstream"
)

// Documents of the kind "setting", beside the global limits.
const (
	settingSecret = "key-secret"
	settingSeeded = "seeded"
	secretBytes   = 32
)

// Secret is the key of the directory's hashes: read from the ledger, made and stored the first time.
func Secret(l *ledger.Ledger, random io.Reader) ([]byte, error) {
	d, found, err := l.Doc("setting", settingSecret)
	if err != nil {
		return nil, fmt.Errorf("reading the secret of the keys' hashes: %w", err)
	}
	if found {
		text, err := decode[string](d)
		if err != nil {
			return nil, err
		}
		secret, err := hex.DecodeString(text)
		if err != nil || len(secret) != secretBytes {
			return nil, errors.New("the stored secret of the keys' hashes is damaged")
		}
		return secret, nil
	}
	secret := make([]byte, secretBytes)
	if _, err := io.ReadFull(random, secret); err != nil {
		return nil, fmt.Errorf("making the secret of the keys' hashes: %w", err)
	}
	c := ledger.Change{Actor: "gateway", Action: "secret.create", Target: "setting:" + settingSecret}
	if err := l.Put(context.Background(), c, []ledger.Doc{named("setting", settingSecret, hex.EncodeToString(secret))}, nil); err != nil {
		return nil, fmt.Errorf("storing the secret of the keys' hashes: %w", err)
	}
	return secret, nil
}

// Restore fills the directory, the catalog and the policy host from the ledger's documents, and the limiter's balances.
// A key's tier that is not configured is an error, see CheckTiers. From then on what the host changes by itself is
// written down, until Close.
func (a *API) Restore(ctx context.Context, s ledger.State) error {
	done, err := a.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	for _, step := range []func() error{
		func() error { return a.restoreOwners(s) },
		a.restoreGoods,
		a.restoreSettings,
		func() error { return a.restoreRules(ctx) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("restoring: %w", err)
		}
	}
	a.started.Do(func() { a.running.Go(func() { a.watch(a.Policy.Events()) }) })
	return nil
}

// each decodes the documents of a kind.
func each[T any](docs iter.Seq2[ledger.Doc, error], visit func(T)) error {
	for d, err := range docs {
		if err != nil {
			return err
		}
		v, err := decode[T](d)
		if err != nil {
			return err
		}
		visit(v)
	}
	return nil
}

func (a *API) restoreOwners(s ledger.State) error {
	lost := lostTiers{known: *a.tiers.Load()}
	err := errors.Join(
		each(a.Ledger.Docs("org"), a.Directory.SetOrg),
		each(a.Ledger.Docs("user"), func(u auth.User) { a.applyUser(u, s.Balances[u.ID]) }),
		each(a.Ledger.Docs("key"), func(k auth.Key) { lost.note(k); a.Directory.SetKey(k) }),
		lost.err())
	for _, q := range s.Used {
		a.Limiter.LoadQuota(q.Key, q.Label, q.Used)
	}
	return err
}

func (a *API) restoreGoods() error {
	var models []upstream.Model
	var channels []upstream.Channel
	err := errors.Join(
		each(a.Ledger.Docs("model"), func(m upstream.Model) { models = append(models, m) }),
		each(a.Ledger.Docs("channel"), func(ch upstream.Channel) { channels = append(channels, ch) }))
	if err != nil {
		return err
	}
	g, err := makeGoods(models, channels)
	if err == nil {
		a.applyGoods(g)
	}
	return err
}

func (a *API) restoreSettings() error {
	global, err := setting[limit.Limits](a.Ledger, settingGlobal)
	if err != nil {
		return err
	}
	a.applyGlobal(global)
	seeded, err := setting[map[string]string](a.Ledger, settingSeeded)
	if seeded != nil {
		a.seeded = seeded
	}
	return err
}

// setting reads one; absent is zero.
func setting[T any](l *ledger.Ledger, id string) (v T, err error) {
	d, found, err := l.Doc("setting", id)
	if err != nil || !found {
		return v, err
	}
	return decode[T](d)
}

// decode reads a stored document; it is ours, so an error is damage.
func decode[T any](d ledger.Doc) (v T, err error) {
	if err = json.Unmarshal(d.Data, &v); err != nil {
		err = fmt.Errorf("document %s %s is damaged: %w", d.Kind, d.ID, err)
	}
	return v, err
}
