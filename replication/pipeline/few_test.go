package pipeline

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
)

// A leader whose cluster has too few voters answers nothing: what it alone holds would be lost with
// it.
func TestTooFewVotersAreAnsweredNothing(t *testing.T) {
	three, few, other := &Quorum{1, true, false}, &Quorum{2, false, true}, &Quorum{3, true, false}
	t.Run("before it is proposed", func(t *testing.T) {
		inRig(t, func(r *rig) {
			r.lead()
			r.quorumNow.Store(few)
			r.answered(r.submit("a"), 0, event.ErrNotReady)
			r.answered(r.confirm(), 0, event.ErrNotReady)
			r.nothing()
			r.quorumNow.Store(other)
			a := r.submit("a")
			r.next("a").resolve(nil, nil)
			r.answered(a, 0, nil) // and the decider has forgotten the other
		})
	})
	t.Run("while it is in flight", func(t *testing.T) {
		inRig(t, func(r *rig) {
			r.quorumNow.Store(three)
			a, f := r.inFlight("a")
			idem := r.submit("idem")
			b := r.submit("b")
			r.quorumNow.Store(few)
			f.resolve(nil, nil)
			r.answered(a, 0, event.ErrOutcomeUnknown)
			r.answered(idem, 0, event.ErrNotReady)
			r.answered(b, 0, event.ErrNotReady)
			r.nothing()
		})
	})
	t.Run("and again enough when it is committed", func(t *testing.T) {
		for _, c := range []struct {
			name string
			err  error
			term uint64
			want error
		}{
			{"a barrier passes", nil, 3, nil},
			{"the barrier fails", raft.ErrNotLeader, 3, event.ErrOutcomeUnknown},
			{"the barrier is of another term", nil, 4, event.ErrOutcomeUnknown},
		} {
			t.Run(c.name, func(t *testing.T) {
				inRig(t, func(r *rig) {
					r.quorumNow.Store(three)
					a, f := r.inFlight("a")
					idem := r.submit("idem") // of the next group
					r.quorumNow.Store(other)
					f.resolve(nil, nil)
					r.waits(a) // one may have been removed and another one added
					barrier := r.next("")
					r.termNow.Store(c.term)
					barrier.resolve(c.err, nil)
					r.answered(a, 0, c.want)
					time.Sleep(2 * gainRetry)
					if c.want != nil {
						r.lead()
					}
					r.next("").resolve(nil, nil)
					r.answered(idem, 7, nil)
				})
			})
		}
	})
	t.Run("and none of the closing ones", func(t *testing.T) {
		inRig(t, func(r *rig) {
			r.quorumNow.Store(three)
			a, f := r.inFlight("a")
			done := make(chan bool, 1)
			go func() { done <- r.p.Close() }()
			synctest.Wait()
			r.quorumNow.Store(few)
			f.resolve(nil, nil)
			r.answered(a, 0, event.ErrOutcomeUnknown)
			<-done
		})
	})
}
