package grpcapi

import (
	"errors"
	"fmt"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
)

// send answers writes until there are no more, or one of them ends the call.
func (b *batch) send() error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	draining := b.s.draining.Done()
	for {
		next, over, err := b.collect()
		if err != nil {
			return err
		}
		for _, w := range b.done {
			if w.decided {
				b.note(w)
			}
		}
		for _, w := range b.done {
			// Before the answer: who has it may send as much again.
			b.s.drop(&w.kept)
			if err := b.reply(w); err != nil {
				return err
			}
		}
		b.caller.flush()
		switch {
		case len(b.done) > 0:
			b.release()
			continue // More may have come meanwhile.
		case over && draining == nil:
			return event.ErrNotReady
		case over:
			return nil
		}
		timer.Reset(next)
		select {
		case <-b.wake:
		case <-timer.C:
		case <-draining:
			// Writes in flight are still answered.
			draining = nil
			b.stop()
		case <-b.ctx.Done():
			return b.ctx.Err()
		}
	}
}

// collect takes what there is to answer. It returns when something else may be late, and whether
// nothing more comes.
func (b *batch) collect() (next time.Duration, over bool, err error) {
	now := time.Now()
	next = time.Hour
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := b.underWay[:0]
	for _, w := range b.underWay {
		if w.pending != nil {
			var ok bool
			if w.written, w.err, ok = w.pending.Done(!now.Before(w.until)); !ok {
				rest = append(rest, w)
				continue
			}
			w.pending = nil
		}
		w.decided = true
		b.done = append(b.done, w)
	}
	clear(b.underWay[len(rest):])
	b.underWay = rest
	for id, w := range b.parts {
		if left := w.until.Sub(now); left > 0 {
			next = min(next, left)
			continue
		}
		delete(b.parts, id)
		b.partBytes -= w.entry
		if !w.ignored {
			b.parts[id] = w.rest()
			w.err = event.ErrWriteTimeout
			b.writes++
			b.bytes += w.entry
			b.done = append(b.done, w)
		}
	}
	return next, (b.received || b.closed) && len(b.underWay) == 0, b.err
}

// stop has nothing more begun.
func (b *batch) stop() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	bell.Ring(b.room)
}

// release makes room after answers were sent.
func (b *batch) release() {
	b.mu.Lock()
	b.writes -= len(b.done)
	for _, w := range b.done {
		b.bytes -= w.entry
	}
	b.mu.Unlock()
	clear(b.done)
	b.done = b.done[:0]
	bell.Ring(b.room)
}

// reply sends the answer to a write. The error is one that ends the call.
func (b *batch) reply(w *batchWrite) error {
	a := &batchAnswer{batchWrite: w}
	if w.err != nil {
		failure, err := b.failure(w)
		if err != nil {
			return err
		}
		if a.failure, err = proto.Marshal(failure); err != nil {
			return fmt.Errorf("answer a write: %w", err)
		}
	}
	if err := b.stream.SendMsg(a); err != nil {
		return received(b.ctx, err)
	}
	return nil
}

// failure is the answer to a write that was not done. Clients go by the name of its detail. The
// error is that of a write which ends the call, so that the client goes elsewhere.
func (b *batch) failure(w *batchWrite) (*rpc.Status, error) {
	code, detail := codes.InvalidArgument, proto.Message(nil)
	p, isProblem := errors.AsType[*problem](w.err)
	version, isVersion := errors.AsType[*event.WrongExpectedVersion](w.err)
	bad, isBad := errors.AsType[*event.BadRequest](w.err)
	switch {
	case isVersion:
		code, detail = codes.AlreadyExists, batchConflict(version)
	case isProblem && p.exception == exceptionLargeEvent:
		detail = &shared.MaximumAppendSizeExceeded{MaxAppendSize: uint32(b.s.opts.MaxEventBytes)}
	case isProblem && p.exception == exceptionLargeAppend, errors.Is(w.err, event.ErrTooLarge):
		detail = &shared.MaximumAppendSizeExceeded{MaxAppendSize: uint32(b.s.opts.MaxAppendBytes)}
	case isProblem && p.code == codes.InvalidArgument:
		detail = &shared.BadRequest{Message: p.text}
	case isBad:
		detail = &shared.BadRequest{Message: bad.Text}
	case errors.Is(w.err, event.ErrStreamDeleted):
		code, detail = codes.NotFound, &shared.StreamDeleted{StreamIdentifier: streamOf(w.Stream)}
	case errors.Is(w.err, event.ErrNotAuthorized):
		code, detail = codes.PermissionDenied, &shared.AccessDenied{}
	case errors.Is(w.err, event.ErrWriteTimeout), errors.Is(w.err, event.ErrOutcomeUnknown):
		code, detail = codes.DeadlineExceeded, &shared.Timeout{}
	default:
		return nil, w.err
	}
	packed, err := anypb.New(detail)
	if err != nil {
		return nil, fmt.Errorf("answer a write: %w", err)
	}
	name := string(detail.ProtoReflect().Descriptor().Name())
	return &rpc.Status{Code: int32(code), Message: name, Details: []*anypb.Any{packed}}, nil
}

func batchConflict(e *event.WrongExpectedVersion) *shared.WrongExpectedVersion {
	c := &shared.WrongExpectedVersion{}
	if e.Current < 0 {
		c.CurrentStreamRevisionOption = &shared.WrongExpectedVersion_CurrentNoStream{CurrentNoStream: &emptypb.Empty{}}
	} else {
		c.CurrentStreamRevisionOption = &shared.WrongExpectedVersion_CurrentStreamRevision{CurrentStreamRevision: uint64(e.Current)}
	}
	switch e.Expected {
	case event.AnyVersion:
		c.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedAny{ExpectedAny: &emptypb.Empty{}}
	case event.StreamExists:
		c.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedStreamExists{ExpectedStreamExists: &emptypb.Empty{}}
	case event.NoStream:
		c.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: &emptypb.Empty{}}
	default:
		c.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedStreamPosition{ExpectedStreamPosition: uint64(e.Expected)}
	}
	return c
}
