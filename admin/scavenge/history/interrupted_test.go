package history_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// killed leaves the history of runs that never ended, as a node that is killed does: what of their
// last events was queued is not written.
func killed(t *testing.T, d *database, at string, runs ...func(w *history.Writer)) {
	t.Helper()
	k := start(t, d, func(o *history.Options) { o.Endpoint = func() string { return at } })
	for _, run := range runs {
		run(k.w)
	}
	k.w.Close()
}

// unfinished is a run that works for three minutes and does not end.
func unfinished(n byte) func(w *history.Writer) {
	return func(w *history.Writer) {
		r := w.Begin(id(n), history.Started{})
		time.Sleep(time.Minute)
		r.Chunk(history.ChunkCompleted{First: 0, Last: 4, Scavenged: true, Saved: 1000})
		r.Chunk(history.ChunkCompleted{First: 5, Last: 9, Error: "broken", Saved: -10})
		r.Chunk(history.ChunkCompleted{First: 1, Last: 1, Saved: 100})
		time.Sleep(2 * time.Minute)
		r.Merge(history.MergeCompleted{First: 10, Last: 19, Saved: 20000, Merged: true})
		r.Index(history.IndexCompleted{Saved: 300000, Scavenged: true})
		synctest.Wait()
	}
}

func finished(n byte) func(w *history.Writer) {
	return func(w *history.Writer) {
		w.Begin(id(n), history.Started{}).Completed(history.Completed{Result: history.Success})
		synctest.Wait()
	}
}

// interrupted checks that a run was completed as one that was interrupted.
func (k *kit) interrupted(n byte) {
	k.t.Helper()
	stream := history.StreamOf(id(n))
	types := k.types(stream)
	if strings.Count(fmt.Sprint(types), "[Started") != 1 || strings.Count(fmt.Sprint(types), " Completed]") != 1 {
		k.t.Fatalf("run %d has %v", n, types)
	}
	want := map[string]any{
		"scavengeId": id(n).String(), "nodeEndpoint": endpoint, "result": "Failed", "error": "The node was restarted.",
		"timeTaken": "00:03:00", "spaceSaved": 321090.0, "maxChunkScavenged": 9.0,
	}
	if got := k.payload(stream, len(types)-1); fmt.Sprint(got) != fmt.Sprint(want) {
		k.t.Errorf("run %d was completed with %v, expected %v", n, got, want)
	}
}

func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		killed(t, d, endpoint, finished(1), unfinished(2), finished(3), unfinished(4), unfinished(5))
		killed(t, d, "node2.example:2113", unfinished(6), finished(7))
		d.put(history.IndexStream, event.TypeLink, "0@$scavenges-nonsense")
		d.put(history.IndexStream, event.TypeLink, "17@$scavenges-00000000-0000-0000-0000-000000000009")
		d.put(history.IndexStream, "note", "no link")
		time.Sleep(24 * time.Hour) // No one is there.
		before := len(d.events(history.IndexStream))

		k := start(t, d)
		running := k.w.Begin(id(8), history.Started{}) // A new run of this process.
		synctest.Wait()
		check.Must(t, k.w.CloseInterrupted(t.Context(), func(i event.ID) bool { return i == id(4) }))
		k.interrupted(2)
		k.interrupted(5)
		for n, want := range map[byte]int{1: 2, 3: 2, 4: 6, 6: 6, 7: 2, 8: 1} {
			if got := k.types(history.StreamOf(id(n))); len(got) != want {
				t.Errorf("run %d was touched: %v", n, got)
			}
		}
		index := fmt.Sprint(k.types(history.IndexStream)[before:])
		check.Equal(t, index, "[0@$scavenges-08 6@$scavenges-02 6@$scavenges-05]", "links")
		k.metrics(2+4, 0, 0)

		// A second look finds nothing to do.
		running.Completed(history.Completed{Result: history.Success})
		synctest.Wait()
		size := len(k.dump())
		running4 := func(i event.ID) bool { return i == id(4) }
		if err := k.w.CloseInterrupted(t.Context(), running4); err != nil || len(k.dump()) != size {
			t.Errorf("the second look: %v, %d bytes and %d before", err, len(k.dump()), size)
		}
		check.NoError(t, k.w.CloseInterrupted(t.Context(), nil))
		k.interrupted(4)
		k.w.Close()
	})
}

