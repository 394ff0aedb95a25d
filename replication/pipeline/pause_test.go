package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// Pause has the pipeline pause, as handing leadership over does.
func (r *rig) pause(ctx context.Context) chan error {
	c := make(chan error, 1)
	go func() { c <- r.p.Pause(ctx) }()
	synctest.Wait()
	return c
}

// pausing returns what pause did, or ok false while it waits.
func (r *rig) pausing(c chan error) (err error, ok bool) {
	synctest.Wait()
	select {
	case err = <-c:
		return err, true
	default:
		return nil, false
	}
}

// Before leadership is handed over, nothing more is decided, and the entry in flight ends:
// otherwise its outcome would be unknown.
func TestRule23PauseDrains(t *testing.T) {
	for _, c := range []struct {
		name     string
		err      error
		response any
		then     string // what is proposed after resuming
	}{
		{"committed", nil, nil, "b c"},
		{"refused by the fence", nil, event.ErrEntryRefused, "a b c"},
		{"not written", raft.ErrLeadershipTransferInProgress, nil, "a b c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inRig(t, func(r *rig) {
				a, under := r.inFlight("a")
				b := r.submit("b") // is decided, on top of the entry in flight
				paused := r.pause(r.t.Context())
				d := r.submit("c")
				if err, ok := r.pausing(paused); ok {
					r.t.Fatalf("paused with an entry in flight: %v", err)
				}
				under.resolve(c.err, c.response)
				if err, ok := r.pausing(paused); !ok || err != nil {
					r.t.Fatalf("nothing is in flight, and pausing: %v, %v", ok, err)
				}
				time.Sleep(time.Minute)
				r.nothing()
				r.waits(b)
				r.waits(d)
				r.p.Resume()
				if c.err != nil {
					r.lead()
				}
				r.next(c.then).resolve(nil, nil)
				for _, answer := range []chan answer{a, b, d} {
					r.answered(answer, 0, nil)
				}
			})
		})
	}
}

// What was decided when the pipeline paused is decided once: a second time it would be decided on
// top of itself, and refused although it is done.
func TestGoingOnDecidesNothingTwice(t *testing.T) {
	inRig(t, func(r *rig) {
		first, under := r.inFlight("a")
		b, again := r.submit("s"), r.submit("s")
		paused := r.pause(r.t.Context())
		under.resolve(nil, nil)
		check.Must(r.t, <-paused)
		r.answered(first, 0, nil)
		r.p.Resume() // leadership was not handed over: this node still leads, in the same term
		r.next("s s").resolve(nil, nil)
		r.answered(b, 0, nil)
		r.answered(again, 1, nil)
	})
	t.Run("and nothing when another node leads", func(t *testing.T) {
		inRig(t, func(r *rig) {
			first, under := r.inFlight("a")
			b := r.submit("b")
			paused := r.pause(r.t.Context())
			under.resolve(nil, nil)
			check.Must(r.t, <-paused)
			r.answered(first, 0, nil)
			r.leaderNow.Store(false)
			r.address.Store("https://b:2113")
			r.hint <- false
			c := r.submit("c")
			r.waits(b)
			r.p.Resume()
			for _, answer := range []chan answer{b, c} {
				if got := <-answer; !errors.As(got.err, new(*event.NotLeader)) {
					r.t.Errorf("answered %v, another node leads", got.err)
				}
			}
			// Leader again, it decides on the applied state.
			r.leaderNow.Store(true)
			r.termNow.Add(2)
			r.hint <- true
			r.lead()
			d := r.submit("d")
			r.next("d").resolve(nil, nil)
			r.answered(d, 0, nil)
		})
	})
}

// When a caller gives up waiting for the entry in flight, the pipeline continues.
func TestPauseThatIsGivenUp(t *testing.T) {
	inRig(t, func(r *rig) {
		a, under := r.inFlight("a")
		b := r.submit("b")
		ctx, cancel := context.WithCancel(r.t.Context())
		paused := r.pause(ctx)
		c := r.submit("c")
		cancel()
		if err, ok := r.pausing(paused); !ok || !errors.Is(err, context.Canceled) {
			r.t.Fatalf("pausing ended: %v, %v", ok, err)
		}
		under.resolve(nil, nil)
		r.next("b c").resolve(nil, nil)
		for _, answer := range []chan answer{a, b, c} {
			r.answered(answer, 0, nil)
		}
	})
	t.Run("again and again, with leaders that change", func(t *testing.T) {
		inRig(t, func(r *rig) {
			r.lead()
			for range 20 {
				a := r.submit("a")
				under := r.next("a")
				ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
				paused := r.pause(ctx)
				check.MustBe(r.t, <-paused, context.DeadlineExceeded)
				cancel()
				r.termNow.Add(1)
				r.hint <- true
				under.resolve(nil, nil)
				r.answered(a, r.decider.version["a"]-1, nil)
				r.lead()
			}
		})
	})
}
