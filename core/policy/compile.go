package policy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

// prepared is an upload that passed the checks and carries its meter: ready for the child.
type prepared struct {
	Module
	p       *profile
	metered []byte
	cases   []byte
	// configurable: the module takes params at all.
	configurable bool
}

// prepare runs everything that needs no compiler: caps, ABI, meter. Its time and memory are linear in the input.
func prepare(name string, wasm []byte, profile string) (*prepared, error) {
	p, err := profileOf(profile)
	if err != nil {
		return nil, err
	}
	m, err := parse(wasm, p)
	if err != nil {
		return nil, err
	}
	if err := m.checkABI(); err != nil {
		return nil, err
	}
	metered, err := m.meter()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(wasm)
	return &prepared{
		Module: Module{Name: name, Hash: hex.EncodeToString(sum[:]), Size: len(wasm), Profile: p.name,
			Schema: slices.Clone(m.custom[abi.SectionSchema]), About: slices.Clone(m.custom[abi.SectionAbout])},
		p: p, metered: metered, cases: slices.Clone(m.custom[abi.SectionCases]), configurable: m.has(abi.ExportConfigure),
	}, nil
}

// id names the metered bytes: they follow from the upload and the profile.
func (m *prepared) id() string { return m.Hash + "-" + m.Profile }

// cacheDir is the module's own folder: what its child writes can touch no other module's code.
func (m *prepared) cacheDir(root string) string { return filepath.Join(root, modulesDir, m.id()) }

// maxVerdict bounds what the child may answer, in bytes.
const maxVerdict = 16 << 20

var errWall = errors.New("the child's time is over")

// runChild has the child try j and gives what became of it. The error says why the module is refused.
func runChild(ctx context.Context, o *Options, p *profile, j *job) (*verdict, error) {
	if os.Getenv(childEnv) != "" {
		return nil, errors.New("policy: this process is a compile child; its main must call policy.IsChild first")
	}
	argv := o.Child
	if len(argv) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("policy: find the compile child: %w", err)
		}
		argv = []string{self, ChildArg}
	}
	var in bytes.Buffer
	if err := gob.NewEncoder(&in).Encode(j); err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeoutCause(ctx, p.wall, errWall)
	defer stop()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = childEnviron()
	out, stderr := &head{limit: maxVerdict}, &head{limit: 8 << 10}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, out, stderr
	cmd.WaitDelay = time.Second
	alone(cmd)
	err := cmd.Run()
	full := out.kept.Len() == out.limit
	var v verdict
	if err == nil && gob.NewDecoder(&out.kept).Decode(&v) == nil {
		if v.Refusal != "" {
			return nil, refuse("%s", v.Refusal)
		}
		return &v, nil
	}
	if err == nil && full {
		return nil, refuse("its cases give results of more than %d MiB; try fewer at once", maxVerdict>>20)
	}
	return nil, explain(ctx, p, cmd, stderr.kept.Bytes(), err)
}

// childEnviron is next to nothing: the child handles what strangers wrote and must not hold the gateway's secrets.
func childEnviron() []string {
	env := []string{"GOMAXPROCS=1", childEnv + "=1"}
	for _, name := range []string{"SYSTEMROOT", "TMPDIR", "GORACE"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// explain words how a child ended that gave no verdict.
func explain(ctx context.Context, p *profile, cmd *exec.Cmd, stderr []byte, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), errWall):
		return refuse("compiling and starting it took longer than the %v of profile %s", p.wall, p.name)
	case ctx.Err() != nil:
		return ctx.Err()
	case cmd.ProcessState == nil:
		return fmt.Errorf("policy: start the compile child %s: %w", cmd.Path, err)
	case cpuTime(cmd.ProcessState) >= time.Duration(p.cpuS)*time.Second*9/10: // accounts may fall short of the limit that ended it
		return refuse("compiling and starting it used more than the %d s of CPU of profile %s", p.cpuS, p.name)
	case bytes.Contains(stderr, []byte("out of memory")), bytes.Contains(stderr, []byte("cannot allocate memory")):
		return refuse("compiling and starting it needed more than the %d MiB of profile %s", p.childMB, p.name)
	case err == nil:
		return errors.New("policy: the compile child gave no verdict; its main must call policy.IsChild first")
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(stderr), []byte("\n"))
	return refuse("the compile child died: %v: %s", err, line)
}

func cpuTime(state *os.ProcessState) time.Duration { return state.UserTime() + state.SystemTime() }

// head keeps the first limit bytes written to it. The buffer is no embedded one: its ReadFrom, which exec would prefer,
// knows no limit.
type head struct {
	kept  bytes.Buffer
	limit int
}

// Write implements io.Writer; it never fails, so that a talkative child is not ended by its pipe.
func (h *head) Write(b []byte) (int, error) {
	h.kept.Write(b[:min(len(b), h.limit-h.kept.Len())])
	return len(b), nil
}

// RunCases tries a module on this machine and runs cases, the module's own if none are given: what `weir policy
// test` does. A case that fails is a result, not an error.
func RunCases(ctx context.Context, o Options, wasm []byte, profile string, cases []byte) ([]CaseResult, error) {
	m, err := prepare("", wasm, profile)
	if err != nil {
		return nil, err
	}
	if cases, err = m.casesOr(cases); err != nil {
		return nil, err
	}
	v, err := tryOnce(ctx, &o, m, m.metered, cases)
	if err != nil {
		return nil, err
	}
	return v.Cases, nil
}

// casesOr gives cases, or the module's own if there are none.
func (m *prepared) casesOr(cases []byte) ([]byte, error) {
	if cases == nil {
		cases = m.cases
	}
	if cases == nil {
		return nil, llm.Invalid("cases", "no cases: the module has no section %s and none were given", abi.SectionCases)
	}
	return cases, nil
}

// failedCase words the first case that did not pass.
func failedCase(results []CaseResult) error {
	for _, r := range results {
		if !r.Passed {
			return refuse("case %q failed: %s", r.Name, r.Diff[0])
		}
	}
	return nil
}
