package policy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
)

// The layout of Options.CacheDir. Each module's child writes into a folder of its own under modules; for the moment
// of a load its entries are linked into the folder that the gateway's runtime reads, and nothing else ever is there.
const (
	modulesDir  = "modules"
	runPrefix   = "run-"
	maxModules  = 256 // folders kept under modules; the least recently used go first, at start
	maxRunsKept = 4   // folders of runtimes kept at start: those of other living processes, or of dead ones
)

// cacheStore is the gateway's side of the cache.
type cacheStore struct {
	root string
	run  string // what the runtime was given
	read string // the version's folder in run, which the runtime reads
	temp bool   // root is ours to remove
}

func openCache(root string) (*cacheStore, error) {
	c := &cacheStore{root: root, temp: root == ""}
	var err error
	if c.temp {
		if c.root, err = os.MkdirTemp("", "weir-policy-"); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(filepath.Join(c.root, modulesDir), 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(c.root, 0o700); err != nil { // machine code that we run is nobody else's to write
		return nil, err
	}
	if err := prune(filepath.Join(c.root, modulesDir, "*"), maxModules); err != nil {
		return nil, err
	}
	if err := prune(filepath.Join(c.root, runPrefix+"*"), maxRunsKept); err != nil {
		return nil, err
	}
	c.run, err = os.MkdirTemp(c.root, runPrefix)
	return c, err
}

// prune removes the oldest of the matching folders beyond keep.
func prune(pattern string, keep int) error {
	dirs, err := filepath.Glob(pattern)
	if err != nil || len(dirs) <= keep {
		return err
	}
	age := func(dir string) int64 {
		st, err := os.Stat(dir)
		if err != nil {
			return 0
		}
		return st.ModTime().UnixNano()
	}
	slices.SortFunc(dirs, func(a, b string) int { return int(min(max(age(a)-age(b), -1), 1)) })
	for _, dir := range dirs[:len(dirs)-keep] {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// settle learns the folder that the runtime, just made, reads.
func (c *cacheStore) settle() error {
	dirs, err := filepath.Glob(filepath.Join(c.run, "*"))
	if err != nil || len(dirs) != 1 {
		return fmt.Errorf("policy: want one folder in %s, found %d", c.run, len(dirs))
	}
	c.read = dirs[0]
	return nil
}

func (c *cacheStore) close() {
	dir := c.run
	if c.temp {
		dir = c.root
	}
	_ = os.RemoveAll(dir) // what is left is pruned at a later start
}

// load brings a module's machine code into the process without compiling: the child's entries are linked to where
// the runtime looks, and afterwards they must still be the very same files and the only ones. If not, the runtime
// did not find what it wanted there and has compiled, which the gateway never does; the code is refused.
func (c *cacheStore) load(ctx context.Context, rt wazero.Runtime, m *prepared) (wazero.CompiledModule, error) {
	entries, err := c.entries(m)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.read, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		for _, e := range c.list() {
			_ = os.Remove(e)
		}
	}()
	for _, e := range entries {
		if err := os.Link(e, filepath.Join(c.read, filepath.Base(e))); err != nil {
			return nil, err
		}
	}
	code, err := rt.CompileModule(ctx, m.metered)
	if err != nil {
		return nil, refuse("load from the cache: %s", firstLine(err))
	}
	if !c.untouched(entries) {
		_ = code.Close(ctx)
		return nil, refuse("%s %.12s in the cache was made by another version or machine; add it again", m.Name, m.Hash)
	}
	return code, nil
}

// entries are the files that the module's child left.
func (c *cacheStore) entries(m *prepared) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(m.cacheDir(c.root), filepath.Base(c.read), "*"))
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(e string) bool { return strings.HasSuffix(e, ".tmp") }) // of a child that died
	size := int64(0)
	for _, e := range all {
		st, err := os.Lstat(e)
		if err != nil {
			return nil, err
		}
		size += st.Size()
	}
	if len(all) == 0 {
		return nil, refuse("%s %.12s is not in the cache of compiled modules; add it again", m.Name, m.Hash)
	}
	return all, m.p.within(int(size), int(m.p.code), "machine code: bytes")
}

// holds tells whether a module's child has left its code.
func (c *cacheStore) holds(m *prepared) bool {
	_, err := c.entries(m)
	return err == nil
}

func (c *cacheStore) list() []string {
	entries, _ := filepath.Glob(filepath.Join(c.read, "*")) // the pattern is well formed
	return entries
}

func (c *cacheStore) untouched(entries []string) bool {
	now := c.list()
	for i, e := range entries {
		if i >= len(now) || filepath.Base(now[i]) != filepath.Base(e) {
			return false
		}
		a, err1 := os.Stat(e)
		b, err2 := os.Stat(now[i])
		if err1 != nil || err2 != nil || !os.SameFile(a, b) {
			return false
		}
	}
	return len(now) == len(entries)
}
