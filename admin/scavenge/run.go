package scavenge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/admin/scavenge/state"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
)

// run is one run of scavenging.
type run struct {
	s       *Service
	log     *eventlog.Log
	logger  hclog.Logger
	id      event.ID
	request Request
	stop    context.CancelCauseFunc // with nil for a stop, else with the reason for the failure
	done    chan struct{}           // closed when it has ended and released everything
	history *history.Run
	pace    pacer

	db        *state.DB
	decisions *state.Decisions // from it, nil: not needed yet, or no more
	point     Point

	erase    bool // chunks were executed: the Raft log has to forget what was in them
	maxChunk int  // highest logical chunk in a file that was executed

	mu  sync.Mutex // guards now
	now Status
}

func newRun(s *Service, log *eventlog.Log, id event.ID, request Request) *run {
	r := &run{s: s, log: log, id: id, request: request, logger: s.logger.With(logkey.ID, id.String()), done: make(chan struct{}), maxChunk: -1}
	r.now = Status{ID: id, Result: ResultInProgress, Started: time.Now(), Request: request, Phase: PhaseIdle}
	r.pace = pacer{percent: request.ThrottlePercent, since: time.Now()}
	r.history = s.opts.History.Begin(id, history.Started{MergeChunks: !s.opts.DisableMerging, Threads: request.Threads})
	return r
}

// status is what is known of the run now.
func (r *run) status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// running reports whether the run has not ended; of none it is false.
func (r *run) running() bool { return r != nil && r.status().Result == ResultInProgress }

// update changes what is known of the run.
func (r *run) update(change func(*Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.now)
}

// step is the stage of a run, in the order of work. The names are stored.
type step string

const (
	stepAccumulate step = "accumulation"
	stepCalculate  step = "calculation"
	stepExecute    step = "execution"
	stepMerge      step = "merging"
	stepIndex      step = "index"
	stepClean      step = "cleaning"
)

// checkpoint says how far an unfinished run has come. It is stored as JSON.
type checkpoint struct {
	Point  Point  `json:"point"`
	Step   step   `json:"step"`
	Stream []byte `json:"stream,omitempty"` // calculation: done up to this one
	// execution: all files are done up to this logical chunk, -1: none
	Chunk int `json:"chunk"`
	// files were executed, and the Raft log was not compacted since
	Erase bool `json:"erase,omitempty"`
}

// completed is the point of the last finished run, and the chain at the end of its chunk. A log
// with another chain is not the log that was scavenged.
type completed struct {
	Point Point       `json:"point"`
	Chain event.Chain `json:"chain"`
}

// Keys of values in the scavenge database.
const (
	keyDirectory   = "directory"   // id of the data folder
	keyCheckpoint  = "checkpoint"  // of the run that is not finished
	keyCompleted   = "completed"   // of the last that was
	keyAccumulated = "accumulated" // number of the last logical chunk that was accumulated
)

