package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
)

// inBubble runs a test with a world in a bubble of time.
func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) { test(t, newWorld()) })
}

func TestStateWhileRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := start(t.Context(), options(handler.Definition{}), w.parts())
		defer r.Close()
		<-r.Started()
		synctest.Wait()
		if a, _ := r.Ask(t.Context(), ""); a.State != nil || a.Position == nil || !a.Position.IsZero() {
			t.Fatalf("before the first event: %q at %v", a.State, a.Position)
		}
		w.add("a:", "b:", "a:skip")
		synctest.Wait()
		a, err := r.Ask(t.Context(), "")
		if err != nil || string(a.State) != "2" || a.Position.String() != "C:3/P:3" {
			t.Fatalf("%q at %v, %v", a.State, a.Position, err)
		}
		check.Equal(t, result(t, r, ""), "2", "result")
		check.Equal(t, state(t, r, "a"), "", "state of a partition that is not there")
		f := r.Statistics()
		if f.Status != "Running" || f.Processed != 2 || f.PartitionsCached != 1 || f.Position.String() != "C:3/P:3" || f.Checkpoint != nil || f.Progress != 100 {
			t.Errorf("%+v", f)
		}
	})
}

func TestStopWritesACheckpoint(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add("a:emit", "b:", "a:")
		d := handler.Definition{ByStreams: true}
		d.DefinesStateTransform = true
		r := start(t.Context(), options(d), w.parts())
		synctest.Wait()
		r.Stop()
		ended(t, r, Stopped)
		if f := r.Statistics(); f.Status != "Stopped" || f.Reason != "" || f.Checkpoint.String() != "C:3/P:3" {
			t.Errorf("%+v", f)
		}
		for range 2 {
			if s, res := state(t, r, "a"), result(t, r, "a"); s != "2" || res != "20" {
				t.Errorf("state %q, result %q", s, res)
			}
			if a, _ := r.Ask(t.Context(), ""); a.State != nil || a.Position.String() != "C:3/P:3" {
				t.Errorf("root %q at %v", a.State, a.Position)
			}
			r.Stop()
			r.Close()
		}
		w.add("a:")
		r = start(t.Context(), options(d), w.parts())
		defer r.Close()
		synctest.Wait()
		if s, b := state(t, r, "a"), state(t, r, "b"); s != "3" || b != "1" {
			t.Errorf("went on with %q and %q", s, b)
		}
		check.Equal(t, r.Statistics().Processed, 1, "events were handled again")
	})
}

func TestAbortWritesNoCheckpoint(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add("a:")
		o := options(handler.Definition{})
		r := start(t.Context(), o, w.parts())
		synctest.Wait()
		r.Abort()
		ended(t, r, Aborted)
		if f := r.Statistics(); f.Status != "Stopped" || w.saves != 0 {
			t.Errorf("%+v, %d checkpoints", f, w.saves)
		}
		if a, _ := r.Ask(t.Context(), ""); a.State != nil || !a.Position.IsZero() {
			t.Errorf("%q at %v: not that of the checkpoint", a.State, a.Position)
		}
	})
}

func TestFault(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add("a:emit", "a:", "b:fault", "a:emit")
		r := start(t.Context(), options(handler.Definition{}), w.parts())
		ended(t, r, Faulted)
		want := "The p projection failed to process an event.\r\nHandler: T, event 2@b (T), line 3, column 7\r\nEvent Position: C:3/P:3\r\n\r\nMessage:\r\n\r\nbroken"
		if f := r.Statistics(); f.Status != "Faulted" || f.Reason != want || f.Checkpoint.String() != "C:2/P:2" {
			t.Errorf("%+v", f)
		}
		if got := w.stream("$out-a"); fmt.Sprint(got) != "[E0 0 E1 0]" {
			t.Errorf("emitted %v", got)
		}
		check.Equal(t, state(t, r, ""), "2", "state")
		w.input[2].Data = nil
		r = start(t.Context(), options(handler.Definition{}), w.parts())
		defer r.Close()
		synctest.Wait()
		check.Equal(t, state(t, r, ""), "4", "repaired: state")
	})
}

