package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const logSuffix = ".mem" // Badger's write-ahead logs: a number of five digits or more

// syncLogsLocked makes the write-ahead logs stable, oldest first, so that what survives a power cut is a prefix. A log
// file that vanishes meanwhile was flushed into a table, which Badger syncs itself.
func (s *Store) syncLogsLocked() error {
	logs, err := s.logsLocked()
	if err != nil {
		return err
	}
	for _, name := range logs {
		if err := syncFile(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("syncing the store: %w", err)
		}
		s.mu.synced = name
	}
	return nil
}

// logsLocked names the log files from the newest one that was synced before on. Names are probed one by one, because
// the folder may hold thousands of tables; when the trail is lost, as logs came and went since, the folder is read.
func (s *Store) logsLocked() ([]string, error) {
	if s.mu.synced == "" {
		return s.allLogs()
	}
	logs := []string{s.mu.synced}
	for s.exists(logAfter(logs[len(logs)-1])) {
		logs = append(logs, logAfter(logs[len(logs)-1]))
	}
	if !s.exists(logs[len(logs)-1]) { // the newest log is never deleted, so this is not it
		return s.allLogs()
	}
	return logs, nil
}

func (s *Store) exists(name string) bool {
	if name == "" {
		return false
	}
	_, err := os.Lstat(filepath.Join(s.dir, name))
	return err == nil
}

func (s *Store) allLogs() ([]string, error) {
	all, err := os.ReadDir(s.dir) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("syncing the store: %w", err)
	}
	var logs []string
	for _, f := range all {
		if strings.HasSuffix(f.Name(), logSuffix) {
			logs = append(logs, f.Name())
		}
	}
	if len(logs) == 0 {
		return nil, fmt.Errorf("syncing the store: no write-ahead log in %s", s.dir)
	}
	return logs, nil
}

// logAfter is the name that Badger gives to the log after this one.
func logAfter(name string) string {
	n, err := strconv.Atoi(strings.TrimSuffix(name, logSuffix))
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%05d%s", n+1, logSuffix)
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
