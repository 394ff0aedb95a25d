package integration_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/annalsdb/annals/internal/testkit"
)

// A write is one append and its outcome.
type write struct {
	stream   string
	expected int64
	single   bool
	events   []testkit.Event

	outcome outcome
	number  int64 // of the first event, when acknowledged
	answers []string
}

type outcome int

const (
	unknown outcome = iota
	acknowledged
	refused
)

func (w *write) String() string {
	return fmt.Sprintf("append of %d events to %s expecting %d, first id %s, answers %v", len(w.events), w.stream, w.expected, w.events[0].ID, w.answers)
}

// ledger is what the clients know: every write that was sent, and its outcome.
type ledger struct {
	mu      sync.Mutex
	writes  []*write
	acks    int
	waiters []waiter
	wrong   []string // contradictions seen by clients
}

type waiter struct {
	at   int
	done chan struct{}
}

func (l *ledger) begin(w *write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes = append(l.writes, w)
}

func (l *ledger) ack(w *write, number int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.outcome, w.number = acknowledged, number
	if w.expected >= -1 && number != w.expected+1 {
		l.wrong = append(l.wrong, fmt.Sprintf("%s was given the number %d", w, number))
	}
	l.acks++
	kept := l.waiters[:0]
	for _, one := range l.waiters {
		if l.acks >= one.at {
			close(one.done)
		} else {
			kept = append(kept, one)
		}
	}
	l.waiters = kept
}

func (l *ledger) refuse(w *write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.outcome = refused
}

func (l *ledger) complain(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// after returns a channel that closes when so many more writes are acknowledged.
func (l *ledger) after(n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	done := make(chan struct{})
	if n <= 0 {
		close(done)
	} else {
		l.waiters = append(l.waiters, waiter{l.acks + n, done})
	}
	return done
}

// acknowledgedSoFar copies the writes that have been acknowledged by now.
func (l *ledger) acknowledgedSoFar() []write {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []write
	for _, w := range l.writes {
		if w.outcome == acknowledged {
			all = append(all, *w)
		}
	}
	return all
}

// counts tells how many writes had which outcome.
func (l *ledger) counts() map[outcome]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[outcome]int{}
	for _, w := range l.writes {
		n[w.outcome]++
	}
	return n
}

type place struct {
	stream string
	number int64
}

func (p place) String() string { return fmt.Sprintf("%d@%s", p.number, p.stream) }

// mirror is the database as read back: all events in order.
type mirror struct {
	next    string // page of $all to continue with
	places  map[string]place
	streams map[string][]string // ids
}

func newMirror() *mirror {
	return &mirror{next: testkit.AllStart, places: map[string]place{}, streams: map[string][]string{}}
}

// advance reads what $all has beyond what the mirror holds: each event must
// follow the last of its stream, be there once, and carry its own data.
func (m *mirror) advance(ctx context.Context, p *testkit.Client) error {
	next, err := p.ReadAll(ctx, m.next, func(e testkit.Entry) error {
		if n := int64(len(m.streams[e.Stream])); e.Number != n {
			return fmt.Errorf("$all: event %s follows %d@%s", place{e.Stream, e.Number}, n-1, e.Stream)
		}
		if at, twice := m.places[e.ID]; twice {
			return fmt.Errorf("$all: event %s is there twice: %s and %s", e.ID, at, place{e.Stream, e.Number})
		}
		if !strings.HasPrefix(e.Stream, "$") && !strings.HasPrefix(e.Data, dataStart(e.ID)) {
			return fmt.Errorf("$all: event %s at %s has the data %.100q", e.ID, place{e.Stream, e.Number}, e.Data)
		}
		m.places[e.ID] = place{e.Stream, e.Number}
		m.streams[e.Stream] = append(m.streams[e.Stream], e.ID)
		return nil
	})
	m.next = next
	return err
}

// compareStreams reads every stream by itself: the index must tell what $all told.
func (m *mirror) compareStreams(ctx context.Context, p *testkit.Client) error {
	for stream, ids := range m.streams {
		if strings.HasPrefix(stream, "$") {
			continue
		}
		entries, err := p.ReadStream(ctx, stream, 0)
		if err != nil {
			return err
		}
		if len(entries) != len(ids) {
			return fmt.Errorf("%s has %d events, in $all it has %d", stream, len(entries), len(ids))
		}
		for i, e := range entries {
			if e.Number != int64(i) || e.ID != ids[i] {
				return fmt.Errorf("%s: event %d is %d with id %s, in $all its id is %s", stream, i, e.Number, e.ID, ids[i])
			}
		}
	}
	return nil
}

// holds checks writes that were acknowledged against the mirror.
func (m *mirror) holds(writes []write) error {
	for i := range writes {
		w := &writes[i]
		for k := range w.events {
			want := place{w.stream, w.number + int64(k)}
			if at, ok := m.places[w.events[k].ID]; !ok {
				return fmt.Errorf("acknowledged and lost: event %d, which should be %s, of %s", k, want, w)
			} else if at != want {
				return fmt.Errorf("acknowledged as %s and found at %s: event %d of %s", want, at, k, w)
			}
		}
	}
	return nil
}

// check holds everything that clients know against the mirror.
func (l *ledger) check(m *mirror) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wrong) > 0 {
		return fmt.Errorf("%d answers contradict what was asked:\n%s", len(l.wrong), strings.Join(l.wrong[:min(10, len(l.wrong))], "\n"))
	}
	known := 0
	for _, w := range l.writes {
		known += len(w.events)
		switch w.outcome {
		case acknowledged:
			if err := m.holds([]write{*w}); err != nil {
				return err
			}
		case refused, unknown:
			if err := m.wholeOrNot(w); err != nil {
				return err
			}
		}
	}
	found := 0
	for stream, ids := range m.streams {
		if !strings.HasPrefix(stream, "$") {
			found += len(ids)
		}
	}
	if found > known {
		return fmt.Errorf("there are %d events, but only %d were ever sent", found, known)
	}
	return nil
}

// wholeOrNot: a write that was refused is not there, one of unknown outcome is
// there as a whole or not at all.
func (m *mirror) wholeOrNot(w *write) error {
	first, there := m.places[w.events[0].ID]
	if there && w.outcome == refused {
		return fmt.Errorf("refused and yet there at %s: %s", first, w)
	}
	for k := range w.events {
		at, ok := m.places[w.events[k].ID]
		if ok != there || ok && at != (place{w.stream, first.number + int64(k)}) {
			return fmt.Errorf("written in part: event 0 at %s (there: %t), event %d at %s (there: %t): %s", first, there, k, at, ok, w)
		}
	}
	return nil
}

// checkNode reads everything from a node and checks it against the ledger.
func (l *ledger) checkNode(t *testing.T, p *testkit.Process) *mirror {
	t.Helper()
	m := newMirror()
	if err := m.advance(t.Context(), p.Client); err != nil {
		t.Fatalf("%v\n%s", err, p.Output())
	}
	if err := l.check(m); err != nil {
		t.Fatalf("%v\n%s", err, p.Output())
	}
	if err := m.compareStreams(t.Context(), p.Client); err != nil {
		t.Fatalf("%v\n%s", err, p.Output())
	}
	return m
}

func dataStart(id string) string { return `{"id":"` + id + `"` }