// A history that is missing, or was deleted, does no harm.
func TestNothingInterrupted(t *testing.T) {
	for name, prepare := range map[string]func(d *database){
		"none":         func(*database) {},
		"hard-deleted": func(d *database) { d.deleted[history.IndexStream] = true },
		"soft-deleted": func(d *database) {
			killed(t, d, endpoint, unfinished(1))
			d.put(event.MetaStreamOf(history.IndexStream), event.TypeMetadata, softDeleted)
		},
		"run deleted":      func(d *database) { killed(t, d, endpoint, unfinished(1)); d.deleted[history.StreamOf(id(1))] = true },
		"other node's":     func(d *database) { killed(t, d, "node2.example:2113", unfinished(1)) },
		"too long ago":     func(d *database) { killed(t, d, endpoint, unfinished(1)); time.Sleep(31 * 24 * time.Hour) },
		"all are finished": func(d *database) { killed(t, d, endpoint, finished(1), finished(2)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDatabase()
				prepare(d)
				before := d.dump()
				k := start(t, d)
				check.NoError(t, k.w.CloseInterrupted(t.Context(), nil))
				k.w.Close()
				check.Equal(t, d.dump(), before, "something was written")
			})
		})
	}
}

// Many runs and many events: more than a page of each.
func TestInterruptedLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		long := func(w *history.Writer) {
			r := w.Begin(id(255), history.Started{})
			for i := range 1234 {
				r.Chunk(history.ChunkCompleted{First: i, Last: i, Scavenged: true, Saved: 1})
			}
			synctest.Wait()
		}
		runs := []func(*history.Writer){unfinished(0), long}
		for n := range byte(124) {
			runs = append(runs, finished(n+1))
		}
		killed(t, d, endpoint, runs...)
		k := start(t, d)
		check.Must(t, k.w.CloseInterrupted(t.Context(), nil))
		k.w.Close()
		k.interrupted(0)
		got := k.payload(history.StreamOf(id(255)), 1235)
		if got["spaceSaved"] != 1234.0 || got["maxChunkScavenged"] != 1233.0 {
			t.Errorf("sums %v", got)
		}
		links := k.types(history.IndexStream)
		if got, want := fmt.Sprint(links[250:]), "[6@$scavenges-00 1235@$scavenges-ff]"; got != want {
			t.Errorf("links %s, expected %s", got, want)
		}
		k.metrics(4, 0, 0)
	})
}

// The node ended between the last event and the link to it.
func TestLinkMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		d.failing(func(w *event.Write) (before, after error) {
			if strings.HasPrefix(string(w.Events[0].Data), "1@") {
				return event.ErrNotReady, nil
			}
			return nil, nil
		})
		killed(t, d, endpoint, finished(1))
		d.failing(nil)
		k := start(t, d)
		for range 2 {
			check.NoError(t, k.w.CloseInterrupted(t.Context(), nil))
		}
		k.w.Close()
		k.check(history.StreamOf(id(1)), "Started", "Completed")
		k.check(history.IndexStream, "0@$scavenges-01", "1@$scavenges-01")
	})
}

