package projection_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/memdb"
	"github.com/annalsdb/annals/projection"
)

// waited is a service whose projections run, over a database in memory.
type waited struct {
	*testing.T
	*projection.Service
	db *memdb.DB
}

func (w *waited) last() int64 {
	all := w.db.Positions()
	return all[len(all)-1]
}

func (w *waited) create(name, query string) {
	w.Helper()
	_, err := w.Create(w.Context(), projection.Creation{Name: name, Mode: projection.Continuous, Query: query, Enabled: true, Emit: true, By: operator})
	check.Must(w, err)
	synctest.Wait()
}

// awaiting begins to wait until a projection has handled what lies at a position.
func (w *waited) awaiting(name string, position int64, patience time.Duration) (ended chan error) {
	ended = make(chan error, 1)
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	go func() {
		defer cancel()
		ended <- w.Await(ctx, name, position)
	}()
	return ended
}

// sees waits for the end of the log, and compares a state.
func (w *waited) sees(name, partition, state string) {
	w.Helper()
	check.NoError(w, <-w.awaiting(name, w.last(), time.Minute))
	c, err := w.State(w.Context(), name, partition, operator)
	check.Equal(w, string(c.Text), state, name, err)
}

// rests waits for what a projection does not get to, as it does not run.
func (w *waited) rests(name string, position int64, status, at string) {
	w.Helper()
	begun := time.Now()
	w.isResting(<-w.awaiting(name, position, time.Hour), status, at)
	check.Equal(w, time.Since(begun), 0, "took")
}

func (w *waited) isResting(err error, status, at string) {
	w.Helper()
	var r *projection.Resting
	if !errors.As(err, &r) || r.Status != status || !strings.HasPrefix(r.At, at) {
		w.Errorf("error %v, want %s at %s", err, status, at)
	}
}

var operator = projection.Identity{Name: "admin", Operator: true}

