package history_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/annalsdb/annals/event"
)

// database decides writes as the product does: expected versions, ids of events
// that were written before, deletions. It is what the nodes of a cluster agree on.
type database struct {
	mu      sync.Mutex
	streams map[string][]event.Record
	ids     map[string]map[event.ID]int64 // of each stream, with the numbers of the events
	deleted map[string]bool
	leader  chan struct{} // closed while there is a leader
	writes  []attempt     // that reached the leader or a failure

	// fail, if not nil, is asked about each write that reaches the leader. An error
	// fails it, before it is done or when it is done.
	fail func(w *event.Write) (before, after error)
}

// attempt is a write that was tried.
type attempt struct {
	at     time.Time
	stream string
	typ    string
}

func newDatabase() *database {
	d := &database{streams: map[string][]event.Record{}, ids: map[string]map[event.ID]int64{}, deleted: map[string]bool{}, leader: make(chan struct{})}
	close(d.leader)
	return d
}

// lead sets whether there is a leader.
func (d *database) lead(is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if is {
		close(d.leader)
	} else {
		d.leader = make(chan struct{})
	}
}

func (d *database) failing(fail func(w *event.Write) (before, after error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = fail
}

func (d *database) tries() []attempt {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.writes)
}

// info tells about a stream of which the first so many events and metadata are seen.
func (d *database) info(stream string, records, metas []event.Record) event.StreamInfo {
	i := event.StreamInfo{Last: int64(len(records)) - 1, MetaLast: int64(len(metas)) - 1, HardDeleted: d.deleted[stream]}
	if len(metas) > 0 {
		i.Metadata = event.ParseMetadata(metas[len(metas)-1].Data)
	}
	return i
}

// write decides a write that has reached the leader.
func (d *database) write(w *event.Write) (event.Written, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes = append(d.writes, attempt{time.Now(), w.Stream, w.Events[0].Type})
	var before, after error
	if d.fail != nil {
		before, after = d.fail(w)
	}
	if before != nil {
		return event.Written{}, before
	}
	written, err := d.decide(w)
	if err == nil && after != nil {
		return event.Written{}, after
	}
	return written, err
}

func (d *database) decide(w *event.Write) (event.Written, error) {
	last := int64(len(d.streams[w.Stream])) - 1
	if d.deleted[event.OriginalOf(w.Stream)] {
		return event.Written{}, event.ErrStreamDeleted
	}
	wrong := &event.WrongExpectedVersion{Stream: w.Stream, Expected: w.ExpectedVersion, Current: last}
	was, again := d.ids[w.Stream][w.Events[0].ID]
	switch {
	case len(w.Events) != 1 || w.Kind != event.Append || w.Events[0].ID.IsZero():
		return event.Written{}, errors.New("not a write of the history")
	case w.ExpectedVersion == event.AnyVersion:
		if again {
			return event.Written{First: was, Last: was, Idempotent: true}, nil
		}
	case w.ExpectedVersion > last || w.ExpectedVersion < event.NoStream:
		return event.Written{}, wrong
	case w.ExpectedVersion < last:
		if again && was == w.ExpectedVersion+1 {
			return event.Written{First: was, Last: was, Idempotent: true}, nil
		}
		return event.Written{}, wrong
	}
	if metas := d.streams[event.MetaStreamOf(w.Stream)]; len(metas) > 0 {
		document := metas[len(metas)-1].Data
		// Writing shows the stream again, from here on.
		if m := event.ParseMetadata(document); m.SoftDeleted() {
			d.add(event.MetaStreamOf(w.Stream), event.Proposed{ID: event.ID{1}, Type: event.TypeMetadata, Data: event.WithTruncateBefore(document, last+1)})
		}
	}
	d.add(w.Stream, w.Events[0])
	return event.Written{First: last + 1, Last: last + 1}, nil
}

func (d *database) add(stream string, e event.Proposed) {
	if d.ids[stream] == nil {
		d.ids[stream] = map[event.ID]int64{}
	}
	d.ids[stream][e.ID] = int64(len(d.streams[stream]))
	d.streams[stream] = append(d.streams[stream], event.Record{
		Stream: stream, Number: int64(len(d.streams[stream])), ID: e.ID, Type: e.Type, Time: time.Now().UnixNano(), Flags: e.Flags, Data: e.Data, Metadata: e.Metadata,
	})
}

// put writes an event as an operator or another node does.
func (d *database) put(stream, typ, data string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(stream, event.Proposed{ID: event.ID{2}, Type: typ, Flags: event.FlagJSON, Data: []byte(data)})
}

func (d *database) events(stream string) []event.Record {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.streams[stream])
}

