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

	// Metadata of the streams. Default: the events' age is limited by MaxAge, operators may read,
	// and all else is for administrators.
	Metadata     string
	KeepMetadata bool // a stream that has metadata keeps them
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

// Journal is one stream of records. Its metadata are set before its first record: nothing is
// written to a stream that everyone could read, or that would stay for ever. One goroutine at a
// time uses it.
type Journal struct {
	*Writer
	stream      string
	isDescribed bool
}

// Journal returns the journal of a stream.
func (w *Writer) Journal(stream string) *Journal { return &Journal{Writer: w, stream: stream} }

// NewJournal returns a journal whose records do not wait in a Queue.
func NewJournal(o Options, stream string) *Journal {
	o.EnsureDefaults()
	return (&Writer{opts: o}).Journal(stream)
}

// Append appends events to the stream with any version: their ids keep them from being written
// twice.
func (j *Journal) Append(ctx context.Context, events ...event.Proposed) (written event.Written, err error) {
	if err := j.Describe(ctx); err != nil {
		return written, err
	}
	err = j.Persist(ctx, func(ctx context.Context) (err error) {
		written, err = j.write(ctx, events)
		return err
	})
	if err != nil {
		return written, fmt.Errorf("append to %s: %w", j.stream, err)
	}
	return written, nil
}

// Try is Append that is tried once.
func (j *Journal) Try(ctx context.Context, events ...event.Proposed) error {
	if err := j.describe(ctx); err != nil {
		return fmt.Errorf("metadata of %s: %w", j.stream, err)
	}
	if _, err := j.write(ctx, events); err != nil {
		return fmt.Errorf("append to %s: %w", j.stream, err)
	}
	return nil
}

func (j *Journal) write(ctx context.Context, events []event.Proposed) (event.Written, error) {
	return j.opts.Store.WriteOwn(ctx, Append(j.stream, event.AnyVersion, events...))
}

// Describe sets the metadata of the stream, unless this journal did.
func (j *Journal) Describe(ctx context.Context) error {
	if j.isDescribed {
		return nil
	}
	if err := j.Persist(ctx, j.describe); err != nil {
		return fmt.Errorf("metadata of %s: %w", j.stream, err)
	}
	j.isDescribed = true
	return nil
}

func (j *Journal) describe(ctx context.Context) error {
	info, err := j.opts.Store.StreamInfo(ctx, j.stream)
	if err != nil {
		return err
	}
	if info.HardDeleted {
		return event.ErrStreamDeleted
	}
	if j.opts.KeepMetadata && info.MetaLast >= 0 {
		return nil
	}
	document := []byte(cmp.Or(j.opts.Metadata, fmt.Sprintf(`{"$maxAge":%d,%s}`, max(1, int64(j.opts.MaxAge/time.Second)), ACL)))
	if info.MetaLast >= 0 {
		have, err := j.opts.Store.ReadEvent(ctx, event.MetaStreamOf(j.stream), info.MetaLast, nil)
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
	_, err = j.opts.Store.WriteOwn(ctx, Append(event.MetaStreamOf(j.stream), info.MetaLast, Proposed(event.TypeMetadata, document)))
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
