package output

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/position"
)

// accessList is the access list of a stream that a projection writes to. It is part of the
// contract: do not change.
func accessList(stream string) string {
	if event.IsSystemStream(stream) {
		return `{"$r":"$all","$mr":"$all"}`
	}
	return `{}`
}

// maxPage bounds how much is read of a stream at a time.
const (
	pageEvents = 256
	pageBytes  = 1 << 20
)

// look reads the end of a stream before the first write to it, in the order of the contract.
func (o *Output) look(s *stream) error {
	if err := o.mayWrite(s); err != nil {
		return err
	}
	info, err := o.info(o.ctx, s.name)
	if err != nil {
		return err
	}
	if info.HardDeleted {
		return deletedFault(s.name)
	}
	s.last = info.Last
	last, err := o.lastEvent(s.name, &info)
	if err != nil {
		return err
	}
	if last == nil {
		return o.begin(s, &info)
	}
	s.last = max(s.last, last.Number)
	at, isOld, err := o.judge(last)
	var foreign *foreignEvent
	if errors.As(err, &foreign) {
		if isOld, err = o.isBeforeReset(last); err == nil && !isOld {
			err = foreign.fault
		}
		if isOld && o.opts.Passed != nil {
			o.opts.Passed(fmt.Sprintf("The event %d@%s was written from the outside before the reset. The stream continues after it.", last.Number, last.Stream))
		}
	}
	if err != nil {
		return err
	}
	if isOld {
		return o.truncate(s, &info)
	}
	if o.tracker != nil {
		if err := o.tracker.add(s.name); err != nil {
			return err
		}
	}
	s.lastAt = &at
	if isBehind(at, *s.from) {
		s.recovery, err = o.findRecovery(s, last)
	}
	return err
}

// judgeEvery is how often the right to write to a stream is looked at again.
const judgeEvery = time.Second

// mayWrite looks at the right to write to a stream, unless that was done within the last second.
func (o *Output) mayWrite(s *stream) error {
	if o.opts.MayWrite == nil || time.Since(s.judged) < judgeEvery {
		return nil
	}
	err := o.tries(o.ctx, func() error { return o.opts.MayWrite(o.ctx, s.name) })
	if errors.Is(err, event.ErrNotAuthorized) {
		return notAuthorizedFault(s.name)
	} else if err != nil {
		return storageError("right to write to", s.name, err)
	}
	s.judged = time.Now()
	return nil
}

// lastEvent returns the last event that a reader of a stream sees; nil: there is none.
func (o *Output) lastEvent(stream string, info *event.StreamInfo) (*event.Record, error) {
	if !info.Exists() || info.Metadata.MinVisible(info.Last) > info.Last {
		return nil, nil
	}
	var e event.Resolved
	err := o.tries(o.ctx, func() (err error) {
		e, err = o.store.ReadEvent(o.ctx, stream, event.Head, nil)
		return err
	})
	switch {
	case isAbsent(err):
		return nil, nil
	case errors.Is(err, event.ErrStreamDeleted):
		return nil, deletedFault(stream)
	case err != nil:
		return nil, storageError("read the last event of", stream, err)
	}
	return &e.Record, nil
}

// foreignEvent is that the last event of a stream is none of a projection.
type foreignEvent struct{ fault error }

func (e *foreignEvent) Error() string { return e.fault.Error() }

// isBeforeReset reports whether an event lies before the last reset of the projection, which
// writes all of its streams again.
func (o *Output) isBeforeReset(e *event.Record) (bool, error) {
	if o.opts.Version.Epoch < 0 {
		return false, nil
	}
	reset, err := o.read(o.ctx, o.opts.Streams.of(""), o.opts.Version.Epoch)
	if err != nil || reset == nil { // Without a known reset event nothing is overwritten.
		return false, err
	}
	return e.Position < reset.Position, nil
}

// judge says whether the last event of a stream is ours, and where it was
// emitted. isOld says that it is from before a reset, or from an earlier run of a query.
func (o *Output) judge(e *event.Record) (at position.Position, isOld bool, err error) {
	ours := o.opts.Version
	if len(e.Metadata) == 0 {
		return at, false, &foreignEvent{outsideFault(ours.Projection, e)}
	}
	at, v, err := position.ParseStored(e.Metadata)
	switch {
	case errors.Is(err, position.ErrNoVersion) && o.opts.Volatile:
		return at, true, nil
	case errors.Is(err, position.ErrNoVersion):
		return at, false, &foreignEvent{outsideFault(ours.Projection, e)}
	case err != nil:
		return at, false, &foreignEvent{invalidFault(e)}
	case v.Projection != ours.Projection:
		return at, false, multipleFault(e.Stream, v.Projection, ours.Projection)
	}
	return at, o.opts.Volatile || !ours.IsOurs(v) || at.Phase != 0, nil
}

// begin prepares a stream that has nothing to be seen. Metadata that the stream had before stay.
func (o *Output) begin(s *stream, info *event.StreamInfo) error {
	if o.tracker != nil {
		if err := o.tracker.add(s.name); err != nil {
			return err
		}
	}
	if event.IsMetaStream(s.name) || info.MetaLast >= 0 && !info.Metadata.SoftDeleted() {
		return nil
	}
	return o.writeMetadata(s.name, info.MetaLast, event.WithAccessList(nil, accessList(s.name)))
}

// truncate hides all events of a stream. What else its metadata say stays.
func (o *Output) truncate(s *stream, info *event.StreamInfo) error {
	if event.IsMetaStream(s.name) {
		return nil
	}
	var e event.Resolved
	if info.MetaLast >= 0 {
		err := o.tries(o.ctx, func() (err error) {
			e, err = o.store.ReadEvent(o.ctx, event.MetaStreamOf(s.name), info.MetaLast, nil)
			return err
		})
		if err != nil && !isAbsent(err) {
			return storageError("read metadata of", s.name, err)
		}
	}
	return o.writeMetadata(s.name, info.MetaLast, event.WithTruncateBefore(event.WithAccessList(e.Data, accessList(s.name)), s.last+1))
}

func (o *Output) writeMetadata(stream string, expected int64, document []byte) error {
	w := metadataWrite(stream, expected, document)
	if _, err := o.write(o.ctx, w); err != nil {
		return writeError(stream, err)
	}
	return nil
}

func metadataWrite(stream string, expected int64, document []byte) *event.Write {
	return &event.Write{Stream: event.MetaStreamOf(stream), ExpectedVersion: expected,
		Events: []event.Proposed{{ID: newID(), Type: event.TypeMetadata, Flags: event.FlagJSON, Data: document}}}
}

func newID() event.ID { return event.ID(uuid.New()) }
