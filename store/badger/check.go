package badger

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"

	"github.com/weir-gateway/weir/core/llm"
)

// The register of cipher keys, which has none: 16 random bytes, and the text that a cipher would have made unreadable.
const (
	registryName = "KEYREGISTRY"
	registryText = "Hello Badger"
)

// check reads a folder before Badger does, and refuses one in which something that was stable does not read any more.
// Badger would end some of it with a panic, and pass over the rest: a block of a table whose checksum is wrong ends a
// scan as if there were no more keys. It also cuts off what a crash tore, as Badger would after taking a torn length at
// its word.
func check(dir string) error {
	s, err := readSeal(dir)
	if err != nil {
		return unreadable(dir, err)
	}
	manifest, err := os.ReadFile(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) && s == (seal{}) {
		return nil // a new folder
	}
	if err != nil {
		return unreadable(dir, err)
	}
	if whole := wholeManifest(manifest); whole < len(manifest) && !s.covers(manifest[:whole]) {
		return damaged(dir, manifestName, "what is at byte %d of %d does not read", whole, len(manifest))
	}
	if b, err := os.ReadFile(filepath.Join(dir, registryName)); err == nil && !bytes.HasSuffix(b, []byte(registryText)) {
		return damaged(dir, registryName, "it does not say %q", registryText)
	}
	for suffix, m := range map[string]mark{logSuffix: s.log, valueSuffix: s.values} {
		if err := checkLogs(dir, suffix, m); err != nil {
			return err
		}
	}
	if err := checkTables(dir, false); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, s.log.name)); s.log.name == "" || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s.log = mark{} // closing came as far as removing it
	return s.write(dir, (*os.File).Sync)
}

func damaged(dir, file, format string, args ...any) error {
	return &llm.Error{Kind: llm.KindInternal, Code: "store_damaged",
		Message: fmt.Sprintf("the data folder %s is damaged: %s: %s; restore it from a backup", dir, file, fmt.Sprintf(format, args...))}
}

func damagedValue(key []byte) error {
	return &llm.Error{Kind: llm.KindInternal, Code: "store_damaged", Message: fmt.Sprintf("the store is damaged: the value of key %q does not read; restore it from a backup", key)}
}

// wholeManifest is how much of a manifest reads: 8 bytes of magic, then records of length, CRC-32C and content.
func wholeManifest(b []byte) int {
	at := 8
	if len(b) < at || string(b[:4]) != "Bdgr" {
		return 0
	}
	for len(b)-at >= 8 {
		n, sum := int64(binary.BigEndian.Uint32(b[at:])), binary.BigEndian.Uint32(b[at+4:])
		if n > int64(len(b)-at-8) || crc32.Checksum(b[at+8:at+8+int(n)], castagnoli) != sum {
			return at
		}
		at += 8 + int(n)
	}
	return at
}

// covers says that everything the seal knows of the manifest is in b. A manifest that Badger wrote anew is not, but
// reads to its end.
func (s seal) covers(b []byte) bool {
	return s.manifest > 0 && int64(len(b)) >= s.manifest && crc32.Checksum(b[:s.manifest], castagnoli) == s.sum
}

// checkLogs checks the logs of one kind. Those before the sealed one are complete, it has what the seal says, and later
// ones were never stable. Badger empties a log before it removes it, the oldest first and once a table has all of it, so
// a death in between leaves an empty one before the others.
func checkLogs(dir, suffix string, sealed mark) error {
	names, err := numbered(dir, suffix)
	if err != nil {
		return unreadable(dir, err)
	}
	oldest := true
	for i, name := range names {
		if _, err := numberOf(name); err != nil {
			return damaged(dir, name, "not a name that was given here")
		}
		if gone := name != sealed.name || i < len(names)-1; oldest && gone && emptied(filepath.Join(dir, name)) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return unreadable(dir, err)
			}
			continue
		}
		oldest = false
		order := byNumber(name, sealed.name)
		if sealed.name == "" {
			order = 1
		}
		if err := checkLog(dir, name, sealed.bytes, order); err != nil {
			return err
		}
	}
	return nil
}

func emptied(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.Size() == 0
}

// checkLog checks one log; order is where it stands to the sealed one.
func checkLog(dir, name string, sealed int64, order int) error {
	path := filepath.Join(dir, name)
	whole, size, clean, err := readLog(path)
	switch {
	case err != nil:
		return unreadable(dir, err)
	case order < 0 && !clean, order == 0 && whole < sealed:
		return damaged(dir, name, "the record at byte %d does not read", max(whole, 0))
	case whole < 0 && order > 0:
		return os.Remove(path) // made, and torn before anything in it was stable
	case !clean && whole < size:
		return os.Truncate(path, whole)
	}
	return nil
}

// readLog gives how far the records of a log are whole (-1: not even its header) and whether nothing but zeros follows.
func readLog(path string) (whole, size int64, clean bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, false, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, 0, false, err
	}
	var head [logHeader]byte
	if _, err := io.ReadFull(f, head[:]); err != nil || binary.BigEndian.Uint64(head[:]) != 0 {
		return -1, st.Size(), false, nil // too short, or as if encrypted, which no log of ours is
	}
	whole = logHeader + wholeRecords(bufio.NewReaderSize(f, 64<<10))
	return whole, st.Size(), zeros(f, whole, st.Size()), nil
}

// zeros reports whether nothing was written from one place to another. It looks at the first MiB: what is torn is torn
// where the next record should be.
func zeros(f *os.File, from, to int64) bool {
	r := bufio.NewReader(io.NewSectionReader(f, from, min(to-from, mib)))
	for {
		b, err := r.ReadByte()
		if err != nil {
			return err == io.EOF
		}
		if b != 0 {
			return false
		}
	}
}

// checkTables reads every block of every table that the manifest names. While Badger is at work, a table may go.
func checkTables(dir string, live bool) error {
	f, err := os.Open(filepath.Join(dir, manifestName))
	if err != nil {
		return unreadable(dir, err)
	}
	defer f.Close()
	manifest, _, err := badger.ReplayManifestFile(f, 0, settings(dir, nil))
	if err != nil {
		return damaged(dir, manifestName, "%v", err)
	}
	for id := range manifest.Tables {
		name := table.IDToFilename(id)
		err := checkTable(filepath.Join(dir, name))
		if err != nil && !(live && errors.Is(err, fs.ErrNotExist)) {
			return damaged(dir, name, "%v", err)
		}
	}
	return nil
}

// checkTable reads one table by itself. Badger panics over some damage.
func checkTable(path string) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("its index does not read")
		}
	}()
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	t, err := table.OpenInMemoryTable(b, 0, &table.Options{BlockSize: 4 << 10})
	if err != nil {
		return errors.New("the checksum of its index is wrong")
	}
	if t.VerifyChecksum() != nil {
		return errors.New("the checksum of a block is wrong")
	}
	return nil
}
