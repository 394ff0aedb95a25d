package torture

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

type opKind uint8

const (
	opAppend opKind = iota
	opReadHead
	opDelete
	opMetadata
	opTransfer
	opDecision
)

func (k opKind) String() string {
	return [...]string{"append", "read", "delete", "metadata", "transfer", "decision"}[k]
}

type outcome uint8

const (
	// pending is an operation whose client was stopped before it knew more, or gave up
	// after at least one attempt of which it cannot tell what it did.
	pending outcome = iota
	done
	// conflict is an append that was refused because of the expected version.
	conflict
	// refused is an operation that certainly did nothing.
	refused
)

func (o outcome) String() string {
	return [...]string{"indeterminate", "ok", "wrong version", "refused"}[o]
}

func (o outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// never is the end of an operation that has no known end.
const never = math.MaxInt64

// Special expected versions.
const (
	anyVersion = -2
	noStream   = -1
)

// op is one operation of one client, all its attempts together. Times are
// nanoseconds since the run began.
type op struct {
	call, ret int64
	expected  int64
	// number is, of an append that was done, the number of its first event; of
	// one refused, the version that was in the way; of a reading, the number of
	// the stream's last event, -1 when there is no stream.
	number   int64
	seen     ref // by a reading
	stream   *stream
	transfer *transfer // nil for operations on one stream
	decision *decision // nil for other kinds
	count    uint16    // events that it writes
	attempts uint16
	kind     opKind
	outcome  outcome
	node     int8 // that gave the last answer, -1 when none did
}

// journal has the operations of one client in order. Only that client touches it
// until the run is over.
type journal struct {
	client int
	ops    []*op
}

// begin adds an operation and returns the ref of its first event.
func (j *journal) begin(o op) (ref, *op) {
	j.ops = append(j.ops, &o)
	return refOf(j.client, len(j.ops)-1, 0), &o
}

// next is the ref of the first event of the operation that begins next.
func (j *journal) next() ref { return refOf(j.client, len(j.ops), 0) }

// writes is the stream that an event of an operation is for.
func (o *op) writes(r ref) *stream {
	if o.kind == opTransfer {
		return o.transfer.stream(r.index())
	}
	return o.stream
}

// history is what all clients did.
type history struct {
	start time.Time
	limit int64 // operations in all
	used  atomic.Int64

	mu       sync.Mutex
	journals []*journal // of client i+1
}

func newHistory(start time.Time, limit int64) *history { return &history{start: start, limit: limit} }

// now is the time of the run.
func (h *history) now() int64 { return int64(time.Since(h.start)) }

// journal opens the book of another client.
func (h *history) journal() *journal {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := &journal{client: len(h.journals) + 1}
	h.journals = append(h.journals, j)
	return j
}

// reserve takes room for one more operation. It reports false when there is none
// left: memory is bounded, and the client that asks stops.
func (h *history) reserve() bool { return h.used.Add(1) <= h.limit }

// full says whether a client was refused room.
func (h *history) full() bool { return h.used.Load() > h.limit }

// find returns the operation that wrote an event, nil if there is no such
// operation or it did not have so many events. Clients must have ended.
func (h *history) find(r ref) *op {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.client() == 0 || r.client() > len(h.journals) {
		return nil
	}
	j := h.journals[r.client()-1]
	if r.operation() >= len(j.ops) {
		return nil
	}
	if o := j.ops[r.operation()]; r.index() < int(o.count) {
		return o
	}
	return nil
}

// each visits all operations with the ref of their first event. Clients must have ended.
func (h *history) each(visit func(first ref, o *op)) {
	h.mu.Lock()
	journals := h.journals
	h.mu.Unlock()
	for _, j := range journals {
		for i, o := range j.ops {
			visit(refOf(j.client, i, 0), o)
		}
	}
}

// seconds shows a time of the run.
func seconds(t int64) string {
	if t == never {
		return "never"
	}
	return fmt.Sprintf("%.3fs", time.Duration(t).Seconds())
}

// describe shows an operation for people.
func (t identity) describe(first ref, o *op) string {
	stream := o.stream.name
	span := fmt.Sprintf("client %d, %s to %s, %d attempts", first.client(), seconds(o.call), seconds(o.ret), o.attempts)
	switch o.kind {
	case opReadHead:
		return fmt.Sprintf("reading of %s on the leader gave number %d (%s)", stream, o.number, span)
	case opMetadata:
		return fmt.Sprintf("metadata of %s: %s (%s)", stream, o.outcome, span)
	case opTransfer:
		return fmt.Sprintf("%s, first id %s: %s (%s)", o.transfer, t.id(first), o.outcome, span)
	case opDecision:
		return fmt.Sprintf("%s, to %s, first id %s: %s (%s)", o.decision, stream, t.id(first), o.outcome, span)
	case opDelete:
		return fmt.Sprintf("deletion of %s: %s (%s)", stream, o.outcome, span)
	}
	text := fmt.Sprintf("append of %d to %s, first id %s, expecting %d: %s", o.count, stream, t.id(first), o.expected, o.outcome)
	switch o.outcome {
	case done:
		text += fmt.Sprintf(" as %d", o.number)
	case conflict:
		text += fmt.Sprintf(", current is %d", o.number)
	}
	return text + " (" + span + ")"
}
