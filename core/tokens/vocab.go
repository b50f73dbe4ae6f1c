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
	idMask    = 1<<18 - 1 // ids have 18 bits
	none      = idMask    // no token
	longSteps = 31        // lengths 9..39 have a bit each in longLens; all longer ones share the last
	goesOn    = 1         // in beginnings: a token of more than 8 bytes begins so
)

// vocab is one encoding's tables; immutable once loaded. The tables that are asked most often without success are the
// smallest, so that they stay in a core's own cache.
type vocab struct {
	classes *classTable
	o200k   bool // which of the two patterns cuts text into pieces

	bytes  []byte      // all tokens end to end, in order of id
	offs   []uint32    // where each begins in bytes
	keys   []uint64    // tokens of up to 8 bytes as tagged keys, else 0
	halves [][2]uint32 // the two tokens each was merged from; itself twice for a single byte

	// Open addressing. A slot is tag << 18 | id + 1, verified by keys, bytes and halves.
	short      []uint32
	shortShift uint
	long       []uint64 // here the tag has 32 bits
	longShift  uint
	merges     []uint32
	mergeShift uint
	mergeBits  []uint64 // one bit per hash of a pair that merges: answers nine of ten misses

	one        [1 << 8]uint32  // the token of each byte
	two        [1 << 16]uint32 // the token of two bytes, or none
	beginnings [1 << 17]uint8  // by hash of 3 bytes: bit n-1 for a token of n = 3..8 bytes that begins so; goesOn
	longLens   [1 << 16]uint32 // by hash of 8 bytes: bit n-9 for a token of n = 9.. bytes that begins so
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
	if err := v.findHalves(); err != nil {
		return nil, fmt.Errorf("tokens: vocabulary %s: %w", name, err)
	}
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
		t := v.bytes[v.offs[len(v.offs)-1]:]
		if len(t) < 1 || len(t) > maxToken || len(t) == shortKey && t[shortKey-1] < shortKey {
			return fmt.Errorf("line %d: %q is not a token of 1 to %d bytes", len(v.offs), t, maxToken)
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
	v.keys = make([]uint64, v.count())
	v.short, v.shortShift = make([]uint32, tableSize(shorts)), tableShift(shorts)
	v.long, v.longShift = make([]uint64, tableSize(v.count()-shorts)), tableShift(v.count()-shorts)
	for i := range v.two {
		v.two[i] = none
	}
	for id := range uint32(v.count()) {
		if t := v.token(id); len(t) > shortKey {
			v.addLong(t, id)
		} else {
			v.addShort(t, id)
		}
	}
}

// tableSize makes open addressing at most three quarters full; tableShift makes an index of a 64-bit hash.
func tableSize(n int) int { return 1 << bits.Len(uint(n+n/3)) }

func tableShift(n int) uint { return uint(64 - bits.Len(uint(n+n/3))) }

func (v *vocab) addShort(t []byte, id uint32) {
	key := loadKey(t)
	v.keys[id] = tagged(key, len(t))
	h := v.keys[id] * mix1
	slot := h >> v.shortShift
	for v.short[slot] != 0 {
		slot = (slot + 1) & uint64(len(v.short)-1)
	}
	v.short[slot] = tagOf(h) | (id + 1)
	switch len(t) {
	case 1:
		v.one[t[0]] = id
	case 2:
		v.two[key] = id
	default:
		v.beginnings[hash3(key)] |= 1 << (len(t) - 1)
	}
}

func (v *vocab) addLong(t []byte, id uint32) {
	h := hashLong(t)
	slot := h >> v.longShift
	for v.long[slot] != 0 {
		slot = (slot + 1) & uint64(len(v.long)-1)
	}
	v.long[slot] = h<<32 | uint64(id+1)
	key := binary.LittleEndian.Uint64(t)
	v.beginnings[hash3(key)] |= goesOn
	v.longLens[hash8(key)] |= 1 << min(len(t)-shortKey-1, longSteps)
}

// tagged tells keys of different lengths apart by putting the length into the byte that only eight bytes fill. Eight
// bytes that end in a small control character could be taken for that; neither vocabulary has such a token, so they get
// a key that no token has.
func tagged(key uint64, n int) uint64 {
	if n < shortKey {
		return key | uint64(n)<<56
	}
	if key>>56 < shortKey {
		return 0
	}
	return key
}

// tagOf is the part of a hash that a slot keeps beside the id.
func tagOf(h uint64) uint32 { return uint32(h) &^ idMask }

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

func hash3(key uint64) uint64 { return (key & (1<<24 - 1)) * mix1 >> 47 }

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
	key = tagged(key, n)
	h := key * mix1
	for slot := h >> v.shortShift; ; slot++ {
		s := v.short[slot&uint64(len(v.short)-1)]
		if s == 0 {
			return none
		}
		if s&^idMask == tagOf(h) && v.keys[s&idMask-1] == key {
			return s&idMask - 1
		}
	}
}

// findLong looks a token of more than 8 bytes up.
func (v *vocab) findLong(t []byte) uint32 {
	h := hashLong(t)
	for slot := h >> v.longShift; ; slot++ {
		s := v.long[slot&uint64(len(v.long)-1)]
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
