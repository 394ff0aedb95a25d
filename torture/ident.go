package torture

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/event"
)

// Types of the events that the workload writes: that of links, and that of all others.
const (
	eventType = "tortured"
	linkType  = "$>"
)

// ref names one event in eight bytes: the client that wrote it, the operation of
// that client, and the place within the operation's batch.
//
//	| 63 client 48 | 47 operation 16 | 15 event 0 |
//
// Client 0xffff stands for events that are not ours; the rest is then a hash of
// what the event shows. Zero means no event: clients are counted from one.
type ref uint64

const foreignClient = 0xffff

func refOf(client, operation, index int) ref {
	return ref(uint64(client)<<48 | uint64(operation)&0xffffffff<<16 | uint64(index)&0xffff)
}

func (r ref) client() int     { return int(r >> 48) }
func (r ref) operation() int  { return int(r >> 16 & 0xffffffff) }
func (r ref) index() int      { return int(r & 0xffff) }
func (r ref) isForeign() bool { return r.client() == foreignClient }

// identity turns refs into the event ids of one run and back.
type identity struct {
	// tag is the first half of every id. It differs between runs, so that two
	// runs against one cluster do not write the same ids.
	tag uint64
	// linker is the client whose events are links, 0 for none, and prefix begins
	// the names of the streams that they point at.
	linker int
	// transferers are the clients, from the first on, whose events move money.
	firstTransferer, transferers int
	// deciders are the clients whose events are decisions.
	firstDecider, deciders int
	prefix                 string
}

func (t identity) isLink(r ref) bool { return t.linker != 0 && r.client() == t.linker }

func (t identity) eventType(r ref) string {
	if t.isLink(r) {
		return linkType
	}
	if t.isDecision(r) {
		return decided[t.game(r)]
	}
	return eventType
}

// linked returns the number of the event that a link points at. One link in sixteen points at
// nothing.
func (t identity) linked(r ref) (number int64, there bool) {
	return int64(r.operation())*linkBatch + int64(r.index()), mix(t.tag^uint64(r))%16 != 0
}

func (t identity) isTransfer(r ref) bool {
	return r.client() >= t.firstTransferer && r.client() < t.firstTransferer+t.transferers
}

// mostMoved bounds how much money an event moves, but for the last of its transfer.
const mostMoved = 100

// moves is how many events the transfer of an event has.
func (t identity) moves(r ref) int { return 2 + int(mix(t.tag^uint64(r>>16))%5) }

// amount is how much money an event adds to its account. Those of one transfer sum up to nothing.
func (t identity) amount(r ref) int {
	if r.index() < t.moves(r)-1 {
		return int(mix(t.tag^uint64(r))%(2*mostMoved+1)) - mostMoved
	}
	sum := 0
	for i := range r.index() {
		sum -= t.amount(r - ref(r.index()) + ref(i))
	}
	return sum
}

func (t identity) isDecision(r ref) bool {
	return r.client() >= t.firstDecider && r.client() < t.firstDecider+t.deciders
}

// game is what an event of a decider is about.
func (t identity) game(r ref) game { return game(mix(t.tag^uint64(r>>16)) % uint64(games)) }

// decides is how many events the decision of an event has.
func (t identity) decides(r ref) int {
	if g := t.game(r); g == budgets || g == mixed {
		return 1 + int(mix(t.tag^uint64(r>>16)^1)%2)
	}
	return 1
}

// weight is how much of the bound of its tags an event takes.
func (t identity) weight(r ref) int {
	if t.game(r) == budgets {
		return 1 + int(mix(t.tag^uint64(r))%40)
	}
	return 1
}

// tagCount is how many tags there are.
const tagCount = 24

// label is the one tag that an event of a transfer has.
func (t identity) label(r ref) string {
	return fmt.Sprintf("%s%d", t.prefix, mix(t.tag^uint64(r)^1)%tagCount)
}

// shows is whether an entry has the type and the data of an event. Feeds leave out data that is not
// JSON.
func (t identity) shows(e *entry, r ref) bool {
	return e.Type == t.eventType(r) && (e.Data == t.data(r) || e.Data == "" && t.isLink(r))
}

func (t identity) id(r ref) event.ID {
	var id event.ID
	binary.BigEndian.PutUint64(id[:8], t.tag)
	binary.BigEndian.PutUint64(id[8:], uint64(r))
	return id
}

// ref returns the ref of an id of this run.
func (t identity) ref(id event.ID) (ref, bool) {
	if binary.BigEndian.Uint64(id[:8]) != t.tag {
		return 0, false
	}
	r := ref(binary.BigEndian.Uint64(id[8:]))
	return r, r.client() != 0 && !r.isForeign()
}

// Sizes of the filling of an event, in bytes.
const (
	usualFill = 300
	largeFill = 12_000
)

// data returns the data of an event, which follows from its ref alone. But for
// links it is compact JSON, so that no server has a reason to write it differently.
func (t identity) data(r ref) string {
	if t.isLink(r) {
		number, there := t.linked(r)
		stream := queueStream
		if !there {
			stream = nowhereStream
		}
		return strconv.FormatInt(number, 10) + "@" + t.prefix + stream
	}
	n := mix(t.tag ^ uint64(r))
	fill := int(n % usualFill)
	if n>>32%64 == 0 {
		fill = largeFill
	}
	piece := filling[n>>8%8:]
	amount := ""
	if t.isTransfer(r) {
		amount = `","amount":"` + strconv.Itoa(t.amount(r))
	}
	return `{"id":"` + t.id(r).String() + amount + `","fill":"` + strings.Repeat(piece, fill/len(piece)+1)[:fill] + `"}`
}

const filling = "the quick brown fox jumps over the lazy dog and writes it down "

// foreignRef hashes an event that is not ours.
func foreignRef(id, eventType, data string) ref {
	h := fnv.New64a()
	for _, part := range []string{id, eventType, data} {
		// A hash never fails to write.
		_, _ = h.Write([]byte(part))
		_, _ = h.Write([]byte{0})
	}
	return ref(uint64(foreignClient)<<48 | h.Sum64()>>16)
}

// mix spreads the bits of a number: the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
