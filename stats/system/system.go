// Package system reads statistics of the process and of the machine it runs on.
package system

import (
	"cmp"
	"runtime/debug"
	"sync/atomic"
	"time"

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
