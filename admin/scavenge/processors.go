package scavenge

import (
	"runtime"
	"sync"

	eventlog "github.com/annalsdb/annals/log"
)

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
