package tokens

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"sync"

	"github.com/pkoukk/tiktoken-go-loader/assets"
)

// The encodings, loaded on first use and shared by the process (about 14 and 7 MB).
var (
	loadO200K  = sync.OnceValues(func() (*vocab, error) { return loadVocab("o200k_base") })
	loadCL100K = sync.OnceValues(func() (*vocab, error) { return loadVocab("cl100k_base") })
)

const (
	maxToken  = 128       // bytes of the longest token in either vocabulary
	shortKey  = 8         // bytes of a token that fit the short table's key
	none      = 1<<18 - 1 // no token; ids have 18 bits
	idMask    = 1<<18 - 1
	tagMask   = 1<<14 - 1
	unmerged  = 1 << 30 // marks a token that merging never makes: it counts only as a whole piece
	longSteps = 31      // lengths 9..39 have a bit each in longLens; all longer ones share the last
)

// vocab is one encoding's tables; immutable once loaded.
type vocab struct {
	classes *classTable
	o200k   bool // which of the two patterns cuts text into pieces

	short     []shortSlot // tokens of up to 8 bytes by their bytes; open addressing
	shortBits uint
	long      []uint64 // longer tokens: hash tag << 32 | id + 1; open addressing
	longBits  uint

	bytes  []byte      // all tokens end to end, in order of id
	offs   []uint32    // where each begins in bytes
	halves [][2]uint32 // the two tokens each was merged from; itself twice for a single byte
	merges []uint32    // (left, right) -> token: tag << 18 | id + 1; open addressing, verified by halves
	mBits  uint

	one       [1 << 8]uint32  // the token of each byte
	two       [1 << 16]uint32 // the token of two bytes, or none
	shortLens [1 << 16]uint8  // by hash of 3 bytes: which lengths 3..8 some token with such a beginning has
	longLens  [1 << 16]uint32 // by hash of 8 bytes: which lengths 9.. likewise
}

// shortSlot holds a token's bytes, little endian, its length (0: empty slot) and its id.
type shortSlot struct {
	key uint64
	len uint32
	id  uint32
}

var keyMask = [shortKey + 1]uint64{0, 1<<8 - 1, 1<<16 - 1, 1<<24 - 1, 1<<32 - 1, 1<<40 - 1, 1<<48 - 1, 1<<56 - 1, 1<<64 - 1}

const (
	mix1 = 0x9e3779b97f4a7c15
	mix2 = 0xd6e8feb86659fd93
)

func loadVocab(name string) (*vocab, error) {
	file, err := assets.Assets.ReadFile(name + ".tiktoken")
	if err != nil {
		return nil, fmt.Errorf("tokens: vocabulary %s: %w", name, err)
	}
	v := &vocab{classes: loadClasses(), o200k: name == "o200k_base"}
	if err := v.parse(file); err != nil {
		return nil, fmt.Errorf("tokens: vocabulary %s: %w", name, err)
	}
	v.index()
	v.findHalves()
	return v, nil
}

// parse reads lines of "base64 rank", in order of rank.
func (v *vocab) parse(file []byte) error {
	lines := bytes.Count(file, []byte("\n")) + 1
	v.bytes = make([]byte, 0, len(file)/2)
	v.offs = make([]uint32, 1, lines+1)
	for len(file) > 0 {
		line, rest, _ := bytes.Cut(file, []byte("\n"))
		file = rest
		if len(line) == 0 {
			continue
		}
		text, rank, _ := bytes.Cut(line, []byte(" "))
		if n, err := strconv.Atoi(string(rank)); err != nil || n != len(v.offs)-1 {
			return fmt.Errorf("line %d: expected rank %d, not %q", len(v.offs), len(v.offs)-1, rank)
		}
		var err error
		if v.bytes, err = base64.StdEncoding.AppendDecode(v.bytes, text); err != nil {
			return fmt.Errorf("line %d: %w", len(v.offs), err)
		}
		if n := len(v.bytes) - int(v.offs[len(v.offs)-1]); n < 1 || n > maxToken {
			return fmt.Errorf("line %d: a token of %d bytes; expected 1 to %d", len(v.offs), n, maxToken)
		}
		v.offs = append(v.offs, uint32(len(v.bytes)))
	}
	if n := v.count(); n < 256 || n >= none {
		return fmt.Errorf("%d tokens; expected 256 to %d", n, none-1)
	}
	return nil
}

