package scavenge

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/annalsdb/annals/internal/clock"
	eventlog "github.com/annalsdb/annals/log"
)

// leastPause is how long the run must owe before it pauses: short pauses would
// only spread the work without leaving the machine alone.
const leastPause = time.Second

// pacer keeps the share of time in which a run is active at about a percentage.
type pacer struct {
	percent int

	mu     sync.Mutex // guards the fields below
	since  time.Time  // the run's start
	paused time.Duration
}

// wait pauses if the run has been active for more than its share, and returns
// early with ctx's error.
func (p *pacer) wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.percent >= 100 {
		return nil
	}
	p.mu.Lock()
	active := time.Since(p.since) - p.paused
	owed := active*time.Duration(100-p.percent)/time.Duration(p.percent) - p.paused
	p.mu.Unlock()
	if owed < leastPause {
		return nil
	}
	begun := time.Now()
	_ = clock.Sleep(ctx, owed) // How long it slept counts, and ctx says the rest.
	p.mu.Lock()
	p.paused += time.Since(begun)
	p.mu.Unlock()
	return ctx.Err()
}

// share is the share of time in which the run was active, for logs.
func (p *pacer) share() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := time.Since(p.since)
	if total <= 0 {
		return "100%"
	}
	return fmt.Sprintf("%.0f%%", 100*float64(total-p.paused)/float64(total))
}

// processors gives runs processors of the Go runtime beyond those that it has.
// With two of them and a run that is always busy on one, everything else shares
// the other, and has none at all while that waits for an fsync: requests then wait up to ten
// milliseconds for the runtime to notice. How the threads share the machine is
// up to the operating system.
//
// GOMAXPROCS is one for the process, hence one variable for all nodes in it.
var processors struct {
	mu     sync.Mutex
	extra  int // of all runs
	before int // processors when there was none
}

// addProcessors gives n more until release is called.
func addProcessors(n int) (release func()) {
	p := &processors
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.extra == 0 {
		p.before = runtime.GOMAXPROCS(0)
	}
	p.extra += n
	runtime.GOMAXPROCS(p.before + p.extra)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.extra -= n; p.extra > 0 {
			runtime.GOMAXPROCS(p.before + p.extra)
			return
		}
		// The runtime's own choice follows limits of a container that change; one that was given is
		// put back.
		if runtime.SetDefaultGOMAXPROCS(); runtime.GOMAXPROCS(0) != p.before {
			runtime.GOMAXPROCS(p.before)
		}
	}
}

// How many steps of work are done between two occasions for everything else: some
// ten microseconds of work each.
const (
	yieldRecords = 256 // records or entries that are looked at
	yieldStreams = 32  // streams that are read, decided or stored
)

// yielder counts steps of one goroutine.
type yielder struct {
	log   *eventlog.Yielder
	steps int
}

func (r *run) yielder() yielder { return yielder{log: r.log.Chunks.Yielder()} }

func (y *yielder) every(n int) {
	if y.steps++; y.steps >= n {
		y.steps = 0
		y.log.GiveWay()
	}
}
