package replication_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
)

// toy is a small event log with its state machine and decider, in memory. A
// record is the length and the name of the stream it goes to. Of a write with an event, a
// zero byte and the event's id follow the name: it is recognised when it comes again.
//
// An entry is the expected end, the expected chain, and the records.
type toy struct {
	applying atomic.Pointer[func()] // called before entries are applied; nil: nothing is
	broken   atomic.Pointer[error]  // why no writes can be decided; nil: they can

	mu      sync.Mutex // guards the applied state
	frames  []toyFrame
	streams map[string]int64 // number of records
	ids     map[string]int64 // numbers of records with an id, by the whole record
	durable int              // frames that the last snapshot made durable, own or received
	refused int
	skipped int

	restores int
	sabotage func([]byte) []byte // of records before they are applied; nil: none

	// The decider's, used by one goroutine.
	end     int64 // of what is decided
	chain   event.Chain
	pending map[string]int64 // number of records, in flight included
	fresh   map[string]int64 // as ids, in flight
	entry   []byte
	limit   int
}

type toyFrame struct {
	tail    event.Tail
	records []byte
}

func newToy() *toy { return &toy{streams: map[string]int64{}, ids: map[string]int64{}, limit: 1 << 20} }

// crashed returns what a power cut leaves: the durable frames and some that
// happened to be written.
func (y *toy) crashed(written int) *toy {
	y.mu.Lock()
	defer y.mu.Unlock()
	next := newToy()
	for _, f := range y.frames[:min(len(y.frames), y.durable+written)] {
		next.append(f.records, f.tail.Index, f.tail.Term)
	}
	next.durable = len(next.frames)
	return next
}

func nextChain(prev event.Chain, end int64, records []byte) (next event.Chain) {
	h := sha256.New()
	h.Write(prev[:])
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(end)))
	h.Write(records)
	copy(next[:], h.Sum(nil))
	return next
}

func (y *toy) tail() event.Tail {
	if len(y.frames) == 0 {
		return event.Tail{}
	}
	return y.frames[len(y.frames)-1].tail
}

func (y *toy) Tail() event.Tail {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.tail()
}

func (y *toy) ChainAt(position int64) (event.Chain, bool, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if position == 0 {
		return event.Chain{}, true, nil
	}
	at, ok := slices.BinarySearchFunc(y.frames, position, func(f toyFrame, p int64) int { return int(f.tail.End - p) })
	if !ok {
		return event.Chain{}, false, nil
	}
	return y.frames[at].tail.Chain, true, nil
}

func (y *toy) append(records []byte, index, term uint64) {
	tail := y.tail()
	chain := nextChain(tail.Chain, tail.End, records)
	y.frames = append(y.frames, toyFrame{records: records, tail: event.Tail{
		End: tail.End + int64(len(records)), Chain: chain, Index: index, Term: term,
	}})
	for b := records; len(b) > 0; b = b[1+b[0]:] {
		record := string(b[1 : 1+b[0]])
		name, _, identified := strings.Cut(record, "\x00")
		if identified {
			y.ids[record] = y.streams[name]
		}
		y.streams[name]++
	}
}

func (y *toy) Apply(log *raft.Log) any {
	y.mu.Lock()
	defer y.mu.Unlock()
	tail := y.tail()
	if log.Index <= tail.Index {
		y.skipped++
		return nil
	}
	if int64(binary.LittleEndian.Uint64(log.Data)) != tail.End || !bytes.Equal(log.Data[8:24], tail.Chain[:]) {
		y.refused++
		return fmt.Errorf("toy: %w", event.ErrEntryRefused)
	}
	records := log.Data[24:]
	if y.sabotage != nil {
		records = y.sabotage(records)
	}
	y.append(records, log.Index, log.Term)
	return nil
}

func (y *toy) ApplyBatch(logs []*raft.Log) []any {
	if wait := y.applying.Load(); wait != nil {
		(*wait)()
	}
	answers := make([]any, len(logs))
	for i, log := range logs {
		if log.Type == raft.LogCommand {
			answers[i] = y.Apply(log)
		}
	}
	return answers
}

