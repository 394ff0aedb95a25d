package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
)

// pauses are those between the tries of a write. Even if every try fails at once
// they last longer than an election of 30 seconds.
var pauses = [...]time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}

// linkIDs is the name space of the ids of links: a link has the same id whoever
// writes it, so that it is written once.
var linkIDs = uuid.MustParse("5d1c3f0a-6f2b-4f43-9a4e-3f6c0b1d7e92")

// refused reports whether an error means that the cluster takes no writes at the
// moment, and that nothing was written. Waiting for that is no failure.
func refused(err error) bool {
	return errors.Is(err, event.ErrNotReady) || errors.Is(err, event.ErrBusy) || errors.Is(err, event.ErrDiskFull)
}

// final reports whether trying again is of no use.
func final(err error) bool {
	if refused(err) {
		return false // Whatever else is the matter with the node.
	}
	for _, e := range []error{event.ErrStreamDeleted, event.ErrStreamNotFound, event.ErrTooLarge, event.ErrNotAuthorized} {
		if errors.Is(err, e) {
			return true
		}
	}
	return event.IsCorruption(err)
}

// persist does something until it succeeds. What fails is tried again five
// times, with growing pauses; as long as the cluster takes no writes it waits. A
// Writer that is being closed does not try again.
func (w *Writer) persist(ctx context.Context, do func(ctx context.Context) error) error {
	failures, refusals := 0, 0
	for {
		attempt, cancel := context.WithTimeout(ctx, w.opts.WriteTimeout)
		err := do(attempt)
		cancel()
		if err == nil {
			if refusals > 0 {
				w.opts.Logger.Info("the history of scavenges is written again")
			}
			return nil
		}
		if ctx.Err() != nil || final(err) || w.isClosing() {
			return err
		}
		var pause time.Duration
		if refused(err) {
			if refusals == 0 {
				w.opts.Logger.Warn("the history of scavenges waits for the cluster to take writes", "error", err)
			}
			pause = pauses[min(refusals, len(pauses)-1)]
			refusals++
		} else {
			if failures == len(pauses) {
				return fmt.Errorf("after %d tries: %w", failures+1, err)
			}
			pause = pauses[failures]
			failures++
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-w.closing: // One more try, which is the last.
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return err
		}
	}
}

// write writes an event of a run, and the link to it.
func (w *Writer) write(ctx context.Context, it *item) error {
	r := it.run
	if !r.described {
		if err := w.describe(ctx, r.stream); err != nil {
			return err
		}
		r.described = true
	}
	written, err := w.append(ctx, r.stream, it.event)
	if err != nil || !it.boundary() {
		return err
	}
	if !r.indexDescribed {
		if err := w.describe(ctx, IndexStream); err != nil {
			return err
		}
		r.indexDescribed = true
	}
	link, err := w.link(ctx, r.stream, written.First)
	if err == nil && it.event.Type == TypeStarted {
		r.link = link
	}
	return err
}

// append appends an event to a stream, whatever its version: the event's id keeps
// it from being written twice.
func (w *Writer) append(ctx context.Context, stream string, e event.Proposed) (written event.Written, err error) {
	err = w.persist(ctx, func(ctx context.Context) (err error) {
		written, err = w.opts.Store.WriteOwn(ctx, &event.Write{
			Kind: event.Append, Stream: stream, ExpectedVersion: event.AnyVersion, Events: []event.Proposed{e},
		})
		return err
	})
	if err != nil {
		return written, fmt.Errorf("append to %s: %w", stream, err)
	}
	w.metrics.written.Inc()
	return written, nil
}

// link puts a link to an event of a run into IndexStream, and returns its number there.
func (w *Writer) link(ctx context.Context, stream string, number int64) (int64, error) {
	data := append(strconv.AppendInt(nil, number, 10), "@"+stream...)
	written, err := w.append(ctx, IndexStream, event.Proposed{ID: event.ID(uuid.NewSHA1(linkIDs, data)), Type: event.TypeLink, Data: data})
	return written.First, err
}

// describe makes the metadata of a stream what they are to be.
func (w *Writer) describe(ctx context.Context, stream string) error {
	err := w.persist(ctx, func(ctx context.Context) error { return w.describeOnce(ctx, stream) })
	if err != nil {
		return fmt.Errorf("metadata of %s: %w", stream, err)
	}
	return nil
}

func (w *Writer) describeOnce(ctx context.Context, stream string) error {
	info, err := w.opts.Store.StreamInfo(ctx, stream)
	if err != nil {
		return err
	}
	if info.HardDeleted {
		return event.ErrStreamDeleted
	}
	document := w.metadata()
	if info.MetaLast >= 0 {
		have, err := w.opts.Store.ReadEvent(ctx, event.MetaStreamOf(stream), info.MetaLast, false)
		switch {
		case errors.Is(err, event.ErrEventNotFound), errors.Is(err, event.ErrStreamNotFound):
		case err != nil:
			return err
		case sameMetadata(have.Data, document):
			return nil
		}
		// What somebody truncated or deleted is not shown again.
		if info.Metadata.TruncateBefore > 0 {
			document = event.WithTruncateBefore(document, info.Metadata.TruncateBefore)
		}
	}
	_, err = w.opts.Store.WriteOwn(ctx, &event.Write{
		Kind: event.Append, Stream: event.MetaStreamOf(stream), ExpectedVersion: info.MetaLast, Events: []event.Proposed{proposed(event.TypeMetadata, document)},
	})
	var conflict *event.WrongExpectedVersion
	if errors.As(err, &conflict) {
		// Another node, or an earlier try, has just described the stream. Here that may
		// not be seen yet; the next run compares again.
		return nil
	}
	return err
}

// metadata are those of all streams of the history: operators read them, nobody
// but administrators does anything else with them.
func (w *Writer) metadata() []byte {
	type acl struct {
		Read      string   `json:"$r"`
		Write     []string `json:"$w"`
		Delete    []string `json:"$d"`
		MetaRead  []string `json:"$mr"`
		MetaWrite []string `json:"$mw"`
	}
	none := []string{}
	return encode(struct {
		MaxAge int64 `json:"$maxAge"`
		ACL    acl   `json:"$acl"`
	}{max(1, int64(w.opts.MaxAge/time.Second)), acl{Read: "$ops", Write: none, Delete: none, MetaRead: none, MetaWrite: none}})
}

// sameMetadata compares documents, leaving aside where the stream is truncated.
func sameMetadata(have, want []byte) bool {
	var a, b map[string]any
	if json.Unmarshal(have, &a) != nil || json.Unmarshal(want, &b) != nil {
		return false
	}
	delete(a, event.KeyTruncateBefore)
	delete(b, event.KeyTruncateBefore)
	return reflect.DeepEqual(a, b)
}
