package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of /proc's times: USER_HZ is 100 wherever Linux runs today.
const tick = time.Second / 100

// sample is what /proc says of CPU time at one moment. Without /proc it is empty, and so is every difference.
type sample struct {
	busy  time.Duration         // of all cores, without interrupts, and with what the hypervisor gave to others
	times map[int]time.Duration // of each process, and of its children that ended
	owner map[int]int           // its parent
}

// takeSample reads /proc once.
func takeSample() sample {
	s := sample{times: map[int]time.Duration{}, owner: map[int]int{}}
	all, err := os.ReadFile("/proc/stat")
	if err != nil {
		return s
	}
	// cpu user nice system idle iowait irq softirq steal: interrupts belong to no process, and idle to nobody
	if f := bytes.Fields(bytes.SplitN(all, []byte("\n"), 2)[0]); len(f) > 8 {
		s.busy = ticks(f[1]) + ticks(f[2]) + ticks(f[3]) + ticks(f[8])
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return s
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			s.read(pid)
		}
	}
	return s
}

// read adds one process, if it is still there.
func (s *sample) read(pid int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return
	}
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // its name may hold blanks; behind it stands field 3
	if len(f) < 15 {
		return
	}
	s.owner[pid], _ = strconv.Atoi(string(f[1]))
	s.times[pid] = ticks(f[11]) + ticks(f[12]) + ticks(f[13]) + ticks(f[14])
}

func ticks(text []byte) time.Duration {
	n, _ := strconv.ParseInt(string(text), 10, 64)
	return time.Duration(n) * tick
}

// tree is the CPU time of a process and of everything it started.
func (s *sample) tree(pid int) time.Duration {
	sum := s.times[pid]
	for child, owner := range s.owner {
		if owner == pid {
			sum += s.tree(child)
		}
	}
	return sum
}

// used is the CPU time that went to everybody. The kernel counts it twice, and neither count is whole: the cores' has no
// interrupts, which a process that sends much is charged for; the processes' has none of other containers.
func (s *sample) used(since *sample) time.Duration {
	var all time.Duration
	for _, t := range s.times {
		all += t
	}
	for _, t := range since.times { // whoever ended since is in the time of who waited for it
		all -= t
	}
	return max(all, s.busy-since.busy)
}

// resident is the memory that a process occupies, in bytes; 0 where that cannot be told.
func resident(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("VmRSS:"))
	if f := bytes.Fields(rest); len(f) > 0 {
		kb, _ := strconv.ParseInt(string(f[0]), 10, 64)
		return float64(kb << 10)
	}
	return 0
}