func TestDeletedFaults(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add("a:", "a:")
		w.input[1].Gone, w.input[1].GoneOnly = "a", true
		d := handler.Definition{ByStreams: true}
		o := options(d)
		o.use(faultyDeletion{newCounter(d)})
		r := start(t.Context(), o, w.parts())
		ended(t, r, Faulted)
		if f := r.Statistics(); !strings.HasPrefix(f.Reason, "The p projection failed to process a delete partition notification.\r\nHandler: $deleted, event ") {
			t.Error(f.Reason)
		}
	})
}

// An event that is handled and also tells a deletion is taken in as a whole or not at all.
func TestEventThatTellsADeletion(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add("a:", "a:emit")
		w.input[1].Gone = "a"
		d := handler.Definition{ByStreams: true}
		d.ProducesResults = true
		r := start(t.Context(), options(d), w.parts())
		synctest.Wait()
		if got, results := state(t, r, "a"), fmt.Sprint(w.stream("$projections-p-a-result")); got != "200" || results != "[Result 1 Result 200]" {
			t.Errorf("%s, %s", got, results)
		}
		check.Equal(t, fmt.Sprint(w.stream("$out-a")), "[E0 1 E1 1]")
		r.Close()
		w = newWorldOf(w)
		o := options(d)
		o.use(faultyDeletion{newCounter(d)})
		r = start(t.Context(), o, w.parts())
		ended(t, r, Faulted)
		if got := state(t, r, "a"); got != "1" || len(w.stream("$out-a")) != 0 {
			t.Errorf("%s, %v", got, w.stream("$out-a"))
		}
	})
}

type faultyDeletion struct{ *counter }

func (faultyDeletion) Deleted(*handler.Event) (handler.Outcome, error) {
	return handler.Outcome{}, &handler.Fault{Handler: "$deleted", Message: "no"}
}

func TestPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add("a:", "$$a:", "x:", "y:", "a:", "z:nobody")
		w.input[2].Link = &event.Record{Stream: "$ce-x", Metadata: []byte(`{"$o":"linking"}`)}
		w.input[3].Link = &event.Record{Stream: "$ce-x", Metadata: []byte(`{}`)}
		w.input[4].Gone, w.input[4].GoneOnly = "a", true
		for _, c := range []struct {
			name string
			d    handler.Definition
			want map[string]string
		}{
			{"by stream", handler.Definition{ByStreams: true}, map[string]string{"a": "200", "linking": "1", "y": "1", "x": "", "z": "1", "": ""}},
			{"by function", handler.Definition{ByCustomPartitions: true}, map[string]string{"$$a": "1", "x": "1", "y": "1", "z": "", "": ""}},
		} {
			r := start(t.Context(), options(c.d), newWorldOf(w).parts())
			synctest.Wait()
			for p, want := range c.want {
				check.Equal(t, state(t, r, p), want, c.name, "partition", p)
			}
			r.Close()
		}
	})
}

// newWorldOf has the input of another, and nothing was written.
func newWorldOf(w *world) *world {
	n := newWorld()
	n.input = w.input
	return n
}

func TestBiState(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add("a:", "b:", "a:")
		d := handler.Definition{ByStreams: true}
		d.IsBiState = true
		for range 2 {
			r := start(t.Context(), options(d), w.parts())
			synctest.Wait()
			for p, want := range map[string]string{"": "3", "a": "2", "b": "1"} {
				check.Equal(t, state(t, r, p), want, "state of", p)
			}
			r.Stop()
			ended(t, r, Stopped)
			if shared, a := state(t, r, ""), state(t, r, "a"); shared != "3" || a != "2" {
				t.Errorf("stopped: %q and %q", shared, a)
			}
		}
	})
}

