package tokens

import (
	"encoding/json"
	"flag"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pkoukk/tiktoken-go"
)

var long = flag.Bool("long", false, "compare two million strings and the whole of the repository's texts with both references")

// Both references, tiktoken-go and the official core, on the repository's own texts and on 100,000 strings of every
// kind for each encoding.
func TestEqualToBothReferences(t *testing.T) {
	const batch = 1000
	size := 100_000
	if *long {
		size = 1_000_000
	}
	own := ownTexts(t)
	for i, encoding := range encodingNames {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			core := startOfficial(t, encoding)
			core.compare(t, encoding, own)
			r := rand.New(rand.NewPCG(13, uint64(i)))
			texts := make([]string, batch)
			for done := 0; done < size && !t.Failed(); done += batch {
				for i := range texts {
					texts[i] = beginning(nasty(r), shortPiece)
				}
				core.compare(t, encoding, texts)
			}
		})
	}
}

// ownTexts are the files of the repository that are text, in parts that no budget ends; of each the first alone where time is
// short.
func ownTexts(t *testing.T) (texts []string) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules"):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		for rest := string(text); rest != "" && utf8.Valid(text); {
			part := beginning(rest, 2048)
			texts = append(texts, part)
			if rest = rest[len(part):]; !*long {
				break
			}
		}
		return err
	})
	if err != nil || len(texts) < 500 {
		t.Fatalf("%d texts: %v", len(texts), err)
	}
	return texts
}

// official counts by npm's tiktoken, whose core is OpenAI's own, in a process beside this one. A string has no invalid UTF-8
// there: what is written to it is JSON, and that has U+FFFD for each byte that is none, as our own count has.
type official struct {
	in  *json.Encoder
	out *json.Decoder
}

func startOfficial(t *testing.T, encoding string) *official {
	t.Helper()
	needOfficial(t)
	cmd := exec.Command("node", "testdata/count.mjs", encoding+"_base")
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
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &official{json.NewEncoder(in), json.NewDecoder(out)}
}

const npmPackage = "testdata/node_modules/tiktoken"

func needOfficial(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(npmPackage)
	}
	if err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("expected Node, and npm ci in core/tokens/testdata: ", err)
	}
	t.Skip("NOTHING WAS COMPARED with OpenAI's tokenizer: install Node and run npm ci in core/tokens/testdata: ", err)
}

// compare holds our counts against tiktoken-go's while the official core counts, and then against its.
func (o *official) compare(t *testing.T, encoding string, texts []string) {
	t.Helper()
	differ := func(i, got int, who string, want int) {
		if got != want {
			t.Errorf("%s: %d tokens, %s has %d: %+.300q", encoding, got, who, want, texts[i])
		}
	}
	if err := o.in.Encode(texts); err != nil {
		t.Fatal(err)
	}
	e, got := Encoding{vocabOf(encoding), permille}, make([]int, len(texts))
	for i, text := range texts {
		got[i] = int(counter().Text(e, []byte(text)))
		if text == shortS(text) {
			differ(i, got[i], "tiktoken-go", len(oracle()[encoding].EncodeOrdinary(text)))
		}
	}
	var want []int
	if err := o.out.Decode(&want); err != nil || len(want) != len(texts) {
		t.Fatalf("%d counts of %d texts: %v", len(want), len(texts), err)
	}
	for i := range texts {
		differ(i, got[i], "the official core", want[i])
	}
}

// Models have the encodings that both references give them, of those that there are here.
func TestForIsTheReferencesMap(t *testing.T) {
	check := func(who string, models map[string]string, more string) {
		t.Helper()
		known := 0
		for model, want := range models {
			if name := strings.TrimSuffix(want, "_base"); slices.Contains(encodingNames, name) {
				known++
				if got := family(model + more); got != name {
					t.Errorf("%s%s: %q, %s has %s", model, more, got, who, name)
				}
			}
		}
		if known < 5 {
			t.Errorf("%s has %d models", who, known)
		}
	}
	check("tiktoken-go", tiktoken.MODEL_TO_ENCODING, "")
	check("tiktoken-go", tiktoken.MODEL_PREFIX_TO_ENCODING, "x")
	needOfficial(t)
	file, err := os.ReadFile(npmPackage + "/model_to_encoding.json")
	var models map[string]string
	if err != nil || json.Unmarshal(file, &models) != nil {
		t.Fatal(err)
	}
	check("npm", models, "")
}
