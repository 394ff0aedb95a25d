package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"
)

// readKind is which of the reads of a known layout a workload does.
type readKind int

const (
	readEvent readKind = iota
	readPage
	notModified
)

var readNames = [...]string{readEvent: "read-event", readPage: "read-page", notModified: "not-modified"}

// reading is the workloads read-event, read-page and not-modified.
type reading struct {
	o    *options
	kind readKind
	part int

	ensured bool                     // the layout is known to be there
	perPage int64                    // events of a page, counted once in setup
	tags    []atomic.Pointer[[]byte] // ETag of every stream, for not-modified
}

func (w *reading) layout() layout {
	return layout{prefix: w.o.prefix, streams: w.o.streams, events: int64(w.o.streams) * w.o.eventsPerStream}
}

func (w *reading) parts() []string { return []string{readNames[w.kind]} }

// samples is how many streams setup looks at when it does not write them.
const samples = 16

func (w *reading) setup(ctx context.Context, s *session) error {
	if !w.ensured {
		if err := ensureLayout(ctx, s, w.layout()); err != nil {
			return err
		}
	}
	switch {
	case w.o.grpc: // It counts what comes.
	case w.kind == readPage:
		op := w.operation(0, 1).(*readOp)
		op.req.keep = true
		op.target(1)
		err := withInterrupt(ctx, s, func(ctx context.Context, c *sender) error { return c.expect(ctx, &op.req, &op.resp, 200) })
		if err != nil {
			return fmt.Errorf("read a page of %s: %w", (&layout{prefix: w.o.prefix}).stream(1), err)
		}
		w.perPage = int64(countEntries(op.resp.body))
	case w.kind == notModified:
		w.tags = make([]atomic.Pointer[[]byte], w.o.streams+1)
		return s.each(ctx, func(ctx context.Context, worker int, c *sender) error {
			op := w.operation(worker, len(s.clients)).(*readOp)
			for i := worker + 1; i <= w.o.streams && ctx.Err() == nil; i += len(s.clients) {
				op.target(i)
				if err := c.expect(ctx, &op.req, &op.resp, 200); err != nil {
					return fmt.Errorf("read the head of a stream for its ETag: %w", err)
				}
				if len(op.resp.etag) == 0 {
					return errors.New("the head of a stream has no ETag: not-modified cannot be measured here")
				}
				w.learn(i, op.resp.etag)
			}
			return nil
		})
	}
	return nil
}

// ensureLayout writes the layout, with --prepare, or proves on a sample that it is there.
func ensureLayout(ctx context.Context, s *session, l layout) error {
	if s.o.prepare {
		return prepare(ctx, s, &filling{l: l})
	}
	rng := newRand(s.o, 0, 200)
	return withInterrupt(ctx, s, func(ctx context.Context, c *sender) error {
		req := s.o.get(typeJSON)
		var resp response
		for n := range samples {
			i := 1 + rng.IntN(l.streams)
			switch n {
			case 0:
				i = 1
			case 1:
				i = l.streams
			}
			number := l.eventsOf(i) - 1
			req.path = []byte("/streams/" + escapeStream(l.stream(i)) + "/" + strconv.FormatInt(number, 10))
			if err := c.do(ctx, &req, &resp); err != nil {
				return err
			}
			if resp.status != 200 {
				return fmt.Errorf("stream %s has no event %d (%w): write what is to be read with --prepare, or with fill and the same --prefix, --streams and number of events",
					l.stream(i), number, refused(&resp))
			}
		}
		return nil
	})
}

// withInterrupt calls f with the first client and ends it when ctx does.
func withInterrupt(ctx context.Context, s *session, f func(ctx context.Context, c *sender) error) error {
	return s.each(ctx, func(ctx context.Context, worker int, c *sender) error {
		if worker > 0 {
			return nil
		}
		return f(ctx, c)
	})
}

// prepare writes a layout before a measurement, with a session of its own.
func prepare(ctx context.Context, s *session, work *filling) error {
	o := *s.o
	o.rate, o.count = 0, 0
	o.workers = min(o.workers, work.l.streams)
	work.o = &o
	fill, err := openSession(ctx, &o, "prepare", work, s.log)
	if err != nil {
		return err
	}
	defer fill.close()
	total := newRecorder(1)
	if _, err := fill.runFor(ctx, 24*time.Hour, 0, total); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if got := total.whole(1).events; got < work.l.events {
		return fmt.Errorf("prepare: only %d of %d events were written", got, work.l.events)
	}
	return nil
}

func (w *reading) learn(stream int, tag []byte) {
	kept := bytes.Clone(tag)
	w.tags[stream].Store(&kept)
}

func (w *reading) operation(worker, _ int) operation {
	if w.o.grpc {
		return newReadCall(w, newRand(w.o, worker, w.part))
	}
	accept := typeAtom
	if w.kind == readEvent {
		accept = typeJSON
	}
	r := &readOp{w: w, rng: newRand(w.o, worker, w.part), names: escapeStream(w.o.prefix), req: w.o.get(accept)}
	r.fixed = len(r.req.head)
	r.tail = "/head/backward/" + strconv.Itoa(w.o.page) + "?embed=body"
	return r
}

// readOp reads from random streams of the layout.
type readOp struct {
	w     *reading
	rng   *rand.Rand
	names string
	tail  string
	fixed int // bytes of header lines that never change

	req  request
	resp response
}

// target makes the request read a stream.
func (r *readOp) target(stream int) {
	p := appendStream(append(r.req.path[:0], "/streams/"...), r.names, stream)
	switch r.w.kind {
	case readEvent:
		p = append(p, '/')
		p = strconv.AppendInt(p, r.rng.Int64N(r.w.o.eventsPerStream), 10)
	case readPage:
		p = append(p, r.tail...)
	}
	r.req.path = p
}

func (r *readOp) do(ctx context.Context, c *sender) (outcome, error) {
	stream := 1 + r.rng.IntN(r.w.o.streams)
	r.target(stream)
	if r.w.kind == notModified {
		r.req.head = append(r.req.head[:r.fixed], "If-None-Match: "...)
		r.req.head = append(r.req.head, *r.w.tags[stream].Load()...)
		r.req.head = append(r.req.head, "\r\n"...)
		err := c.expect(ctx, &r.req, &r.resp, 304)
		if _, answered := errors.AsType[*statusError](err); answered && r.resp.status == 200 && len(r.resp.etag) > 0 {
			// A client appended to the stream. An answer other than 304 still counts as an error.
			r.w.learn(stream, r.resp.etag)
		}
		return outcome{part: r.w.part}, err
	}
	if err := c.expect(ctx, &r.req, &r.resp, 200); err != nil {
		return outcome{}, err
	}
	out := outcome{part: r.w.part, events: 1, bytes: r.resp.length}
	if r.w.kind == readPage {
		out.events = r.w.perPage
	}
	return out, nil
}
