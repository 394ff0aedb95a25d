// Package system reads statistics of the process and of the machine it runs on.
package system

import (
	"cmp"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"

	"github.com/annalsdb/annals/stats"
)

// sampleLasts is how long a sample is shown before the next one is taken.
const sampleLasts = time.Second

// Options say what is sampled. The zero value works.
type Options struct {
	DataDir string // on the volume whose space is shown; default: the working directory
	// asked once a sample, by one goroutine at a time; default: no connections
	Network  func() Network
	Now      func() time.Time // default: time.Now
	Registry *stats.Registry  // where the metrics are registered; default: nowhere
}

// Network is the traffic of all connections of clients and between nodes together.
type Network struct {
	Connections                  int64  // open now
	Received, Sent               uint64 // bytes since the process began
	PendingSend, PendingReceived int64  // bytes that wait in this process now
}

// Sampler takes samples on request.
type Sampler struct {
	options Options
	machine machine
	drive   volume

	current atomic.Pointer[reading]

	runtime []runtimeFigure // scratch of the one that takes a sample
	gc      debug.GCStats   // likewise
}

// reading is a sample that is being taken or was taken.
type reading struct {
	at     time.Time
	done   chan struct{} // closed when sample is there
	sample Sample
}

// New returns a sampler and registers the metrics. It looks for the volume of
// DataDir, which should exist by then, and starts nothing.
func New(o Options) *Sampler {
	o.DataDir = cmp.Or(o.DataDir, ".")
	if o.Network == nil {
		o.Network = func() Network { return Network{} }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Sampler{options: o, machine: newMachine(), runtime: newRuntimeStatistics(), drive: volume{mount: mountPoint(o.DataDir)}}
	// As much as the runtime remembers and needs to tell it.
	s.gc.Pause = make([]time.Duration, 0, 2*256+3)
	// What cannot be read stays 0: no reason to keep a database from starting.
	began := o.Now()
	if at := s.machine.began(); !at.IsZero() && at.Before(began) {
		began = at
	}
	first := &reading{done: make(chan struct{}), sample: Sample{at: began, began: began, mount: s.drive.mount, machineCPU: -1}}
	close(first.done)
	s.current.Store(first)
	s.register(o.Registry)
	return s
}

// Sample returns the statistics, which are at most a second old. Those who ask while
// a sample is being taken wait for it and share it. Rates are about the time since
// the sample before, or since the process began.
func (s *Sampler) Sample() Sample {
	for {
		last := s.current.Load()
		<-last.done
		now := s.options.Now()
		if last.sample.taken() && now.Sub(last.at) < sampleLasts {
			return last.sample
		}
		next := &reading{at: now, done: make(chan struct{})}
		if s.current.CompareAndSwap(last, next) {
			defer close(next.done)
			next.sample = s.take(now, &last.sample)
			return next.sample
		}
	}
}

// Sample holds the statistics of one moment. Those that could not be read are as in
// the sample before; those that never could be are 0, or nil where they are left out.
type Sample struct {
	at, began time.Time     // when it was taken, and when the process began
	elapsed   time.Duration // since the sample before, or since the process began
	pid       int64

	cpuSeconds      float64 // of the process, since it began
	cpu             float64 // percent of one processor
	memory, virtual uint64
	runtime         runtimeSample
	timeInGC        float64 // percent
	allocating      float64 // bytes per second
	waiting         float64 // milliseconds per second that goroutines waited for locks
	longestPause    time.Duration
	io              *procfs.ProcIO

	network                      Network
	receivedSince, sentSince     uint64
	receivingSpeed, sendingSpeed float64

	machineBusy, machineTotal float64 // seconds of all processors since the machine began
	machineCPU                float64 // percent of all processors, -1 when unknown
	freeMemory, totalMemory   uint64
	load                      *procfs.LoadAvg
	mount                     string
	drive                     drive
}

func (s *Sample) taken() bool { return s.pid != 0 }

// take reads everything. Nothing in it waits for more than the system's own
// memory, except for the drive, which sees to that itself.
func (s *Sampler) take(now time.Time, last *Sample) Sample {
	n := *last
	n.at, n.elapsed, n.pid = now, now.Sub(last.at), int64(os.Getpid())
	if used, err := processorTime(); err == nil {
		n.cpuSeconds = used
		n.cpu = 100 * n.rate(n.cpuSeconds-last.cpuSeconds)
	}
	if resident, virtual, ok := s.machine.memory(); ok {
		n.memory, n.virtual = resident, virtual
	}
	if io := s.machine.io(); io != nil {
		n.io = io
	}

	n.runtime = readRuntime(s.runtime)
	n.allocating = n.rate(float64(n.runtime.allocated - last.runtime.allocated))
	n.waiting = n.rate(1000 * (n.runtime.lockWait - last.runtime.lockWait))
	// The runtime counts CPU time once a cycle.
	if total := n.runtime.cpuTotal - last.runtime.cpuTotal; total > 0 {
		n.timeInGC = 100 * (n.runtime.cpuGC - last.runtime.cpuGC) / total
	}
	n.longestPause = longestPause(&s.gc)

	n.network = s.options.Network()
	n.receivedSince = since(n.network.Received, last.network.Received)
	n.sentSince = since(n.network.Sent, last.network.Sent)
	n.receivingSpeed, n.sendingSpeed = n.rate(float64(n.receivedSince)), n.rate(float64(n.sentSince))

	if busy, total, ok := s.machine.processors(); ok {
		n.machineBusy, n.machineTotal = busy, total
		if since := total - last.machineTotal; last.machineTotal > 0 && since > 0 {
			n.machineCPU = min(100, max(0, 100*(busy-last.machineBusy)/since))
		}
	}
	if free, total := ram(s.machine.overall); total > 0 {
		n.freeMemory, n.totalMemory = free, total
	}
	if load := s.machine.load(); load != nil {
		n.load = load
	}
	n.drive = s.drive.read()
	return n
}

// rate returns what happened a second.
func (s *Sample) rate(happened float64) float64 {
	if s.elapsed <= 0 {
		return 0
	}
	return max(0, happened) / s.elapsed.Seconds()
}

// since returns by how much a count has grown.
func since(now, then uint64) uint64 { return max(now, then) - then }

// pauseRange is how far back the longest pause of the garbage collector lies.
const pauseRange = 20 * time.Second

// longestPause returns the longest pause of late, of those that the runtime remembers.
func longestPause(gc *debug.GCStats) (longest time.Duration) {
	debug.ReadGCStats(gc)
	now := time.Now()
	for i, pause := range gc.Pause {
		if now.Sub(gc.PauseEnd[i]) > pauseRange {
			break // They are sorted, the latest one first.
		}
		longest = max(longest, pause)
	}
	return longest
}

type runtimeFigure = metrics.Sample

// runtimeSample is what the Go runtime tells.
type runtimeSample struct {
	allocated       uint64  // bytes since the process began
	cycles          uint64  // of the garbage collector since the process began
	live            uint64  // bytes that the last cycle found in use
	objects         uint64  // bytes of live objects and those not yet swept away
	unused          uint64  // bytes of the heap between them
	threads         uint64  // of the system
	cpuGC, cpuTotal float64 // seconds until the last cycle
	lockWait        float64 // seconds that goroutines waited for locks
}

// newRuntimeStatistics and readRuntime name the metrics in the same order.
func newRuntimeStatistics() []runtimeFigure {
	return []runtimeFigure{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/sched/threads/total:threads"},
		{Name: "/cpu/classes/gc/total:cpu-seconds"},
		{Name: "/cpu/classes/total:cpu-seconds"},
		{Name: "/sync/mutex/wait/total:seconds"},
	}
}

func readRuntime(f []runtimeFigure) runtimeSample {
	metrics.Read(f)
	return runtimeSample{
		allocated: f[0].Value.Uint64(), cycles: f[1].Value.Uint64(), live: f[2].Value.Uint64(), objects: f[3].Value.Uint64(),
		unused: f[4].Value.Uint64(), threads: f[5].Value.Uint64(),
		cpuGC: f[6].Value.Float64(), cpuTotal: f[7].Value.Float64(), lockWait: f[8].Value.Float64(),
	}
}

// young returns the bytes of objects made since the last cycle.
func (r *runtimeSample) young() uint64 { return since(r.objects, r.live) }

// fragmentation returns the percentage of the heap that lies unused between objects.
func (r *runtimeSample) fragmentation() float64 {
	if r.objects+r.unused == 0 {
		return 0
	}
	return 100 * float64(r.unused) / float64(r.objects+r.unused)
}