func TestResults(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add("a:", "a:emit", "b:", "a:same", "a:skip", "a:null")
		d := handler.Definition{ByStreams: true}
		d.ProducesResults = true
		r := start(t.Context(), options(d), w.parts())
		synctest.Wait()
		r.Stop()
		ended(t, r, Stopped)
		for stream, want := range map[string]string{
			"$projections-p-a-result":   "[Result 1 Result 2 ResultRemoved ]",
			"$projections-p-b-result":   "[Result 1]",
			"$projections-p-result":     "[$> $projections-p-a-result $> $projections-p-a-result $> $projections-p-b-result $> $projections-p-a-result]",
			"$projections-p-partitions": "[$partition a $partition b]",
			"$out-a":                    "[E0 1 E1 1]",
		} {
			check.Equal(t, fmt.Sprint(w.stream(stream)), want, stream)
		}
	})
}

func TestResultsOfTransformedStates(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add("a:", "a:", "a:", "a:")
		d := handler.Definition{}
		d.DefinesStateTransform = true
		d.ResultStream = "named"
		r := start(t.Context(), options(d), w.parts())
		defer r.Close()
		synctest.Wait()
		check.Equal(t, fmt.Sprint(w.stream("named")), "[Result 20 ResultRemoved  Result 40]")
		if s, res := state(t, r, ""), result(t, r, ""); s != "4" || res != "40" {
			t.Errorf("state %q, result %q", s, res)
		}
	})
}

func TestQueryWritesItsResultsAtTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add("b:", "a:", "b:", "c:skip")
		o := options(handler.Definition{ByStreams: true})
		o.Mode = Transient
		var seen []string
		var r *Run
		began := make(chan struct{})
		o.Changed = func() {
			<-began
			if s := r.Statistics().Status; len(seen) == 0 || seen[len(seen)-1] != s {
				seen = append(seen, s)
			}
		}
		r = start(t.Context(), o, w.parts())
		close(began)
		ended(t, r, Completed)
		check.Equal(t, fmt.Sprint(w.stream("$projections-p-result")), "[Result 2 Result 1 $Eof ]")
		check.Equal(t, strings.Join(seen, ", "), "LoadStateRequested, StateLoaded, Subscribed, Running, CompletingPhase, PhaseCompleted, Running/Writing results, Stopped/Writing results")
		f := r.Statistics()
		if f.Position.String() != "Phase: 1 (completed)" || f.Checkpoint != nil || w.saves != 0 || f.Progress != 100 {
			t.Errorf("%+v", f)
		}
		if a, _ := r.Ask(t.Context(), "b"); string(a.State) != "2" || a.Position != nil {
			t.Errorf("%q at %v", a.State, a.Position)
		}
		check.Equal(t, state(t, r, ""), "", "root")
	})
}

func TestQueryWithoutWhenWritesResultsAsItGoes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add("b:", "a:", "b:same")
		d := handler.Definition{}
		o := options(d)
		o.Definition.DefinesFold = false
		o.Mode = OneTime
		o.Checkpoints = true
		r := start(t.Context(), o, w.parts())
		ended(t, r, Completed)
		check.Equal(t, fmt.Sprint(w.stream("$projections-p-result")), "[Result 1 Result 2 Result 2 $Eof ]")
		if w.saves != 1 || w.root.At.String() != "Phase: 1 (completed)" {
			t.Errorf("%d checkpoints, the last at %v", w.saves, w.root.At)
		}
	})
}

func TestPause(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.block = make(chan struct{})
		for range 20 {
			w.add("a:emit")
		}
		o := options(handler.Definition{})
		o.Config.PendingEventsThreshold = 10
		r := start(t.Context(), o, w.parts())
		defer r.Close()
		synctest.Wait()
		if f := r.Statistics(); f.Status != "Running/Paused" || f.PendingAfter != 12 || f.Processed != 6 || f.WritesInProgress != 1 {
			t.Errorf("%+v", f)
		}
		check.Equal(t, state(t, r, ""), "6", "state")
		close(w.block)
		synctest.Wait()
		if f := r.Statistics(); f.Status != "Running" || f.PendingAfter != 0 || f.Processed != 20 {
			t.Errorf("%+v", f)
		}
	})
}

