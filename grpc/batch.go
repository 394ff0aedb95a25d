package grpcapi

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/clock"
)

// Bounds of one call of BatchAppend.
const (
	maxBatchWrites = 1000     // in flight, and as many again that are incomplete
	maxBatchBytes  = 16 << 20 // of those in flight, about
	maxPartBytes   = 64 << 20 // of those that are not whole, about
	batchMemory    = time.Minute
)

// batch is one call of BatchAppend, which carries many appends.
//
// Its method sends the answers. A second goroutine receives: it puts the requests of a write
// together and begins it, so that writes are decided in the order in which they became whole. It
// stops receiving while too much is in flight. It ends with the stream, which ends at the latest
// when the method returns.
type batch struct {
	s      *Server
	stream grpc.BidiStreamingServer[streams.BatchAppendReq, streams.BatchAppendResp]
	caller *call
	ctx    context.Context // ends when the method returns
	wake   chan struct{}   // capacity 1: the method is to look what there is to send
	room   chan struct{}   // capacity 1: something was answered

	forwarding bool // the writes in flight were forwarded; used by the receiver only
	forwards   forwards

	mu        sync.Mutex // guards the fields below
	parts     map[event.ID]*batchWrite
	partBytes int64
	underWay  []*batchWrite
	writes    int   // in flight, or being answered
	bytes     int64 // of these
	received  bool  // nothing more comes
	err       error // why, nil when the client has ended its half
	closed    bool  // nothing more is begun: the node stops, or the method has ended

	// The method's, for its memory.
	done []*batchWrite
}

// batchWrite is one append of a batch.
type batchWrite struct {
	appending
	correlation []byte  // an id as it came
	identifier  *string // of the stream, as it came; nil: it had none
	limited     *clock.Deadline
	until       time.Time // when limited ends

	pending api.Pending // nil: written and err stand
	written event.Written
	err     error

	decided bool // it was begun, and what became of it is known
	ignored bool // it was answered before it was whole: the rest of it is ignored
}

// BatchAppend does the writes that it receives and answers each when it is decided.
func (v *streamsService) BatchAppend(stream grpc.BidiStreamingServer[streams.BatchAppendReq, streams.BatchAppendResp]) error {
	release, err := v.s.take(stream.Context(), api.Batch)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithCancel(stream.Context())
	b := &batch{
		s: v.s, stream: stream, caller: callOf(ctx), ctx: ctx,
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), parts: map[event.ID]*batchWrite{},
	}
	b.forwards.last = map[string]*forwarded{}
	defer b.close(cancel)
	go b.receive()
	return b.send()
}

// close leaves writes in flight alone, and waits for those that were forwarded.
func (b *batch) close(cancel context.CancelFunc) {
	cancel()
	b.mu.Lock()
	b.closed = true
	cut := b.underWay
	for _, w := range cut {
		if w.pending != nil {
			_, w.err, _ = w.pending.Done(true)
		}
		b.s.drop(&w.kept)
	}
	for _, w := range b.done { // The rest of them, when one could not be sent.
		b.s.drop(&w.kept)
	}
	for _, w := range b.parts {
		b.s.drop(&w.kept)
	}
	b.mu.Unlock()
	for _, w := range cut {
		b.note(w)
	}
	b.forwards.running.Wait()
}

// note has what became of a write recorded, if it is of the kind. It may wait.
func (b *batch) note(w *batchWrite) {
	b.s.records.noteAppend(b.caller, streams.Streams_BatchAppend_FullMethodName, &w.appending, w.err)
}

// receive takes requests until there are no more, or one ends the call.
func (b *batch) receive() {
	err := b.s.guard(streams.Streams_BatchAppend_FullMethodName, func() error {
		var r batchRequest
		for {
			err := b.stream.RecvMsg(&r)
			if err == io.EOF {
				return nil
			} else if err != nil {
				return received(b.ctx, err)
			}
			if err := b.take(&r); err != nil {
				return err
			}
		}
	})
	b.mu.Lock()
	if !b.closed { // Else the method ends without it.
		b.received, b.err = true, err
	}
	b.mu.Unlock()
	bell.Ring(b.wake)
}

