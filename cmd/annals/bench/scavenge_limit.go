package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/annalsdb/annals/internal/clock"
)

// limiting is the workload that makes about half of the events of a layout removable.
type limiting struct {
	o       *options
	prefix  string
	limited int   // streams, from the first on
	deleted int   // of a hundred of them
	each    int64 // events of a stream, at least
}

// fate is what becomes of a stream.
type fate int

const (
	fateLimited fate = iota // $maxCount
	fateDeleted             // as metadata say
	fateGone                // for good
	fateUntouched
)

func (w *limiting) fateOf(stream int) fate {
	k := (stream - 1) % 100
	switch {
	case stream > w.limited:
		return fateUntouched
	case k >= w.deleted:
		return fateLimited
	case k%2 == 1:
		return fateGone
	}
	return fateDeleted
}

// keep is how many events of a limited stream stay.
func (w *limiting) keep() int64 { return max(1, w.each/2) }

// removable returns how many events a scavenge removes of whole layouts. Of a
// deleted stream the newest event stays, unless it is deleted for good.
func (w *limiting) removable() int64 {
	n := int64(0)
	l := layout{prefix: w.prefix, streams: w.o.streams, events: w.o.events}
	for i := 1; i <= w.limited; i++ {
		switch w.fateOf(i) {
		case fateLimited:
			n += max(0, l.eventsOf(i)-w.keep())
		case fateDeleted:
			n += l.eventsOf(i) - 1
		case fateGone:
			n += l.eventsOf(i)
		}
	}
	return n
}

func (w *limiting) parts() []string { return []string{"limit"} }

func (w *limiting) setup(context.Context, *session) error { return nil }

func (w *limiting) operation(worker, workers int) operation {
	return &limitOp{w: w, stream: worker + 1, step: workers, auth: basicAuth(w.o.user, w.o.password), names: escapeStream(w.prefix)}
}

// limitOp sees to the streams worker+1, worker+1+step, ...
type limitOp struct {
	w            *limiting
	stream, step int
	auth         []byte
	names        string

	req  request
	resp response
}

func (l *limitOp) do(ctx context.Context, c *sender) (outcome, error) {
	if l.stream > l.w.limited {
		return outcome{}, errFinished
	}
	l.req.path = append(append(l.req.path[:0], c.prefix...), "/streams/"...)
	l.req.path = appendStream(l.req.path, l.names, l.stream)
	l.req.head = append(l.req.head[:0], l.auth...)
	l.req.body = nil
	switch l.w.fateOf(l.stream) {
	case fateGone:
		l.req.method = "DELETE"
		l.req.head = append(l.req.head, "ES-HardDelete: true\r\n"...)
	case fateDeleted:
		l.req.method = "DELETE"
	default:
		l.req.method = "POST"
		l.req.path = append(l.req.path, "/metadata"...)
		l.req.head = append(l.req.head, "Content-Type: "+typeEvents+"\r\n"...)
		// The same ids with every run: repeated soon, it writes nothing.
		id := fixedID(hashOf("$$"+string(l.req.path)), l.w.keep())
		l.req.body = append(id.AppendTo(append(l.req.body, batchHead...)), `","eventType":"$metadata","data":{"$maxCount":`...)
		l.req.body = append([]byte{'['}, append(strconv.AppendInt(l.req.body, l.w.keep(), 10), "}}]"...)...)
	}
	for attempt := 0; ; attempt++ {
		err := c.do(ctx, &l.req, &l.resp)
		switch {
		case err != nil:
		case l.resp.status == 201 || l.resp.status == 204 || l.resp.status == 200:
			l.stream += l.step
			return outcome{events: 1}, nil
		case l.resp.status == 410: // Gone already, by an earlier run.
			l.stream += l.step
			return outcome{}, nil
		case l.resp.status >= 500 || l.resp.status == 408 || l.resp.status == 429:
			err = refused(&l.resp)
		default:
			return outcome{}, &fatalError{refused(&l.resp)}
		}
		switch {
		case ctx.Err() != nil || errors.Is(err, errCut):
			return outcome{}, errCut
		case attempt >= maxAttempts:
			return outcome{}, &fatalError{err}
		case clock.Sleep(ctx, backoff(attempt)) != nil:
			return outcome{}, errCut
		}
	}
}

// keptReading reads single events that no scavenge removes.
type keptReading struct {
	o *options
	w *limiting
}

func (r *keptReading) parts() []string { return []string{"read-event"} }

func (r *keptReading) setup(context.Context, *session) error { return nil }

func (r *keptReading) operation(worker, _ int) operation {
	k := &keptOp{r: r, rng: newRand(r.o, worker, 201), names: escapeStream(r.w.prefix)}
	k.req.method = "GET"
	k.req.head = []byte("Accept: " + typeJSON + "\r\n" + string(basicAuth(r.o.user, r.o.password)))
	return k
}

type keptOp struct {
	r     *keptReading
	rng   *rand.Rand
	names string

	req  request
	resp response
}

func (k *keptOp) do(ctx context.Context, c *sender) (outcome, error) {
	w := k.r.w
	stream := 1 + k.rng.IntN(k.r.o.streams)
	for f := w.fateOf(stream); f == fateDeleted || f == fateGone; f = w.fateOf(stream) {
		stream = 1 + k.rng.IntN(k.r.o.streams)
	}
	last := (&layout{streams: k.r.o.streams, events: k.r.o.events}).eventsOf(stream) - 1
	k.req.path = append(append(k.req.path[:0], c.prefix...), "/streams/"...)
	k.req.path = append(appendStream(k.req.path, k.names, stream), '/')
	k.req.path = strconv.AppendInt(k.req.path, last-k.rng.Int64N(min(w.keep(), last+1)), 10)
	if err := c.do(ctx, &k.req, &k.resp); err != nil {
		return outcome{}, err
	}
	if k.resp.status != 200 {
		return outcome{}, refused(&k.resp)
	}
	return outcome{events: 1, bytes: k.resp.length}, nil
}

// errorsOf adds up counts of errors by kind.
func errorsOf(to map[string]*errorCount, from *recorder) {
	for kind, e := range from.errors {
		countError(to, kind, e.Count, e.Example)
	}
}

// measured is what was recorded over a time that had breaks.
type measured struct {
	rec  *recorder
	took time.Duration
}

func (m *measured) metrics(name string) *metrics {
	if m.took == 0 {
		return nil
	}
	f := newStatistics(name, m.rec.whole(), m.took)
	return &f
}
