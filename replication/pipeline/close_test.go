package pipeline

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

func TestClose(t *testing.T) {
	closing := func(r *rig) chan bool {
		c := make(chan bool, 1)
		go func() { c <- r.p.Close() }()
		synctest.Wait()
		return c
	}
	t.Run("lets the entry in flight resolve", func(t *testing.T) {
		inRig(t, func(r *rig) {
			a, f := r.inFlight("a")
			b := r.submit("b")
			c := closing(r)
			r.answered(b, 0, event.ErrNotReady)
			r.waits(a)
			r.answered(r.submit("c"), 0, event.ErrClosed)
			f.resolve(nil, nil)
			r.answered(a, 0, nil)
			if !<-c || !r.p.Close() {
				t.Error("something did not resolve")
			}
		})
	})
	t.Run("answers though a future never resolves", func(t *testing.T) {
		inRig(t, func(r *rig) {
			a, f := r.inFlight("a")
			c := closing(r)
			r.waits(a)
			if <-c { // virtual time passes
				t.Error("resolved out of nothing")
			}
			r.answered(a, 0, event.ErrOutcomeUnknown)
			f.resolve(nil, nil) // lets the bubble end
		})
	})
	t.Run("before there was a leader", func(t *testing.T) {
		inRig(t, func(r *rig) {
			a := r.submit("a")
			c := closing(r)
			r.answered(a, 0, event.ErrNotReady)
			r.next("").resolve(raft.ErrRaftShutdown, nil)
			<-c
		})
	})
}

func TestNothingIsLostOrDoubledUnderLoad(t *testing.T) {
	f := newFakeRaft()
	decider := &fakeDecider{room: 8, version: map[string]int64{}}
	p := New(f.dependencies(), decider, Options{})
	applied := map[string]int64{}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() { // refuses some entries, applies the others
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case next := <-f.proposals:
				if n%7 == 3 && next.entry != "" {
					next.resolve(nil, event.ErrEntryRefused)
					continue
				}
				for s := range strings.FieldsSeq(next.entry) {
					applied[s]++
				}
				next.resolve(nil, nil)
			case <-stop:
				return
			}
		}
	}()
	const writers, writes = 32, 50
	counts := make(chan int, writers)
	for w := range writers {
		go func() {
			done := 0
			for i := range writes {
				ctx, cancel := context.WithCancel(context.Background())
				if i%9 == 0 {
					cancel()
				}
				if _, err := p.Submit(ctx, &event.Write{Stream: fmt.Sprint("s", w)}); err == nil {
					done++
				}
				cancel()
			}
			counts <- done
		}()
	}
	sum := 0
	for range writers {
		sum += <-counts
	}
	p.Close()
	close(stop)
	<-ended
	total := int64(0)
	for _, n := range applied {
		total += n
	}
	check.Equal(t, int64(sum), total, sum, "acknowledged ... applied")
}