// take takes one request. The error is one that ends the call.
func (b *batch) take(r *batchRequest) error {
	id, err := r.id.get()
	if err != nil {
		return err
	}
	w := b.resume(id)
	switch {
	case w == nil && !r.hasOptions:
		return nil
	case w == nil:
		w = &batchWrite{correlation: r.correlation, identifier: r.options.stream}
		w.err = b.open(w, &r.options)
	case w.ignored && r.isFinal:
		return nil
	case w.ignored:
		return b.keep(id, w)
	}
	for i := range r.events {
		if w.err != nil {
			break
		}
		if i == 0 && w.Events == nil && len(r.events) > 1 {
			w.Events = make([]event.Proposed, 0, len(r.events))
		}
		w.err = b.s.add(b.caller, &w.appending, &r.events[i])
	}
	if w.err == nil && !r.isFinal {
		return b.keep(id, w)
	}
	r.forget() // It may take a while.
	if w.err != nil {
		w.Events = nil
	}
	if err := b.begin(w); err != nil || r.isFinal {
		return err
	}
	return b.keep(id, w.rest())
}

// open begins a write with its options: what they are, the rights, the time.
func (b *batch) open(w *batchWrite, o *appendOptions) error {
	allowed, timeErr := b.allowed(o)
	w.limited = clock.NewDeadline(b.ctx, allowed)
	w.until, _ = w.limited.Deadline()
	if err := o.aim(&w.appending); err != nil {
		return err
	}
	w.Late = true
	if timeErr != nil {
		return timeErr
	}
	if err := b.s.authorize(b.ctx, w.Stream, access.WriteRight); err != nil {
		return err
	}
	if allowed <= 0 {
		return event.ErrWriteTimeout
	}
	return nil
}

// allowed is how long a write may take.
func (b *batch) allowed(o *appendOptions) (time.Duration, error) {
	most := b.s.opts.WriteTimeout
	long := durationpb.Duration{Seconds: o.until.seconds, Nanos: o.until.nanos}
	at := timestamppb.Timestamp{Seconds: o.until.seconds, Nanos: o.until.nanos}
	switch {
	case o.deadline == 0:
		return most, nil
	case o.deadline == isDeadline && long.IsValid():
		return min(most, long.AsDuration()), nil
	case o.deadline == isDeadlineAt && at.IsValid():
		return min(most, at.AsTime().Sub(b.s.opts.Now())), nil
	}
	return most, invalid("the deadline is not valid")
}

// rest is what remains of a write that was answered before it was whole.
func (w *batchWrite) rest() *batchWrite {
	return &batchWrite{ignored: true, until: w.until.Add(batchMemory)}
}

// resume takes a write that is not whole out of those; nil when there is none.
func (b *batch) resume(id event.ID) *batchWrite {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.parts[id]
	if w != nil {
		delete(b.parts, id)
		b.partBytes -= w.entry
	}
	return w
}

// keep puts a write that is not whole among those. The client may not have too many.
func (b *batch) keep(id event.ID, w *batchWrite) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.parts) >= maxBatchWrites || b.partBytes+w.entry > maxPartBytes {
		b.s.drop(&w.kept)
		return event.ErrBusy
	}
	b.parts[id] = w
	b.partBytes += w.entry
	bell.Ring(b.wake) // It has a time.
	return nil
}

// begin has a write done, or a failed one answered, once there is room.
func (b *batch) begin(w *batchWrite) error {
	forward := b.forwarding
	if w.err == nil {
		forward = b.elsewhere()
	}
	for {
		b.mu.Lock()
		// Forwarded writes and writes that this node decides could overtake each other.
		if b.closed || b.writes == 0 || b.forwarding == forward && b.writes < maxBatchWrites && b.bytes+w.entry <= maxBatchBytes {
			break
		}
		b.mu.Unlock()
		select {
		case <-b.room:
		case <-b.ctx.Done():
			b.s.drop(&w.kept)
			return b.ctx.Err()
		}
	}
	defer b.mu.Unlock()
	if b.closed {
		b.s.drop(&w.kept)
		return event.ErrClosed
	}
	b.forwarding = forward
	if w.err == nil {
		w.end, w.err = b.s.opts.Begin(api.RecordsAppend(w.Stream))
	}
	switch {
	case w.err != nil:
	case forward:
		w.pending = b.forwards.begin(b.s.opts.Store, w.limited, &w.Write, b.wake)
	default:
		w.pending, w.err = b.s.opts.Store.Begin(w.limited, &w.Write, b.wake)
	}
	if w.err != nil {
		w.pending = nil
		bell.Ring(b.wake)
	}
	b.underWay = append(b.underWay, w)
	b.writes++
	b.bytes += w.entry
	return nil
}

// elsewhere reports whether writes are to be taken to the leader now.
func (b *batch) elsewhere() bool {
	_, elsewhere := b.s.opts.Cluster.Redirect()
	return elsewhere && !b.caller.leader
}
