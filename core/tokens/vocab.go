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
	maxToken = 128 // bytes of the longest token in either vocabulary
	shortKey = 8   // bytes of a token that fit the short table's key
	idBits   = 18  // ids have 18 bits
	idMask   = 1<<idBits - 1
	none     = idMask // no token
	goesOn   = 1      // in beginnings: a token of more than 8 bytes begins so
	block    = 8      // longer tokens are hashed and found by blocks of 8 bytes
	longer   = 1 << 8 // in longLens: a token of more than one block more begins so

	// A slot of the long table: id + 1, where its bytes begin, their number - 1, and the lowest bits of the hash.
	offBits   = 21
	sizeBits  = 7
	sizeShift = idBits + offBits
	tagShift  = sizeShift + sizeBits
)

// vocab is one encoding's tables; immutable once loaded. The tables that are asked most often without success are the
// smallest, so that they stay in a core's own cache.
type vocab struct {
	classes *classTable
	o200k   bool // which of the two patterns cuts text into pieces

	bytes []byte   // all tokens end to end, in order of id
	offs  []uint32 // where each begins in bytes
	made  []made   // how each was made

	// Open addressing. A slot is tag << 18 | id + 1, verified by made, or by bytes for long tokens.
	short      []uint32
	shortShift uint
	long       []uint64
	longShift  uint
	merges     []uint32
	mergeShift uint
	mergeBits  []uint64 // one bit per hash of a pair that merges: answers nine of ten misses
	borders    borders  // answers for most pairs whether they may be neighbours

	one        [1 << 8]uint32  // the token of each byte
	two        [1 << 16]uint32 // the token of two bytes, or none
	joined     [1 << 10]uint64 // bit first<<8 | second: two bytes that are a token and begin a character of three or four
	beginnings [1 << 17]uint8  // by hash of 3 bytes: bit n-1 for a token of n = 3..8 bytes that begins so; goesOn
	longLens   [1 << 17]uint16 // by hash of n blocks: bit i for a token of 8n+1+i bytes that begins so; longer
}

// made is what a token is made of, in one place, for whoever has found it will ask which halves it has.
type made struct {
	key         uint64 // its bytes as a tagged key, 0 when it has more than 8
	left, right uint32 // the two tokens it was merged from; itself twice for a single byte
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
	if n := v.count(); n < 256 || n >= none || len(v.bytes) >= 1<<offBits {
		return fmt.Errorf("%d tokens of %d bytes; expected 256 to %d of at most %d", n, len(v.bytes), none-1, 1<<offBits-1)
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
	v.made = make([]made, v.count())
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
	v.made[id].key = tagged(key, len(t))
	h := v.made[id].key * mix1
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
		if first, second := uint(t[0]), uint(t[1]); first >= 0xe0 {
			pair := first<<8 | second
			v.joined[pair/64] |= 1 << (pair % 64)
		}
	default:
		v.beginnings[hash3(key)] |= 1 << (len(t) - 1)
	}
}

func (v *vocab) addLong(t []byte, id uint32) {
	v.beginnings[hash3(loadKey(t))] |= goesOn
	var h uint64
	rest := t
	for ; len(rest) > block; rest = rest[block:] {
		h = hashBlock(h, rest)
		lens := &v.longLens[lensSlot(h)]
		if n := len(rest) - block; n <= block {
			*lens |= 1 << (n - 1)
		} else {
			*lens |= longer
		}
	}
	h = hashEnd(h, t)
	slot := h >> v.longShift
	for v.long[slot] != 0 {
		slot = (slot + 1) & uint64(len(v.long)-1)
	}
	v.long[slot] = h<<tagShift | uint64(len(t)-1)<<sizeShift | uint64(v.offs[id])<<idBits | uint64(id+1)
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

// hashBlock goes on with the hash of a beginning by the 8 bytes after it.
func hashBlock(h uint64, t []byte) uint64 {
	h = (h ^ binary.LittleEndian.Uint64(t)) * mix1
	return h ^ h>>32
}

// hashEnd ends the hash of t, which has more than 8 bytes, from that of its blocks before the last.
func hashEnd(h uint64, t []byte) uint64 {
	h = (h ^ binary.LittleEndian.Uint64(t[len(t)-block:]) ^ uint64(len(t))*mix2) * mix1
	return h ^ h>>29
}

func lensSlot(h uint64) uint64 { return h >> (64 - 17) }

// findShort looks a token of n <= 8 bytes up by its key.
func (v *vocab) findShort(key uint64, n int) uint32 {
	key = tagged(key, n)
	h := key * mix1
	for slot := h >> v.shortShift; ; slot++ {
		s := v.short[slot&uint64(len(v.short)-1)]
		if s == 0 {
			return none
		}
		if s&^idMask == tagOf(h) && v.made[s&idMask-1].key == key {
			return s&idMask - 1
		}
	}
}

// findLong looks a token of more than 8 bytes up.
func (v *vocab) findLong(t []byte) uint32 {
	var h uint64
	rest := t
	for ; len(rest) > block; rest = rest[block:] {
		h = hashBlock(h, rest)
	}
	if v.longLens[lensSlot(h)]>>(len(rest)-1)&1 == 0 {
		return none
	}
	return v.findEnd(h, t)
}

// findEnd looks a token of more than 8 bytes up by the hash of its blocks before the last.
func (v *vocab) findEnd(h uint64, t []byte) uint32 {
	h = hashEnd(h, t)
	tag := (h<<sizeBits | uint64(len(t)-1)) & (1<<(64-sizeShift) - 1)
	for slot := h >> v.longShift; ; slot++ {
		s := v.long[slot&uint64(len(v.long)-1)]
		if s == 0 {
			return none
		}
		if s>>sizeShift == tag {
			at := s >> idBits & (1<<offBits - 1)
			if string(v.bytes[at:at+uint64(len(t))]) == string(t) {
				return uint32(s&idMask) - 1
			}
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
