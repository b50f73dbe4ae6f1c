package policy

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// confine lowers this process for good: nice 19 on every thread (a thread inherits its maker's), a bound on the CPU
// it may use and on the address space it may add to what the Go runtime has reserved already.
func confine(p *profile) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, 19) // a thread may have ended meanwhile
		}
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	pages, err := strconv.ParseUint(strings.Fields(string(statm))[0], 10, 64)
	if err != nil {
		return err
	}
	space := pages*uint64(os.Getpagesize()) + p.childMB<<20
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: space, Max: space}); err != nil {
		return fmt.Errorf("limit address space: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: p.cpuS, Max: p.cpuS}); err != nil {
		return fmt.Errorf("limit CPU: %w", err)
	}
	return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
}

// alone puts the child into its own process group, so that a signal at the gateway's terminal is not its end.
func alone(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
