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
	// they may even come later. It is one more than the number of the event that stored the change.
	Since int64 `json:"since"`
	// After is the last number before the place, -1: the place is the start. nil: the group begins
	// as its settings say.
	After *int64 `json:"after,omitempty"`
	// Log is the same in the log: the source may have nothing that names it. nil with After.
	Log *boundary `json:"log,omitempty"`
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
	if s.reads(k) != was.reads(k) && s.StartFrom == was.StartFrom {
		s.StartFrom = min(s.StartFrom, 0) // A number says nothing of another source.
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
// first after it was not. It is stored: do not change.
type boundary struct {
	Last  int64 `json:"last"`            // position of a record directly before it, -1: not known
	First int64 `json:"first,omitempty"` // if that is not known, a position at it
}

// boundary returns where the group is; nil: nothing was answered, and the group begins where its
// settings say. The caller holds the group.
func (g *group) boundary(ctx context.Context) (*boundary, error) {
	g.mu.Lock()
	// In the log, this may be an event that the filter left out.
	answered, _, at := g.core.answered()
	number := g.core.next
	for _, l := range []*list{&g.core.unanswered, &g.core.buffer} {
		if m := l.head; m != nil && m.number < number {
			number = m.number
		}
	}
	g.mu.Unlock()
	after := g.place.After
	switch {
	case after != nil && answered == *after:
		return g.place.Log, nil // Nothing was answered since.
	case g.source.all && answered >= 0:
		return &boundary{Last: answered}, nil
	case g.source.all:
		return &boundary{Last: -1, First: number}, nil
	case number == 0 && after == nil && g.Settings.StartFrom >= 0:
		return nil, nil
	case at >= 0:
		return &boundary{Last: at}, nil
	}
	for _, r := range []event.StreamRead{{From: number - 1, Backward: true}, {From: number}} {
		r.Stream, r.Count, r.MaxPayload = g.reads().Stream, 1, 1
		if r.From < 0 {
			continue
		}
		page, err := g.store.ReadStream(ctx, r)
		switch {
		case err != nil && !errors.Is(err, event.ErrStreamNotFound) && !errors.Is(err, event.ErrStreamDeleted):
			return nil, fmt.Errorf("read stream %s: %w", r.Stream, err)
		case len(page.Events) > 0 && r.Backward:
			return &boundary{Last: page.Events[0].Position}, nil
		case len(page.Events) > 0:
			return &boundary{Last: -1, First: page.Events[0].Position}, nil
		}
	}
	if answered >= 0 {
		return nil, &SettingsError{Plain: true, Text: "The place of the group in another source is not known: the last event that was answered is gone."}
	}
	return &boundary{Last: -1, First: g.store.LogEnd()}, nil // There never was one.
}

// move finds the place of a group in the source of its next definition. The caller holds the group.
func (d *definition) move(ctx context.Context, g *group) error {
	b, err := g.boundary(ctx)
	if err != nil || b == nil {
		return err
	}
	s := newSource(&ownStreams{definition: d, store: g.store})
	after := b.Last
	if !s.all || after < 0 {
		first := b.First
		if b.Last >= 0 {
			first = b.Last + 1
		}
		after, _, err = s.find(ctx, Target{Kind: ToPosition, At: first})
	}
	d.place.After, d.place.Log = &after, b
	return err
}
