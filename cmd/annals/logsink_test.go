package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
)

// stuck is a place that takes nothing until it is released.
type stuck struct {
	lockedBuffer
	release chan struct{}
}

func (s *stuck) Write(line []byte) (int, error) {
	<-s.release
	return s.lockedBuffer.Write(line)
}

// TestSinkThatTakesNothing: no caller waits for it. Lines without room are counted and reported
// in their place, and earlier lines are written in order.
func TestSinkThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stuck{release: make(chan struct{})}
		s := newSink(out, func(dropped int) { fmt.Fprintf(out, "dropped %d\n", dropped) })
		line := []byte(strings.Repeat("x", 1<<10-1) + "\n")
		log := func(n int) {
			for range n {
				check.NoError(t, check.Err(s.Write(line)))
			}
		}
		log(1)
		synctest.Wait() // It is being written.
		log(1024 + 7)
		check.Equal(t, s.droppedLines(), 7, "lines dropped")
		begun := time.Now()
		s.flush()
		check.Equal(t, time.Since(begun), sinkPatience, "flush took")
		close(out.release)
		s.flush()
		log(1)
		s.close()
		s.close()
		lines := strings.SplitAfter(out.String(), "\n")
		if len(lines) != 1025+1+1+1 || lines[1025] != "dropped 7\n" || lines[1026] != string(line) {
			t.Errorf("%d lines, the one in place of those that were dropped: %.40q", len(lines), lines[min(1025, len(lines)-1)])
		}
		log(1) // too late, and no harm
	})
}

// TestLogIntoAFullPipe: with both places of the log stuck, logging and the end of the process
// make no caller wait.
func TestLogIntoAFullPipe(t *testing.T) {
	r, w, err := os.Pipe()
	check.Must(t, err)
	defer func() { _ = errors.Join(r.Close(), w.Close()) }()
	c := config.Default()
	c.Log = t.TempDir()
	l, err := newLogger(c, w)
	check.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 30_000 {
			l.Info(strings.Repeat("x", 100))
		}
		complain(w, errors.New("the end"))
		l.close()
	}()
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		t.Fatal("it waits for the pipe")
	}
	if l.dropped() == 0 {
		t.Error("nothing was dropped")
	}
}