func TestCheckpointThresholds(t *testing.T) {
	for _, c := range []struct {
		name   string
		config Config
		do     func(w *world)
		want   string
	}{
		{"handled", Config{CheckpointHandledThreshold: 3}, func(w *world) { w.add("a:", "a:", "a:skip", "a:", "a:") }, "C:4/P:4 1"},
		{"twice", Config{CheckpointHandledThreshold: 2}, func(w *world) {
			w.add("a:", "a:")
			synctest.Wait()
			w.add("a:", "a:", "a:")
		}, "C:4/P:4 2"},
		{"bytes", Config{CheckpointUnhandledBytesThreshold: 3}, func(w *world) { w.add("a:skip", "a:skip", "a:skip") }, "C:3/P:3 1"},
		{"bytes with events", Config{CheckpointUnhandledBytesThreshold: 3}, func(w *world) { w.add("a:", "a:", "a:", "a:") }, "none"},
		{"not yet", Config{CheckpointHandledThreshold: 2, CheckpointAfterMs: 60_000}, func(w *world) { w.add("a:", "a:", "a:") }, "none"},
		{"later", Config{CheckpointHandledThreshold: 2, CheckpointAfterMs: 60_000}, func(w *world) {
			w.add("a:", "a:", "a:")
			time.Sleep(time.Minute)
		}, "C:3/P:3 1"},
		{"time alone", Config{CheckpointHandledThreshold: 2, CheckpointAfterMs: 60_000}, func(w *world) {
			w.add("a:")
			time.Sleep(time.Hour)
		}, "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				o := options(handler.Definition{})
				o.Config = c.config
				r := start(t.Context(), o, w.parts())
				defer r.Close()
				synctest.Wait()
				c.do(w)
				synctest.Wait()
				got := "none"
				if w.root.Found {
					got = fmt.Sprint(w.root.At, " ", w.saves)
				}
				check.Equal(t, got, c.want)
			})
		})
	}
}

// A thousand partitions are handled with few states in memory.
func TestCacheOfPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o := options(handler.Definition{ByStreams: true})
		o.CachedPartitions = 10
		o.Config.CheckpointHandledThreshold = 20
		r := start(t.Context(), o, w.parts())
		defer r.Close()
		most := 0
		for range 3 {
			for p := range 1000 {
				w.add(fmt.Sprintf("s%d:", p))
				if p%10 == 0 {
					synctest.Wait()
					most = max(most, r.Statistics().PartitionsCached)
				}
			}
		}
		synctest.Wait()
		if most > 10+2*20 {
			t.Errorf("%d states in memory", most)
		}
		for p := range 1000 {
			check.MustEqual(t, state(t, r, fmt.Sprintf("s%d", p)), "3", "state of", p)
		}
	})
}

func TestStateTooLarge(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for range 101 {
			w.add("a:")
		}
		for _, c := range []struct {
			d     handler.Definition
			limit int64
			want  string
			at    string
		}{
			{handler.Definition{}, 1, "The state size of projection 'p' is 2 bytes which exceeds the configured MaxProjectionStateSize of 1 bytes.", "C:9/P:9"},
			{handler.Definition{ByStreams: true}, 2, "The state size of projection 'p' in partition 'a' is 3 bytes which exceeds the configured MaxProjectionStateSize of 2 bytes.", "C:99/P:99"},
		} {
			w := newWorldOf(w)
			o := options(c.d)
			o.MaxStateSize = c.limit
			r := start(t.Context(), o, w.parts())
			ended(t, r, Faulted)
			if f := r.Statistics(); f.Reason != c.want || f.Checkpoint.String() != c.at {
				t.Errorf("%s at %v", f.Reason, f.Checkpoint)
			}
		}
	})
}

