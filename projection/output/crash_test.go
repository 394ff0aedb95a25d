package output_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/memdb"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
)

// model is a projection whose emissions follow from the number of the event, and
// which counts the events of each partition.
type model struct {
	seed   uint64
	events int64
}

// handle returns what an event emits, and its partition.
func (m model) handle(n int64) (es []handler.Emission, partition string) {
	r := rand.New(rand.NewPCG(m.seed, uint64(n)))
	for i := range r.IntN(4) {
		es = append(es, handler.Emission{Stream: fmt.Sprint("s", r.IntN(5)), Type: string(rune('A' + r.IntN(2))), Data: fmt.Append(nil, n, i)})
	}
	return es, fmt.Sprint("p", r.IntN(3))
}

// run runs the projection from its checkpoint to the end of its input, or until
// something fails. A checkpoint follows every 5 events.
func (m model) run(ctx context.Context, s *memdb.DB) error {
	c := checkpoints(s, ours)
	p, err := c.Load(ctx)
	if err != nil {
		return err
	}
	o := options(s)
	o.MaxBatch, o.MaxInFlight, o.Track = 2, 3, true
	next := int64(0)
	if p.Found {
		o.From, next = p.At, p.At.Commit+1
	}
	out := output.New(o)
	defer out.Close()
	states, changed := map[string]int{}, map[string]int{}
	for n := next; n < m.events; n++ {
		es, partition := m.handle(n)
		count, ok := states[partition]
		if !ok {
			p, found, err := c.LoadPartition(ctx, partition)
			if err != nil {
				return err
			}
			if found {
				if _, err := fmt.Sscan(string(p.State), &count); err != nil {
					return err
				}
			}
			ok = found
		}
		out.Emit(at(n), nil, es)
		out.Result(at(n), nil, partition, fmt.Append(nil, count+1), !ok)
		states[partition], changed[partition] = count+1, count+1
		if n%5 != 4 && n != m.events-1 {
			continue
		}
		if err := out.Flush(ctx); err != nil {
			return err
		}
		var all []output.PartitionState
		for name, count := range changed {
			all = append(all, output.PartitionState{Partition: name, State: fmt.Append(nil, count)})
		}
		if err := c.Save(ctx, all, output.Checkpoint{At: at(n)}); err != nil {
			return err
		}
		clear(changed)
		clear(states) // What is stored is loaded again.
	}
	return nil
}

// outcome is what is left of a run, without the streams that only a crash makes longer.
func outcome(s *memdb.DB) map[string][]string {
	all := s.Dump()
	delete(all, "$projections-p-checkpointedpartitions")
	states := map[string][]string{}
	for name, lines := range all {
		switch {
		case name == "$projections-p-checkpoint":
			states[name] = lines[len(lines)-1:]
		case len(name) == len("$projections-p-p0-checkpoint") && name[len(name)-11:] == "-checkpoint":
			e := s.Seen(name)
			states[name] = []string{string(e[len(e)-1].Data)}
		case name == "$projections-p-emittedstreams":
			states[name] = []string{fmt.Sprint(len(lines))}
		default:
			states[name] = lines
		}
		for i, line := range states[name] {
			if name == "$projections-p-checkpoint" {
				var number int
				if _, err := fmt.Sscan(line, &number); err == nil {
					states[name][i] = line[len(fmt.Sprint(number)):]
				}
			}
		}
	}
	return states
}

// A run that ends at any of its writes, before or after it is done, and begins again from its
// checkpoint, leaves what an undisturbed one does. So does a run that continues without knowing the
// outcome of a write.
func TestCrashes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := model{seed: seed, events: 23}
	undisturbed := memdb.Open(t, memdb.Options{})
	check.Must(t, m.run(t.Context(), undisturbed))
	want := outcome(undisturbed)
	crash := errors.New("crash")
	for at := range undisturbed.Writes.Load() + 5 {
		for kind, name := range []string{"before", "after", "unknown, not done", "unknown, done", "before, twice"} {
			synctest.Test(t, func(t *testing.T) {
				s := memdb.Open(t, memdb.Options{})
				crashes := 0
				var isDown atomic.Bool
				s.SetFault(func(n int64, w *event.Write) (before, after error) {
					lost := fmt.Errorf("%w: %w", crash, event.ErrClosed)
					switch {
					case isDown.Load():
						return lost, nil
					case n != at && (kind != 4 || n != at+4):
						return nil, nil
					}
					switch kind {
					case 1:
						isDown.Store(true)
						return nil, lost
					case 2:
						return event.ErrOutcomeUnknown, nil
					case 3:
						return nil, event.ErrOutcomeUnknown
					}
					isDown.Store(true)
					return lost, nil
				})
				for {
					err := m.run(t.Context(), s)
					if err == nil {
						break
					}
					if crashes++; !errors.Is(err, crash) || crashes > 3 {
						t.Fatalf("write %d, %s: %v", at, name, err)
					}
					isDown.Store(false)
				}
				same(t, fmt.Sprintf("write %d, %s", at, name), outcome(s), want)
			})
			if t.Failed() {
				return
			}
		}
	}
}

// A write that was given up is done after all, while the next run is on.
func TestLateWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := model{seed: 1, events: 23}
		undisturbed := memdb.Open(t, memdb.Options{})
		check.Must(t, m.run(t.Context(), undisturbed))
		want := outcome(undisturbed)
		for lost := range undisturbed.Writes.Load() {
			for late := int64(0); late < 12; late += 3 {
				s := memdb.Open(t, memdb.Options{})
				var given *event.Write
				var isDown atomic.Bool
				var mu sync.Mutex
				n := int64(0)
				s.BeforeWrite.Set(func(_ context.Context, w *event.Write) error {
					mu.Lock()
					defer mu.Unlock()
					n++
					switch {
					case isDown.Load():
						return event.ErrClosed
					case n == lost+1:
						w := *w
						w.Events = append([]event.Proposed(nil), w.Events...)
						given = &w
						isDown.Store(true)
						return event.ErrClosed
					case given != nil && late > 0 && n > lost+late:
						// It may also be refused: then it was overtaken.
						if _, err := s.Do(given); err != nil {
							var other *event.WrongExpectedVersion
							if !errors.As(err, &other) {
								t.Error(err)
							}
						}
						given = nil
					}
					return nil
				})
				for tries := 0; ; tries++ {
					err := m.run(t.Context(), s)
					if err == nil {
						break
					}
					if tries > 6 || !output.IsLost(err) && !errors.Is(err, output.ErrRestart) {
						t.Fatalf("write %d, late by %d: %v", lost, late, err)
					}
					isDown.Store(false)
				}
				got := outcome(s)
				// It has no expected number: a late one is listed twice.
				delete(got, "$projections-p-emittedstreams")
				delete(want, "$projections-p-emittedstreams")
				same(t, fmt.Sprintf("write %d, late by %d", lost, late), got, want)
				if t.Failed() {
					return
				}
				s.Close()
			}
		}
	})
}
