package bench

import (
	"context"
	crypto "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
)

const (
	anyVersion     = -2
	noStream       = -1
	unknownVersion = -100 // of a stream nothing is known yet; never sent

	typeJSON   = "application/json"
	typeEvents = "application/vnd.eventstore.events+json"
	typeAtom   = "application/vnd.eventstore.atom+json"
)

// appending is the workloads append and append-batch.
type appending struct {
	o     *options
	batch int // 0: one event in the form with headers
	part  int
}

func (w *appending) parts() []string {
	if w.batch > 0 {
		return []string{"append-batch"}
	}
	return []string{"append"}
}

func (w *appending) setup(_ context.Context, s *session) error {
	if w.o.checked && w.o.streams < len(s.clients) {
		return errors.New("with expected versions every stream belongs to one worker: there must be at least as many --streams as --workers")
	}
	return nil
}

func (w *appending) operation(worker, workers int) operation {
	rng := newRand(w.o, worker, w.part)
	a := &appendOp{
		w: w, rng: rng, ids: newIDs(), worker: worker, step: 1,
		names: w.o.prefix + "-append", count: w.o.streams,
		auth: basicAuth(w.o.user, w.o.password), events: max(1, w.batch),
	}
	if w.batch > 0 {
		a.names = w.o.prefix + "-batch"
	}
	a.req.method = "POST"
	a.nextID = func(int) event.ID { return a.ids.next() }
	switch {
	case w.o.grpc:
		a.caller = newCaller(w.o, w.batch, a.ids, payload(w.o.size, rng))
	case w.batch > 0:
		a.body = newBatchBody(w.batch, w.o.size, rng)
		a.fixed = []byte("Content-Type: " + typeEvents + "\r\n" + string(a.auth))
	default:
		a.req.body = payload(w.o.size, rng)
		a.fixed = []byte("Content-Type: " + typeJSON + "\r\nES-EventType: " + eventType + "\r\n" + string(a.auth))
	}
	a.names = a.inRequest(a.names)
	if w.o.checked {
		// The streams of a worker are those whose number leaves its own as remainder.
		a.step = workers
		a.count = (w.o.streams - worker + workers - 1) / workers
		a.versions = make([]int64, a.count)
		for i := range a.versions {
			a.versions[i] = unknownVersion
		}
	} else {
		a.worker = 0
	}
	return a
}

func newRand(o *options, worker, part int) *rand.Rand {
	return rand.New(rand.NewPCG(o.seed, uint64(worker)<<8|uint64(part)))
}

func newIDs() *idSource {
	var seed [32]byte
	_, _ = crypto.Read(seed[:]) // never fails
	return &idSource{rand.NewChaCha8(seed)}
}

// appendOp appends to the streams worker+1, worker+1+step, ... of which there are count.
type appendOp struct {
	w      *appending
	rng    *rand.Rand
	ids    *idSource
	nextID func(int) event.ID
	names  string
	auth   []byte
	fixed  []byte // header lines that never change
	body   *batchBody
	events int
	caller *caller // nil: over HTTP
	stream []byte  // of the present operation, as the request has it

	worker, step, count int
	versions            []int64 // by share; nil when no version is sent

	req  request
	resp response
}

// inRequest returns the name of a stream as requests have it: in a path it is encoded.
func (a *appendOp) inRequest(name string) string {
	if a.caller != nil {
		return name
	}
	return escapeStream(name)
}

func (a *appendOp) do(ctx context.Context, c *sender) (outcome, error) {
	share := a.rng.IntN(a.count)
	a.stream = appendStream(a.stream[:0], a.names, 1+a.worker+share*a.step)
	var err error
	if a.versions == nil {
		_, err = a.write(ctx, c, anyVersion)
	} else {
		err = a.writeChecked(ctx, c, share)
	}
	if err != nil {
		return outcome{}, err
	}
	return outcome{part: a.w.part, events: int64(a.events), bytes: int64(a.events) * int64(a.w.o.size)}, nil
}

