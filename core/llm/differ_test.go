package llm_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weir-gateway/weir/core/llm"
)

var long = flag.Bool("long", false, "compare a million mutated bodies with each other parser, however long it takes")

// One parse, one truth: of mutated bodies, the scanner accepts nothing that encoding/json or Node's JSON.parse refuses, reads
// in what it accepts what they read, and refuses what they accept for a stated reason alone: see reason.
//
// encoding/json is held to what its second version does by itself: valid UTF-8, exact names, and no name twice among those
// that the scanner knows. Halves of surrogate pairs pass here and in Node, and nowhere name anything.
func TestOneParseOneTruth(t *testing.T) {
	for seed := range uint64(mutators) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			oneTruth(t, seed)
		})
	}
}

// mutators work beside each other until they have made so many bodies together or, but for -long, until the box is over.
const (
	mutators = 2
	bodies   = 1_000_000
	box      = 2 * time.Second
)

// enough tells whether one mutator may stop.
func enough(t *testing.T, done int, began time.Time) bool {
	return t.Failed() || done >= bodies/mutators || !*long && time.Since(began) >= box
}

// bothSides complains of mutations that test one side only, and of a long run that was cut short.
func bothSides(t *testing.T, done, accepted int) {
	t.Helper()
	t.Logf("%d bodies, %d accepted", done, accepted)
	if accepted < done/20 || accepted > done*19/20 {
		t.Errorf("%d of %d bodies are accepted: the mutations test one side only", accepted, done)
	}
	if *long && done < bodies/mutators {
		t.Errorf("%d of %d bodies were compared", done, bodies/mutators)
	}
}

func oneTruth(t *testing.T, seed uint64) {
	const batch = 2000
	node := startNode(t)
	m := mutator{rand.New(rand.NewPCG(1, seed))}
	var accepted, done int
	for began := time.Now(); !enough(t, done, began); done += batch {
		var eps [batch]llm.Endpoint
		var all [batch][]byte
		for i := range all {
			eps[i] = llm.Endpoint(m.IntN(6) + 1)
			all[i] = m.body(eps[i])
		}
		for i, seen := range node.parse(t, all[:]) {
			accepted += compare(t, eps[i], all[i], seen)
		}
	}
	bothSides(t, done, accepted)
}

// parsed is what another parser sees of a body.
type parsed struct {
	Model       *string  `json:"model"`
	Stream      *bool    `json:"stream"`
	N           *float64 `json:"n"`
	BestOf      *float64 `json:"best_of"`
	MaxTokens   *float64 `json:"max_tokens"`
	MaxComplete *float64 `json:"max_completion_tokens"`
	MaxOutput   *float64 `json:"max_output_tokens"`
	Options     *struct {
		IncludeUsage *bool `json:"include_usage"`
	} `json:"stream_options"`
}

func (p *parsed) cap() llm.Tokens {
	most := -1.0
	for _, c := range []*float64{p.MaxTokens, p.MaxComplete, p.MaxOutput} {
		if c != nil {
			most = max(most, *c)
		}
	}
	return llm.Tokens(most)
}

func (p *parsed) choices() int {
	most := 1.0
	for _, c := range []*float64{p.N, p.BestOf} {
		if c != nil {
			most = max(most, *c)
		}
	}
	return int(most)
}

// compare holds the scanner against both others on one body; 1 when it is accepted.
func compare(t *testing.T, ep llm.Endpoint, body, node []byte) int {
	t.Helper()
	var h llm.Head
	err := llm.ScanHead(ep, body, &h)
	tree, valid := members(body)
	if nodes := !bytes.Equal(node, []byte("null")); nodes != valid {
		t.Errorf("Node accepts: %v, encoding/json: %v\n%q", nodes, valid, body)
		return 0
	}
	switch {
	case err != nil && !valid:
		return 0
	case err == nil && !valid:
		t.Errorf("%s: accepted what both others refuse\n%q", ep.Path(), body)
		return 0
	case err != nil:
		var e *llm.Error
		if !errors.As(err, &e) || !reason(ep, body, tree, e.Param) {
			t.Errorf("%s: refused without a reason: %v\n%q", ep.Path(), err, body)
		}
		return 0
	}
	checkAgainstJSON(t, &h, body)
	var seen parsed
	if err := json.Unmarshal(node, &seen); err != nil || seen.Model == nil {
		t.Errorf("%s: Node sees %s (%v)\n%q", ep.Path(), node, err, body)
		return 0
	}
	seen.is(t, "Node", &h, body, tree)
	return 1
}

