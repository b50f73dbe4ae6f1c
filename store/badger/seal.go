package badger

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The seal says how far the files were stable when they were last synced. Badger takes whatever does not read at the end
// of a log for a write that a crash tore, and drops it without a word; so a damaged byte in a log would quietly take
// back what was acknowledged after it. What lies before the seal cannot be torn any more: if it does not read, it is
// damaged, and the folder is not opened.
//
// The seal itself needs no sync. It is written when what it claims is stable, and a stable prefix stays one, so an
// older seal is true as well; but for the log's name, which is taken back before it can be given again. A seal that does
// not read claims nothing.
//
//	weir-seal 1 <newest log> <bytes> <newest value log> <bytes> <bytes of MANIFEST> <CRC-32C of those> <CRC-32C of this line>
type seal struct {
	log, values mark
	manifest    int64
	sum         uint32
}

// mark is how much of a file is stable: whole records, from its start.
type mark struct {
	name  string
	bytes int64
	room  int64 // how far it has blocks; not sealed
}

const (
	sealName     = "SEAL"
	manifestName = "MANIFEST"
	valueSuffix  = ".vlog" // Badger's value logs: a number of six digits or more
	noFile       = "-"
	logHeader    = 20 // bytes before the first record of a log: key number, random start of a cipher we do not use
	maxLogKey    = 1 << 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (s seal) line() []byte {
	text := fmt.Sprintf("weir-seal 1 %s %d %s %d %d %08x", orNone(s.log.name), s.log.bytes, orNone(s.values.name), s.values.bytes, s.manifest, s.sum)
	return fmt.Appendf(nil, "%-119s\n", fmt.Sprintf("%s %08x", text, crc32.Checksum([]byte(text), castagnoli)))
}

func orNone(name string) string {
	if name == "" {
		return noFile
	}
	return name
}

// readSeal gives the zero seal, which claims nothing, when there is none that reads.
func readSeal(dir string) (s seal, err error) {
	b, err := os.ReadFile(filepath.Join(dir, sealName))
	if errors.Is(err, fs.ErrNotExist) {
		return seal{}, nil
	}
	if err != nil {
		return seal{}, err
	}
	line := strings.TrimSpace(string(b))
	text, sum, _ := cutLast(line)
	if sum != fmt.Sprintf("%08x", crc32.Checksum([]byte(text), castagnoli)) {
		return seal{}, nil
	}
	n, _ := fmt.Sscanf(text, "weir-seal 1 %s %d %s %d %d %x", &s.log.name, &s.log.bytes, &s.values.name, &s.values.bytes, &s.manifest, &s.sum)
	if n != 6 {
		return seal{}, nil
	}
	for _, m := range []*mark{&s.log, &s.values} {
		if m.name == noFile {
			m.name = ""
		}
	}
	return s, nil
}

func cutLast(line string) (before, after string, ok bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 {
		return line, "", false
	}
	return line[:i], line[i+1:], true
}

// sealLocked writes the seal over the one before.
func (s *Store) sealLocked() error {
	if string(s.mu.seal.line()) == s.mu.sealed {
		return nil
	}
	s.mu.sealed = string(s.mu.seal.line())
	return s.mu.seal.write(s.dir, nil)
}

// write brings the seal to the folder; sync, unless nil, makes it stable.
func (s seal) write(dir string, sync func(*os.File) error) error {
	f, err := os.OpenFile(filepath.Join(dir, sealName), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(s.line(), 0); err == nil && sync != nil {
		err = sync(f)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// unsealLogLocked takes back what the seal says of the log, before the log goes: when all are gone, Badger gives their
// names anew. This is the one claim that ends, so it must be stable that it has.
func (s *Store) unsealLogLocked() error {
	s.mu.seal.log = mark{}
	s.mu.sealed = string(s.mu.seal.line())
	return s.mu.seal.write(s.dir, s.fsync)
}

// sealManifestLocked makes the manifest stable when it changed. Badger does so too, but does not say when it has.
func (s *Store) sealManifestLocked() error {
	path := filepath.Join(s.dir, manifestName)
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.Size() == s.mu.seal.manifest {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if err := s.fsync(f); err != nil {
		return err
	}
	s.mu.seal.manifest, s.mu.seal.sum = int64(len(b)), crc32.Checksum(b, castagnoli)
	return nil
}

// syncLogLocked makes one log stable and gives how far its records were whole before.
func (s *Store) syncLogLocked(name string, from mark) (mark, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_RDWR, 0)
	if err != nil {
		return from, err
	}
	defer f.Close()
	if from.name != name {
		from = mark{name: name, bytes: logHeader}
	}
	s.mu.reader.Reset(io.NewSectionReader(f, from.bytes, math.MaxInt64-from.bytes))
	grown := wholeRecords(&s.mu.reader)
	from.bytes += grown
	if grown < roomBytes/8 && strings.HasSuffix(name, logSuffix) {
		s.makeRoom(f, &from)
	}
	return from, s.fsync(f)
}

// Of a log, roomBytes get their blocks at a time.
const (
	roomBytes = 256 << 10
	pageBytes = 4 << 10
)

// makeRoom has the file system give a log its next blocks before they are needed. Badger's logs are sparse, and a sync
// that has new blocks to tell the file system of takes half as long again. What is there, zeros, is written as it is, while
// no batch is being written; if it cannot be, nothing is lost but time. A log that grows much between two syncs has no use
// for it.
func (s *Store) makeRoom(f *os.File, at *mark) {
	st, err := f.Stat()
	if err != nil || at.bytes+roomBytes/8 <= at.room || at.room == st.Size() {
		return
	}
	from, to := max(at.room, at.bytes-at.bytes%pageBytes), min(at.bytes+roomBytes, st.Size())
	if !s.commits.TryLock() { // a sync does not wait for a batch
		return
	}
	defer s.commits.Unlock()
	if _, err := io.Copy(io.NewOffsetWriter(f, from), io.NewSectionReader(f, from, to-from)); err == nil {
		at.room = to
	}
}

// wholeRecords is the length of the records of a log that are whole, up to the first that is not: the end of what was
// written (its place is zero), or a torn one.
func wholeRecords(r *bufio.Reader) (n int64) {
	for {
		size := wholeRecord(r)
		if size == 0 {
			return n
		}
		n += size
	}
}

// wholeRecord reads one record: two bytes of flags, the lengths of key and value and the expiry as varints, key, value,
// CRC-32C of all of it. 0: there is none.
func wholeRecord(r *bufio.Reader) int64 {
	head, _ := r.Peek(2 + 3*binary.MaxVarintLen64)
	var n [3]uint64
	at := 2
	for i := range n {
		v, size := binary.Uvarint(head[min(at, len(head)):])
		if size <= 0 {
			return 0
		}
		n[i], at = v, at+size
	}
	if n[0] == 0 || n[0] > maxLogKey || n[1] > 2*valueLogBytes {
		return 0
	}
	sum := crc32.Checksum(head[:at], castagnoli)
	_, _ = r.Discard(at)
	for left := int(n[0] + n[1]); left > 0; {
		b, _ := r.Peek(min(left, r.Size()))
		if len(b) == 0 {
			return 0
		}
		sum = crc32.Update(sum, castagnoli, b)
		_, _ = r.Discard(len(b))
		left -= len(b)
	}
	tail, _ := r.Peek(crc32.Size)
	if len(tail) < crc32.Size || binary.BigEndian.Uint32(tail) != sum {
		return 0
	}
	_, _ = r.Discard(crc32.Size)
	return int64(at) + int64(n[0]+n[1]) + crc32.Size
}

// numbered names the files of one kind in the order of their numbers.
func numbered(dir, suffix string) ([]string, error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range all {
		if strings.HasSuffix(f.Name(), suffix) {
			names = append(names, f.Name())
		}
	}
	slices.SortFunc(names, byNumber)
	return names, nil
}

// byNumber orders names of one kind: a number may have outgrown its leading zeros.
func byNumber(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

func numberOf(name string) (int, error) {
	return strconv.Atoi(strings.TrimSuffix(name, filepath.Ext(name)))
}
