package redis

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"

	"github.com/redis/rueidis"
)

//go:embed window.lua
var windowLua string

//go:embed dim.lua
var dimLua string

//go:embed take.lua
var takeLua string

//go:embed end.lua
var endLua string

//go:embed beat.lua
var beatLua string

//go:embed borrow.lua
var borrowLua string

// script is a program on the server and its name there.
type script struct{ text, sha string }

var (
	takeScript   = makeScript(windowLua + dimLua + takeLua)
	endScript    = makeScript(windowLua + dimLua + endLua)
	beatScript   = makeScript(windowLua + dimLua + beatLua)
	borrowScript = makeScript(windowLua + borrowLua)
)

func makeScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

func scripts() []*script { return []*script{takeScript, endScript, beatScript, borrowScript} }

// run runs a script once. Only where the server does not know it, which it says without having done anything, it is sent
// whole.
func (w *Windows) run(ctx context.Context, s *script, k *call) (string, error) {
	c, err := w.enter()
	if err != nil {
		return "", err
	}
	defer w.open.Add(-1)
	r := c.Do(ctx, c.B().Evalsha().Sha1(s.sha).Numkeys(int64(len(k.keys))).Key(k.keys...).Arg(k.args[:]...).Build())
	if unknown(r.Error()) {
		r = c.Do(ctx, c.B().Eval().Script(s.text).Numkeys(int64(len(k.keys))).Key(k.keys...).Arg(k.args[:]...).Build())
	}
	if err := w.judge(r.Error()); err != nil {
		return "", err
	}
	return r.ToString()
}

// runAll runs a script once for each call, in one round trip; got takes the answers.
func (w *Windows) runAll(ctx context.Context, s *script, n int, encode func(i int, k *call), got func(i int, answer string)) error {
	if n == 0 {
		return nil
	}
	k := w.calls.Get().(*call)
	defer w.calls.Put(k)
	if n == 1 {
		encode(0, k)
		answer, err := w.run(ctx, s, k)
		if err == nil {
			got(0, answer)
		}
		return err
	}
	var failed error
	for from := 0; from < n; from += maxExchanges {
		failed = errors.Join(failed, w.runSome(ctx, s, from, min(n, from+maxExchanges), k, encode, got))
	}
	return failed
}

func (w *Windows) runSome(ctx context.Context, s *script, from, to int, k *call, encode func(i int, k *call), got func(i int, answer string)) error {
	c, err := w.enter()
	if err != nil {
		return err
	}
	defer w.open.Add(-1)
	commands := make(rueidis.Commands, 0, to-from)
	for i := from; i < to; i++ {
		encode(i, k)
		commands = append(commands, c.B().Evalsha().Sha1(s.sha).Numkeys(int64(len(k.keys))).Key(k.keys...).Arg(k.args[:]...).Build())
	}
	var failed error
	for i, r := range c.DoMulti(ctx, commands...) {
		if unknown(r.Error()) {
			encode(from+i, k)
			r = c.Do(ctx, c.B().Eval().Script(s.text).Numkeys(int64(len(k.keys))).Key(k.keys...).Arg(k.args[:]...).Build())
		}
		err := w.judge(r.Error())
		if err == nil {
			var answer string
			if answer, err = r.ToString(); err == nil {
				got(from+i, answer)
			}
		}
		if failed == nil {
			failed = err
		}
	}
	return failed
}

func unknown(err error) bool {
	e, ok := rueidis.IsRedisErr(err)
	return ok && e.IsNoScript()
}