// do does all the work of a run.
func (r *run) do(ctx context.Context) (err error) {
	q := r.request
	defer addProcessors(q.Threads)()
	r.logger.Info("scavenge started", "threads", q.Threads, "threshold", q.Threshold, "throttle", q.ThrottlePercent, "syncOnly", q.SyncOnly)
	// A log that finds its index lost forgets earlier scavenges. An index that was never on disk
	// looks like a lost one.
	if r.log.Index().Checkpoint() == 0 {
		if err := r.log.Index().Flush(); err != nil {
			return err
		}
	}
	if err := r.s.opts.AwaitNow(ctx); err != nil {
		return err
	}
	if err := r.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.forget(), r.db.Close()) }()
	c, err := r.choose(ctx)
	if err != nil || c == nil {
		return err
	}
	r.point, r.erase = c.Point, c.Erase
	r.update(func(s *Status) { s.Point = &r.point }) // Which does not change any more.
	steps := []struct {
		step  step
		phase Phase
		do    func(context.Context, *checkpoint) error
	}{
		{stepAccumulate, PhaseAccumulation, r.accumulate},
		{stepCalculate, PhaseCalculation, r.calculate},
		{stepExecute, PhaseExecution, r.execute},
		{stepMerge, PhaseMerging, r.merge},
		{stepIndex, PhaseIndex, r.scavengeIndex},
		{stepClean, PhaseCleaning, r.clean},
	}
	begun := false
	for i, s := range steps {
		if begun = begun || s.step == c.Step; !begun {
			continue
		}
		if now := r.s.opts.Now(); now.Before(r.point.EffectiveNow) {
			return fmt.Errorf("this node's clock went back from %v to %v: it is not certain which events are too old", r.point.EffectiveNow, now.UTC())
		}
		if err := r.phase(ctx, s.phase, func(ctx context.Context) error { return s.do(ctx, c) }); err != nil {
			return err
		}
		if i+1 < len(steps) {
			*c = checkpoint{Point: c.Point, Step: steps[i+1].step, Chunk: -1, Erase: r.erase}
			if err := r.save(ctx, c); err != nil {
				return err
			}
		}
	}
	if !begun {
		return fmt.Errorf("the scavenge database names an unknown step %q", c.Step)
	}
	return r.complete(ctx)
}

// open opens the scavenge database, and begins a new one if what it says is not
// about this log.
func (r *run) open(ctx context.Context) error {
	for try := 0; ; try++ {
		o := r.s.opts
		db, err := state.Open(ctx, state.Options{FS: o.FS, Dir: o.Dir, PageSize: o.DatabasePageSize, CacheBytes: o.DatabaseCacheBytes, Logger: r.logger})
		if err != nil {
			return err
		}
		why, err := r.foreign(db)
		if err == nil && why == "" {
			directory := r.log.Directory()
			err = db.Update(ctx, func(tx *state.Tx) error { return tx.SetValue(keyDirectory, directory[:]) })
			if err == nil {
				r.db = db
				return nil
			}
		}
		if err = errors.Join(err, db.Close()); err != nil {
			return err
		}
		if try > 0 {
			return fmt.Errorf("the new scavenge database is not of this log: %s", why)
		}
		r.logger.Warn("the scavenge database does not describe this log; beginning a new one", logkey.Reason, why)
		if err := state.Remove(o.FS, o.Dir); err != nil {
			return err
		}
	}
}

// foreign says why what the database says is not about this log, if so.
func (r *run) foreign(db *state.DB) (why string, err error) {
	id, err := db.Value(keyDirectory)
	if err != nil || id == nil {
		return "", err
	}
	if directory := r.log.Directory(); string(id) != string(directory[:]) {
		return "it was made in another data folder", nil
	}
	var last completed
	ok, err := load(db, keyCompleted, &last)
	if err != nil {
		return "", err
	}
	if ok {
		chain, there, err := r.log.ChainAt(chunkEnd(last.Point))
		if err != nil {
			return "", err
		}
		if !there || chain != last.Chain {
			return "the log differs from the one that was scavenged", nil
		}
	}
	var c checkpoint
	if ok, err = load(db, keyCheckpoint, &c); err != nil || !ok {
		return "", err
	}
	if c.Point.EffectiveNow.After(r.s.opts.Now()) {
		return "the run that was begun took a time for now that is still to come", nil
	}
	stream, there, err := r.log.Chunks.StreamAt(nil, c.Point.Position)
	if err != nil {
		return "", err
	}
	if !there || string(stream) != event.ScavengePointsStream {
		return "the log does not have the scavenge point of the run that was begun", nil
	}
	return "", nil
}

// chunkEnd is the start of the chunk that follows a scavenge point: the log's end when the point
// was written.
func chunkEnd(p Point) int64 { return (p.Position/chunkfile.ChunkSize + 1) * chunkfile.ChunkSize }

// load reads a value that is stored as JSON.
func load(db *state.DB, key string, into any) (ok bool, err error) {
	text, err := db.Value(key)
	if err != nil || text == nil {
		return false, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("scavenge database: value %q: %w", key, err)
	}
	return true, nil
}

