// Package clock is about time: it waits, and lets another process set the wall clock that a node
// writes and judges events by. Torture does, to see what becomes of data when a clock is wrong.
// Timers, certificates and the times of log lines go by the machine's clock all the same.
package clock

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// Variable of the environment names the file of a clock. It is not an option of the product: only
// tests set it.
const Variable = "TORTURE_CLOCK"

// Set makes the file of a clock that is off by so much, or changes it.
func Set(file string, offset time.Duration) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("set a clock: %w", err)
	}
	_, err = f.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(offset)), 0)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("set a clock: %w", err)
	}
	return nil
}

// Open returns the clock of a file, nil if no file is named. What the file says
// is read at each call; if it cannot be read any more, what it said last holds.
func Open(file string) (now func() time.Time, err error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file) // It stays open to the end of the process.
	if err != nil {
		return nil, fmt.Errorf("open a clock: %w", err)
	}
	var last atomic.Int64
	return func() time.Time {
		var b [8]byte
		if n, _ := f.ReadAt(b[:], 0); n == len(b) {
			last.Store(int64(binary.LittleEndian.Uint64(b[:])))
		}
		return time.Now().Add(time.Duration(last.Load()))
	}, nil
}