func TestStorageErrorsAreRetried(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var left atomic.Int32
		left.Store(12)
		w.onRead = func() error {
			if left.Add(-1) >= 0 {
				return event.ErrBusy
			}
			return nil
		}
		w.add("a:")
		r := start(t.Context(), options(handler.Definition{}), w.parts())
		time.Sleep(time.Hour)
		if got := state(t, r, ""); got != "1" {
			t.Errorf("state %q, %+v", got, r.Statistics())
		}
		left.Store(1000)
		w.add("a:", "a:")
		time.Sleep(time.Hour)
		ended(t, r, Faulted)
		if f := r.Statistics(); left.Load() != 1000-13 || !strings.Contains(f.Reason, event.ErrBusy.Error()) {
			t.Errorf("%d attempts left: %s", left.Load(), f.Reason)
		}
	})
}

func TestOutputFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		ending Ending
		reason string
	}{
		{"fault", &handler.Fault{Message: "written to from the outside"}, Faulted, "written to from the outside"},
		{"storage", event.ErrDiskFull, Faulted, event.ErrDiskFull.Error()},
		{"leadership", &event.NotLeader{Address: "x"}, Lost, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.onWrite = func(string) error { return c.err }
				r := start(t.Context(), options(handler.Definition{}), w.parts())
				synctest.Wait() // It waits for its input.
				w.add("a:emit")
				ended(t, r, c.ending)
				if f := r.Statistics(); f.Reason != c.reason || w.saves != 0 {
					t.Errorf("%q, %d checkpoints", f.Reason, w.saves)
				}
			})
		})
	}
}

func TestRestartFromTheCheckpoint(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		closed, once := 0, errors.New("")
		w.onWrite = func(string) error {
			if once != nil {
				once = nil
				return fmt.Errorf("stream $out-a: %w", output.ErrRestart)
			}
			return nil
		}
		o := options(handler.Definition{})
		h := newCounter(handler.Definition{})
		h.closed = &closed
		o.use(h)
		r := start(t.Context(), o, w.parts())
		defer r.Close()
		w.add("a:", "a:emit", "a:emit")
		time.Sleep(time.Minute)
		if got := fmt.Sprint(w.stream("$out-a")); got != "[E0 1 E1 1 E0 2 E1 2]" || state(t, r, "") != "3" || closed != 1 {
			t.Errorf("%s, state %s, closed %d times", got, state(t, r, ""), closed)
		}
		if f := r.Statistics(); f.Status != "Running" {
			t.Errorf("%+v", f)
		}
	})
}

func TestRestartsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.onWrite = func(string) error { return output.ErrRestart }
		w.add("a:emit")
		r := start(t.Context(), options(handler.Definition{}), w.parts())
		ended(t, r, Faulted)
		check.Contains(t, r.Statistics().Reason, "too often")
	})
}

func TestRestartThatFails(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		closed := 0
		w.onWrite = func(string) error { return output.ErrRestart }
		w.add("a:emit")
		o := options(handler.Definition{})
		compiled := false
		o.Compile = func() (handler.Handler, error) {
			if compiled {
				return nil, &handler.Fault{Message: "does not compile"}
			}
			compiled = true
			h := newCounter(handler.Definition{})
			h.closed = &closed
			return h, nil
		}
		r := start(t.Context(), o, w.parts())
		ended(t, r, Faulted)
		if f := r.Statistics(); f.Reason != "does not compile" || closed != 1 {
			t.Errorf("%s, closed %d times", f.Reason, closed)
		}
	})
}

