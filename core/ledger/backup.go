package ledger

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/weir-gateway/weir/core/llm"
)

// A backup is the whole store at one moment:
//
//	"weir-backup 1\n"
//	for each key, in order: length of key, length of value (varints), key, value
//	0, number of keys (varints), SHA-256 of everything before it
//
// While a store is being restored it has the key m"restoring", and is not opened; so half a restore is never served.
const (
	backupName   = "weir-backup "
	backupMagic  = backupName + "1\n"
	restoringKey = "mrestoring"
	maxValue     = maxDocBytes + 1<<10
	restoreBytes = 64 << 10 // of one batch, about
)

// IsRestoring tells whether a key is the one that a store has while it is being restored.
func IsRestoring(key []byte) bool { return string(key) == restoringKey }

// Copied says what a backup or a restore moved.
type Copied struct {
	Keys  uint64
	Bytes int64 // of the backup
}

// Backup writes everything in the store, as it is at one moment, to w. The store may be in use: writers are not held up.
func Backup(s Store, w io.Writer) (c Copied, err error) {
	out := &backupWriter{w: bufio.NewWriterSize(w, 64<<10), sum: sha256.New()}
	out.write([]byte(backupMagic))
	err = s.Scan(nil, nil, false, func(k, v []byte) bool {
		c.Keys++
		out.lengths(uint64(len(k)), uint64(len(v)))
		out.write(k)
		out.write(v)
		return out.err == nil
	})
	if err == nil {
		out.lengths(0, c.Keys)
		out.write(out.sum.Sum(nil))
		err = errors.Join(out.err, out.w.Flush())
	}
	if err != nil {
		return c, fmt.Errorf("writing the backup: %w", err)
	}
	c.Bytes = out.n
	return c, nil
}

// Backup is the package's Backup for the ledger that is running.
func (l *Ledger) Backup(w io.Writer) (Copied, error) { return Backup(l.store, w) }

type backupWriter struct {
	w   *bufio.Writer
	sum hash.Hash
	n   int64
	err error
}

func (b *backupWriter) write(p []byte) {
	if b.err != nil {
		return
	}
	b.sum.Write(p)
	n, err := b.w.Write(p)
	b.n, b.err = b.n+int64(n), err
}

func (b *backupWriter) lengths(key, value uint64) {
	b.write(binary.AppendUvarint(binary.AppendUvarint(nil, key), value))
}

// Restore fills an empty store from a backup, makes it stable and verifies it. Of a store that is not empty nothing is
// touched. A store whose restore failed cannot be opened; it has to be made anew.
func Restore(r io.Reader, s Store) (Report, error) {
	empty := true
	if err := s.Scan(nil, nil, false, func(_, _ []byte) bool { empty = false; return false }); err != nil {
		return Report{}, err
	}
	if !empty {
		return Report{}, conflict("store_not_empty", "a backup or a copy needs an empty folder or database, and this one is not; name another")
	}
	if err := s.Apply([]Write{{[]byte(restoringKey), []byte{codecVersion}}}, true); err != nil {
		return Report{}, err
	}
	if err := readBackup(r, func(b []Write) error { return s.Apply(b, false) }); err != nil {
		return Report{}, fmt.Errorf("restoring the backup: %w", err)
	}
	report, err := Verify(s)
	if err == nil && len(report.Problems) > 0 {
		err = llm.Errorf(llm.KindInternal, "what was restored does not add up: %s", report.Problems[0])
	}
	if err == nil {
		err = s.Apply([]Write{{[]byte(restoringKey), nil}}, true)
	}
	return report, err
}

// CheckBackup reads a backup to its end and compares its checksum; nothing is restored.
func CheckBackup(r io.Reader) (c Copied, err error) {
	in := &backupReader{r: bufio.NewReaderSize(r, 64<<10), sum: sha256.New()}
	err = in.all(func(Write) error { c.Keys++; return nil })
	c.Bytes = in.n
	return c, err
}

// readBackup gives the writes of a backup in batches.
func readBackup(r io.Reader, apply func([]Write) error) error {
	in := &backupReader{r: bufio.NewReaderSize(r, 64<<10), sum: sha256.New()}
	var batch []Write
	size := 0
	flush := func() error {
		err := apply(batch)
		batch, size = batch[:0], 0
		return err
	}
	err := in.all(func(w Write) error {
		batch = append(batch, w)
		if size += len(w.Key) + len(w.Value); size < restoreBytes && len(batch) < 512 {
			return nil
		}
		return flush()
	})
	if err != nil || len(batch) == 0 {
		return err
	}
	return flush()
}

type backupReader struct {
	r   *bufio.Reader
	sum hash.Hash
	n   int64
}

var errCutOff = errors.New("the backup is cut off")

// all reads a backup and visits its writes, whose slices are the visitor's to keep.
func (b *backupReader) all(visit func(Write) error) error {
	magic, err := b.bytes(uint64(len(backupMagic)))
	switch {
	case err == nil && string(magic) == backupMagic:
	case bytes.HasPrefix(magic, []byte(backupName)):
		return fmt.Errorf("the backup is of another format, %q; this program reads %q: restore it with the version that wrote it, or a later one",
			bytes.TrimSpace(magic), strings.TrimSpace(backupMagic))
	default:
		return fmt.Errorf("this is not a backup: it should begin with %q", backupMagic)
	}
	for keys := uint64(0); ; keys++ {
		key, err := b.varint()
		if err != nil {
			return err
		}
		value, err := b.varint()
		switch {
		case err != nil:
			return err
		case key == 0:
			return b.end(keys, value)
		case key > 1<<16 || value > maxValue:
			return fmt.Errorf("the backup is damaged at byte %d", b.n)
		}
		w := Write{}
		if w.Key, err = b.bytes(key); err != nil {
			return err
		}
		if w.Value, err = b.bytes(value); err != nil {
			return err
		}
		if err := visit(w); err != nil {
			return err
		}
	}
}

// end compares what was read with what the end says, and sees that nothing comes behind it.
func (b *backupReader) end(keys, said uint64) error {
	want := b.sum.Sum(nil)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(b.r, got); err != nil {
		return errCutOff
	}
	b.n += int64(len(got))
	if keys != said || string(got) != string(want) {
		return errors.New("the backup is damaged: its checksum is another one")
	}
	switch _, err := b.r.ReadByte(); {
	case err == nil:
		return fmt.Errorf("the backup ends at byte %d and something was appended to it; nothing may come behind its end", b.n)
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

func (b *backupReader) bytes(n uint64) ([]byte, error) {
	p := make([]byte, n)
	if _, err := io.ReadFull(b.r, p); err != nil {
		return nil, errCutOff
	}
	b.sum.Write(p)
	b.n += int64(n)
	return p, nil
}

func (b *backupReader) varint() (uint64, error) {
	var raw []byte
	for {
		c, err := b.r.ReadByte()
		if err != nil {
			return 0, errCutOff
		}
		if raw = append(raw, c); c < 0x80 || len(raw) == binary.MaxVarintLen64 {
			break
		}
	}
	v, n := binary.Uvarint(raw)
	if n <= 0 {
		return 0, fmt.Errorf("the backup is damaged at byte %d", b.n)
	}
	b.sum.Write(raw)
	b.n += int64(n)
	return v, nil
}

// refuseRestoring refuses a store whose restore did not come to its end.
func (l *Ledger) refuseRestoring() error {
	_, ok, err := l.store.Get([]byte(restoringKey))
	if ok {
		return conflict("restore_unfinished", "the restore of this data folder did not come to its end; restore the backup into an empty one")
	}
	return err
}
