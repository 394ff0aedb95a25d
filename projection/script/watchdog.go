package script

import (
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/dop251/goja"
)

const (
	// tick is how often a running call is looked at.
	tick = 10 * time.Millisecond
	// maxGrowth is by how many bytes the process may grow while one call runs.
	maxGrowth = 256 << 20
	// atOnce is how long a call has run at most when twice that growth needs no closer look: a text
	// that doubles itself would be too large after it.
	atOnce = time.Second
)

// A watchdog interrupts a call of the script that takes too long or too much memory.
// Its timer runs only while calls follow each other: an idle projection has none.
type watchdog struct {
	rt    *goja.Runtime
	limit time.Duration // of a call; 0: none
	verb  string        // what the limit is for

	mu     sync.Mutex // An interrupt meets the call that it is meant for.
	timer  *time.Timer
	armed  bool
	closed bool
	began  time.Time // of the running call; zero: none
	seen   bool      // the running call was there at the last tick
	idle   bool      // no call since the last tick
	base   uint64    // bytes of the heap when the call was first seen
	next   uint64    // bytes of the heap beyond which it is looked at closely
	low    uint64    // the fewest live bytes since what the script keeps was weighed
	grown  bool      // it has
	step   uint64    // by how many bytes the process may grow before it is weighed again
	cause  string    // why the call was interrupted
	ended  bool      // all calls are interrupted
}

// ended is the cause of calls that end does not let be.
const ended = "ended"

func newWatchdog(rt *goja.Runtime) *watchdog {
	return &watchdog{rt: rt, low: math.MaxUint64, step: maxVariables}
}

// bound sets the limit of the calls that follow.
func (w *watchdog) bound(limit time.Duration, verb string) {
	w.mu.Lock()
	w.limit, w.verb = limit, verb
	w.mu.Unlock()
}

// start begins to watch a call.
func (w *watchdog) start() {
	w.mu.Lock()
	w.began, w.seen, w.idle = time.Now(), false, false
	if w.ended && w.rt != nil {
		w.interrupt(ended)
	}
	if !w.armed && !w.closed {
		w.armed = true
		if w.timer == nil {
			w.timer = time.AfterFunc(w.pause(0), w.look)
		} else {
			w.timer.Reset(w.pause(0))
		}
	}
	w.mu.Unlock()
}

// stop ends it. The cause is empty unless the call was interrupted.
func (w *watchdog) stop() (cause string) {
	w.mu.Lock()
	w.began = time.Time{}
	if cause = w.cause; cause != "" {
		w.cause = ""
		if w.rt != nil {
			w.rt.ClearInterrupt()
		}
	}
	w.mu.Unlock()
	return cause
}

// fired says whether the running call was interrupted.
func (w *watchdog) fired() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause != ""
}

// end interrupts the running call, and all that follow.
func (w *watchdog) end() {
	w.mu.Lock()
	if w.ended = true; !w.began.IsZero() && w.cause == "" && w.rt != nil {
		w.interrupt(ended)
	}
	w.mu.Unlock()
}

func (w *watchdog) close() {
	w.mu.Lock()
	w.closed, w.rt = true, nil
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
}

// pause is the time to the next look, when the call has taken so long.
func (w *watchdog) pause(took time.Duration) time.Duration {
	if w.limit > 0 && w.limit-took < tick {
		return max(w.limit-took, time.Microsecond)
	}
	return tick
}

// look runs when the timer fires.
func (w *watchdog) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.idle && w.began.IsZero() {
		w.armed = false
		return
	}
	w.idle = true // The next call says otherwise.
	live := heapBytes(liveBytes)
	w.low = min(w.low, live)
	w.grown = w.grown || live-w.low >= w.step
	var took time.Duration
	if !w.began.IsZero() && w.cause == "" {
		took = time.Since(w.began)
		if w.limit > 0 && took >= w.limit {
			w.interrupt(tooLong(w.verb, took, w.limit))
		} else {
			w.weigh(took)
		}
	}
	w.timer.Reset(w.pause(took))
}

func (w *watchdog) interrupt(cause string) {
	w.cause = cause
	w.rt.Interrupt(cause)
}

// weigh compares the heap with its size when the call was first seen. Others grow the heap as well,
// mostly by garbage: in a long call only what a collection leaves counts.
func (w *watchdog) weigh(took time.Duration) {
	heap := heapBytes(allBytes)
	if !w.seen {
		w.seen, w.base, w.next = true, heap, heap+maxGrowth
		return
	}
	if heap < w.next {
		return
	}
	if heap < w.base+2*maxGrowth || took > atOnce && heap < w.base+4*maxGrowth {
		began := w.began
		w.mu.Unlock()
		runtime.GC()
		heap = heapBytes(allBytes)
		w.mu.Lock()
		if w.closed || w.began != began {
			return
		}
	}
	if w.next = heap + maxGrowth; heap >= w.base+maxGrowth {
		w.interrupt(fmt.Sprintf("the script took too much memory: more than %d MiB in one call", maxGrowth>>20))
	}
}

// due says whether the script may keep too much: the live bytes of the process have grown enough
// since it was weighed last, while it ran.
func (w *watchdog) due() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.grown
}

// weighed says how much more the script may keep.
func (w *watchdog) weighed(left uint64) {
	w.mu.Lock()
	w.low, w.step, w.grown = heapBytes(liveBytes), max(left, maxVariables/4), false
	w.mu.Unlock()
}

const (
	allBytes  = "/memory/classes/heap/objects:bytes" // garbage included
	liveBytes = "/gc/heap/live:bytes"                // what the last collection left
)

// heapBytes is how many bytes the heap holds.
func heapBytes(which string) uint64 {
	sample := [1]metrics.Sample{{Name: which}}
	metrics.Read(sample[:])
	return sample[0].Value.Uint64()
}
