package run

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
)

// definitions are kinds of projections that the differential tests run.
func definitions() map[string]handler.Definition {
	results := handler.Options{ProducesResults: true}
	return map[string]handler.Definition{
		"root":        {},
		"results":     {Options: results},
		"by stream":   {ByStreams: true, Options: results},
		"by function": {ByCustomPartitions: true, Options: handler.Options{DefinesStateTransform: true}},
		"bi-state":    {ByStreams: true, Options: handler.Options{IsBiState: true}},
	}
}

// outcome is all that one can see of a projection.
type outcome struct {
	states  map[string]string
	results map[string]string
	streams map[string][]string
}

func (o outcome) equal(p outcome) bool {
	return maps.Equal(o.states, p.states) && maps.Equal(o.results, p.results) &&
		maps.EqualFunc(o.streams, p.streams, slices.Equal[[]string])
}

func outcomeOf(t *testing.T, w *world, r *Run) outcome {
	t.Helper()
	o := outcome{states: map[string]string{}, results: map[string]string{}, streams: w.all()}
	for _, p := range []string{"", "a", "b", "c", "d"} {
		o.states[p], o.results[p] = state(t, r, p), result(t, r, p)
	}
	return o
}

// events returns random texts of events.
func events(rng *rand.Rand, n int) []string {
	var texts []string
	for range n {
		texts = append(texts, fmt.Sprintf("%c:%s", 'a'+rune(rng.IntN(4)), []string{"", "emit", "skip", "same", "null", "emit"}[rng.IntN(6)]))
	}
	return texts
}

func undisturbed(t *testing.T, o Options, texts []string) outcome {
	w := newWorld()
	w.add(texts...)
	r := start(t.Context(), o, w.parts())
	defer r.Close()
	synctest.Wait()
	return outcomeOf(t, w, r)
}

// eachDefinition runs a test in a bubble for every definition, with events and
// what comes of them when nothing happens.
func eachDefinition(t *testing.T, test func(t *testing.T, options func() Options, texts []string, want outcome, rng *rand.Rand)) {
	for name, d := range definitions() {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 0))
				texts := events(rng, 40)
				make := func() Options {
					o := options(d)
					o.CachedPartitions = 2
					o.Config.CheckpointHandledThreshold = 5
					return o
				}
				test(t, make, texts, undisturbed(t, make(), texts), rng)
			})
		})
	}
}

func (o outcome) mustBe(t *testing.T, want outcome) {
	t.Helper()
	if !o.equal(want) {
		for _, m := range []struct{ got, want map[string]string }{{o.states, want.states}, {o.results, want.results}, {flat(o.streams), flat(want.streams)}} {
			for k := range m.got {
				check.Equal(t, m.got[k], m.want[k], k)
				delete(m.want, k)
			}
			for k, v := range m.want {
				t.Errorf("%s is not there, want\n%s", k, v)
			}
		}
		t.FailNow()
	}
}

// Stopped, aborted or dropped after every event.
func TestEndAtEveryEvent(t *testing.T) {
	for how, end := range map[string]func(*Run){"stop": (*Run).Stop, "abort": (*Run).Abort, "close": (*Run).Close} {
		t.Run(how, func(t *testing.T) {
			eachDefinition(t, func(t *testing.T, options func() Options, texts []string, want outcome, _ *rand.Rand) {
				w := newWorld()
				for _, text := range texts {
					r := start(t.Context(), options(), w.parts())
					w.add(text)
					synctest.Wait()
					end(r)
					<-r.Done()
				}
				r := start(t.Context(), options(), w.parts())
				defer r.Close()
				synctest.Wait()
				outcomeOf(t, w, r).mustBe(t, want)
			})
		})
	}
}

// Ended while it works, wherever it happens to be.
func TestEndAnywhere(t *testing.T) {
	eachDefinition(t, func(t *testing.T, options func() Options, texts []string, want outcome, rng *rand.Rand) {
		for range 50 {
			w := newWorld()
			w.add(texts...)
			left, now := 1+rng.IntN(60), make(chan struct{})
			w.onSave = func(ctx context.Context, _ int) error { return ctx.Err() }
			w.onWrite = func(string) error {
				if left--; left == 0 {
					close(now)
				}
				return nil
			}
			r := start(t.Context(), options(), w.parts())
			go func() {
				select {
				case <-now:
				case <-time.After(time.Second):
				}
				[]func(*Run){(*Run).Stop, (*Run).Abort, (*Run).Close}[rng.IntN(3)](r)
			}()
			<-r.Done()
			w.onWrite = nil
			r = start(t.Context(), options(), w.parts())
			synctest.Wait()
			outcomeOf(t, w, r).mustBe(t, want)
			r.Close()
			time.Sleep(time.Minute)
		}
	})
}

// A write, a part of a checkpoint or a read fails, at every place one after the
// other; then the projection is started again.
func TestErrorsEverywhere(t *testing.T) {
	for what, set := range map[string]func(w *world, fail func() error){
		"write":      func(w *world, fail func() error) { w.onWrite = func(string) error { return fail() } },
		"checkpoint": func(w *world, fail func() error) { w.onSave = func(context.Context, int) error { return fail() } },
		"restart": func(w *world, fail func() error) {
			w.onWrite = func(string) error {
				if fail() != nil {
					return output.ErrRestart
				}
				return nil
			}
		},
		"read": func(w *world, fail func() error) { w.onRead = fail },
	} {
		t.Run(what, func(t *testing.T) {
			eachDefinition(t, func(t *testing.T, options func() Options, texts []string, want outcome, _ *rand.Rand) {
				for at := 1; ; at++ {
					w := newWorld()
					w.add(texts...)
					left := at
					set(w, func() error {
						w.mu.Lock()
						defer w.mu.Unlock()
						if left--; left == 0 {
							return event.ErrDiskFull
						}
						return nil
					})
					for range 2 {
						r := start(t.Context(), options(), w.parts())
						time.Sleep(time.Minute)
						synctest.Wait()
						if r.Statistics().Ending == Unfinished {
							w.onRead = nil
							outcomeOf(t, w, r).mustBe(t, want)
						}
						r.Close()
					}
					if left > 0 {
						break
					}
				}
			})
		})
	}
}

func flat(streams map[string][]string) map[string]string {
	f := map[string]string{}
	for k, v := range streams {
		f[k] = fmt.Sprint(v)
	}
	return f
}