// write appends to the stream and returns its version after that, when it sent one.
func (a *appendOp) write(ctx context.Context, c *sender, expected int64) (int64, error) {
	if a.caller != nil {
		return a.caller.write(ctx, c, string(a.stream), expected)
	}
	a.req.path = append(append(a.req.path[:0], "/streams/"...), a.stream...)
	head := append(a.req.head[:0], a.fixed...)
	if a.body != nil {
		a.req.body = a.body.of(a.events, a.nextID)
	} else {
		head = append(head, "ES-EventId: "...)
		head = a.ids.next().AppendTo(head)
		head = append(head, "\r\n"...)
	}
	if expected == anyVersion {
		a.req.head = head
		return anyVersion, a.send(ctx, c)
	}
	head = strconv.AppendInt(append(head, "ES-ExpectedVersion: "...), expected, 10)
	a.req.head = append(head, "\r\n"...)
	err := a.send(ctx, c)
	if err == nil {
		first, err := numberIn(a.resp.location)
		return first + int64(a.events) - 1, err
	}
	if _, answered := errors.AsType[*statusError](err); answered && a.resp.status == 400 && a.resp.version != noVersion {
		return 0, &versionConflict{expected: expected, current: a.resp.version}
	}
	return 0, err
}

func (a *appendOp) send(ctx context.Context, c *sender) error {
	// 201 is the rule; a write that was repeated at its own address may be answered 200.
	return c.expect(ctx, &a.req, &a.resp, 201, 200)
}

// writeChecked sends the version that the stream must have. Of a stream that this run has not
// touched it is not known; then it is tried as a new one, and the refusal
// tells the version for a second attempt within the same operation.
func (a *appendOp) writeChecked(ctx context.Context, c *sender, share int) error {
	known := a.versions[share] != unknownVersion
	expected := a.versions[share]
	if !known {
		expected = noStream
	}
	for {
		// Whether a write without an answer was done is not known either.
		a.versions[share] = unknownVersion
		version, err := a.write(ctx, c, expected)
		if err == nil {
			a.versions[share] = version
			return nil
		}
		conflict, refused := errors.AsType[*versionConflict](err)
		if !refused || known || conflict.current == expected {
			return err
		}
		known, expected = true, conflict.current
	}
}

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

// filling is the workload that writes a layout: fill, and --prepare.
type filling struct {
	o *options
	l layout
	// only, when not empty, is the one stream that gets all events.
	only string
}

func (w *filling) parts() []string { return []string{"fill"} }

func (w *filling) setup(context.Context, *session) error { return nil }

func (w *filling) operation(worker, workers int) operation {
	return &fillOp{
		w: w, stream: worker + 1, step: workers, worker: worker, auth: basicAuth(w.o.user, w.o.password),
		body: newBatchBody(w.o.batch, w.o.size, newRand(w.o, worker, 0)), req: request{method: "POST"},
	}
}

// fillOp writes the streams worker+1, worker+1+step, ...: a batch to each, then the next batch to
// each, so that events of one stream lie as far apart as those of a database that grew.
type fillOp struct {
	w            *filling
	worker, step int
	stream       int
	from         int64

	auth []byte
	body *batchBody
	req  request
	resp response
}

func (f *fillOp) do(ctx context.Context, c *sender) (outcome, error) {
	name, to, ok := f.next()
	if !ok {
		return outcome{}, errFinished
	}
	if err := f.write(ctx, c, name, f.from, to); err != nil {
		return outcome{}, err
	}
	f.stream += f.step
	n := to - f.from
	return outcome{events: n, bytes: n * int64(f.w.o.size)}, nil
}

// write makes the stream have the events from up to, and without, to: what an earlier run of the
// same layout wrote stays.
func (f *fillOp) write(ctx context.Context, c *sender, stream string, from, to int64) error {
	hash := hashOf(stream)
	for {
		f.req.path = append(append(f.req.path[:0], "/streams/"...), escapeStream(stream)...)
		f.req.head = append(f.req.head[:0], "Content-Type: "+typeEvents+"\r\nES-ExpectedVersion: "...)
		f.req.head = append(strconv.AppendInt(f.req.head, from-1, 10), "\r\n"...)
		f.req.head = append(f.req.head, f.auth...)
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
			return &fatalError{fmt.Errorf("stream %s: %w", stream, &versionConflict{from - 1, current})}
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
	l := &f.w.l
	for {
		if f.stream > l.streams {
			// The first stream of a share is never shorter than the others.
			f.stream = f.worker + 1
			f.from += int64(f.w.o.batch)
			if f.stream > l.streams || f.from >= l.eventsOf(f.stream) {
				return "", 0, false
			}
		}
		if has := l.eventsOf(f.stream); f.from < has {
			stream = l.stream(f.stream)
			if f.w.only != "" {
				stream = f.w.only
			}
			return stream, min(has, f.from+int64(f.w.o.batch)), true
		}
		f.stream += f.step
	}
}