func TestAwait(t *testing.T) {
	const count = "$init: () => ({n: 0}), $any: (s, e) => { s.n++; return s }"
	for _, c := range []struct {
		name string
		test func(w *waited)
	}{
		{"sources", func(w *waited) {
			w.create("one", "fromStream('a').when({"+count+"})")
			w.create("two", "fromStreams('a', 'b').when({"+count+"})")
			w.create("all", "fromAll().foreachStream().when({"+count+"})")
			w.create("none", "fromStream('none').when({"+count+"})")
			for i := 1; i < 20; i++ {
				w.db.Append("a", "t", "{}", "")
				n := fmt.Sprintf(`{"n":%d}`, i)
				w.sees("one", "", n)
				w.sees("all", "a", n)
				w.db.Append("b", "t", "{}", "")
				w.sees("two", "", fmt.Sprintf(`{"n":%d}`, 2*i))
				w.sees("one", "", n) // Nothing has come that it reads.
				w.sees("none", "", "")
			}
			w.db.Delete(event.SoftDelete, "a")
			w.sees("one", "", `{"n":19}`)
			w.db.Delete(event.HardDelete, "a")
			w.sees("one", "", `{"n":19}`)
			w.sees("two", "", `{"n":38}`)
		}},
		{"events that come later", func(w *waited) {
			w.create("one", "fromStream('a').when({"+count+"})")
			far := w.db.LogEnd() + 1<<12
			ended := w.awaiting("one", far, time.Hour)
			for w.db.LogEnd() <= far {
				synctest.Wait()
				check.Equal(w, len(ended), 0, "ended early")
				w.db.Append("other", "t", "{}", "")
			}
			check.NoError(w, <-ended)
			check.Equal(w, w.Done("one"), w.db.LogEnd(), "done")
		}},
		{"links of a system projection", func(w *waited) {
			check.Must(w, w.Command(w.Context(), "$by_category", projection.Enable, operator))
			w.create("category", "fromCategory('a').foreachStream().when({"+count+"})")
			for i := 1; i < 50; i++ {
				w.db.Append("a-1", "t", "{}", "")
				w.sees("category", "a-1", fmt.Sprintf(`{"n":%d}`, i))
			}
		}},
		{"stopped, aborted and started again", func(w *waited) {
			w.create("one", "fromStream('a').when({"+count+"})")
			w.db.Append("a", "t", "{}", "")
			w.sees("one", "", `{"n":1}`)
			at := w.last()
			check.Must(w, w.Command(w.Context(), "one", projection.Disable, operator))
			check.NoError(w, <-w.awaiting("one", at, 0))
			w.db.Append("a", "t", "{}", "")
			w.rests("one", w.last(), "stopped", "a: 0")
			check.Must(w, w.Command(w.Context(), "one", projection.Enable, operator))
			w.sees("one", "", `{"n":2}`)
			check.Must(w, w.Command(w.Context(), "one", projection.Abort, operator))
			w.rests("one", at, "aborted", "a: 0") // The state is that of the checkpoint.
		}},
		{"reset while it is stopped", func(w *waited) {
			w.create("one", "fromStream('a').when({"+count+"})")
			w.db.Append("a", "t", "{}", "")
			w.sees("one", "", `{"n":1}`)
			at := w.last()
			check.Must(w, w.Command(w.Context(), "one", projection.Disable, operator))
			check.Must(w, w.Command(w.Context(), "one", projection.Reset, operator))
			w.rests("one", at, "stopped", "") // The state is empty.
			check.Must(w, w.Command(w.Context(), "one", projection.Enable, operator))
			w.sees("one", "", `{"n":1}`)
		}},
		{"faults", func(w *waited) {
			w.create("one", "fromStream('a').when({$any: () => { throw 'no' }})")
			w.db.Append("a", "t", "{}", "")
			synctest.Wait()
			w.rests("one", w.last(), "faulted", "a: -1")
		}},
		{"comes to rest meanwhile", func(w *waited) {
			check.Must(w, w.Command(w.Context(), "$by_category", projection.Enable, operator))
			w.create("log", "fromAll().when({"+count+"})")
			w.create("category", "fromCategory('a').when({"+count+"})")
			w.create("faulty", "fromAll().when({bad: () => { throw 'no' }})")
			far := w.db.LogEnd() + 1<<20
			var all []chan error
			for _, name := range []string{"log", "category", "faulty"} {
				all = append(all, w.awaiting(name, far, time.Hour))
			}
			text := func(name string) { // It runs again at once, and so is waited for.
				check.Must(w, w.UpdateQuery(w.Context(), name, projection.Update{Query: "fromAll().when({})"}, operator))
			}
			text("log")
			synctest.Wait()
			w.db.Append("a-1", "t", "{}", "")
			for _, ended := range all {
				check.Equal(w, len(ended), 0, "ended early")
			}
			w.db.Append("a-1", "bad", "{}", "")
			for i, name := range []string{"log", "category"} {
				check.Must(w, w.Command(w.Context(), name, projection.Disable, operator))
				w.isResting(<-all[i], "stopped", "")
			}
			w.isResting(<-all[2], "faulted", "")
		}},
		{"deleted meanwhile", func(w *waited) {
			check.Value(w.Create(w.Context(), projection.Creation{Name: "query", Mode: projection.Transient, Query: "fromStream('a').when({})", By: operator})).Must(w)
			w.create("one", "fromStream('a').when({})")
			ended := w.awaiting("one", w.db.LogEnd()+1<<20, time.Hour)
			check.Must(w, w.Command(w.Context(), "one", projection.Disable, operator))
			w.isResting(<-ended, "stopped", "")
			check.Must(w, w.Delete(w.Context(), "query", projection.DeleteOptions{}, operator))
			synctest.Wait()
			check.Is(w, <-w.awaiting("query", 0, time.Hour), projection.ErrNotFound)
		}},
		{"a system projection that writes its links stops", func(w *waited) {
			check.Must(w, w.Command(w.Context(), "$by_category", projection.Enable, operator))
			w.create("category", "fromCategory('a').when({"+count+"})")
			far := w.db.LogEnd() + 1<<10
			ended := w.awaiting("category", far, time.Hour)
			check.Must(w, w.Command(w.Context(), "$by_category", projection.Disable, operator))
			for w.db.LogEnd() <= far {
				w.db.Append("other", "t", "{}", "")
			}
			check.NoError(w, <-ended)
		}},
		{"stopped since the term began", func(w *waited) {
			w.create("log", "fromAll().when({"+count+"})")
			w.db.Append("a", "t", "{}", "")
			synctest.Wait()
			at := w.last()
			check.Must(w, w.Command(w.Context(), "log", projection.Disable, operator))
			w.Stop()
			w.Start(context.WithoutCancel(w.Context()))
			synctest.Wait()
			check.NoError(w, <-w.awaiting("log", at, time.Hour))
			w.db.Append("a", "t", "{}", "")
			w.rests("log", w.last(), "stopped", "C:")
		}},
		{"not there, and the end of the term", func(w *waited) {
			check.Is(w, <-w.awaiting("none", 0, 0), projection.ErrNotFound)
			w.create("two", "fromStream('a').when({})")
			ended := w.awaiting("two", w.db.LogEnd()+1<<20, time.Hour)
			synctest.Wait()
			w.Stop()
			check.Is(w, <-ended, event.ErrNotReady)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := memdb.Open(t, memdb.Options{})
				w := &waited{t, projection.New(projection.Options{
					Store: db, Links: func(context.Context, projection.Identity) event.LinkReader { return event.EveryLink },
					May: func(context.Context, projection.Identity, string, bool) error { return nil },
				}), db}
				w.Start(context.WithoutCancel(t.Context()))
				<-w.Loaded()
				synctest.Wait()
				c.test(w)
				w.Stop()
			})
		})
	}
}