func (v *vocab) count() int { return len(v.offs) - 1 }

// token gives the bytes of a token.
func (v *vocab) token(id uint32) []byte { return v.bytes[v.offs[id]:v.offs[id+1]] }

func (v *vocab) size(id uint32) int { return int(v.offs[id+1] - v.offs[id]) }

// index fills the tables that find tokens by their bytes.
func (v *vocab) index() {
	var shorts int
	for id := range v.count() {
		if v.size(uint32(id)) <= shortKey {
			shorts++
		}
	}
	v.shortBits = tableBits(shorts)
	v.short = make([]shortSlot, 1<<v.shortBits)
	v.longBits = tableBits(v.count() - shorts)
	v.long = make([]uint64, 1<<v.longBits)
	for i := range v.two {
		v.two[i] = none
	}
	for id := range uint32(v.count()) {
		t := v.token(id)
		if len(t) > shortKey {
			v.addLong(t, id)
			continue
		}
		v.addShort(t, id)
	}
}

// tableBits makes open addressing at most three quarters full.
func tableBits(n int) uint { return uint(bits.Len(uint(n + n/3))) }

func (v *vocab) addShort(t []byte, id uint32) {
	key := loadKey(t)
	slot := key * mix1 >> (64 - v.shortBits)
	for v.short[slot].len != 0 {
		slot = (slot + 1) & (1<<v.shortBits - 1)
	}
	v.short[slot] = shortSlot{key, uint32(len(t)), id}
	switch len(t) {
	case 1:
		v.one[t[0]] = id
	case 2:
		v.two[key] = id
	default:
		v.shortLens[hash3(key)] |= 1 << (len(t) - 1)
	}
}

func (v *vocab) addLong(t []byte, id uint32) {
	h := hashLong(t)
	slot := h >> (64 - v.longBits)
	for v.long[slot] != 0 {
		slot = (slot + 1) & (1<<v.longBits - 1)
	}
	v.long[slot] = h<<32 | uint64(id+1)
	v.longLens[hash8(binary.LittleEndian.Uint64(t))] |= 1 << min(len(t)-shortKey-1, longSteps)
}

// loadKey packs up to 8 bytes.
func loadKey(t []byte) uint64 {
	if len(t) >= 8 {
		return binary.LittleEndian.Uint64(t)
	}
	var key uint64
	for i, c := range t {
		key |= uint64(c) << (8 * i)
	}
	return key
}

func hash3(key uint64) uint64 { return (key & (1<<24 - 1)) * mix1 >> 48 }

func hash8(key uint64) uint64 { return key * mix2 >> 48 }

// hashLong hashes more than 8 bytes.
func hashLong(t []byte) uint64 {
	h := uint64(len(t)) * mix2
	for len(t) > 8 {
		h = (h ^ binary.LittleEndian.Uint64(t)) * mix1
		h ^= h >> 32
		if len(t) < 16 {
			t = t[len(t)-8:]
		} else {
			t = t[8:]
		}
	}
	h = (h ^ loadKey(t)) * mix1
	return h ^ h>>29
}

// findShort looks a token of n <= 8 bytes up by its key.
func (v *vocab) findShort(key uint64, n int) uint32 {
	for slot := key * mix1 >> (64 - v.shortBits); ; slot = (slot + 1) & (1<<v.shortBits - 1) {
		s := &v.short[slot]
		if s.key == key && s.len == uint32(n) {
			return s.id
		}
		if s.len == 0 {
			return none
		}
	}
}

// findLong looks a token of more than 8 bytes up.
func (v *vocab) findLong(t []byte) uint32 {
	h := hashLong(t)
	for slot := h >> (64 - v.longBits); ; slot = (slot + 1) & (1<<v.longBits - 1) {
		s := v.long[slot]
		if s == 0 {
			return none
		}
		if uint32(s>>32) == uint32(h) && string(v.token(uint32(s)-1)) == string(t) {
			return uint32(s) - 1
		}
	}
}

func (v *vocab) find(t []byte) uint32 {
	if len(t) <= shortKey {
		return v.findShort(loadKey(t), len(t))
	}
	if len(t) > maxToken {
		return none
	}
	return v.findLong(t)
}
