package lab

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MaxSkew bounds how far a clock may be off, either way.
const MaxSkew = 100 * 365 * 24 * time.Hour

// SkewClock moves the wall clock that the host's processes see away from that
// of the machine. Monotonic time, and thereby timers, go on undisturbed, as they do
// when somebody sets a clock.
//
// The kernel has one wall clock for all, and programs read it by a function that the kernel maps into
// each process. From the first call of SkewClock on, which may be one with 0, processes of the host are started
// with a function of ours in its place, which adds the offset; their offset
// changes at once with later calls. So the first call must come before the
// start: it is an error, though it counts for those started later, if a process runs that has the
// machine's clock. Such a process reads all of its clocks by
// system calls, which costs it a fraction of a microsecond each.
//
// Not skewed: what the kernel itself dates, such as files, and programs that a
// process starts or becomes. Where there is no way, the error is [ErrNoClock].
func (h *Host) SkewClock(offset time.Duration) error {
	if len(clockCode) == 0 {
		return ErrNoClock
	}
	if offset < -MaxSkew || offset > MaxSkew {
		return fmt.Errorf("a clock is not skewed by %s, at most by %s", offset, MaxSkew)
	}
	return h.thread.do(context.Background(), func() error {
		if h.closed {
			return ErrClosed
		}
		h.ownClock, h.offset = true, offset
		var errs []error
		for _, p := range h.Processes() {
			if err := p.skew(offset); err != nil {
				errs = append(errs, fmt.Errorf("skew the clock of process %d: %w", p.Pid(), err))
			}
		}
		return errors.Join(errs...)
	})
}

func (p *Process) skew(offset time.Duration) error {
	if p.clock == nil {
		return errors.New("it was started with the clock of the machine")
	}
	// The lock keeps the process's id its own.
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return nil
	}
	info, err := awaitState(p.Pid(), unix.WNOHANG)
	if err == nil && info.Signo != 0 {
		return nil // it has ended and has no memory any more
	}
	return p.clock.set(offset)
}

// clock is the function that tells a process the time.
type clock struct {
	pid int
	at  int64 // address of the two copies of the offset
}

// set changes the offset. The function waits while the copies differ, so it never
// uses one that is half written.
func (c *clock) set(offset time.Duration) error {
	value := binary.NativeEndian.AppendUint64(nil, uint64(offset))
	for _, at := range []int64{c.at + 8, c.at} {
		if err := writeMemory(c.pid, at, value); err != nil {
			return err
		}
	}
	return nil
}

// startClock exchanges the clock of a process that waits, traced by the calling
// thread, before its first instruction, and lets it go. If that fails it waits for ever, and must be killed.
func startClock(pid int, offset time.Duration) (*clock, error) {
	c, err := installClock(pid, offset)
	if err == nil {
		err = unix.PtraceDetach(pid)
	}
	if err != nil {
		return nil, fmt.Errorf("give it a clock of its own: %w", err)
	}
	return c, nil
}

func installClock(pid int, offset time.Duration) (*clock, error) {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, unix.WALL, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("wait for its start: %w", err)
		}
	}
	if !status.Stopped() {
		return nil, errors.New("it ended before it started")
	}
	base, image, err := sharedObject(pid)
	if err != nil {
		return nil, err
	}
	start, size, err := clockFunction(image)
	if err != nil {
		return nil, err
	}
	if size < uint64(len(clockCode)) {
		return nil, fmt.Errorf("%w: the kernel's function has %d bytes, ours %d", ErrNoClock, size, len(clockCode))
	}
	at := base + int64(start)
	if err := writeMemory(pid, at, clockCode); err != nil {
		return nil, err
	}
	c := &clock{pid: pid, at: at + clockOffsetAt}
	return c, c.set(offset)
}

// sharedObject reads the code that the kernel has mapped into a process, the vDSO.
func sharedObject(pid int) (base int64, image []byte, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(maps))
	for lines.Scan() {
		if !strings.HasSuffix(lines.Text(), "[vdso]") {
			continue
		}
		var end int64
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x", &base, &end); err != nil {
			return 0, nil, fmt.Errorf("memory map %q: %w", lines.Text(), err)
		}
		memory, err := os.Open(memoryFile(pid))
		if err != nil {
			return 0, nil, err
		}
		image = make([]byte, end-base)
		_, err = memory.ReadAt(image, base)
		return base, image, errors.Join(err, memory.Close())
	}
	return 0, nil, errors.Join(fmt.Errorf("%w: the kernel maps no functions", ErrNoClock), lines.Err())
}

// clockFunction finds the function by which programs read clocks. The image is
// linked to address 0, so that addresses in it are offsets.
func clockFunction(image []byte) (start, size uint64, err error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, 0, fmt.Errorf("read the kernel's functions: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, 0, fmt.Errorf("read the kernel's functions: %w", err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			return s.Value, s.Size, nil
		}
	}
	return 0, 0, fmt.Errorf("%w: the kernel maps no function for it", ErrNoClock)
}

func memoryFile(pid int) string { return fmt.Sprintf("/proc/%d/mem", pid) }

// writeMemory writes into a process, which gets its own copy of a page that it shares.
func writeMemory(pid int, at int64, b []byte) error {
	memory, err := os.OpenFile(memoryFile(pid), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = memory.WriteAt(b, at)
	return errors.Join(err, memory.Close())
}