// is complains where another parser reads something else than what was scanned.
func (p *parsed) is(t *testing.T, who string, h *llm.Head, body []byte, tree map[string]json.RawMessage) {
	t.Helper()
	usage := llm.Absent
	if o := p.Options; o != nil && o.IncludeUsage != nil {
		usage = map[bool]llm.Tri{false: llm.False, true: llm.True}[*o.IncludeUsage]
	}
	var model string
	if err := json.Unmarshal([]byte(`"`+string(h.Model.In(body))+`"`), &model); err != nil {
		t.Error(err)
	}
	choices := p.choices()
	if h.Endpoint == llm.Completions {
		choices *= prompts(tree["prompt"])
	}
	if model != *p.Model || h.Stream != (p.Stream != nil && *p.Stream) || h.OutputCap != p.cap() || h.Choices != choices || h.IncludeUsage != usage {
		t.Errorf("%s: scanned model %q stream %v cap %d choices %d usage %v, %s reads otherwise\n%q", h.Endpoint.Path(), model, h.Stream, h.OutputCap, h.Choices, h.IncludeUsage, who, body)
	}
}

// members reads the object a body is, as encoding/json sees it.
func members(body []byte) (map[string]json.RawMessage, bool) {
	var tree map[string]json.RawMessage
	err := json.Unmarshal(body, &tree)
	return tree, err == nil && tree != nil && utf8.Valid(body)
}

func prompts(raw json.RawMessage) int {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 || list[0][0] >= '0' && list[0][0] <= '9' {
		return 1
	}
	return len(list)
}

