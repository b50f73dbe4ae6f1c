package admin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/upstream"
)

// goods are the models and channels in force: immutable, sorted by name and by id.
type goods struct {
	models   []upstream.Model
	channels []upstream.Channel
	catalog  *upstream.Catalog
}

// makeGoods sorts and checks; an error is what the client did wrong.
func makeGoods(models []upstream.Model, channels []upstream.Channel) (*goods, error) {
	slices.SortFunc(models, func(a, b upstream.Model) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(channels, func(a, b upstream.Channel) int { return cmp.Compare(a.ID, b.ID) })
	catalog, err := upstream.NewCatalog(models, channels)
	var e *llm.Error
	if err != nil && !errors.As(err, &e) {
		err = llm.Invalid("", "%s", err.Error())
	}
	return &goods{models, channels, catalog}, err
}

// withModel is g with one model put in, or taken out when m is nil.
func (g *goods) withModel(name string, m *upstream.Model) (*goods, error) {
	models := only(slices.Clone(g.models), func(old upstream.Model) bool { return old.Name != name })
	if m != nil {
		models = append(models, *m)
	}
	return makeGoods(models, slices.Clone(g.channels))
}

// withChannel is g with one channel put in, or taken out when ch is nil.
func (g *goods) withChannel(id uint64, ch *upstream.Channel) (*goods, error) {
	channels := only(slices.Clone(g.channels), func(old upstream.Channel) bool { return old.ID != id })
	if ch != nil {
		channels = append(channels, *ch)
	}
	return makeGoods(slices.Clone(g.models), channels)
}

// model looks a name up.
func (g *goods) model(name string) (upstream.Model, bool) {
	i, found := slices.BinarySearchFunc(g.models, name, func(m upstream.Model, n string) int { return strings.Compare(m.Name, n) })
	if !found {
		return upstream.Model{}, false
	}
	return g.models[i], true
}

func (g *goods) modelNames() []string {
	names := make([]string, len(g.models))
	for i := range g.models {
		names[i] = g.models[i].Name
	}
	return names
}

// channel looks a number up.
func (g *goods) channel(id uint64) (upstream.Channel, bool) {
	i := slices.IndexFunc(g.channels, func(ch upstream.Channel) bool { return ch.ID == id })
	if i < 0 {
		return upstream.Channel{}, false
	}
	return g.channels[i], true
}

// channelNamed looks a name up.
func (g *goods) channelNamed(name string) (upstream.Channel, bool) {
	i := slices.IndexFunc(g.channels, func(ch upstream.Channel) bool { return ch.Name == name })
	if i < 0 {
		return upstream.Channel{}, false
	}
	return g.channels[i], true
}

// users are the models that name a channel.
func (g *goods) users(channel string) (names []string) {
	for _, m := range g.models {
		if slices.Contains(m.Channels, channel) {
			names = append(names, m.Name)
		}
	}
	return names
}

// checkAllowed is the rule of a key's list of models: a known name, or a prefix and a trailing "*".
func (g *goods) checkAllowed(s string) error {
	if prefix, wild := strings.CutSuffix(s, "*"); wild {
		if len(prefix) > 256 || !printable(prefix) {
			return fmt.Errorf("expected at most 256 printable bytes before the *")
		}
		return nil
	}
	if _, found := g.model(s); found {
		return nil
	}
	return fmt.Errorf("no model %.64q%s; a trailing * allows a prefix", s, suggest(s, g.modelNames()))
}

// applyGoods lets requests see them from now on.
func (a *API) applyGoods(g *goods) {
	a.goods.Store(g)
	a.Live.SetCatalog(g.catalog)
	if a.Client != nil {
		a.Client.Follow(g.catalog)
	}
}
