package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// meter appends with one writer and with many in turn, and has readers beside
// them, for as long as it is given.
type meter struct {
	b       *scavengeBench
	many    *session
	single  *session
	readers *session // nil: none
}

func (b *scavengeBench) openMeter(ctx context.Context, limits *limiting) (m *meter, err error) {
	m = &meter{b: b}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	open := func(name string, workers int, rate float64, work func(*options) workload) (*session, error) {
		o := *b.o.options
		o.workers, o.rate, o.quiet = workers, rate, true
		s, err := newSession(&o, name, work(&o), b.log)
		if err != nil {
			return nil, err
		}
		return s, s.open(ctx)
	}
	appends := func(o *options) workload { return &appending{o: o} }
	if m.single, err = open("1 writer", 1, 0, appends); err != nil {
		return nil, err
	}
	if m.many, err = open(fmt.Sprintf("%d writers", b.o.workers), b.o.workers, 0, appends); err != nil {
		return nil, err
	}
	if b.o.readers > 0 {
		m.readers, err = open(fmt.Sprintf("%d readers", b.o.readers), b.o.readers, b.o.readRate, func(o *options) workload { return &keptReading{o, limits} })
	}
	return m, err
}

func (m *meter) close() {
	for _, s := range []*session{m.single, m.many, m.readers} {
		if s != nil {
			s.close()
		}
	}
}

// stage is what was measured while one name held.
type stage struct{ single, many, read measured }

func newStage() *stage {
	return &stage{single: measured{rec: newRecorder(1)}, many: measured{rec: newRecorder(1)}, read: measured{rec: newRecorder(1)}}
}

// add adds what was measured while another name held.
func (s *stage) add(from *stage) {
	for to, from := range map[*measured]*measured{&s.single: &from.single, &s.many: &from.many, &s.read: &from.read} {
		own := *from.rec.whole()
		to.took += from.took
		to.rec.parts[0].events += own.events
		to.rec.parts[0].bytes += own.bytes
		own.latency.drainInto(&to.rec.parts[0].latency)
		errorsOf(to.rec.errors, from.rec)
	}
}

func (s *stage) metrics(m *meter, name string) *appendStatistics {
	f := &appendStatistics{Name: name, Single: s.single.metrics(m.single.name), Many: s.many.metrics(m.many.name), Errors: map[string]*errorCount{}}
	if m.readers != nil {
		f.Readers = s.read.metrics(m.readers.name)
	}
	for _, part := range []*measured{&s.single, &s.many, &s.read} {
		errorsOf(f.Errors, part.rec)
		f.ErrorTotal += part.rec.errorTotal()
	}
	return f
}

// slice measures one writer or many until a time is over or ctx ends.
func (m *meter) slice(ctx context.Context, to *stage, single bool, d time.Duration) error {
	s, part := m.many, &to.many
	if single {
		s, part = m.single, &to.single
	}
	var owned sync.WaitGroup
	var readErr error
	read, stop := context.WithCancel(ctx)
	defer stop()
	if m.readers != nil {
		owned.Go(func() {
			var took time.Duration
			took, readErr = m.readers.runFor(read, d+grace, 0, to.read.rec)
			to.read.took += took
		})
	}
	took, err := s.runFor(ctx, d, 0, part.rec)
	part.took += took
	stop()
	owned.Wait()
	if err = errors.Join(err, readErr); err != nil {
		return err
	}
	if whole := part.rec.whole(); whole.latency.count == 0 && part.rec.errorTotal() > 0 {
		for kind, e := range part.rec.errors {
			return fmt.Errorf("no append succeeded: %s: %s", kind, e.Example)
		}
	}
	return nil
}

// forTime measures one writer and many for the time that the flags say.
func (m *meter) forTime(ctx context.Context, name string) (*appendStatistics, error) {
	o := m.b.o
	for _, single := range []bool{true, false} {
		if o.warmup > 0 {
			if err := m.slice(ctx, newStage(), single, o.warmup/2); err != nil {
				return nil, err
			}
		}
	}
	st := newStage()
	for single := true; st.single.took < o.duration || st.many.took < o.duration; single = !single {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := m.slice(ctx, st, single, min(o.slice, o.duration)); err != nil {
			return nil, err
		}
	}
	f := st.metrics(m, name)
	m.b.say("%s", f.line())
	return f, nil
}

// during measures until the run is over. What was measured is kept by phase.
func (m *meter) during(ctx context.Context, w *runWatch, r *scavengeRound) error {
	byPhase := map[string]*stage{}
	usage := startUsage(m.b.o.pids)
	single := true
	for {
		phase, change, ended := w.phase()
		if ended {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		st := byPhase[phase]
		if st == nil {
			m.b.say("%s", phase)
			st = newStage()
			byPhase[phase] = st
		}
		slice, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(change, cancel)
		err := m.slice(slice, st, single, m.b.o.slice)
		stop()
		cancel()
		if err != nil {
			return err
		}
		single = !single
	}
	run, err := w.result()
	if err != nil {
		return err
	}
	r.Run = *run
	all := newStage()
	for _, name := range slices.Sorted(maps.Keys(byPhase)) {
		all.add(byPhase[name])
	}
	for _, p := range run.Phases {
		if st := byPhase[p.Phase]; st != nil {
			r.Phases = append(r.Phases, st.metrics(m, p.Phase))
		}
	}
	r.During = all.metrics(m, "during")
	// Also what appends and reads cost is in it.
	r.CPU = usage.stop(all.many.rec.whole().latency.count+all.single.rec.whole().latency.count, 0)
	m.b.say("%s", r.During.line())
	return nil
}