func (y *toy) Snapshot() (raft.FSMSnapshot, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	return &toySnapshot{toy: y, tail: y.tail(), frames: len(y.frames)}, nil
}

// restored is how many snapshots came.
func (y *toy) restored() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.restores
}

// Restore accepts a snapshot whose data are here.
func (y *toy) Restore(source io.ReadCloser) error {
	var content event.Snapshot
	if err := errors.Join(json.NewDecoder(source).Decode(&content), source.Close()); err != nil {
		return err
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.restores++
	if content.Tail.End > y.tail().End {
		return event.ErrDataMissing
	}
	_, err := y.at(content.Tail.End, content.Tail.Chain)
	if err == nil {
		y.durable = len(y.frames)
	}
	return err
}

type toySnapshot struct {
	toy    *toy
	tail   event.Tail
	frames int
}

func (s *toySnapshot) Persist(sink raft.SnapshotSink) error {
	s.toy.mu.Lock()
	s.toy.durable = s.frames
	s.toy.mu.Unlock()
	if err := json.NewEncoder(sink).Encode(event.Snapshot{Tail: s.tail}); err != nil {
		return err
	}
	return sink.Close()
}

func (s *toySnapshot) Release() {}

func (y *toy) Reset() error {
	if err := y.unfit(); err != nil {
		return err
	}
	tail := y.Tail()
	y.end, y.chain, y.pending, y.fresh, y.entry = tail.End, tail.Chain, map[string]int64{}, map[string]int64{}, nil
	return nil
}

func (y *toy) unfit() error {
	if err := y.broken.Load(); err != nil {
		return *err
	}
	return nil
}

func (y *toy) count(stream string) int64 {
	if n, ok := y.pending[stream]; ok {
		return n
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.streams[stream]
}

// deletedStream is a stream that was hard-deleted, in every toy.
const deletedStream = "deleted"

// known returns the number of a record with an id, if it is there.
func (y *toy) known(record string) (int64, bool) {
	if n, ok := y.fresh[record]; ok {
		return n, true
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	n, ok := y.ids[record]
	return n, ok
}

func (y *toy) Decide(w *event.Write) event.Decision {
	size := len(w.Stream) + 1
	if len(y.entry) > 0 && len(y.entry)+size > y.limit {
		return event.Decision{Full: true}
	}
	if w.Stream == deletedStream {
		return event.Decision{Err: event.ErrStreamDeleted}
	}
	record := w.Stream
	if len(w.Events) > 0 {
		record += "\x00" + string(w.Events[0].ID[:])
		if n, ok := y.known(record); ok {
			return event.Decision{Written: event.Written{First: n, Last: n, Idempotent: true, Position: toyPlace(n)}}
		}
	}
	n := y.count(w.Stream)
	if w.ExpectedVersion >= event.NoStream && w.ExpectedVersion != n-1 {
		return event.Decision{Err: &event.WrongExpectedVersion{Stream: w.Stream, Expected: w.ExpectedVersion, Current: n - 1}}
	}
	if y.entry == nil {
		y.entry = make([]byte, 24, 256)
	}
	y.entry = append(append(y.entry, byte(len(record))), record...)
	y.pending[w.Stream] = n + 1
	if len(w.Events) > 0 {
		y.fresh[record] = n
	}
	return event.Decision{Written: event.Written{First: n, Last: n, Position: toyPlace(n)}}
}

// toyPlace is the position that a toy says the record with a number has.
func toyPlace(n int64) int64 { return 1000 + n }

func (y *toy) Seal() []byte {
	if y.entry == nil {
		return nil
	}
	entry := y.entry
	binary.LittleEndian.PutUint64(entry, uint64(y.end))
	copy(entry[8:], y.chain[:])
	y.chain = nextChain(y.chain, y.end, entry[24:])
	y.end += int64(len(entry) - 24)
	y.entry = nil
	return entry
}

// Applied keeps the overlay small, as long as nothing is in flight.
func (y *toy) Applied() {
	if y.entry == nil && y.Tail().End == y.end {
		clear(y.pending)
		clear(y.fresh)
	}
}
