package run

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/memdb"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
)

// These tests run with the real reader and output, over a store in memory.

// sources are what projections of these tests read.
func sources() map[string]handler.Definition {
	results := handler.Options{ProducesResults: true}
	return map[string]handler.Definition{
		"log":         {AllStreams: true, AllEvents: true, ByStreams: true, Options: results},
		"log, types":  {AllStreams: true, Events: []string{"T", "U"}, ByCustomPartitions: true, Options: handler.Options{DefinesStateTransform: true}},
		"stream":      {Streams: []string{"a-1"}, AllEvents: true, Options: results},
		"streams":     {Streams: []string{"a-1", "a-2", "b-1"}, AllEvents: true, ByCustomPartitions: true, Options: handler.Options{IsBiState: true}},
		"category":    {Categories: []string{"a"}, AllEvents: true, ByStreams: true, Options: results},
		"log deleted": {AllStreams: true, AllEvents: true, ByStreams: true, Options: handler.Options{HandlesDeleted: true}},
	}
}

func newRealCounter(d handler.Definition) *counter {
	d.DefinesFold = true
	return &counter{d: d}
}

func realOptions(s *memdb.DB, d handler.Definition) Options {
	return Options{Store: s, Name: "p", Links: event.EveryLink, Version: position.Version{Projection: 7, Epoch: -1, Version: 3},
		Turns: NewTurns(3, nil), Definition: newRealCounter(d).Definition(), Compile: func() (handler.Handler, error) { return newRealCounter(d), nil },
		Config: Config{EmitEnabled: true, TrackEmittedStreams: true, CheckpointHandledThreshold: 5}, CachedPartitions: 2}
}

// op is one thing that a client, or $by_category, does.
type op func(s *memdb.DB)

var streamNames = []string{"a-1", "a-2", "b-1"}

// history returns random things that clients do, links of categories included.
// Deletions are reported by the log alone, so only some projections may meet them.
func history(rng *rand.Rand, n int, deletes bool) []op {
	var ops []op
	for range n {
		stream := streamNames[rng.IntN(len(streamNames))]
		data := []string{"{}", "emit", "skip", "same", "null", "emit"}[rng.IntN(6)]
		kind := []string{"T", "U", "V"}[rng.IntN(3)]
		what := rng.IntN(12)
		ops = append(ops, func(s *memdb.DB) {
			switch {
			case what == 0 && deletes && s.Info(stream).Last >= 0:
				s.Delete(event.SoftDelete, stream)
			case what == 1 && deletes:
				s.SetMetadata(stream, `{"mark":1}`)
			default:
				add(s, stream, kind, data, "")
				if category, _, ok := strings.Cut(stream, "-"); ok {
					add(s, "$ce-"+category, event.TypeLink, fmt.Sprintf("%d@%s", s.Info(stream).Last, stream), fmt.Sprintf(`{"$o":%q}`, stream))
				}
			}
		})
	}
	return ops
}

// add appends an event, whose id is made of the stream and its number.
func add(s *memdb.DB, stream, eventType, data, metadata string) {
	s.Put(event.Write{Stream: stream, ExpectedVersion: event.AnyVersion, Events: []event.Proposed{{
		ID: event.ID(uuid.NewSHA1(uuid.Nil, fmt.Append(nil, stream, s.Info(stream).Last))), Type: eventType, Flags: event.FlagJSON, Data: []byte(data), Metadata: []byte(metadata),
	}}})
}

// place is a place in the log, which depends on what the projection itself writes when.
var place = regexp.MustCompile(`("\$[cp]":)\d+`)

// sight is all that one can see of a projection and of what it wrote.
func sight(t *testing.T, s *memdb.DB, r *Run) map[string]string {
	t.Helper()
	seen := map[string]string{}
	for _, p := range append(streamNames, "") {
		seen["state of "+p], seen["result of "+p] = state(t, r, p), result(t, r, p)
	}
	for stream, lines := range s.Dump() {
		if !strings.HasSuffix(stream, "checkpoint") && !strings.HasSuffix(stream, "-order") && !strings.HasSuffix(stream, "checkpointedpartitions") && !slices.Contains(streamNames, stream) {
			if strings.HasSuffix(stream, "-emittedstreams") { // Streams are written side by side.
				for i, line := range lines {
					_, lines[i], _ = strings.Cut(line, " ")
				}
				slices.Sort(lines)
			}
			seen[stream] = place.ReplaceAllString(strings.Join(lines, "\n"), "$1")
		}
	}
	return seen
}

