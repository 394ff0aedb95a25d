package torture

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/annalsdb/annals/client"
)

const (
	// patience is how long a client repeats a write whose outcome it does not know.
	patience = 12 * time.Second
	// rememberedAppends is from how many of its acknowledged appends a client chooses one to send
	// again.
	rememberedAppends = 64
	largestBatch      = 8
)

// writer is one client that writes and asks the leader. It has one operation in flight.
type writer struct {
	worker
	journal *journal
	known   map[*stream]int64 // last number that the client heard of
	recent  []ref             // of operations that were acknowledged
}

// newWriter makes what a client needs to write. It does nothing by itself.
func newWriter(l *load, j *journal) *writer {
	return &writer{worker: l.worker(j.client), journal: j, known: map[*stream]int64{}}
}

func (w *writer) turn(ctx context.Context) time.Duration {
	if !w.hist.reserve() {
		return enough
	}
	switch dice := w.rng.IntN(100); {
	case dice < 35:
		w.contest(ctx)
	case dice < 58:
		w.readHead(ctx, w.plainStream(w.nextRegister(w.rng)))
	case dice < 82:
		w.scatter(ctx)
	case dice < 88:
		w.again(ctx)
	default:
		// The value that a client has just written.
		if latest := w.latest.Load(); latest != nil {
			w.readHead(ctx, latest)
		}
	}
	return time.Duration(w.rng.ExpFloat64() * float64(w.pace))
}

// contest appends to a stream for which all writers compete.
func (w *writer) contest(ctx context.Context) {
	stream := w.plainStream(w.nextRegister(w.rng))
	last, heard := w.known[stream]
	if !heard {
		last = noStream
	}
	expected := last
	switch dice := w.rng.IntN(10); {
	case dice < 2:
		expected = anyVersion
	case dice < 3:
		expected = noStream
	case dice < 4:
		expected = max(noStream, last-1) // As a rule too old.
	}
	count := 1
	if w.rng.IntN(10) < 3 {
		count = 2 + w.rng.IntN(largestBatch-1)
	}
	w.append(ctx, stream, expected, count)
}

// scatter appends without condition to one of many streams.
func (w *writer) scatter(ctx context.Context) {
	count := 1
	if w.rng.IntN(4) == 0 {
		count = 2 + w.rng.IntN(largestBatch-1)
	}
	w.append(ctx, w.plainStream(w.spread(w.rng.IntN(spreadStreams))), anyVersion, count)
}

// append sends an append, with the same ids each time, until its outcome is certain
// or patience ends.
func (w *writer) append(ctx context.Context, stream *stream, expected int64, count int) *op {
	limit := patience
	if w.rng.IntN(8) == 0 {
		limit = 0 // This one is sent once.
	}
	begun := op{kind: opAppend, stream: stream, expected: expected, count: uint16(count)}
	first, o, last := w.insist(ctx, begun, limit, func(first ref) client.Request {
		return write(w.ids, stream.name, expected, first, count, w.rng.IntN(2) == 0)
	})
	switch o.outcome {
	case done:
		if expected >= noStream && o.number != expected+1 {
			w.find.add(kindAnswer, "the answer contradicts the request: %s", w.ids.describe(first, o))
		}
		w.known[stream] = o.number + int64(count) - 1
		w.book.acknowledge(stream, o.number, first, count)
		w.remember(first)
		if stream.plain {
			w.latest.Store(stream)
		}
	case conflict:
		if expected == anyVersion || o.number == expected {
			w.find.add(kindAnswer, "the answer contradicts the request: %s: %s", w.ids.describe(first, o), last)
		}
		w.known[stream] = o.number
	}
	return o
}

// remember keeps an operation that was acknowledged, to send it again.
func (w *writer) remember(first ref) {
	if len(w.recent) < rememberedAppends {
		w.recent = append(w.recent, first)
	} else {
		w.recent[w.rng.IntN(rememberedAppends)] = first
	}
}

// insist repeats an operation that writes by one request. It returns the ref of its first event and
// the last answer.
func (w *writer) insist(ctx context.Context, begun op, limit time.Duration, request func(first ref) client.Request) (_ ref, _ *op, last *answer) {
	success := http.StatusCreated
	if begun.kind == opDelete {
		success = http.StatusNoContent
	}
	var req client.Request
	first, o := w.repeat(ctx, begun, limit, func(first ref, o *op) verdict {
		if o.attempts == 1 {
			req = request(first)
		}
		var err error
		last, err = w.ask(ctx, o, req)
		if req.Header[client.HeaderHardDelete] != "" && o.attempts > 1 && last != nil && last.Status == http.StatusGone {
			return verdict{outcome: done} // A scavenge may have removed what tells a repetition.
		}
		return judgeWrite(last, err, success, o.stream.name)
	})
	return first, o, last
}

// ask sends the request of an operation once.
func (w *writer) ask(ctx context.Context, o *op, r client.Request) (*answer, error) {
	a, err := w.do(ctx, w.choose(), r)
	if a != nil {
		o.node = int8(a.from.Index)
	}
	return a, err
}

