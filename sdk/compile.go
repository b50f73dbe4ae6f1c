package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The memory that a small module gets: a stack below its static data, so that an overflow traps, and 1 MiB at most.
const (
	stackSize = "stack-size=16384"
	maxMemory = "--max-memory=1048576"
)

// ErrNotInstalled is what Build's error wraps when a compiler is not there; its text says how to install it.
var ErrNotInstalled = errors.New("is not installed")

func missing(what, install string) error {
	return fmt.Errorf("%s %w: %s", what, ErrNotInstalled, install)
}

// run executes a compiler in dir with env added; what it said is part of the error.
func run(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(os.Environ(), env...), 5*time.Second
	said, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", filepath.Base(name), ctx.Err())
	}
	return fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, strings.TrimSpace(string(said)))
}

// scratch gives a folder for what a compiler writes, and its end.
func scratch() (dir string, done func(), err error) {
	dir, err = os.MkdirTemp("", "weir-policy-")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}

// above finds a path in dir or a folder above it; empty: nowhere.
func above(dir string, path ...string) string {
	for {
		candidate := filepath.Join(append([]string{dir}, path...)...)
		if _, err := os.Stat(candidate); err == nil {
			return candidate
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// resolve gives the absolute path without links: compilers compute relative paths from it.
func resolve(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

func either(yes bool, this, that string) string {
	if yes {
		return this
	}
	return that
}

func compileC(ctx context.Context, dir string, names bool) ([]byte, error) {
	const install = "the C toolchain is clang and lld (Debian, Ubuntu: apt-get install clang lld)"
	if _, err := exec.LookPath("clang"); err != nil {
		return nil, missing("clang", install)
	}
	if _, err := exec.LookPath("wasm-ld"); err != nil {
		return nil, missing("wasm-ld", install)
	}
	tmp, done, err := scratch()
	if err != nil {
		return nil, err
	}
	defer done()
	out := filepath.Join(tmp, "policy.wasm")
	err = run(ctx, dir, nil, "clang", "--target=wasm32-unknown-unknown", "-std=c11", "-O3", "-Wall", "-Wextra", "-Werror",
		"-nostdlib", "-ffreestanding", "-fno-builtin", "-mbulk-memory",
		"-Wl,--no-entry,--strip-"+either(names, "debug", "all")+",--stack-first,-z,"+stackSize+","+maxMemory, "-o", out, "policy.c")
	if err != nil {
		if strings.Contains(err.Error(), "No available targets") || strings.Contains(err.Error(), "unable to create target") {
			return nil, fmt.Errorf("this clang cannot make WebAssembly; %s\n%w", install, err)
		}
		return nil, err
	}
	return os.ReadFile(out)
}

func compileRust(ctx context.Context, dir string, names bool) ([]byte, error) {
	rustc, err := findRustc(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("wasm-ld"); err != nil {
		return nil, missing("wasm-ld", "rustc links with lld (Debian, Ubuntu: apt-get install lld)")
	}
	if dir, err = resolve(dir); err != nil {
		return nil, err
	}
	library := filepath.Join(dir, "weir")
	if _, err := os.Stat(filepath.Join(library, "lib.rs")); err != nil {
		if library = above(dir, "sdk", "rust"); library == "" {
			return nil, errors.New("the SDK is missing: want weir/lib.rs in the folder, as `weir policy new` writes it")
		}
	}
	tmp, done, err := scratch()
	if err != nil {
		return nil, err
	}
	defer done()
	flags := []string{"--edition=2021", "--target=wasm32-unknown-unknown", "-Copt-level=3", "-Cpanic=abort", "-Ccodegen-units=1"}
	rlib, out := filepath.Join(tmp, "libweir.rlib"), filepath.Join(tmp, "policy.wasm")
	err = run(ctx, library, nil, rustc, append(flags, "--crate-type=rlib", "--crate-name=weir", "-o", rlib, "lib.rs")...)
	if err != nil {
		return nil, err
	}
	err = run(ctx, dir, nil, rustc, append(flags, "--crate-type=cdylib", "--crate-name=policy", "--extern", "weir="+rlib,
		"-Clto=fat", "-Cstrip="+either(names, "debuginfo", "symbols"), "-Clinker=wasm-ld", "-Clink-arg=-z"+stackSize, "-Clink-arg="+maxMemory, "-o", out, "policy.rs")...)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

// findRustc gives the first compiler that has the library for WebAssembly: RUSTC, the system's, the one on the PATH.
func findRustc(ctx context.Context) (string, error) {
	tried := 0
	for _, name := range []string{os.Getenv("RUSTC"), "/usr/bin/rustc", "rustc"} {
		if name == "" {
			continue
		}
		if _, err := exec.LookPath(name); err != nil {
			continue
		}
		tried++
		lib, err := exec.CommandContext(ctx, name, "--print=target-libdir", "--target=wasm32-unknown-unknown").Output()
		if err != nil {
			continue
		}
		if _, err := os.Stat(strings.TrimSpace(string(lib))); err == nil {
			return name, nil
		}
	}
	const install = "Debian, Ubuntu: apt-get install rustc libstd-rust-dev-wasm32 lld; with rustup: rustup target add wasm32-unknown-unknown, and lld"
	if tried == 0 {
		return "", missing("rustc", install)
	}
	return "", missing("rustc's library for wasm32-unknown-unknown", install)
}

// compileGo keeps no names: with them the linker makes other code.
func compileGo(ctx context.Context, dir string, _ bool) ([]byte, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return nil, missing("go", "policies in Go need Go 1.24 or newer on the PATH")
	}
	tmp, done, err := scratch()
	if err != nil {
		return nil, err
	}
	defer done()
	out := filepath.Join(tmp, "policy.wasm")
	env := []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOTOOLCHAIN=local"}
	err = run(ctx, dir, env, "go", "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, ".")
	if err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

// ascDriver is run by Node beside the installed AssemblyScript: one process for all sources, because loading the
// compiler takes longer than using it. Its arguments are an output folder, "names" to keep those
// of functions or "bare", and the sources; the i-th gives i.wasm.
//
// No garbage collector (a policy allocates only while it is configured), no import for aborts (a trap says enough), and
// the memory that the host's small profile allows.
const ascDriver = `
import asc from "assemblyscript/asc";
const [out, names, ...sources] = process.argv.slice(1);
for (const [i, source] of sources.entries()) {
  const { error, stderr } = await asc.main([source, "-O3", "--noAssert", "--runtime", "stub", "--use", "abort=",
    "--initialMemory", "1", "--maximumMemory", "16", ...names === "names" ? ["--debug"] : [], "-o", out + "/" + i + ".wasm"]);
  if (error) {
    console.error(error.message + "\n" + stderr.toString());
    process.exit(1);
  }
}`

// compileAssemblyScript compiles folders that share an installed compiler in one process.
func compileAssemblyScript(ctx context.Context, dirs []string, names bool) ([][]byte, error) {
	if _, err := exec.LookPath("node"); err != nil {
		return nil, missing("node", "AssemblyScript needs Node.js 20 or newer with npm (Debian, Ubuntu: apt-get install nodejs npm)")
	}
	modules, homes, of := make([][]byte, len(dirs)), []string{}, map[string][]int{}
	for i, dir := range dirs {
		home, err := ascHome(dir)
		if err != nil {
			return nil, err
		}
		if of[home] == nil {
			homes = append(homes, home)
		}
		of[home] = append(of[home], i)
	}
	for _, home := range homes {
		if err := runASC(ctx, home, dirs, of[home], names, modules); err != nil {
			return nil, err
		}
	}
	return modules, nil
}

// ascHome is the folder whose node_modules has the compiler: the policy's, one above it, or a checkout's SDK.
func ascHome(dir string) (string, error) {
	abs, err := resolve(dir)
	if err != nil {
		return "", err
	}
	compiler := []string{"node_modules", "assemblyscript", "package.json"}
	found := above(abs, compiler...)
	if found == "" {
		found = above(abs, append([]string{"sdk", "assemblyscript"}, compiler...)...)
	}
	if found == "" {
		where := dir
		if checkout := above(abs, "sdk", "assemblyscript", "package.json"); checkout != "" {
			where = filepath.Dir(checkout)
		}
		return "", missing("the AssemblyScript compiler", "run npm ci in "+where)
	}
	if found, err = filepath.EvalSymlinks(found); err != nil {
		return "", err
	}
	return filepath.Dir(filepath.Dir(filepath.Dir(found))), nil
}

// runASC compiles dirs[i] to modules[i] for each of indices, with the compiler of home.
func runASC(ctx context.Context, home string, dirs []string, indices []int, names bool, modules [][]byte) error {
	tmp, done, err := scratch()
	if err != nil {
		return err
	}
	defer done()
	args := []string{"--input-type=module", "--eval", ascDriver, tmp, either(names, "names", "bare")}
	for _, i := range indices {
		dir, err := resolve(dirs[i])
		if err != nil {
			return err
		}
		source, err := filepath.Rel(home, filepath.Join(dir, "policy.ts"))
		if err != nil {
			return err
		}
		args = append(args, filepath.ToSlash(source))
	}
	if err := run(ctx, home, nil, "node", args...); err != nil {
		return err
	}
	for k, i := range indices {
		if modules[i], err = os.ReadFile(filepath.Join(tmp, strconv.Itoa(k)+".wasm")); err != nil {
			return err
		}
	}
	return nil
}
