package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// pageSize is how many events are read at a time.
const pageSize = 100

// CloseInterrupted completes the runs of this node's endpoint that have no last event, except those
// that running knows and those that this Writer has begun. It continues after a run that cannot be
// completed, and returns all errors.
//
// It reads this node's log, which has to have caught up. As long as the cluster
// takes no writes it waits, until ctx ends or the Writer is closed; so does its
// caller.
func (w *Writer) CloseInterrupted(ctx context.Context, running func(id event.ID) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.records.Context, cancel)()
	open, err := w.unfinished(ctx)
	if err != nil {
		return fmt.Errorf("look for interrupted scavenges: %w", err)
	}
	var all []error
	for _, id := range slices.Backward(open) { // the oldest first
		if w.isLive(id) || running != nil && running(id) {
			continue
		}
		if err := w.complete(ctx, id); err != nil {
			w.metrics.failed.Inc()
			all = append(all, fmt.Errorf("complete the interrupted scavenge %s: %w", id, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(all...)
}

// unfinished returns the runs of this endpoint of which IndexStream has the first
// event and not the last, the newest first. As the stream is read backward,
// only the runs that overlap are remembered.
func (w *Writer) unfinished(ctx context.Context) (open []event.ID, err error) {
	endpoint := w.opts.Endpoint()
	ended := map[event.ID]struct{}{}
	for from := event.Head; ; {
		var page event.StreamPage
		err := w.records.Persist(ctx, func(ctx context.Context) (err error) {
			page, err = w.opts.Store.ReadStream(ctx, event.StreamRead{Stream: IndexStream, From: from, Count: pageSize, Backward: true, Links: event.EveryLink})
			if errors.Is(err, event.ErrStreamNotFound) || errors.Is(err, event.ErrStreamDeleted) {
				page, err = event.StreamPage{End: true, Next: -1}, nil
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", IndexStream, err)
		}
		for i := range page.Events {
			e := page.Events[i].Event()
			id, ok := runOf(e.Stream)
			if !ok || e.Type != TypeStarted && e.Type != TypeCompleted || read(e).NodeEndpoint != endpoint {
				continue
			}
			if e.Type == TypeCompleted {
				ended[id] = struct{}{}
			} else if _, ok := ended[id]; ok {
				delete(ended, id)
			} else {
				open = append(open, id)
			}
		}
		if from = page.Next; page.End {
			return open, nil
		}
	}
}

// complete writes the last event of an interrupted run, and the link to it. If
// only the link is missing, because the node ended between the two, it writes that.
func (w *Writer) complete(ctx context.Context, id event.ID) error {
	stream := StreamOf(id)
	if err := w.records.Journal(stream).Describe(ctx); err != nil {
		return err
	}
	var number int64
	err := w.records.Persist(ctx, func(ctx context.Context) error {
		s, err := w.sumUp(ctx, stream)
		if err != nil {
			return err
		}
		if number = s.completed; number >= 0 {
			return nil
		}
		data := Completed{
			ScavengeID: id, NodeEndpoint: w.opts.Endpoint(), Result: Failed, Error: errorInterrupted,
			Took: Ticks(s.lastTime - s.firstTime), Saved: s.saved, MaxChunk: s.maxChunk,
		}
		// The version keeps it from being written twice, if the same node looked before
		// and this one does not see yet what came of it.
		written, err := w.opts.Store.WriteOwn(ctx, record.Append(stream, s.last, record.Proposed(TypeCompleted, record.Encode(data))))
		if err != nil {
			return err
		}
		w.metrics.written.Inc()
		w.opts.Logger.Info("a scavenge was interrupted by a restart of the node", logkey.ID, id, logkey.Saved, s.saved)
		number = written.First
		return nil
	})
	if err != nil {
		return fmt.Errorf("append to %s: %w", stream, err)
	}
	_, err = w.link(ctx, w.records.Journal(IndexStream), stream, number)
	return err
}

// sum is what the events of a run say together.
type sum struct {
	// of the first and of the last event: how long the run is known to have lasted
	firstTime, lastTime int64
	last                int64 // number of the last event
	// number of the event that says that the run ended, -1 if there is none
	completed int64
	saved     int64
	maxChunk  int
}

func (w *Writer) sumUp(ctx context.Context, stream string) (sum, error) {
	s := sum{last: -1, completed: -1}
	first := true
	for from := int64(0); ; {
		page, err := w.opts.Store.ReadStream(ctx, event.StreamRead{Stream: stream, From: from, Count: pageSize})
		if err != nil {
			return s, err
		}
		s.last, from = page.Last, page.Next
		for i := range page.Events {
			e := &page.Events[i].Record
			if first {
				s.firstTime, first = e.Time, false
			}
			s.lastTime = e.Time
			s.add(e)
		}
		if page.End {
			return s, nil
		}
	}
}

// add takes an event into account.
func (s *sum) add(e *event.Record) {
	switch data := read(e); e.Type {
	case TypeCompleted:
		s.completed = e.Number
	case TypeChunksCompleted:
		s.maxChunk = max(s.maxChunk, data.ChunkEndNumber)
		s.saved += data.SpaceSaved
	case TypeMergeCompleted, TypeIndexCompleted:
		s.saved += data.SpaceSaved
	}
}

// payload is what counts of the events of a run.
type payload struct {
	NodeEndpoint   string `json:"nodeEndpoint"`
	SpaceSaved     int64  `json:"spaceSaved"`
	ChunkEndNumber int    `json:"chunkEndNumber"`
}

// read decodes an event. One that cannot be read, as after a redaction, says nothing.
func read(e *event.Record) (p payload) {
	if json.Unmarshal(e.Data, &p) != nil {
		return payload{}
	}
	return p
}
