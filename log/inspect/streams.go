package inspect

import (
	"bytes"
	"fmt"
	"math/bits"
	"strings"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

// streamNumbers knows the last event of every stream: a table with open
// addressing of 24 bytes a slot, at most three quarters full, by the hash of the
// name. Streams that share a hash are distinguished by the names in their records,
// which are only read when a number does not follow.
type streamNumbers struct {
	slots []streamSlot
	used  int
	count int64
	seen  uint64 // of no meaning: it makes touch read

	shared map[uint64]map[string]*streamSlot // streams of hashes that several have
}

type streamSlot struct {
	hash uint64
	last int64
	at   int64 // 1 + position of the event; 0: a free slot, or a stream not seen yet
}

func (t *streamNumbers) init() { t.slots = make([]streamSlot, 1<<12) }

// slot returns the slot of a hash, or the free one where it would go.
func (t *streamNumbers) slot(hash uint64) *streamSlot {
	return &t.slots[t.place(hash)]
}

// place is the index of that slot.
func (t *streamNumbers) place(hash uint64) int {
	mask := len(t.slots) - 1
	for i := t.home(hash); ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.at == 0 || s.hash == hash {
			return i
		}
	}
}

// home is where the search for a hash begins.
func (t *streamNumbers) home(hash uint64) int {
	return int(bits.RotateLeft64(hash*0x9e3779b97f4a7c15, 32)) & (len(t.slots) - 1)
}

// touch brings the slot of a hash nearer.
func (t *streamNumbers) touch(hash uint64) { t.seen += t.slots[t.home(hash)].hash }

func (t *streamNumbers) grow() {
	old := t.slots
	t.slots = make([]streamSlot, 2*len(old))
	for i := range old {
		if old[i].at != 0 {
			*t.slot(old[i].hash) = old[i]
		}
	}
}

// names checks the numbers of the events of each stream.
type names struct {
	n       *inspector
	streams streamNumbers
}

// NoteEvent checks that a record is the next of its stream.
func (g *names) noteEvent(c *chunkfile.Chunk, offset int64, hash uint64, it chunkfile.Item) {
	t := &g.streams
	s := t.slot(hash)
	number, position := it.Number(), it.Position()
	if s.at != 0 {
		// Nearly always the next number. After a scavenged part of the log a higher one may follow
		// as well.
		follows := number == s.last+1 || number > s.last && g.n.blurred > s.at-1
		if follows && number > 0 && number != event.TombstoneNumber && t.shared[hash] == nil {
			s.last, s.at = number, position+1
			return
		}
		s = g.apart(s, it)
	}
	if s.at == 0 {
		s.hash, s.last = hash, -1
		t.count++
		if t.owns(s) {
			t.used++
		}
	}
	if why := g.judge(s, it); why != "" {
		g.n.find(Problem, FindStream, c.Name, offset, position, "stream %s: %s", printable(it.Stream()), why)
	}
	if s.at == 0 || number > s.last {
		s.last, s.at = number, position+1
	}
	if t.used >= len(t.slots)/4*3 {
		t.grow()
	}
}

// named returns what is known of the stream with a name, nil when no record of it was seen.
func (g *names) named(name string) *streamSlot {
	hash := chunkfile.HashStream(name)
	if names := g.streams.shared[hash]; names != nil {
		return names[name]
	}
	s := g.streams.slot(hash)
	if s.at == 0 {
		return nil
	}
	if own, ok := g.nameAt(s.at - 1); !ok || string(own) != name {
		return nil
	}
	return s
}

// owns says that a slot lies in the table.
func (t *streamNumbers) owns(s *streamSlot) bool { return t.slot(s.hash) == s }

// apart returns the slot of the record's own stream among those that share its hash.
func (g *names) apart(s *streamSlot, it chunkfile.Item) *streamSlot {
	t := &g.streams
	names := t.shared[s.hash]
	if names == nil {
		before, ok := g.nameAt(s.at - 1)
		if !ok || bytes.Equal(before, it.Stream()) {
			return s
		}
		names = map[string]*streamSlot{string(before): {hash: s.hash, last: s.last, at: s.at}}
		if t.shared == nil {
			t.shared = map[uint64]map[string]*streamSlot{}
		}
		t.shared[s.hash] = names
	}
	own := names[string(it.Stream())]
	if own == nil {
		own = &streamSlot{hash: s.hash}
		names[string(it.Stream())] = own
	}
	return own
}

// nameAt returns the name of the stream of the record at a position.
func (g *names) nameAt(position int64) ([]byte, bool) {
	it, _, err := g.n.itemAt(position)
	if err != nil || it == nil || !it.IsRecord() {
		return nil, false
	}
	return it.Stream(), true
}

// judge says what is wrong with a record's number, given what its stream had before.
func (g *names) judge(s *streamSlot, it chunkfile.Item) string {
	number := it.Number()
	deleted := event.Flags(it.Flags())&event.FlagDeleted != 0
	switch {
	case number < 0:
		return fmt.Sprintf("impossible event number %d", number)
	case deleted != (number == event.TombstoneNumber):
		return fmt.Sprintf("event number %d does not fit the flags %#x: the last number is that of tombstones", number, it.Flags())
	case s.at != 0 && s.last == event.TombstoneNumber:
		return fmt.Sprintf("event %d follows the tombstone at position %d", number, s.at-1)
	case deleted || number == s.last+1 || g.isLate(it):
		return ""
	case number <= s.last:
		return fmt.Sprintf("event %d was written again, after event %d at position %d", number, s.last, s.at-1)
	case g.n.blurred > s.at-1:
		return "" // What is missing was scavenged, or cannot be read.
	case s.at == 0:
		return fmt.Sprintf("begins with event %d", number)
	}
	return fmt.Sprintf("event %d follows event %d at position %d", number, s.last, s.at-1)
}

// isLate says that a record is metadata of a stream that has its tombstone before it, and numbered
// as such.
func (g *names) isLate(it chunkfile.Item) bool {
	name := chunkfile.String(it.Stream())
	return event.IsLate(it.Number(), it.Position()) && event.IsMetaStream(name) && (g.n.blurred > 0 || g.hasTombstone(event.RootOf(name)))
}

func (g *names) hasTombstone(stream string) bool {
	s := g.named(stream)
	return s != nil && s.last == event.TombstoneNumber
}

// printable returns a name as it can be printed on one line.
func printable(name []byte) string {
	const most = 100
	if len(name) > most {
		return fmt.Sprintf("%q… (%d bytes)", strings.ToValidUTF8(string(name[:most]), "\uFFFD"), len(name))
	}
	return fmt.Sprintf("%q", name)
}
