package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/weir-gateway/weir/sdk/abi"
)

// compiler is run by Node beside the installed AssemblyScript: one process for all sources, because loading the
// compiler takes longer than using it. Its arguments are an output folder and the sources; the i-th gives i.wasm.
//
// No garbage collector (a policy allocates only while it is configured), no import for aborts (a trap says enough), and
// the memory that the host's small profile allows.
const compiler = `
import asc from "assemblyscript/asc";
const [out, ...sources] = process.argv.slice(1);
for (const [i, source] of sources.entries()) {
  const { error, stderr } = await asc.main([source, "-O3", "--noAssert", "--runtime", "stub", "--use", "abort=",
    "--initialMemory", "1", "--maximumMemory", "16", "-o", out + "/" + i + ".wasm"]);
  if (error) {
    console.error(error.message + "\n" + stderr.toString());
    process.exit(1);
  }
}`

// build makes the module of each folder. The same sources give the same bytes on every machine.
func build(root string, dirs ...string) ([][]byte, error) {
	modules, err := compile(root, dirs)
	if err != nil {
		return nil, err
	}
	for i, dir := range dirs {
		if modules[i], err = describe(modules[i], dir); err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
	}
	return modules, nil
}

// compile runs the compiler in the SDK's folder, where it is installed.
func compile(root string, dirs []string) ([][]byte, error) {
	sdk, err := filepath.Abs(filepath.Join(root, "sdk", "assemblyscript"))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(sdk, "node_modules", "assemblyscript")); err != nil {
		return nil, fmt.Errorf("the compiler is not installed: run npm ci in sdk/assemblyscript")
	}
	out, err := os.MkdirTemp("", "weir-policy-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(out) }()
	args := []string{"--input-type=module", "--eval", compiler, out}
	for _, dir := range dirs {
		source, err := filepath.Abs(filepath.Join(dir, "policy.ts"))
		if err != nil {
			return nil, err
		}
		if source, err = filepath.Rel(sdk, source); err != nil {
			return nil, err
		}
		args = append(args, filepath.ToSlash(source))
	}
	cmd := exec.Command("node", args...)
	cmd.Dir = sdk
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, said)
	}
	modules := make([][]byte, len(dirs))
	for i := range dirs {
		if modules[i], err = os.ReadFile(filepath.Join(out, strconv.Itoa(i)+".wasm")); err != nil {
			return nil, err
		}
	}
	return modules, nil
}

// describe appends the folder's descriptions, where they exist, as custom sections.
func describe(wasm []byte, dir string) ([]byte, error) {
	for _, s := range []struct{ section, file string }{
		{abi.SectionAbout, "about.json"}, {abi.SectionSchema, "schema.json"}, {abi.SectionCases, "cases.json"},
	} {
		raw, err := os.ReadFile(filepath.Join(dir, s.file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			return nil, fmt.Errorf("%s: %w", s.file, err)
		}
		wasm = appendSection(wasm, s.section, compact.Bytes())
	}
	return wasm, nil
}

// appendSection adds a custom section: 0, the size, the name with its length, the content.
func appendSection(wasm []byte, name string, content []byte) []byte {
	body := binary.AppendUvarint(nil, uint64(len(name)))
	body = append(append(body, name...), content...)
	wasm = binary.AppendUvarint(append(wasm, 0), uint64(len(body)))
	return append(wasm, body...)
}