// reason tells whether a body that is JSON may be refused over param: this is the list of where the scanner is stricter.
func reason(ep llm.Endpoint, body []byte, tree map[string]json.RawMessage, param string) bool {
	top, below, nested := strings.Cut(param, ".")
	if param == "body" {
		depth, tokens, key := measure(body)
		return depth > llm.MaxDepth || tokens > llm.MaxTokens || key > llm.MaxKeyBytes
	}
	if nested {
		return strings.Contains(string(body), `\`) || below != "" && !nothing(tree[top]) // escaped, or ill-shaped inside
	}
	if ambiguous(body, top) || lookAlike(body, top) {
		return true
	}
	raw, given := tree[top]
	switch top {
	case "model":
		var s string
		return !given || json.Unmarshal(raw, &s) != nil || s == "" || len(s) > llm.MaxModelBytes
	case "stream", "background":
		return given && (!slices.Contains([]string{"true", "false", "null"}, string(raw)) || top == "background" && string(raw) == "true")
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		return !whole(raw, llm.MaxOutputCap) || foreign(ep, top)
	case "n", "best_of":
		return !whole(raw, llm.MaxChoices)
	case "max_tool_calls":
		return !whole(raw, llm.MaxOutputCap)
	case "user", "service_tier", "speed", "inference_geo":
		return !nothing(raw) && raw[0] != '"'
	case "models", "fallbacks", "route", "preset", "plugins":
		return !nothing(raw)
	case "stream_options", "metadata":
		return !nothing(raw) && raw[0] != '{'
	case "messages":
		var list []map[string]json.RawMessage
		return json.Unmarshal(raw, &list) != nil || len(list) == 0 || slices.ContainsFunc(list, func(m map[string]json.RawMessage) bool { return m == nil })
	case "prompt", "input":
		return ep == llm.Completions || ep == llm.Embeddings // and only strings, token numbers and their lists there
	}
	return false
}

func nothing(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// whole tells a number in plain digits from 1 to most, or null.
func whole(raw json.RawMessage, most int) bool {
	n, err := strconv.ParseUint(string(raw), 10, 63)
	return nothing(raw) || err == nil && n >= 1 && n <= uint64(most)
}

func foreign(ep llm.Endpoint, name string) bool {
	switch ep {
	case llm.Chat:
		return name == "max_output_tokens"
	case llm.Responses:
		return name != "max_output_tokens"
	case llm.Embeddings:
		return true
	}
	return name != "max_tokens"
}

// ambiguous tells whether a name comes twice at the top of a body, or comes in another spelling.
func ambiguous(body []byte, name string) bool {
	dec := json.NewDecoder(bytes.NewReader(body))
	_, _ = dec.Token()
	times := 0
	for dec.More() {
		before := dec.InputOffset()
		tok, err := dec.Token()
		if err != nil {
			return false
		}
		written := string(bytes.TrimLeft(body[before:dec.InputOffset()], ", \t\r\n"))
		s, _ := tok.(string)
		if folds(s, name) {
			if times++; written != `"`+name+`"` {
				return true
			}
		}
		var skip json.RawMessage
		if dec.Decode(&skip) != nil {
			return false
		}
	}
	return times > 1
}

// lookAlike tells whether a name anywhere in a body is another in another spelling.
func lookAlike(body []byte, name string) bool {
	dec := json.NewDecoder(bytes.NewReader(body))
	for {
		before := dec.InputOffset()
		tok, err := dec.Token()
		if err != nil {
			return false
		}
		after := dec.InputOffset()
		named := bytes.HasPrefix(bytes.TrimLeft(body[after:], " \t\r\n"), []byte{':'})
		if s, _ := tok.(string); named && folds(s, name) && string(bytes.TrimLeft(body[before:after], ":, \t\r\n")) != `"`+name+`"` {
			return true
		}
	}
}

// folds tells whether a lenient reader may take s for name.
func folds(s, name string) bool {
	return strings.EqualFold(strings.NewReplacer("\u0130", "i", "\u0131", "i").Replace(s), name)
}

// measure gives how deep a body is, how many names and values it has, and the length of its longest name as written.
func measure(body []byte) (deepest, tokens, longest int) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var names []bool // of each open bracket: an object, whose next token is a name
	for depth := 0; ; {
		before := dec.InputOffset()
		tok, err := dec.Token()
		if err != nil {
			return deepest, tokens, longest
		}
		written := bytes.Trim(body[before:dec.InputOffset()], ":, \t\r\n")
		switch d, _ := tok.(json.Delim); d {
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
			if len(names) > 0 {
				names[depth-2] = true
			}
			names = append(names[:depth-1], true)
			tokens++
		case '}', ']':
			depth--
		default:
			tokens++
			if s, ok := tok.(string); ok && len(s) > 0 {
				longest = max(longest, len(written)-2)
			}
		}
	}
}

// node is a process that parses bodies.
type node struct {
	in  io.WriteCloser
	out *bufio.Scanner
}

func startNode(t *testing.T) *node {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("without Node there is no JSON.parse: ", err)
	}
	cmd := exec.Command(path, "testdata/parse.mjs")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n := &node{in, bufio.NewScanner(out)}
	n.out.Buffer(nil, 1<<24)
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// parse gives what Node sees of each body.
func (n *node) parse(t *testing.T, bodies [][]byte) (seen [][]byte) {
	t.Helper()
	wrote := make(chan error, 1)
	go func() {
		w := bufio.NewWriterSize(n.in, 1<<16)
		for _, b := range bodies {
			_, _ = fmt.Fprintln(w, base64.StdEncoding.EncodeToString(b))
		}
		wrote <- w.Flush()
	}()
	for range bodies {
		if !n.out.Scan() {
			t.Fatalf("Node stopped: %v", n.out.Err())
		}
		seen = append(seen, bytes.Clone(n.out.Bytes()))
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	return seen
}
