package subscription

import (
	"context"
	"errors"
	"fmt"

	"github.com/annalsdb/annals/event"
)

// movedMark ends the stored strategy of a group whose source was changed. Versions that know no
// sources do not know such a strategy either, and leave the group alone: they would take its
// checkpoints for those of another stream. Do not change.
const movedMark = "@source"

// place is where a group began to read its present source: do not change.
type place struct {
	// Since tells the checkpoints of this source, which have the same number, from those of others:
	// they may even come later. It is the number of the event that stored the change, or 1.
	Since int64 `json:"since"`
	// After is the last number before the place, -1: the place is the start. nil: the group begins
	// as its settings say.
	After *int64 `json:"after,omitempty"`
}

// reads returns the key by which the numbers of what a group reads are written.
func (s *Settings) reads(k Key) Key {
	if s.Source != "" {
		k.Stream = s.Source
	}
	return k
}

// reads is the source of the group, as the key of a group of its own.
func (d *definition) reads() Key { return d.Settings.reads(d.Key) }

// Position is that of what the group reads.
func (d *definition) Position(number int64) string { return d.reads().Position(number) }

func (d *definition) parsePosition(text string) (int64, bool) { return d.reads().parsePosition(text) }

// Reads is the source of the group, as the key of a group of its own: its Position makes texts.
func (i *Info) Reads() Key { return i.Settings.reads(i.Key) }

// Position is that of what the group reads.
func (i *Info) Position(number int64) string { return i.Reads().Position(number) }

// SourceOf returns what a group reads: its own stream unless it was given another source.
func (s *Service) SourceOf(k Key) (string, error) {
	g, err := s.group(k)
	if err != nil {
		return "", err
	}
	return g.reads().Stream, nil
}

// keep fills in what an update leaves as it is.
func (s *Settings) keep(k Key, was *Settings) {
	switch s.Source {
	case "":
		s.Source = was.Source
	case k.Stream:
		s.Source = ""
	}
	switch isLog := s.reads(k).Stream == event.AllStream; {
	case s.Filter == nil && isLog:
		s.Filter = was.Filter
	case s.Filter != nil:
		if s.Filter = s.Filter.plain(); s.Filter.Regex == "" && len(s.Filter.Prefixes) == 0 {
			s.Filter = nil
		}
	}
}

// boundary is a place in the log: of what a group reads, all before it was answered, and what comes
// first after it was not.
type boundary struct {
	last  int64 // position of a record directly before it, -1: not known
	first int64 // if that is not known, a position at it
	// isStart is set if nothing was answered in a group that begins where its settings say.
	isStart bool
}

// boundary returns where the group is. The caller holds the group.
func (g *group) boundary(ctx context.Context) (b boundary, err error) {
	g.mu.Lock()
	number := g.core.next
	isAfter := g.source.all && number == g.source.begun
	for _, l := range []*list{&g.core.unanswered, &g.core.buffer} {
		if m := l.head; m != nil && (isAfter || m.number < number) {
			number, isAfter = m.number, false
		}
	}
	g.mu.Unlock()
	switch {
	case isAfter:
		return boundary{last: number}, nil
	case g.source.all:
		return boundary{last: -1, first: number}, nil
	case number == 0 && g.Settings.StartFrom >= 0:
		return boundary{isStart: true}, nil
	}
	for _, r := range []event.StreamRead{{From: number - 1, Backward: true}, {From: number}} {
		r.Stream, r.Count, r.MaxPayload = g.reads().Stream, 1, 1
		if r.From < 0 {
			continue
		}
		page, err := g.store.ReadStream(ctx, r)
		switch {
		case err != nil && !errors.Is(err, event.ErrStreamNotFound) && !errors.Is(err, event.ErrStreamDeleted):
			return b, fmt.Errorf("read stream %s: %w", r.Stream, err)
		case len(page.Events) > 0 && r.Backward:
			return boundary{last: page.Events[0].Position}, nil
		case len(page.Events) > 0:
			return boundary{last: -1, first: page.Events[0].Position}, nil
		}
	}
	return boundary{last: -1, first: g.store.LogEnd()}, nil // There never was one, or all are gone.
}

// move finds the place of a group in the source of its next definition. The caller holds the group.
func (d *definition) move(ctx context.Context, g *group) error {
	b, err := g.boundary(ctx)
	if err != nil || b.isStart {
		return err
	}
	s := newSource(&ownStreams{definition: d, store: g.store})
	after := b.last
	if !s.all || after < 0 {
		if b.last >= 0 {
			b.first = b.last + 1
		}
		after, _, err = s.find(ctx, Target{Kind: ToPosition, At: b.first})
	}
	d.place.After = &after
	return err
}
