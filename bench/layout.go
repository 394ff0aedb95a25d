package bench

import (
	"bytes"
	crypto "crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/event"
)

// eventType is the type of every event the driver writes.
const eventType = "bench-event"

// layout says which streams exist and how many events each of them has, so that
// what one run writes a later one can read. Streams are numbered from 1.
type layout struct {
	prefix  string
	streams int
	events  int64 // in all streams together; the first ones have one more when it does not divide
}

func layoutOf(o *options, events int64) layout { return layout{o.prefix, o.streams, events} }

// stream returns the name of a stream: bench-000001.
func (l *layout) stream(i int) string { return string(appendStream(nil, l.prefix, i)) }

// appendStream appends the name of a stream. In a path the prefix must be encoded already.
func appendStream(path []byte, prefix string, i int) []byte {
	path = append(append(path, prefix...), '-')
	for below := 100_000; below > 1 && i < below; below /= 10 {
		path = append(path, '0')
	}
	return strconv.AppendInt(path, int64(i), 10)
}

// eventsOf returns how many events a stream has.
func (l *layout) eventsOf(i int) int64 {
	n := l.events / int64(l.streams)
	if int64(i) <= l.events%int64(l.streams) {
		n++
	}
	return n
}

// fixedID is the id of an event of a known layout. It depends on stream and number alone, so
// that writing the same layout again is a retry to the server and writes nothing.
func fixedID(streamHash uint64, number int64) event.ID {
	var id event.ID
	binary.BigEndian.PutUint64(id[:8], mix(streamHash))
	binary.BigEndian.PutUint64(id[8:], mix(streamHash^mix(uint64(number)+1)))
	return stamp(id)
}

func hashOf(stream string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(stream)) // never fails
	return h.Sum64()
}

// mix is a bijection of 64 bits whose outputs look random.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// stamp marks an id as a GUID of version 4.
func stamp(id event.ID) event.ID {
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// idSource makes new ids. It is never seeded by --seed: the ids of an earlier run would be retries
// to the server.
type idSource struct{ chacha *rand.ChaCha8 }

func newIDs() *idSource {
	var seed [32]byte
	_, _ = crypto.Read(seed[:]) // never fails
	return &idSource{rand.NewChaCha8(seed)}
}

func (s *idSource) next() event.ID {
	var id event.ID
	binary.LittleEndian.PutUint64(id[:8], s.chacha.Uint64())
	binary.LittleEndian.PutUint64(id[8:], s.chacha.Uint64())
	return stamp(id)
}

func newRand(o *options, worker, part int) *rand.Rand {
	return rand.New(rand.NewPCG(o.seed, uint64(worker)<<8|uint64(part)))
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// payload makes the data of an event: a JSON object of exactly size bytes, at least 2.
func payload(size int, rng *rand.Rand) []byte {
	const frame = `{"text":""}`
	if size < len(frame) {
		return []byte("{" + strings.Repeat(" ", size-2) + "}")
	}
	data := make([]byte, 0, size)
	data = append(data, frame[:len(frame)-2]...)
	for len(data) < size-2 {
		data = append(data, letters[rng.IntN(len(letters))])
	}
	return append(data, frame[len(frame)-2:]...)
}

// batchBody is a request body of several events, of which only the ids change.
type batchBody struct {
	text []byte
	item int // length of one event with the comma that follows it

	ended int // where the array now ends instead of a comma
}

const batchHead = `{"eventId":"`

func newBatchBody(events, size int, rng *rand.Rand) *batchBody {
	item := batchHead + event.ID{}.String() + `","eventType":"` + eventType + `","data":` + string(payload(size, rng)) + `},`
	return &batchBody{text: []byte("[" + strings.Repeat(item, events)), item: len(item), ended: events * len(item)}
}

// of returns the body with the first n events, whose ids are what id returns. It holds until the
// next call.
func (b *batchBody) of(n int, id func(i int) event.ID) []byte {
	for i := range n {
		at := 1 + i*b.item + len(batchHead)
		id(i).AppendTo(b.text[at:at])
	}
	// The end of the array replaces the comma after the last event. The comma comes back when a
	// longer body is needed.
	b.text[b.ended] = ','
	b.ended = n * b.item
	b.text[b.ended] = ']'
	return b.text[:b.ended+1]
}

// inPath encodes the name of a stream for a path.
func inPath(name string) string { return url.PathEscape(name) }

// numberIn reads the event number at the end of a Location.
func numberIn(location []byte) (int64, error) {
	slash := bytes.LastIndexByte(location, '/')
	n, err := parseDigits(location[slash+1:])
	if err != nil || slash < 0 {
		return 0, fmt.Errorf("%w: location %.80q", errMalformed, location)
	}
	return n, nil
}
