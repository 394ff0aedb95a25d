package torture

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// nodeCommand is how the program runs a node with a wall clock that torture sets, to see what
// becomes of data when a clock is wrong. The name of the clock's file and the options of the node
// follow. The node writes and judges events by that clock, and judges certificates. Timers and the
// times of log lines go by the machine's clock all the same.
var nodeCommand = []string{"torture", "node"}

// setClock makes the file of a clock that is off by so much, or changes it.
func setClock(file string, offset time.Duration) error {
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

// OpenClock returns the clock of a file. What the file says is read at each call; if it cannot be
// read any more, what it said last holds.
func OpenClock(file string) (now func() time.Time, err error) {
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
