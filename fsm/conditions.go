package fsm

import (
	"fmt"
	"slices"

	"github.com/annalsdb/annals/event"
)

// conditions judges the conditions of a write against what is applied and what was decided since.
// done is the answer where one of them fails by an event of this very write, which was done before.
func (d *Decider) conditions(v *event.Violations) (done *event.Written, err error) {
	conditions := d.many.w.Many.Conditions
	if len(conditions) == 0 {
		return nil, nil
	}
	begun := d.now()
	if d.building {
		d.pending.build(d.first, d.buf[entryHead:])
	}
	for i := range conditions {
		c := &conditions[i]
		if last := max(d.end()-1, 0); c.After > last {
			return nil, &event.BadRequest{Text: fmt.Sprintf("Position %d lies beyond the end of the log.", c.After)}
		}
		from, err := d.from(c)
		if err != nil {
			return nil, err
		}
		hit, err := d.log.FirstMatch(&c.Query, from, d.shows)
		if err == nil && hit == nil {
			hit, err = d.pending.first(&c.Query, c.After, d.shows)
		} else if err == nil {
			if done, err = d.before(hit); done != nil {
				d.metrics.repeat(d.many.w)
				return done, nil
			}
		}
		if err != nil {
			return nil, err
		}
		if hit != nil {
			v.Conditions = append(v.Conditions, event.Conflict{Index: i, Event: *hit})
		}
	}
	d.metrics.judge(len(conditions), len(v.Conditions), d.now().Sub(begun))
	return nil, nil
}

// from is where to look for events that fail a condition: where the first look ended, unless
// metadata may show what it passed over.
func (d *Decider) from(c *event.Condition) (int64, error) {
	if c.Looked == nil {
		return c.After + 1, nil
	}
	for _, p := range c.Looked.Passed {
		f, err := d.manyFacts(p.Stream)
		if err != nil {
			return 0, err
		}
		if f.MetaLast != p.MetaLast {
			return c.After + 1, nil
		}
	}
	return max(c.After+1, c.Looked.Clear), nil
}

// shows reports whether reads show an event as things were decided, and find it.
func (d *Decider) shows(hit *event.Hit) (bool, error) {
	if hit.ByLabels && d.pending.withdraws(hit) {
		return false, nil
	}
	f, err := d.manyFacts(hit.Stream)
	if err != nil {
		return false, err
	}
	return f.Exists() && hit.Number >= f.Metadata.MinVisible(f.Last) && hit.Time >= f.Metadata.Oldest(d.now()), nil
}

// before returns the answer of an earlier write of the same events, of which one was found, however
// long ago: they follow one another in the log.
func (d *Decider) before(hit *event.Hit) (*event.Written, error) {
	w := d.many.w
	i := slices.IndexFunc(w.Events, func(e event.Proposed) bool { return e.ID == hit.ID })
	for i >= 0 && w.StreamOf(i) != hit.Stream {
		next := slices.IndexFunc(w.Events[i+1:], func(e event.Proposed) bool { return e.ID == hit.ID })
		if next < 0 {
			return nil, nil
		}
		i += 1 + next
	}
	if i < 0 {
		return nil, nil
	}
	list, err := d.log.Around(hit.Position, i, len(w.Events)-1-i)
	if err != nil || len(list) != len(w.Events) {
		return nil, err
	}
	spans := make([]event.Span, len(w.Many.Streams))
	for n := range list {
		if list[n].ID != w.Events[n].ID || list[n].Stream != w.StreamOf(n) {
			return nil, nil
		}
		span := &spans[w.Many.Of[n]]
		if span.Last = list[n].Number; n == slices.Index(w.Many.Of, w.Many.Of[n]) {
			span.First = list[n].Number
		}
	}
	return &event.Written{Idempotent: true, Position: list[len(list)-1].Position, Streams: spans}, nil
}