// node is the database as one node sees it.
type node struct {
	*database
	mu    sync.Mutex
	seen  map[string]int // of a node that lags: how many events of each stream it has
	deny  error          // of everything, as of a node that is not ready
	delay time.Duration  // that a write takes
	// not nil: writes hang until the channel is closed, whatever their context says
	patience func() chan struct{}
}

// lag freezes what the node sees, or lets it catch up.
func (n *node) lag(is bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.database.mu.Lock()
	defer n.database.mu.Unlock()
	n.seen = nil
	if is {
		n.seen = map[string]int{}
		for stream, records := range n.streams {
			n.seen[stream] = len(records)
		}
	}
}

func (n *node) refuse(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deny = err
}

func (n *node) refusal() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.deny
}

func (n *node) WriteOwn(ctx context.Context, w *event.Write) (event.Written, error) {
	if err := n.refusal(); err != nil {
		return event.Written{}, err
	}
	if n.patience != nil {
		<-n.patience()
		return event.Written{}, event.ErrOutcomeUnknown
	}
	n.database.mu.Lock()
	leader := n.leader
	n.database.mu.Unlock()
	select {
	case <-leader:
	case <-ctx.Done():
		return event.Written{}, event.ErrNotReady
	}
	timer := time.NewTimer(n.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return event.Written{}, event.ErrWriteTimeout
	}
	return n.write(w)
}

// look returns what the node sees of a stream. The locks are held.
func (n *node) look(stream string) []event.Record {
	records := n.streams[stream]
	if n.seen != nil {
		records = records[:n.seen[stream]]
	}
	return records
}

func (n *node) StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error) {
	if err := errors.Join(n.refusal(), ctx.Err()); err != nil {
		return event.StreamInfo{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.database.mu.Lock()
	defer n.database.mu.Unlock()
	return n.info(stream, n.look(stream), n.look(event.MetaStreamOf(stream))), nil
}

func (n *node) ReadEvent(ctx context.Context, stream string, number int64, _ event.LinkReader) (event.Resolved, error) {
	if err := errors.Join(n.refusal(), ctx.Err()); err != nil {
		return event.Resolved{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.database.mu.Lock()
	defer n.database.mu.Unlock()
	record, err := n.one(stream, number)
	return event.Resolved{Record: record}, err
}

// one returns an event if the metadata of its stream let it be seen. The locks are held.
func (n *node) one(stream string, number int64) (event.Record, error) {
	records := n.look(stream)
	info := n.info(stream, records, n.look(event.MetaStreamOf(stream)))
	switch {
	case info.HardDeleted:
		return event.Record{}, event.ErrStreamDeleted
	case !info.Exists():
		return event.Record{}, event.ErrStreamNotFound
	case number < info.Metadata.MinVisible(info.Last) || number > info.Last:
		return event.Record{}, event.ErrEventNotFound
	case info.Metadata.MaxAge > 0 && time.Since(records[number].When()) > info.Metadata.MaxAge:
		return event.Record{}, event.ErrEventNotFound
	}
	return records[number], nil
}

func (n *node) ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error) {
	if err := errors.Join(n.refusal(), ctx.Err()); err != nil {
		return event.StreamPage{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.database.mu.Lock()
	defer n.database.mu.Unlock()
	info := n.info(r.Stream, n.look(r.Stream), n.look(event.MetaStreamOf(r.Stream)))
	if info.HardDeleted {
		return event.StreamPage{}, event.ErrStreamDeleted
	}
	if !info.Exists() {
		return event.StreamPage{}, event.ErrStreamNotFound
	}
	page := event.StreamPage{Stream: r.Stream, From: r.From, Last: info.Last, Min: info.Metadata.MinVisible(info.Last), Metadata: info.Metadata}
	step := int64(1)
	if r.Backward {
		step = -1
		if page.From == event.Head {
			page.From = page.Last
		}
	}
	end := page.From + step*int64(r.Count)
	for number := page.From; number != end; number += step {
		if number < 0 || number > page.Last {
			page.End = true
			break
		}
		record, err := n.one(r.Stream, number)
		if err != nil {
			page.End = page.End || r.Backward
			continue
		}
		e := event.Resolved{Record: record}
		if target, stream, ok := event.ParseLink(record.Data); ok && r.Links != nil && record.Type == event.TypeLink {
			e.Link, e.TargetNumber, e.TargetStream = event.LinkDead, target, stream
			if to, err := n.one(stream, target); err == nil {
				e.Link, e.Target = event.LinkResolved, &to
			}
		}
		page.Events = append(page.Events, e)
	}
	if r.Backward {
		page.End = page.End || end+1 <= page.Min
	} else {
		page.End = page.End || end > page.Last
	}
	page.SetNext(&r)
	return page, nil
}
