package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
)

// maxAttempts bounds how often one request that must succeed is sent again.
const maxAttempts = 12

// insist sends a request until the answer is one for good. It returns errCut at the end of the run;
// after any other error it makes no sense to continue.
func (c *sender) insist(ctx context.Context, req *request, resp *response) error {
	for attempt := 0; ; attempt++ {
		err := c.do(ctx, req, resp)
		if err == nil && (resp.status >= 500 || resp.status == 408 || resp.status == 429) {
			err = refused(resp)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil || errors.Is(err, errCut):
			return errCut
		case attempt >= maxAttempts:
			return err
		case clock.Sleep(ctx, backoff(attempt)) != nil:
			return errCut
		}
	}
}

// filling is the workload that writes a layout: fill, and --prepare. All events go to one stream
// when it is given.
func filling(o *options, l layout, only string) *workload {
	batch := max(1, o.batch)
	return &workload{name: "fill", operation: func(worker, workers int) operation {
		return &fillOp{
			o: o, l: l, only: only, batch: int64(batch), stream: worker + 1, step: workers, worker: worker,
			body: newBatchBody(batch, o.size, newRand(o, worker, 0)), req: o.request("POST", "Content-Type: "+typeEvents),
		}
	}}
}

// prepare writes a layout before a measurement, with a session of its own.
func prepare(ctx context.Context, s *session, l layout, only string) error {
	o := *s.o
	o.rate, o.maxCount = 0, 0
	o.workers = min(o.workers, l.streams)
	work := filling(&o, l, only)
	work.name = "prepare"
	fill, err := openSession(ctx, &o, work, s.log)
	if err != nil {
		return err
	}
	total := newRecorder(1)
	_, err = fill.runFor(ctx, maxFill, 0, total)
	if err = errors.Join(err, fill.close()); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if got := total.whole(1).events; got < l.events {
		return fmt.Errorf("prepare: only %d of %d events were written", got, l.events)
	}
	return nil
}

// fillOp writes the streams worker+1, worker+1+step, ...: a batch to each, then the next batch to
// each, so that events of one stream lie as far apart as those of a database that grew.
type fillOp struct {
	o            *options
	l            layout
	only         string
	batch        int64
	worker, step int
	stream       int
	from         int64

	body *batchBody
	req  request
	resp response
}

func (f *fillOp) do(ctx context.Context, c *sender) (outcome, error) {
	name, to, ok := f.next()
	if !ok {
		return outcome{}, errFinished
	}
	if f.from == 0 && f.o.maxCount > 0 {
		if err := f.limit(ctx, c, name); err != nil {
			return outcome{}, err
		}
	}
	if err := f.write(ctx, c, name, f.from, to); err != nil {
		return outcome{}, err
	}
	f.stream += f.step
	n := to - f.from
	return outcome{events: n, bytes: n * int64(f.o.size)}, nil
}

// limit gives a stream its $maxCount. The id is the same with every run: repeated soon, it writes
// nothing.
func (f *fillOp) limit(ctx context.Context, c *sender, stream string) error {
	f.req.path = []byte("/streams/" + inPath(stream) + "/metadata")
	f.req.head = f.req.head[:0]
	f.req.body = fmt.Appendf(nil, `[%s%s","eventType":"$metadata","data":{"$maxCount":%d}}]`,
		batchHead, fixedID(hashOf("$$"+stream), f.o.maxCount), f.o.maxCount)
	err := c.insist(ctx, &f.req, &f.resp)
	if err == nil && f.resp.status != 201 && f.resp.status != 200 {
		err = refused(&f.resp)
	}
	if err != nil && err != errCut {
		return &fatalError{fmt.Errorf("limit stream %s: %w", stream, err)}
	}
	return err
}

// write makes the stream have the events from up to, and without, to: what an earlier run of the
// same layout wrote stays.
func (f *fillOp) write(ctx context.Context, c *sender, stream string, from, to int64) error {
	hash := hashOf(stream)
	for {
		f.req.path = append(append(f.req.path[:0], "/streams/"...), inPath(stream)...)
		f.req.head = f.req.head[:0]
		f.req.expect(from - 1)
		f.req.body = f.body.of(int(to-from), func(i int) event.ID { return fixedID(hash, from+int64(i)) })
		err := c.insist(ctx, &f.req, &f.resp)
		current := f.resp.version
		switch {
		case err == errCut:
			return err
		case err != nil:
		case f.resp.status == 201 || f.resp.status == 200:
			return nil
		case f.resp.status != 400 || current == noVersion:
			err = refused(&f.resp)
		case current < from:
			err = &versionConflict{from - 1, current}
		case current >= to-1:
			return nil
		default:
			// Others wrote to the stream as well. What is there counts; what is missing comes after
			// it.
			from = current + 1
			continue
		}
		return &fatalError{fmt.Errorf("append to stream %s: %w", stream, err)}
	}
}

// next returns the batch that is due.
func (f *fillOp) next() (stream string, to int64, ok bool) {
	for {
		if f.stream > f.l.streams {
			// The first stream of a share is never shorter than the others.
			f.stream = f.worker + 1
			f.from += f.batch
			if f.stream > f.l.streams || f.from >= f.l.eventsOf(f.stream) {
				return "", 0, false
			}
		}
		if has := f.l.eventsOf(f.stream); f.from < has {
			stream = f.only
			if stream == "" {
				stream = f.l.stream(f.stream)
			}
			return stream, min(has, f.from+f.batch), true
		}
		f.stream += f.step
	}
}