// repeat begins an operation that writes, makes its attempts, and fills in its end. It returns the
// ref of its first event. A node may repeat an attempt by itself, for want of an answer of the
// leader: so the first one may be answered as a repetition.
//
// A conflict is certain even if an earlier attempt is of unknown outcome: had
// that one been written, the retry with the same ids would have been answered as
// done; and it cannot be written any more, because versions only rise. The
// callers that delete see to it that this holds for them too.
func (w *writer) repeat(ctx context.Context, begun op, limit time.Duration, attempt func(first ref, o *op) verdict) (ref, *op) {
	begun.call, begun.ret, begun.node = w.hist.now(), never, -1
	first, o := w.journal.begin(begun)
	giveUp := o.call + int64(limit)
	uncertain := false // An attempt may have done it.
	for {
		if o.attempts < math.MaxUint16 {
			o.attempts++
		}
		v := attempt(first, o)
		if v.odd != "" {
			w.find.add(kindAnswer, "%s: %s", w.ids.describe(first, o), v.odd)
		}
		certain := v.outcome == done || v.outcome == conflict
		uncertain = uncertain || v.outcome == pending
		if certain || w.hist.now() >= giveUp || w.stopped() || ctx.Err() != nil {
			if certain || !uncertain {
				o.ret, o.outcome, o.number = w.hist.now(), v.outcome, v.number
			}
			w.finished(o)
			return first, o
		}
		w.wander()
		w.rest(ctx, w.pause(20, 150))
	}
}

// finished counts an operation that wrote.
func (w *writer) finished(o *op) {
	switch {
	case o.kind == opAppend:
		w.count.add(ofWrites, written[o.outcome], 1)
		if o.outcome == done {
			w.count.add(ofWrites, "eventsAcknowledged", int(o.count))
			w.gaps.success(o.ret)
		}
	case o.outcome != done:
	case o.kind == opDelete:
		w.count.add(ofWrites, "deletes", 1)
	case o.kind == opMetadata:
		w.count.add(ofWrites, "limits", 1)
	}
}

// again sends an append that was acknowledged once more, as it was or in the
// other form. The answer must be the same, and nothing may be written.
func (w *writer) again(ctx context.Context) {
	if len(w.recent) > 0 {
		w.examine(ctx, w.choose(), w.retry(w.recent[w.rng.IntN(len(w.recent))], false))
	}
}

// question is something that a leader must answer in one way only, and that changes nothing.
type question struct {
	stream  *stream
	what    string
	request client.Request
	// status is the one answer. 0 means that it is an acknowledgement under a number.
	status int
	number int64 // of the acknowledgement, or the current version that a refusal must name
}

// retry repeats an earlier write, to a stream that may be deleted for good.
func (w *writer) retry(first ref, gone bool) question {
	o := w.journal.ops[first.operation()]
	expected, how := o.expected, "the version"
	if w.rng.IntN(2) == 0 {
		expected, how = anyVersion, "any version"
	}
	q := question{
		stream:  o.stream,
		what:    fmt.Sprintf("%s; sent again, expecting %s", w.ids.describe(first, o), how),
		request: write(w.ids, o.stream.name, expected, first, int(o.count), w.rng.IntN(2) == 0),
		number:  o.number,
	}
	if gone {
		q.status = http.StatusGone
	}
	return q
}

// examine asks and judges the answer. It reports whether there was one, and who gave it.
func (w *writer) examine(ctx context.Context, to Target, q question) (int, bool) {
	a, err := w.do(ctx, to, q.request)
	if result := judge(a, err); result == pending || result == refused {
		w.wander()
		return 0, false
	}
	current := a.Header.Get(client.HeaderCurrentVersion)
	switch {
	case q.status == 0:
		if n, err := a.FirstNumber(q.stream.name); a.Status != http.StatusCreated || err != nil || n != q.number {
			w.find.add(kindIdempotence, "%s: %s, Location %q, current version %q", q.what, a, a.Header.Get("Location"), current)
		} else {
			w.count.add(ofWrites, "sentAgain", 1)
		}
	case a.Status != q.status, q.status == http.StatusBadRequest && current != strconv.FormatInt(q.number, 10):
		w.find.add(kindDecision, "%s: %s, current version %q", q.what, a, current)
	}
	return a.from.Index, true
}

// readHead asks the leader for the last event of a stream.
func (w *writer) readHead(ctx context.Context, stream *stream) *op {
	_, o := w.journal.begin(op{kind: opReadHead, call: w.hist.now(), ret: never, stream: stream, number: noStream, attempts: 1, node: -1})
	a, err := w.do(ctx, w.choose(), read(streamHead(stream.name, 1), true, 0))
	if err != nil {
		w.count.add(ofReads, "failed", 1)
		w.wander()
		return o
	}
	ret := w.hist.now()
	o.node = int8(a.from.Index)
	switch a.Status {
	case http.StatusNotFound:
	case http.StatusOK:
		p, err := client.ParsePage(a.Body)
		if err != nil || len(p.Entries) != 1 {
			w.find.add(kindAnswer, "reading of the last event of %s: %s", stream.name, a)
			return o
		}
		f := w.book.read(&p.Entries[0], w.place(a.from))
		o.number, o.seen = f.number, f.ref
		w.book.streamPage(w.place(a.from), stream, f.number, p.Entries)
	default:
		w.count.add(ofReads, "failed", 1)
		w.oddRead(a)
		w.wander()
		return o
	}
	o.ret, o.outcome = ret, done
	w.known[stream] = o.number
	w.count.add(ofReads, "leader", 1)
	return o
}

// oddRead reports answers to readings that no fault explains.
func (l *load) oddRead(a *answer) {
	if result := judge(a, nil); result == done || result == conflict {
		l.find.add(kindAnswer, "reading: %s", a)
	}
}
