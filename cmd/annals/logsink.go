package main

import (
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// sinkBytes is how much of the log waits for one place that takes it slowly. It bounds
	// twice that: what is being written, and what came meanwhile.
	sinkBytes = 1 << 20
	// sinkPatience is how long the end of the process waits for such a place.
	sinkPatience = time.Second
)

// sink writes lines to one place, in a goroutine of its own. Goroutines that log hold locks,
// that of Raft too: a full pipe without a reader must not stop a node. A line for which there
// is no room is dropped, counted, and reported as soon as there is room.
type sink struct {
	out     io.Writer
	tell    func(dropped int) // writes to out that lines were dropped
	wake    chan struct{}     // capacity 1
	mu      sync.Mutex        // guards what follows
	lines   [][]byte
	flushed []chan struct{} // closed when all lines that are there now were written
	bytes   int
	dropped int
	total   uint64 // dropped ever
	closed  bool
}

// newSink starts a sink, which close ends.
func newSink(out io.Writer, tell func(dropped int)) *sink {
	s := &sink{out: out, tell: tell, wake: make(chan struct{}, 1)}
	go s.run()
	return s
}

// Write takes a line. It never waits for the place that the line is for.
func (s *sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	if s.closed || s.bytes+len(line) > sinkBytes {
		s.dropped++
		s.total++
	} else {
		s.lines = append(s.lines, append([]byte(nil), line...))
		s.bytes += len(line)
	}
	s.mu.Unlock()
	s.signal()
	return len(line), nil
}

func (s *sink) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run writes until the sink is closed and all is written.
func (s *sink) run() {
	for range s.wake {
		s.mu.Lock()
		lines, flushed, dropped, closed := s.lines, s.flushed, s.dropped, s.closed
		s.lines, s.flushed, s.bytes, s.dropped = nil, nil, 0, 0
		s.mu.Unlock()
		for _, line := range lines {
			_, _ = s.out.Write(line) // There is no other place for the error.
		}
		if dropped > 0 {
			s.tell(dropped)
		}
		for _, done := range flushed {
			close(done)
		}
		if closed {
			return
		}
	}
}

// flush waits until all lines are written, but not for ever.
func (s *sink) flush() { s.finish(false) }

// close flushes, and takes no more lines.
func (s *sink) close() { s.finish(true) }

func (s *sink) finish(closing bool) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = closing
	done := make(chan struct{})
	s.flushed = append(s.flushed, done)
	s.mu.Unlock()
	s.signal()
	timer := time.NewTimer(sinkPatience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// droppedLines is how many lines were dropped ever.
func (s *sink) droppedLines() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// errUnread says that a pipe is full and has no reader.
var errUnread = errors.New("the pipe is full and has no reader")

// briefly calls a function that may block for ever, such as a write to a pipe without a reader, and
// leaves it alone after a moment.
func briefly(write func() error) error {
	done := make(chan error, 1)
	go func() { done <- write() }()
	timer := time.NewTimer(sinkPatience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return errUnread
	}
}