func mustBeSame(t *testing.T, got, want map[string]string) {
	t.Helper()
	for _, k := range slices.Sorted(maps.Keys(want)) {
		check.Equal(t, got[k], want[k], k)
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s is there:\n%s", k, got[k])
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

func eachSource(t *testing.T, test func(t *testing.T, options func(*memdb.DB) Options, ops []op, want map[string]string, rng *rand.Rand)) {
	for name, d := range sources() {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 0))
				ops := history(rng, 30, d.HandlesDeleted)
				s := memdb.Open(t, memdb.Options{})
				r := Start(t.Context(), realOptions(s, d))
				for _, o := range ops {
					o(s)
					synctest.Wait()
				}
				want := sight(t, s, r)
				r.Close()
				test(t, func(s *memdb.DB) Options { return realOptions(s, d) }, ops, want, rng)
			})
		})
	}
}

func TestRealEndAtEveryEvent(t *testing.T) {
	for how, end := range map[string]func(*Run){"stop": (*Run).Stop, "abort": (*Run).Abort, "close": (*Run).Close} {
		t.Run(how, func(t *testing.T) {
			eachSource(t, func(t *testing.T, options func(*memdb.DB) Options, ops []op, want map[string]string, _ *rand.Rand) {
				s := memdb.Open(t, memdb.Options{})
				for _, o := range ops {
					r := Start(t.Context(), options(s))
					o(s)
					synctest.Wait()
					end(r)
					<-r.Done()
				}
				r := Start(t.Context(), options(s))
				synctest.Wait()
				defer r.Close()
				mustBeSame(t, sight(t, s, r), want)
			})
		})
	}
}

// Every write of the projection fails once, before or after it is done, and the
// node is lost with it or not.
func TestRealErrorsEverywhere(t *testing.T) {
	for name, err := range map[string]error{"storage": event.ErrBusy, "unknown": event.ErrOutcomeUnknown, "lost": &event.NotLeader{}} {
		t.Run(name, func(t *testing.T) {
			eachSource(t, func(t *testing.T, options func(*memdb.DB) Options, ops []op, want map[string]string, _ *rand.Rand) {
				for at := 0; ; at++ {
					s := memdb.Open(t, memdb.Options{})
					for _, o := range ops {
						o(s)
					}
					var left atomic.Int64
					left.Store(int64(at))
					s.SetFault(func(_ int64, w *event.Write) (before, after error) {
						if left.Add(-1) != -1 {
							return nil, nil
						}
						if at%2 == 0 {
							return err, nil
						}
						return nil, err
					})
					var r *Run
					for range 3 {
						r = Start(t.Context(), options(s))
						synctest.Wait()
						time.Sleep(time.Minute)
						if r.Statistics().Ending == Unfinished {
							break
						}
						<-r.Done()
					}
					if f := r.Statistics(); f.Status != "Running" {
						t.Fatalf("write %d: %+v", at, f)
					}
					mustBeSame(t, sight(t, s, r), want)
					r.Close()
					if left.Load() >= 0 {
						break
					}
				}
			})
		})
	}
}

func TestRealForeignWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdb.Open(t, memdb.Options{})
		d := sources()["stream"]
		r := Start(t.Context(), realOptions(s, d))
		add(s, "a-1", "T", "emit", "")
		synctest.Wait()
		add(s, "$out-a-1", "foreign", "{}", "")
		add(s, "a-1", "T", "emit", "")
		time.Sleep(time.Minute)
		ended(t, r, Faulted)
		if f := r.Statistics(); !strings.HasPrefix(f.Reason, "The '$out-a-1' stream managed by projection 7 has been written to from the outside.") {
			t.Error(f.Reason)
		}
		check.Equal(t, state(t, r, ""), "", "state ...: no checkpoint had been written")
	})
}

func TestRealStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdb.Open(t, memdb.Options{})
		for _, c := range []string{"log", "log, types", "stream", "streams"} {
			d := sources()[c]
			o := realOptions(s, d)
			o.Name = c
			for _, stream := range streamNames {
				add(s, stream, "T", "{}", "")
			}
			r := Start(context.Background(), o)
			synctest.Wait()
			r.Stop()
			ended(t, r, Stopped)
			for _, p := range append(streamNames, "", "nobody") {
				a, err := Stored(t.Context(), o, p)
				b, _ := r.Ask(t.Context(), p)
				if err != nil || string(a.State) != string(b.State) || !a.Position.Equal(*b.Position) || string(a.Result) != string(b.Result) {
					t.Errorf("%s, %q: %s %s at %v, %v; the run says %s %s at %v", c, p, a.State, a.Result, a.Position, err, b.State, b.Result, b.Position)
				}
			}
		}
	})
}
