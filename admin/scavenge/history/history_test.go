package history_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// everything lets a run do one of each.
func everything(r *history.Run) {
	r.Chunk(history.ChunkCompleted{First: 0, Last: 0, Took: history.Ticks(1500 * time.Millisecond), Scavenged: true, Saved: 200 << 20})
	r.Chunk(history.ChunkCompleted{First: 1, Last: 3, Took: history.Ticks(26*time.Hour + 3*time.Minute + 4*time.Second + 567*time.Microsecond), Saved: -128, Error: `read "chunk-000001.000000": <EOF> & more`})
	r.Merge(history.MergeCompleted{First: 4, Last: 7, Took: history.Ticks(time.Minute), Saved: 4096, Merged: true})
	r.Merge(history.MergeCompleted{First: 8, Last: 9, Error: "no space"})
	r.Index(history.IndexCompleted{Level: 2, Index: 1, Took: 100, Deleted: 1000, Kept: 24, Saved: 16000, Scavenged: true})
	r.Index(history.IndexCompleted{Level: 3, Index: 0, Took: 99, Kept: 7})
	r.Index(history.IndexCompleted{Level: -1, Index: -1, Error: history.ErrorCancelled})
}

// Clients of EventStoreDB read these events: their bytes must not change.
func TestGolden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newDatabase())
		r := k.w.Begin(id(1), history.Started{AlwaysKeepScavenged: true, MergeChunks: true, StartFromChunk: 0, Threads: 4})
		everything(r)
		r.Completed(history.Completed{Result: history.Success, Took: history.Ticks(26 * time.Hour), Saved: 209735168, MaxChunk: 3})

		r = k.w.Begin(id(2), history.Started{Threads: 1})
		r.Completed(history.Completed{Result: history.Failed, Error: "write chunk 5: disk full", Took: history.Ticks(time.Second), Saved: -1, MaxChunk: 5})
		r = k.w.Begin(id(3), history.Started{Threads: 1})
		r.Completed(history.Completed{Result: history.Stopped})
		synctest.Wait()

		// A run of a node that was killed.
		other := start(t, k.database)
		other.lead(false)
		r = k.w.Begin(id(4), history.Started{MergeChunks: true, Threads: 2})
		everything(r)
		k.lead(true)
		synctest.Wait()
		check.NoError(t, other.w.CloseInterrupted(t.Context(), nil))
		other.w.Close()
		k.w.Close()

		got := k.dump()
		const file = "testdata/history.golden"
		if *update {
			check.Must(t, os.WriteFile(file, []byte(got), 0o644))
		}
		want := check.Value(os.ReadFile(file)).Must(t)
		check.Equal(t, got, string(want), "the history differs from", file)
	})
}

func TestTimeTaken(t *testing.T) {
	cases := []struct {
		took time.Duration
		want string
	}{
		{0, "00:00:00"},
		{-time.Second, "00:00:00"},
		{99, "00:00:00"},
		{100, "00:00:00.0000001"},
		{time.Second - 1, "00:00:00.9999999"},
		{time.Second, "00:00:01"},
		{59*time.Minute + 59*time.Second + 500*time.Millisecond, "00:59:59.5000000"},
		{23*time.Hour + 59*time.Minute, "23:59:00"},
		{24 * time.Hour, "1.00:00:00"},
		{123*24*time.Hour + 4*time.Hour + 5*time.Minute + 6*time.Second + 789, "123.04:05:06.0000007"},
	}
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newDatabase())
		r := k.w.Begin(id(1), history.Started{})
		for _, c := range cases {
			r.Chunk(history.ChunkCompleted{Took: history.Ticks(c.took)})
		}
		k.w.Close()
		for i, c := range cases {
			if got := k.payload(history.StreamOf(id(1)), i+1)["timeTaken"]; got != c.want {
				t.Errorf("%d ns: %v, expected %s", c.took, got, c.want)
			}
		}
	})
}