func set(tx *state.Tx, key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return tx.SetValue(key, text)
}

func (r *run) save(ctx context.Context, c *checkpoint) error {
	return r.db.Update(ctx, func(tx *state.Tx) error { return set(tx, keyCheckpoint, c) })
}

// phase does one phase and logs what it took.
func (r *run) phase(ctx context.Context, p Phase, do func(context.Context) error) error {
	begun := time.Now()
	r.update(func(s *Status) { s.Phase, s.Done, s.Total, s.Unit = p, 0, 0, "" })
	r.logger.Info("scavenge phase started", "phase", p)
	err := do(ctx)
	took := time.Since(begun)
	r.s.metrics.phase(p, took)
	if err != nil {
		return err
	}
	now := r.status()
	r.logger.Info("scavenge phase ended", "phase", p, logkey.Took, took.Round(time.Millisecond), "done", now.Done, "unit", now.Unit,
		"perSecond", int64(float64(now.Done)/max(took.Seconds(), 1e-6)), logkey.Saved, now.Saved, "active", r.pace.share())
	return nil
}

// begin sets how much a phase has to do.
func (r *run) begin(total int64, unit string) {
	r.update(func(s *Status) { s.Done, s.Total, s.Unit = 0, total, unit })
}

// did counts what a phase has done. The index may have grown since its entries
// were counted.
func (r *run) did(n int64) {
	r.update(func(s *Status) {
		if s.Done += n; s.Total > 0 {
			s.Total = max(s.Total, s.Done)
		}
	})
}

// complete records that the point was scavenged, and makes the Raft log forget the removed events.
func (r *run) complete(ctx context.Context) error {
	chain, ok, err := r.log.ChainAt(chunkEnd(r.point))
	if err == nil && !ok {
		err = fmt.Errorf("the chunk of the scavenge point at %d is not complete", r.point.Position)
	}
	if err != nil {
		return err
	}
	if r.erase {
		if err := r.s.eraser.do(ctx, r.s.ctx, &r.s.owned, chunkEnd(r.point)); err != nil {
			return fmt.Errorf("note that the Raft log is still to be compacted: %w", err)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.db.Update(ctx, func(tx *state.Tx) error {
		return errors.Join(set(tx, keyCompleted, completed{r.point, chain}), tx.SetValue(keyCheckpoint, nil))
	})
}

// conclude notes how the run ended, and queues that for the history. It does not wait.
func (r *run) conclude(err error, stopped bool) Status {
	r.update(func(s *Status) {
		s.Ended, s.Phase = time.Now(), PhaseIdle
		switch {
		case err == nil:
			s.Result = ResultSuccess
		case stopped:
			s.Result = ResultStopped
		default:
			s.Result, s.Error = ResultErrored, err.Error()
		}
	})
	now := r.status()
	end := history.Completed{Result: string(now.Result), Took: history.Ticks(now.Ended.Sub(now.Started)), Saved: now.Saved, MaxChunk: max(r.maxChunk, 0)}
	if now.Result == ResultErrored {
		end.Result, end.Error = history.Failed, history.Reason(now.Error)
	}
	r.history.Completed(end)
	return now
}

// tell reports in the log and the metrics how the run ended.
func (r *run) tell(now Status, err error) {
	r.s.metrics.ended(now)
	args := []any{"took", now.Ended.Sub(now.Started).Round(time.Millisecond), "saved", now.Saved, "removed", now.Removed,
		"executed", now.Executed, "skipped", now.Skipped, "merged", now.Merged, "collisions", 0, "active", r.pace.share()}
	switch now.Result {
	case ResultErrored:
		r.logger.Error("scavenge failed; the next start resumes it", append(args, logkey.Error, err)...)
	case ResultStopped:
		r.logger.Info("scavenge stopped; the next start resumes it", args...)
	default:
		r.logger.Info("scavenge completed", args...)
	}
}
