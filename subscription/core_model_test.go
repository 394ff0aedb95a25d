package subscription

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/annalsdb/annals/event"
)

// promise is what a consumer may expect of one message of a core that is driven at random.
type promise struct {
	label     string // by which the strategy keeps an order
	retries   int
	out       bool
	isReplay  bool
	notBefore time.Time // it is not handed out before
	isDelayed bool      // for certain, until then
	isDone    bool
}

// TestCoreModel drives a core with consumers and readers by random inputs, next to a model that
// knows for each message since when it may be handed out.
func TestCoreModel(t *testing.T) {
	for range 5 { // It is fast.
		rapid.Check(t, func(r *rapid.T) { runCoreModel(t, r) })
	}
}

func runCoreModel(t *testing.T, r *rapid.T) {
	strategy := rapid.SampledFrom([]Strategy{RoundRobin, DispatchToSingle, Pinned, PinnedByCorrelation}).Draw(r, "strategy")
	l := newTrial(t, func(s *Settings) {
		s.Strategy = strategy
		s.MaxRetryCount, s.MessageTimeout = 2, 10*time.Second
		s.BufferSize, s.ReadBatchSize = 6, 2
		s.RetryDelay = rapid.SampledFrom([]time.Duration{0, time.Second, 15 * time.Second}).Draw(r, "delay")
		s.RetryBackoff = rapid.SampledFrom([]Backoff{{}, {Factor: 4, AtMost: 20 * time.Second}}).Draw(r, "backoff")
		s.MaxCheckpointCount, s.CheckpointAtLeastEvery = 3, rapid.SampledFrom([]time.Duration{0, 2 * time.Second}).Draw(r, "checkpoints")
	})
	c, s := &l.c, l.c.settings
	all := map[int64]*promise{}
	end, replays, names, isPaused := int64(0), int64(5000), 0, false
	var parking []*message

	// handed judges what a consumer gets.
	handed := func(got []Message) {
		for _, m := range got {
			n, p := m.Event.Number, all[m.Event.Number]
			switch {
			case isPaused:
				r.Fatalf("%d was handed out in a pause", n)
			case p.isDone || p.out:
				r.Fatalf("%d was handed out though it is answered or out: %+v", n, *p)
			case l.now.Before(p.notBefore):
				r.Fatalf("%d was handed out %s early", n, p.notBefore.Sub(l.now))
			case m.Retries != p.retries:
				r.Fatalf("%d has %d retries, want %d", n, m.Retries, p.retries)
			}
			for before, other := range all {
				if before < n && strategy != RoundRobin && other.label == p.label && !p.isReplay && !other.isReplay && other.isDelayed && l.now.Before(other.notBefore) {
					r.Fatalf("%d of %q was handed out while %d is delayed until %s", n, p.label, before, other.notBefore)
				}
			}
			p.out, p.isDelayed = true, false
		}
	}
	// failed is what a message that goes back means.
	failed := func(n int64, delay time.Duration) {
		p := all[n]
		if p.out = false; p.retries < s.MaxRetryCount {
			p.retries++
			p.notBefore, p.isDelayed = l.now.Add(delay), delay > 0
		}
	}
	// settle does what follows from an input.
	settle := func() {
		e := c.settle(l.now)
		if len(e.park) > 0 {
			parking = e.park
		}
		for _, to := range e.pushed {
			var got []Message
			for _, m := range to.unread {
				got = append(got, m.handed())
			}
			to.unread = nil
			handed(got)
		}
		if e.trim > 0 {
			c.copied.trimmed(e.trim)
		}
		if e.checkpoint {
			number, seq := c.position()
			for n, p := range all {
				if n <= number && !p.isDone && !p.isReplay {
					r.Fatalf("checkpoint %d, but %d has no answer", number, n)
				}
			}
			c.checkpointed(number, seq, l.now)
		}
		if e.exact.IsZero() && len(c.due) > 0 {
			r.Fatal("a message is delayed, and no alarm is set")
		}
		l.verify()
	}
	// expire is what a tick does to messages that are out.
	expire := func() {
		for m := c.out.head; m != nil && !c.deadline(m).After(l.now); m = c.out.next(m) {
			failed(m.event.Number, s.delay(m.retries+1))
		}
		c.tick(l.now)
		settle()
	}
	outstanding := func() (ns []int64) {
		for n, p := range all {
			if p.out {
				ns = append(ns, n)
			}
		}
		return slices.Sorted(slices.Values(ns))
	}
	some := func(r *rapid.T) []event.ID {
		ns := outstanding()
		if len(ns) == 0 {
			r.Skip("none is out")
		}
		var ids []event.ID
		for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom(ns), 1, 3, rapid.ID).Draw(r, "some") {
			ids = append(ids, idOf(n))
		}
		return ids
	}
	number := func(id event.ID) int64 { return int64(id[15]) | int64(id[14])<<8 }

	// read reads events that are there, as many as there is room for.
	read := func() {
		var texts []string
		for n := c.next; n < min(end, c.next+2, c.next+int64(c.beginPage())); n++ {
			texts = append(texts, fmt.Sprintf("%d=%s", n, all[n].label))
		}
		if c.reading = false; len(texts) > 0 {
			b := page(texts)
			c.add(&b, func(e *event.Record) int64 { return e.Number }, 0)
		}
		settle()
	}

	actions := map[string]func(*rapid.T){
		"append": func(r *rapid.T) {
			p := &promise{label: "s"}
			if strategy == PinnedByCorrelation {
				p.label = rapid.SampledFrom([]string{"x", "y", "z"}).Draw(r, "label")
			}
			all[end] = p
			if end++; c.errand() == readPage {
				read()
			}
		},
		"read": func(r *rapid.T) {
			if c.errand() != readPage || c.next == end {
				r.Skip("no room, or nothing new")
			}
			read()
		},
		"replay": func(r *rapid.T) {
			all[replays] = &promise{isReplay: true}
			c.addReplays([]replayed{{number: replays, event: page([]string{fmt.Sprint(replays)}).events[0]}}, 0)
			replays++
			settle()
		},
		"reset": func(r *rapid.T) {
			if c.parking.n > 0 || rapid.IntRange(0, 3).Draw(r, "rarely") > 0 {
				r.Skip("some are being parked")
			}
			to := rapid.Int64Range(0, end).Draw(r, "to")
			for n, p := range all {
				if !p.isReplay {
					*p = promise{label: p.label, isDone: n < to}
				}
			}
			c.reset(to-1, to, l.now)
			settle()
		},
		"give": func(r *rapid.T) {
			handed(c.give(nil, rapid.IntRange(1, 5).Draw(r, "n"), l.now))
			settle()
		},
		"ack": func(r *rapid.T) {
			ids := some(r)
			for _, id := range ids {
				p := all[number(id)]
				p.isDone, p.out = true, false
			}
			c.ack(ids, l.now)
			settle()
		},
		"nack": func(r *rapid.T) {
			ids := some(r)
			after := rapid.SampledFrom([]*time.Duration{nil, nil, new(time.Duration(0)), new(time.Second), new(time.Minute)}).Draw(r, "after")
			for _, id := range ids {
				delay := s.delay(all[number(id)].retries + 1)
				if after != nil {
					delay = *after
				}
				failed(number(id), delay)
			}
			c.nack(ids, Retry, "", after, l.now)
			settle()
		},
		"park": func(r *rapid.T) {
			ids := some(r)
			for _, id := range ids {
				all[number(id)].out = false
			}
			c.nack(ids, Park, "", nil, l.now)
			settle()
		},
		"parked": func(r *rapid.T) {
			if len(parking) == 0 {
				r.Skip("nothing is being parked")
			}
			ok := rapid.Bool().Draw(r, "ok")
			for _, m := range parking {
				all[m.event.Number].isDone = ok
			}
			c.parked(parking, ok, l.now)
			parking = nil
			settle()
		},
		"pass": func(r *rapid.T) {
			l.now = l.now.Add(time.Duration(rapid.IntRange(1, 12_000).Draw(r, "ms")) * time.Millisecond)
			expire()
		},
		"join": func(r *rapid.T) {
			name := fmt.Sprint(names)
			names++
			l.consumers[name] = &consumer{most: rapid.IntRange(1, 3).Draw(r, "slots")}
			c.join(l.consumers[name])
			settle()
		},
		"leave": func(r *rapid.T) {
			if len(l.consumers) == 0 {
				r.Skip("no consumer")
			}
			name := rapid.SampledFrom(slices.Sorted(maps.Keys(l.consumers))).Draw(r, "who")
			from := l.consumers[name]
			delete(l.consumers, name)
			for m := c.out.head; m != nil; m = c.out.next(m) {
				if m.to == from {
					failed(m.event.Number, 0)
				}
			}
			c.leave(from, l.now)
			settle()
		},
		"pause":  func(*rapid.T) { isPaused = true; c.pause(&Pause{}, l.now); settle() },
		"resume": func(*rapid.T) { isPaused = false; c.pause(nil, l.now); settle() },
	}
	r.Repeat(actions)

	isPaused = false
	c.pause(nil, l.now)
	for range 50 { // All that is there is handed out and answered within a while.
		for c.errand() == readPage && c.next < end {
			read()
		}
		settle()
		handed(c.give(nil, 100, l.now))
		for _, n := range outstanding() {
			all[n].isDone, all[n].out = true, false
			c.ack([]event.ID{idOf(n)}, l.now)
		}
		if len(parking) > 0 {
			for _, m := range parking {
				all[m.event.Number].isDone = true
			}
			c.parked(parking, true, l.now)
			parking = nil
		}
		l.now = l.now.Add(2 * time.Second)
		expire()
	}
	for n, p := range all {
		if !p.isDone {
			r.Fatalf("%d was lost: %+v", n, *p)
		}
	}
}
