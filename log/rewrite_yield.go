package eventlog

import (
	"runtime"
	"time"
)

// usedLately is how long a log counts as being used after it was.
const usedLately = 50 * time.Millisecond

// Yielder lets everything else that is ready go first while the log is used. Who
// works through millions of records calls GiveWay every some ten microseconds of
// work: else a request that becomes ready meanwhile waits for the end of a time
// slice, of the runtime or of the operating system, which is many times as long as it takes itself.
//
// It is for one goroutine.
type Yielder struct {
	log   *state
	end   int64     // of the log, when it was looked at last
	read  uint64    // events that readers were given until then
	until time.Time // the log counts as used
}

// Yielder returns one for work that runs at the same time as readers and the writer of the log.
func (s *state) Yielder() *Yielder {
	return &Yielder{log: s, end: s.Tail().End, read: s.metrics.reads.count()}
}

// InUse reports whether the log is appended to or read, or was a moment ago. It costs some ten
// nanoseconds.
func (y *Yielder) InUse() bool {
	end, read := y.log.Tail().End, y.log.metrics.reads.count()
	if end != y.end || read != y.read {
		y.end, y.read, y.until = end, read, time.Now().Add(usedLately)
		return true
	}
	return time.Now().Before(y.until)
}

// GiveWay lets others go first, if there are any who use the log.
func (y *Yielder) GiveWay() {
	if y.InUse() {
		runtime.Gosched()
		yieldProcessor()
	}
}