// A node that is started twice, and the second time does not see yet what it did the first time.
func TestInterruptedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		killed(t, d, endpoint, unfinished(1))
		first, second := start(t, d), start(t, d)
		second.lag(true)
		check.Must(t, first.w.CloseInterrupted(t.Context(), nil))
		first.w.Close()
		var look sync.WaitGroup
		look.Go(func() { check.NoError(t, second.w.CloseInterrupted(t.Context(), nil)) })
		time.Sleep(10 * time.Second)
		second.lag(false)
		look.Wait()
		second.w.Close()
		second.interrupted(1)
		second.check(history.IndexStream, "0@$scavenges-01", "6@$scavenges-01")
		second.metrics(1, 0, 0) // The link, which was there.
	})
}

// Writes whose outcome is unknown are not done twice.
func TestInterruptedOutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		killed(t, d, endpoint, unfinished(1))
		d.put(event.MetaStreamOf(history.IndexStream), event.TypeMetadata, otherAge)
		tried := map[string]bool{}
		d.failing(func(w *event.Write) (before, after error) {
			if tried[w.Stream] {
				return nil, nil
			}
			tried[w.Stream] = true
			return nil, event.ErrOutcomeUnknown
		})
		k := start(t, d)
		check.NoError(t, k.w.CloseInterrupted(t.Context(), nil))
		k.w.Close()
		k.interrupted(1)
		k.check(history.IndexStream, "0@$scavenges-01", "6@$scavenges-01")
		check.Equal(t, len(k.events(event.MetaStreamOf(history.IndexStream))), 3, "times metadata")
	})
}

// One run that cannot be completed does not keep the others from it.
func TestInterruptedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		killed(t, d, endpoint, unfinished(1), unfinished(2))
		d.failing(func(w *event.Write) (before, after error) {
			if w.Stream == history.StreamOf(id(1)) {
				return errBroken, nil
			}
			return nil, nil
		})
		k := start(t, d)
		err := k.w.CloseInterrupted(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), id(1).String()) || strings.Contains(err.Error(), id(2).String()) {
			t.Errorf("the error is %v", err)
		}
		k.w.Close()
		k.interrupted(2)
		k.metrics(2, 0, 1)
	})
}

// Without a leader the look waits, until its context or the Writer ends.
func TestInterruptedWaits(t *testing.T) {
	for _, ends := range []string{"leader", "context", "writer"} {
		t.Run(ends, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDatabase()
				killed(t, d, endpoint, unfinished(1))
				d.lead(false)
				k := start(t, d)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				result := make(chan error, 1)
				var look sync.WaitGroup
				look.Go(func() { result <- k.w.CloseInterrupted(ctx, nil) })
				time.Sleep(time.Hour)
				select {
				case err := <-result:
					t.Fatalf("it did not wait: %v", err)
				default:
				}
				begun := time.Now()
				switch ends {
				case "leader":
					d.lead(true)
				case "context":
					cancel()
				case "writer":
					k.w.Close()
				}
				err := <-result
				if took := time.Since(begun); took > 16*time.Second {
					t.Errorf("it lasted %v", took)
				}
				check.Equal(t, err == nil, ends == "leader", "the look ended with", err)
				if err == nil {
					k.interrupted(1)
				}
				k.w.Close()
				look.Wait()
			})
		})
	}
}

// What was redacted says nothing, and does no harm.
func TestInterruptedRedacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		killed(t, d, endpoint, unfinished(1), unfinished(2))
		redact := func(stream string, number int) {
			data := check.Value(json.Marshal(strings.Repeat("x", 10))).Must(t)
			d.streams[stream][number].Data = data
		}
		redact(history.StreamOf(id(1)), 0)
		redact(history.StreamOf(id(2)), 2)
		k := start(t, d)
		check.NoError(t, k.w.CloseInterrupted(t.Context(), nil))
		k.w.Close()
		if got := k.types(history.StreamOf(id(1))); len(got) != 6 {
			t.Errorf("a run of an unknown node was completed: %v", got)
		}
		if got := k.payload(history.StreamOf(id(2)), 6); got["spaceSaved"] != 321100.0 || got["maxChunkScavenged"] != 4.0 {
			t.Errorf("sums %v", got)
		}
	})
}
