package eventlog

import (
	"sync/atomic"
	"time"
)

// What Open does, for Options.Progress.
const (
	doingRecover = "reading the log"
	doingIndex   = "indexing the log"
	doingRebuild = "rebuilding the index"
)

// progressPace is the least time between two reports of one activity.
const progressPace = 250 * time.Millisecond

// progress passes on how far Open is, from whatever goroutine, now and then.
type progress struct {
	told  func(doing string, done, total int64) // nil: no reports
	begun time.Time
	next  atomic.Int64 // nanoseconds since begun, before which nothing is reported
	done  atomic.Bool  // Open has returned
}

func newProgress(told func(doing string, done, total int64)) *progress {
	return &progress{told: told, begun: time.Now()}
}

// at reports the progress of a step, unless it did a moment ago.
func (p *progress) at(doing string, done, total int64) {
	if p.told == nil || p.done.Load() {
		return
	}
	now, next := int64(time.Since(p.begun)), p.next.Load()
	if now < next || !p.next.CompareAndSwap(next, now+int64(progressPace)) {
		return
	}
	p.told(doing, min(done, total), total)
}

// begin reports that something begins, at once. Only the goroutine of Open calls it.
func (p *progress) begin(doing string, total int64) {
	p.next.Store(0)
	p.at(doing, 0, total)
}

// end keeps background work from reporting.
func (p *progress) end() { p.done.Store(true) }
