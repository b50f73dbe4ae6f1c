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

	"github.com/weir-gateway/weir/sdk/abi"
)

// flags are the compiler's: no garbage collector (a policy allocates only while it is configured), no import for
// aborts (a trap says enough), and the memory that the host's small profile allows.
var flags = []string{"-O3", "--noAssert", "--runtime", "stub", "--use", "abort=", "--initialMemory", "1", "--maximumMemory", "16"}

// build compiles one folder. The same sources give the same bytes on every machine.
func build(root, dir string) ([]byte, error) {
	wasm, err := compile(root, filepath.Join(dir, "policy.ts"))
	if err != nil {
		return nil, err
	}
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

// compile runs the AssemblyScript compiler that is installed beside the SDK.
func compile(root, source string) ([]byte, error) {
	sdk, err := filepath.Abs(filepath.Join(root, "sdk", "assemblyscript"))
	if err != nil {
		return nil, err
	}
	asc := filepath.Join(sdk, "node_modules", "assemblyscript", "bin", "asc.js")
	if _, err := os.Stat(asc); err != nil {
		return nil, fmt.Errorf("the compiler is not installed: run npm ci in sdk/assemblyscript")
	}
	if source, err = filepath.Abs(source); err != nil {
		return nil, err
	}
	if source, err = filepath.Rel(sdk, source); err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "weir-policy-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	out := filepath.Join(tmp, "policy.wasm")
	cmd := exec.Command("node", append([]string{asc, filepath.ToSlash(source), "-o", out}, flags...)...)
	cmd.Dir = sdk
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, said)
	}
	return os.ReadFile(out)
}

// appendSection adds a custom section: 0, the size, the name with its length, the content.
func appendSection(wasm []byte, name string, content []byte) []byte {
	body := binary.AppendUvarint(nil, uint64(len(name)))
	body = append(append(body, name...), content...)
	wasm = binary.AppendUvarint(append(wasm, 0), uint64(len(body)))
	return append(wasm, body...)
}
