package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// keptSuffix names the one older file that is kept beside a LogFile.
const keptSuffix = ".1"

// LogFile is a file that lines are appended to, and that never grows beyond a bound: before it would, it takes the
// place of the one older file that is kept. When something else has moved it away, the next line begins a new one.
// For one goroutine. A pipe, a device or a socket is refused: writing to it may block for as long as nobody reads.
type LogFile struct {
	path string
	most int64
	f    *os.File // nil: to be opened
	info os.FileInfo
	size int64
	torn bool // the last line was written in part
}

// OpenLogFile opens or creates a log of at most so many bytes. Its error says what is wrong with the path.
func OpenLogFile(path string, most int64) (*LogFile, error) {
	l := &LogFile{path: path, most: most}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

// CheckLogFile says what OpenLogFile and rotation would fail with, and leaves nothing behind.
func CheckLogFile(path string) error {
	switch info, err := os.Stat(path); {
	case err == nil && !info.Mode().IsRegular():
		return irregular(path, info)
	case err == nil:
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return explainLog(path, err)
		}
		_ = f.Close() // nothing was written
	case !errors.Is(err, fs.ErrNotExist):
		return explainLog(path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".weir-check-")
	if err != nil {
		return explainLog(path, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// explainLog names the folder when it is what is missing.
func explainLog(path string, err error) error {
	var at *fs.PathError
	if !errors.As(err, &at) {
		return err
	}
	if folder := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s cannot be written: there is no folder %s; create it or name another path", path, folder)
	}
	return fmt.Errorf("%s cannot be written: %w; want a file that may be appended to, in a folder where files may be created", path, at.Err)
}

// irregular says what is in the place of a file.
func irregular(path string, info fs.FileInfo) error {
	what := "is a device"
	switch mode := info.Mode(); {
	case mode.IsDir():
		what = "is a directory"
	case mode&fs.ModeNamedPipe != 0:
		what = "is a named pipe"
	case mode&fs.ModeSocket != 0:
		what = "is a socket"
	}
	return fmt.Errorf("%s %s; want a regular file, or a path where one can be made", path, what)
}

func (l *LogFile) open() error {
	if info, err := os.Stat(l.path); err == nil && !info.Mode().IsRegular() {
		return irregular(l.path, info) // before it is opened, which a device may take for more than it is
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return explainLog(l.path, err)
	}
	info, err := f.Stat()
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = irregular(l.path, info)
	case err == nil && info.Size() > 0:
		last := []byte{'\n'}
		_, err = f.ReadAt(last, info.Size()-1)
		l.torn = last[0] != '\n' // by a dying process
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return explainLog(l.path, err)
	}
	l.f, l.info, l.size = f, info, info.Size()
	return nil
}

// Append writes a line with its end. After an error the line may be there in part; the next one begins its own.
func (l *LogFile) Append(line []byte) error {
	if err := l.settle(int64(len(line)) + 1); err != nil {
		return err
	}
	if l.torn {
		n, err := l.f.Write([]byte{'\n'})
		if l.size += int64(n); err != nil {
			return err
		}
		l.torn = false
	}
	n, err := l.f.Write(line)
	l.size += int64(n)
	l.torn = err != nil && n > 0
	return err
}

// settle makes sure that the file at the path is open and has room.
func (l *LogFile) settle(room int64) error {
	if l.f != nil {
		if there, err := os.Stat(l.path); err != nil || !os.SameFile(there, l.info) {
			l.shut()
		} else if l.size+room > l.most && l.size > 0 {
			if err := os.Rename(l.path, l.path+keptSuffix); err != nil {
				return err
			}
			l.shut()
		}
	}
	if l.f == nil {
		return l.open()
	}
	return nil
}

func (l *LogFile) shut() {
	_ = l.f.Close() // every line was written when it was appended
	l.f, l.torn = nil, false
}

// Close closes the file.
func (l *LogFile) Close() error {
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}