// A run ends when it is stopped, also while something hangs.
func TestCloseWhileWritesHang(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(r *Run)
		want Ending
	}{
		{"close", (*Run).Close, Lost},
		{"abort", (*Run).Abort, Aborted},
		{"stop, then abort", func(r *Run) {
			r.Stop()
			synctest.Wait()
			check.Equal(t, r.Statistics().Status, "Stopping")
			r.Abort()
		}, Aborted},
		{"stop, then close", func(r *Run) {
			r.Stop()
			r.Close()
		}, Lost},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.block = make(chan struct{})
				w.add("a:emit", "a:emit")
				r := start(t.Context(), options(handler.Definition{}), w.parts())
				synctest.Wait()
				c.end(r)
				ended(t, r, c.want)
			})
		})
	}
}

func TestCloseWhileACheckpointHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.onSave = func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}
		w.add("a:", "a:")
		o := options(handler.Definition{ByStreams: true})
		o.Config.CheckpointHandledThreshold = 1
		r := start(t.Context(), o, w.parts())
		synctest.Wait()
		if f := r.Statistics(); f.CheckpointStatus != "Writing (1)" || f.WritesInProgress != 1 {
			t.Errorf("%+v", f)
		}
		if got := state(t, r, "a"); got == "" {
			t.Error("no state while a checkpoint is written")
		}
		r.Close()
		ended(t, r, Lost)
	})
}

func TestEndOfTheContext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		w.add("a:")
		r := start(ctx, options(handler.Definition{}), w.parts())
		synctest.Wait()
		cancel()
		ended(t, r, Lost)
		check.Equal(t, w.saves, 0, "a checkpoint was written")
	})
}

// Two projections share one turn: each gets on, and one whose writes hang does not keep it.
func TestTurnsAreShared(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		turns := NewTurns(1, nil)
		w.block = make(chan struct{})
		for range 100 {
			w.add("a:emit")
		}
		stuck := options(handler.Definition{})
		stuck.Turns, stuck.Config.PendingEventsThreshold = turns, 4
		a := start(t.Context(), stuck, w.parts())
		defer a.Close()
		synctest.Wait()
		o := options(handler.Definition{})
		o.Turns = turns
		b := start(t.Context(), o, newWorldOf(w).parts())
		defer b.Close()
		synctest.Wait()
		check.Equal(t, state(t, b, ""), "100", "the other one is at")
	})
}

type slow struct {
	*counter
	takes time.Duration
}

func (s slow) Process(e *handler.Event) (handler.Outcome, error) {
	time.Sleep(s.takes)
	return s.counter.Process(e)
}

func TestTurnsAreGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for range 100 {
			w.add("a:")
		}
		turns := NewTurns(1, nil)
		var runs []*Run
		for range 3 {
			o := options(handler.Definition{})
			o.Turns = turns
			o.use(slow{newCounter(handler.Definition{}), 10 * time.Millisecond})
			r := start(t.Context(), o, newWorldOf(w).parts())
			defer r.Close()
			runs = append(runs, r)
		}
		time.Sleep(600 * time.Millisecond)
		synctest.Wait()
		for i, r := range runs {
			if f := r.Statistics(); f.Processed < 15 || f.Processed > 25 || f.ProcessingTime != time.Duration(f.Processed)*10*time.Millisecond {
				t.Errorf("run %d: %d events in %v", i, f.Processed, f.ProcessingTime)
			}
		}
	})
}

func mark(commit, _ int64) handler.Emission {
	return handler.Emission{Stream: "marks", Type: "M", Data: fmt.Append(nil, commit), Mark: true}
}

func TestMarks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o := options(handler.Definition{})
		o.Definition.Mark = mark
		o.Config.CheckpointHandledThreshold = 2
		r := start(t.Context(), o, w.parts())
		synctest.Wait()
		w.add("a:", "a:", "a:")
		synctest.Wait()
		r.Stop()
		ended(t, r, Stopped)
		check.Equal(t, fmt.Sprint(w.stream("marks")), "[M 0 M 2 M 3]")
	})
}