// The texts of errors are bounded, and one that is a sentence already stays it.
func TestErrorTexts(t *testing.T) {
	long := strings.Repeat("ä", 5000)
	cases := []struct {
		name string
		c    history.Completed
		want any
	}{
		{"none", history.Completed{Result: history.Success}, nil},
		{"failed without a reason", history.Completed{Result: history.Failed}, nil},
		{"failed", history.Completed{Result: history.Failed, Error: "it broke"}, "Error while scavenging DB: it broke."},
		{"failed, with a period", history.Completed{Result: history.Failed, Error: "it broke."}, "Error while scavenging DB: it broke."},
		{"failed, the sentence", history.Completed{Result: history.Failed, Error: "Error while scavenging DB: it broke."}, "Error while scavenging DB: it broke."},
		{"stopped", history.Completed{Result: history.Stopped, Error: "by an operator"}, "by an operator"},
		{"long", history.Completed{Result: history.Failed, Error: history.Reason(long)}, "Error while scavenging DB: " + long[:4096] + "."},
		{"long, cut within a character", history.Completed{Result: history.Stopped, Error: history.Reason("a" + long)}, "a" + long[:4094]},
	}
	for n, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := start(t, newDatabase())
				r := k.w.Begin(id(byte(n)), history.Started{})
				r.Chunk(history.ChunkCompleted{Error: string(c.c.Error)})
				r.Completed(c.c)
				k.w.Close()
				stream := history.StreamOf(id(byte(n)))
				check.Equal(t, k.payload(stream, 2)["error"], c.want)
				if text := k.payload(stream, 1)["errorMessage"].(string); len(text) > 4096 || !utf8.ValidString(text) || !strings.HasPrefix(string(c.c.Error), text) {
					t.Errorf("a message of %d bytes: %s", len(text), text)
				}
			})
		})
	}
}

// Whatever fails, and whatever was done although it seemed to fail: events are
// written once and in order, each link names its event, and metadata come first.
func TestOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newDatabase())
		inRow := 0
		k.failing(func(w *event.Write) (before, after error) {
			if !event.IsMetaStream(w.Stream) && len(k.streams[event.MetaStreamOf(w.Stream)]) == 0 {
				t.Errorf("%s is written to before its metadata", w.Stream)
			}
			if inRow++; inRow > 5 {
				inRow = 0
				return nil, nil
			}
			switch random.IntN(5) {
			case 0:
				return event.ErrWriteTimeout, nil
			case 1:
				return nil, event.ErrOutcomeUnknown
			case 2:
				return event.ErrNotReady, nil
			case 3:
				return event.ErrBusy, nil
			}
			inRow = 0
			return nil, nil
		})
		const runs, chunks = 20, 50
		var index []string
		for n := range byte(runs) {
			r := k.w.Begin(id(n), history.Started{})
			for i := range chunks {
				r.Chunk(history.ChunkCompleted{First: i, Last: i, Scavenged: true})
			}
			r.Completed(history.Completed{Result: history.Success})
			index = append(index, fmt.Sprintf("0@$scavenges-%02x", n), fmt.Sprintf("%d@$scavenges-%02x", chunks+1, n))
		}
		time.Sleep(24 * time.Hour) // of the bubble: until all is done
		k.failing(nil)
		k.w.Close()
		k.check(history.IndexStream, index...)
		for n := range byte(runs) {
			stream := history.StreamOf(id(n))
			check.MustEqual(t, len(k.events(stream)), chunks+2, stream, "has ... events")
			for i := range chunks {
				if got := k.payload(stream, i+1)["chunkStartNumber"]; got != float64(i) {
					t.Errorf("event %d of %s is about chunk %v", i+1, stream, got)
				}
			}
		}
		k.metrics(runs*(chunks+4), 0, 0)
	})
}

var errBroken = errors.New("broken")

