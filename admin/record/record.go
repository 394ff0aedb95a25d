// Package record writes what a node did into streams of the database that operators read. A write
// is tried again for as long as that can help; only administrators can change what was written.
package record

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// Store is the database. Writes may be done by another node; reads are answered by this one, which
// may lag.
type Store interface {
	// WriteOwn does a write of the node's own, wherever the leader is. While there is
	// no leader it tries again until ctx ends.
	WriteOwn(ctx context.Context, w *event.Write) (event.Written, error)
	StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error)
	ReadEvent(ctx context.Context, stream string, number int64, links event.LinkReader) (event.Resolved, error)
}

// Options say how records are written. Store and What are required.
type Options struct {
	Store   Store
	Logger  hclog.Logger
	What    string        // is written, as log lines name it: "the history of scavenges"
	MaxAge  time.Duration // for which it is kept, default 30 days
	Timeout time.Duration // of one try, default 5 seconds
}

// EnsureDefaults sets the fields that are zero.
func (o *Options) EnsureDefaults() {
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
	if o.MaxAge <= 0 {
		o.MaxAge = 30 * 24 * time.Hour
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
}

// Writer writes records, and retries until its Queue is closed.
type Writer struct {
	opts    Options
	closing chan struct{} // closed when nothing is retried any more
}

// pauses are the pauses between the tries of a write. Even if every try fails at once they last
// longer than an election of 30 seconds.
var pauses = [...]time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}

// Refused reports whether an error means that the cluster takes no writes at the moment, and that
// nothing was written. Waiting for that is not a failure.
func Refused(err error) bool {
	return errors.Is(err, event.ErrNotReady) || errors.Is(err, event.ErrBusy) || errors.Is(err, event.ErrDiskFull)
}

// Final reports whether a retry cannot help.
func Final(err error) bool {
	if Refused(err) {
		return false // Even if the error has a second cause.
	}
	for _, e := range []error{event.ErrStreamDeleted, event.ErrStreamNotFound, event.ErrTooLarge, event.ErrNotAuthorized} {
		if errors.Is(err, e) {
			return true
		}
	}
	return event.IsCorruption(err)
}

// Persist calls do until it succeeds. A failure is retried five times, with growing pauses; as long
// as the cluster takes no writes, Persist waits. A Writer that is being closed does not retry.
func (w *Writer) Persist(ctx context.Context, do func(ctx context.Context) error) error {
	failures, refusals := 0, 0
	for {
		attempt, cancel := context.WithTimeout(ctx, w.opts.Timeout)
		err := do(attempt)
		cancel()
		if err == nil {
			if refusals > 0 {
				w.opts.Logger.Info(w.opts.What + " is written again")
			}
			return nil
		}
		if ctx.Err() != nil || Final(err) || w.Closing() {
			return err
		}
		var pause time.Duration
		if Refused(err) {
			if refusals == 0 {
				w.opts.Logger.Warn(w.opts.What+" waits for the cluster to take writes", logkey.Error, err)
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

// Append appends events to a stream with any version: their ids keep them from being written
// twice.
func (w *Writer) Append(ctx context.Context, stream string, events ...event.Proposed) (written event.Written, err error) {
	err = w.Persist(ctx, func(ctx context.Context) (err error) {
		written, err = w.opts.Store.WriteOwn(ctx, Append(stream, event.AnyVersion, events...))
		return err
	})
	if err != nil {
		return written, fmt.Errorf("append to %s: %w", stream, err)
	}
	return written, nil
}

// Describe sets the metadata of a stream: they limit the age of its events, let operators read them
// and leave everything else to administrators.
func (w *Writer) Describe(ctx context.Context, stream string) error {
	return w.describe(ctx, stream, false)
}

// Begin is Describe for a stream that has no metadata yet: existing metadata stay.
func (w *Writer) Begin(ctx context.Context, stream string) error {
	return w.describe(ctx, stream, true)
}

func (w *Writer) describe(ctx context.Context, stream string, once bool) error {
	err := w.Persist(ctx, func(ctx context.Context) error { return w.describeOnce(ctx, stream, once) })
	if err != nil {
		return fmt.Errorf("metadata of %s: %w", stream, err)
	}
	return nil
}

func (w *Writer) describeOnce(ctx context.Context, stream string, once bool) error {
	info, err := w.opts.Store.StreamInfo(ctx, stream)
	if err != nil {
		return err
	}
	if info.HardDeleted {
		return event.ErrStreamDeleted
	}
	if once && info.MetaLast >= 0 {
		return nil
	}
	document := w.metadata()
	if info.MetaLast >= 0 {
		have, err := w.opts.Store.ReadEvent(ctx, event.MetaStreamOf(stream), info.MetaLast, nil)
		switch {
		case errors.Is(err, event.ErrEventNotFound), errors.Is(err, event.ErrStreamNotFound):
		case err != nil:
			return err
		case sameMetadata(have.Data, document):
			return nil
		}
		// Events that an administrator truncated or deleted are not shown again.
		if info.Metadata.TruncateBefore > 0 {
			document = event.WithTruncateBefore(document, info.Metadata.TruncateBefore)
		}
	}
	_, err = w.opts.Store.WriteOwn(ctx, Append(event.MetaStreamOf(stream), info.MetaLast, Proposed(event.TypeMetadata, document)))
	var conflict *event.WrongExpectedVersion
	if errors.As(err, &conflict) {
		// Another node, or an earlier try, has just described the stream. Here that may
		// not be seen yet; the next run compares again.
		return nil
	}
	return err
}

// ACL is the member of a stream's metadata that lets operators read it and leaves everything else
// to administrators.
const ACL = `"$acl":{"$r":"$ops","$w":[],"$d":[],"$mr":[],"$mw":[]}`

func (w *Writer) metadata() []byte {
	return fmt.Appendf(nil, `{"$maxAge":%d,%s}`, max(1, int64(w.opts.MaxAge/time.Second)), ACL)
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

// Proposed is a new event of JSON.
func Proposed(typ string, data []byte) event.Proposed {
	return event.Proposed{ID: event.ID(uuid.New()), Type: typ, Flags: event.FlagJSON, Data: data}
}

// Append is the write of events to a stream whose last event is expected to have a number.
func Append(stream string, expected int64, events ...event.Proposed) *event.Write {
	return &event.Write{Kind: event.Append, Stream: stream, ExpectedVersion: expected, Events: events}
}

// Clip is the beginning of a text, at most so many bytes of it, that ends with a whole character.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// Encode writes a payload. Its types cannot fail to be encoded.
func Encode(payload any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(payload); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Closing reports whether the Queue was closed. Waiting items are then still written, if that
// succeeds at once.
func (w *Writer) Closing() bool {
	select {
	case <-w.closing:
		return true
	default:
		return false
	}
}
