package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/internal/clock"
)

// grace is how long requests in flight at the end of a phase may still take.
const grace = 2 * time.Second

// operation is one worker's share of a workload. Only that worker uses it.
type operation interface {
	// do performs one operation. It returns errFinished when there is nothing
	// left to do, and a fatalError when the whole run has no sense any more.
	do(ctx context.Context, c *sender) (outcome, error)
}

// beginner is an operation that starts again with each phase.
type beginner interface{ begin() }

// closer is an operation that has something to give up at the end of the session.
type closer interface{ close() }

// workload is what a session runs.
type workload struct {
	name   string
	parts  []string // what is counted apart; none: nothing is
	beside bool     // the first part is measured, the others are load at the same time
	// setup proves that what the workload needs exists, or makes it.
	setup func(ctx context.Context, s *session) error
	// operation makes the share of one of the workers.
	operation func(worker, workers int) operation
	// finish adds to the result of a run, close gives up what setup made. Either may be nil.
	finish func(r *result) error
	close  func() error
}

// session owns the workers' connections for the time of one or more runs.
type session struct {
	o       *options
	work    *workload
	how     *dialing
	clients []*sender
	ops     []operation
	recs    []*recorder
	log     io.Writer // progress
}

// openSession makes a session that is ready to run.
func openSession(ctx context.Context, o *options, work *workload, log io.Writer) (*session, error) {
	how, err := newDialing(o)
	if err != nil {
		return nil, err
	}
	s := &session{o: o, work: work, how: how, log: log}
	for i := range o.workers {
		to, prefix, err := parseBase(o.bases[i%len(o.bases)])
		if err != nil {
			return nil, err
		}
		c := newSender(to, prefix, how)
		c.slot = i % cmp.Or(o.connections, o.workers)
		s.clients = append(s.clients, c)
		s.recs = append(s.recs, newRecorder(max(1, len(work.parts))))
	}
	if work.setup != nil {
		if err := work.setup(ctx, s); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	for i := range s.clients {
		s.ops = append(s.ops, work.operation(i, len(s.clients)))
	}
	return s, nil
}

func (s *session) close() error {
	for _, c := range s.clients {
		c.drop()
	}
	for _, op := range s.ops {
		if o, ok := op.(closer); ok {
			o.close()
		}
	}
	s.how.close()
	if s.work.close != nil {
		return s.work.close()
	}
	return nil
}

// phase is one stretch of running.
type phase struct {
	start    time.Time
	limit    int64         // operations, 0 = any number
	interval time.Duration // between the operations of one worker, 0 = as fast as answers come
	claimed  atomic.Int64
	run      context.Context         // ends with the phase
	stop     context.CancelCauseFunc // ends it; a fatalError says why the run has no sense any more
	hard     context.Context         // ends when the grace is over
}

// sleep waits and reports whether the phase still runs.
func (p *phase) sleep(d time.Duration) bool { return clock.Sleep(p.run, d) == nil }

// runFor runs the operations until the time is over, the count is reached, every operation is
// finished or ctx ends. It adds the results to total and returns how long it took.
func (s *session) runFor(ctx context.Context, duration time.Duration, limit int64, total *recorder) (time.Duration, error) {
	hard, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	start := time.Now() // Before the time begins to run: it lasts as long as that at least.
	run, end := context.WithTimeout(run, duration)
	defer end()
	p := &phase{start: start, limit: limit, run: run, stop: stop, hard: hard}
	if s.o.rate > 0 {
		p.interval = max(1, time.Duration(float64(time.Second)*float64(len(s.clients))/s.o.rate))
	}
	for _, op := range s.ops {
		if b, ok := op.(beginner); ok {
			b.begin()
		}
	}
	var wg sync.WaitGroup
	for i := range s.ops {
		wg.Go(func() { s.worker(p, i) })
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	s.watch(p, total, done, cut)
	elapsed := time.Since(p.start)
	for _, r := range s.recs {
		r.drainInto(total)
	}
	if fatal, ok := errors.AsType[*fatalError](context.Cause(run)); ok {
		return elapsed, fatal.error
	}
	return elapsed, nil
}

// watch shows the progress of a phase, cuts off requests that take too long after its end, and
// returns when all workers have ended.
func (s *session) watch(p *phase, total *recorder, done <-chan struct{}, cut func()) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	interval := newRecorder(len(total.parts))
	last := p.start
	over := p.run.Done()
	var late <-chan time.Time
	for {
		select {
		case <-done:
			return
		case <-over:
			over = nil
			late = time.After(grace)
		case <-late:
			cut()
			for _, c := range s.clients {
				c.interrupt()
			}
		case now := <-second.C:
			for _, r := range s.recs {
				r.drainInto(interval)
			}
			s.progress(interval, now.Sub(last), now.Sub(p.start))
			last = now
			interval.drainInto(total)
		}
	}
}

// whole is what counts as done.
func (s *session) whole(r *recorder) *tally {
	if s.work.beside {
		return r.whole(1)
	}
	return r.whole(len(r.parts))
}

func (s *session) progress(r *recorder, took, since time.Duration) {
	if s.o.quiet {
		return
	}
	sum := s.whole(r)
	seconds := took.Seconds()
	// The progress is a courtesy: a closed standard error does not end the run.
	_, _ = fmt.Fprintf(s.log, "%s %4.0fs  %10.0f ops/s  %10.0f events/s  %8.1f MB/s  p99 %8.3f ms  errors %d\n",
		s.work.name, since.Seconds(), float64(sum.count())/seconds, float64(sum.events)/seconds,
		float64(sum.bytes)/seconds/1e6, milliseconds(sum.quantile(0.99)), r.errorTotal())
}

// worker performs operations until the phase is over.
func (s *session) worker(p *phase, i int) {
	op, c, rec := s.ops[i], s.clients[i], s.recs[i]
	due := p.start.Add(p.interval * time.Duration(i) / time.Duration(len(s.ops)))
	failures := 0
	for p.run.Err() == nil {
		if p.limit > 0 && p.claimed.Add(1) > p.limit {
			return
		}
		begin := time.Now()
		if p.interval > 0 {
			// The latency counts from when the request was due, so that a server
			// which makes the driver late does not hide it.
			if wait := due.Sub(begin); wait > 0 && !p.sleep(wait) {
				return
			}
			begin = due
			due = due.Add(p.interval)
		}
		out, err := op.do(p.hard, c)
		if err == nil {
			took := out.took
			if took == 0 {
				took = time.Since(begin)
			}
			rec.add(out, took)
			failures = 0
			if out.rest > 0 && !p.sleep(out.rest) {
				return
			}
			continue
		}
		if err == errFinished {
			return
		}
		rec.fail(err)
		if fatal, ok := errors.AsType[*fatalError](err); ok {
			p.stop(fatal)
			return
		}
		if !answered(err) && !p.sleep(backoff(failures)) {
			return
		}
		failures++
	}
}

// backoff is how long to wait after so many failures in a row, so that a dead server is not
// hammered.
func backoff(failures int) time.Duration {
	return min(5*time.Millisecond<<min(failures, 10), time.Second)
}