// A write is tried six times, then given up; what comes later is written.
func TestRetries(t *testing.T) {
	for _, c := range []struct {
		name     string
		failures int
		err      error
		chunks   int // that are there in the end
		tries    []time.Duration
	}{
		{"five failures", 5, errBroken, 1, []time.Duration{0, 1, 3, 7, 15, 31}},
		{"six failures", 6, errBroken, 0, []time.Duration{0, 1, 3, 7, 15, 31}},
		{"unknown outcomes", 6, event.ErrOutcomeUnknown, 0, []time.Duration{0, 1, 3, 7, 15, 31}},
		{"of no use to try again", 6, event.ErrTooLarge, 0, []time.Duration{0}},
		{"no writes for now", 9, event.ErrDiskFull, 1, []time.Duration{0, 1, 3, 7, 15, 31, 47, 63, 79, 95}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := start(t, newDatabase())
				r := k.w.Begin(id(1), history.Started{})
				synctest.Wait()
				left := c.failures
				k.failing(func(w *event.Write) (before, after error) {
					if w.Events[0].Type != history.TypeChunksCompleted || left == 0 {
						return nil, nil
					}
					left--
					return fmt.Errorf("write: %w", c.err), nil
				})
				begun := time.Now()
				r.Chunk(history.ChunkCompleted{})
				r.Completed(history.Completed{Result: history.Success})
				time.Sleep(10 * time.Minute)
				want := []string{"Started", "ChunksCompleted", "Completed"}
				index := []string{"0@$scavenges-01", "2@$scavenges-01"}
				if c.chunks == 0 {
					want, index[1] = []string{"Started", "Completed"}, "1@$scavenges-01"
				}
				k.check(history.StreamOf(id(1)), want...)
				k.check(history.IndexStream, index...)
				var tries []time.Duration
				for _, a := range k.tries() {
					if a.typ == history.TypeChunksCompleted {
						tries = append(tries, a.at.Sub(begun)/time.Second)
					}
				}
				if fmt.Sprint(tries) != fmt.Sprint(c.tries) {
					t.Errorf("tried after %d seconds, expected %d", tries, c.tries)
				}
				k.metrics(4+c.chunks, 0, 1-c.chunks)
				if n := k.log.count("is given up"); n != 1-c.chunks {
					t.Errorf("%d lines say that an event is given up", n)
				}
				k.w.Close()
			})
		})
	}
}

// A link that cannot be written keeps nothing else from being written.
func TestLinkFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newDatabase())
		k.deleted[history.IndexStream] = true
		r := k.w.Begin(id(1), history.Started{})
		everything(r)
		r.Completed(history.Completed{Result: history.Success})
		begun := time.Now()
		k.w.Close()
		if took := time.Since(begun); took > 0 {
			t.Errorf("a stream that is gone for good is tried for %v", took)
		}
		if got := k.types(history.StreamOf(id(1))); len(got) != 9 || got[8] != "Completed" {
			t.Errorf("the run has %v", got)
		}
		k.check(history.IndexStream)
		k.metrics(9, 0, 2)
	})
}

// As long as the process lives, a cluster without a leader costs no event, and one line in the log.
func TestNoLeader(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(k *kit)
		after  func(k *kit)
	}{
		{"no leader", func(k *kit) { k.lead(false) }, func(k *kit) { k.lead(true) }},
		{"not ready", func(k *kit) { k.refuse(event.ErrNotReady) }, func(k *kit) { k.refuse(nil) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := start(t, newDatabase())
				c.before(k)
				r := k.w.Begin(id(1), history.Started{})
				everything(r)
				r.Completed(history.Completed{Result: history.Success})
				time.Sleep(5 * time.Hour)
				check.Equal(t, k.dump(), "", "written without a leader")
				c.after(k)
				time.Sleep(20 * time.Second)
				if got := k.types(history.StreamOf(id(1))); len(got) != 9 || got[0] != "Started" || got[8] != "Completed" {
					t.Errorf("the run has %v", got)
				}
				k.metrics(11, 0, 0)
				if waits, goes := k.log.count("waits for the cluster"), k.log.count("is written again"); waits != 1 || goes != 1 {
					t.Errorf("logged %d times that the history waits, %d times that it continues", waits, goes)
				}
				k.w.Close()
			})
		})
	}
}

// An election of 30 seconds costs nothing even if every try fails at once, for whatever reason.
func TestElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newDatabase())
		r := k.w.Begin(id(1), history.Started{})
		synctest.Wait()
		until := time.Now().Add(30 * time.Second)
		k.failing(func(*event.Write) (before, after error) {
			if time.Now().Before(until) {
				return errBroken, nil
			}
			return nil, nil
		})
		r.Completed(history.Completed{Result: history.Success})
		time.Sleep(time.Minute)
		k.check(history.StreamOf(id(1)), "Started", "Completed")
		k.metrics(4, 0, 0)
		k.w.Close()
	})
}

// All but the store can be left out.
func TestDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		w := history.New(history.Options{Store: &node{database: d}, Endpoint: func() string { return "" }})
		w.Begin(id(1), history.Started{}).Completed(history.Completed{Result: history.Success})
		w.Close()
		k := &kit{t: t, node: &node{database: d}}
		k.check(history.StreamOf(id(1)), "Started", "Completed")
		check.Equal(t, string(d.events("$$$scavenges")[0].Data), metadata, "metadata")
	})
}
