package grpcapi

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/annalsdb/annals/event"
)

// The messages that come most are decoded by hand: the generated ones take ten times as long, for
// their maps above all. What is accepted and what comes of it is the same, which a fuzz test holds.

// byHand is a message that is decoded by hand.
type byHand interface {
	// decode decodes the message, and keeps none of these bytes. It is false if they are not such a
	// message.
	decode(b []byte) bool
	// generated returns what decodes the same messages, and knows what is wrong with others.
	generated() proto.Message
}

// Fields as their tags have them: the number of the field · what it is. The numbers are part of the
// wire contract: do not change.
const (
	isNumber = uint64(protowire.VarintType)
	isBytes  = uint64(protowire.BytesType)
)

// fields reads the fields of a message, one after the other. A known field of another kind is
// passed over, as an unknown one is.
type fields struct {
	rest   []byte
	tag    uint64
	number uint64 // of a field that is a number
	bytes  []byte // of a field that is bytes
	broken bool   // it is not a message
}

func (f *fields) next() bool {
	if f.broken || len(f.rest) == 0 {
		return false
	}
	n, size := 0, 0
	f.tag, n = protowire.ConsumeVarint(f.rest)
	number := f.tag >> 3
	if f.broken = n < 0 || number < uint64(protowire.MinValidNumber) || number > uint64(protowire.MaxValidNumber); f.broken {
		return false
	}
	f.rest = f.rest[n:]
	switch f.tag & 7 {
	case isNumber:
		f.number, size = protowire.ConsumeVarint(f.rest)
	case isBytes:
		f.bytes, size = protowire.ConsumeBytes(f.rest)
	default:
		size = protowire.ConsumeFieldValue(protowire.Number(number), protowire.Type(f.tag&7), f.rest)
	}
	if f.broken = size < 0; !f.broken {
		f.rest = f.rest[size:]
	}
	return !f.broken
}

// isMessage reports whether bytes are a message, of which nothing is known.
func isMessage(b []byte) bool {
	f := fields{rest: b}
	for f.next() {
	}
	return !f.broken
}

// wireID is an id in one of its forms.
type wireID struct {
	form uint64 // the tag of its field; 0: it has none
	id   event.ID
	err  error // the text is not an id
}

func (u *wireID) decode(b []byte) bool {
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case fieldStructured<<3 | isBytes:
			if u.form != f.tag {
				*u = wireID{form: f.tag}
			}
			f.broken = !u.halves(f.bytes)
		case fieldText<<3 | isBytes:
			*u = wireID{form: f.tag}
			if u.id, u.err = event.ParseID(f.bytes); u.err != nil {
				u.err, f.broken = invalid("%q is not a UUID", f.bytes), !utf8.Valid(f.bytes)
			}
		}
	}
	return !f.broken
}

func (u *wireID) halves(b []byte) bool {
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case fieldMostSignificant<<3 | isNumber:
			binary.BigEndian.PutUint64(u.id[:8], f.number)
		case fieldLeast<<3 | isNumber:
			binary.BigEndian.PutUint64(u.id[8:], f.number)
		}
	}
	return !f.broken
}

// get returns the id, if it is one.
func (u *wireID) get() (event.ID, error) {
	if u.form == 0 {
		return u.id, invalid("a UUID is missing")
	}
	return u.id, u.err
}

// proposal is an event as a client sends it.
type proposal struct {
	id             wireID
	kind           []byte // nil: it has none
	hasContentType bool
	isJSON         bool
	metadata, data []byte
}

func (p *proposal) decode(b []byte) bool {
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			f.broken = !p.id.decode(f.bytes)
		case 2<<3 | isBytes:
			f.broken = !p.property(f.bytes)
		case 3<<3 | isBytes:
			p.metadata = f.bytes
		case 4<<3 | isBytes:
			p.data = f.bytes
		}
	}
	return !f.broken
}

// property takes an entry of the event's metadata map.
func (p *proposal) property(b []byte) bool {
	key, value := []byte{}, []byte{}
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case fieldKey<<3 | isBytes:
			key, f.broken = f.bytes, !utf8.Valid(f.bytes)
		case fieldValue<<3 | isBytes:
			value, f.broken = f.bytes, !utf8.Valid(f.bytes)
		}
	}
	switch string(key) {
	case mapType:
		p.kind = value
	case mapContentType:
		p.hasContentType, p.isJSON = true, string(value) == contentJSON
	}
	return !f.broken
}

// own gives events bytes of their own, which lay in a message.
func own(all []proposal) {
	size := 0
	for i := range all {
		p := &all[i]
		size += len(p.kind) + len(p.metadata) + len(p.data)
	}
	room := make([]byte, 0, size)
	for i := range all {
		p := &all[i]
		for _, b := range []*[]byte{&p.kind, &p.metadata, &p.data} {
			if *b != nil {
				at := len(room)
				room = append(room, *b...)
				*b = room[at:len(room):len(room)]
			}
		}
	}
}

// appendOptions is what an append is to, and its conditions. Append and BatchAppend have the same
// numbers here, and for events (a test compares them).
type appendOptions struct {
	stream   *string // nil: there is none
	expected expectation
	deadline uint64 // the tag of its field; 0: it has none
	until    moment
}

// expectation is the oneof of an expected version.
type expectation struct {
	set                          bool
	revision                     uint64
	noStream, anyVersion, exists *struct{}
}

// aim sets what an append is to.
func (o *appendOptions) aim(a *appending) error {
	stream := ""
	if o.stream != nil {
		stream = *o.stream
	}
	e := &o.expected
	expected, err := expectedOf(e.set, e.revision, e.noStream, e.anyVersion, e.exists)
	return a.target(stream, expected, err)
}

// moment is a point in time, or how long something takes.
type moment struct {
	seconds int64
	nanos   int32
}

func (o *appendOptions) decode(b []byte, isBatch bool) bool {
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			if o.stream == nil {
				o.stream = new(string)
			}
			f.broken = !decodeName(o.stream, f.bytes)
		case 2<<3 | isNumber:
			o.expected = expectation{set: true, revision: f.number}
		case 3<<3 | isBytes:
			o.expected, f.broken = expectation{set: true, noStream: &struct{}{}}, !isMessage(f.bytes)
		case 4<<3 | isBytes:
			o.expected, f.broken = expectation{set: true, anyVersion: &struct{}{}}, !isMessage(f.bytes)
		case 5<<3 | isBytes:
			o.expected, f.broken = expectation{set: true, exists: &struct{}{}}, !isMessage(f.bytes)
		case isDeadlineAt, isDeadline:
			if !isBatch {
				continue
			}
			if o.deadline != f.tag {
				o.deadline, o.until = f.tag, moment{}
			}
			f.broken = !o.until.decode(f.bytes)
		}
	}
	return !f.broken
}

const isDeadlineAt, isDeadline = 6<<3 | isBytes, 7<<3 | isBytes

// decodeName decodes the identifier of a stream.
func decodeName(to *string, b []byte) bool {
	f := fields{rest: b}
	for f.next() {
		if f.tag == fieldStreamName<<3|isBytes {
			*to = string(f.bytes)
		}
	}
	return !f.broken
}

func (m *moment) decode(b []byte) bool {
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case 1<<3 | isNumber:
			m.seconds = int64(f.number)
		case 2<<3 | isNumber:
			m.nanos = int32(f.number)
		}
	}
	return !f.broken
}

// appendRequest is a message of Append: options, an event, or nothing.
type appendRequest struct {
	isOptions, isEvent bool
	options            appendOptions
	event              [1]proposal
}

func (r *appendRequest) generated() proto.Message { return new(streams.AppendReq) }

func (r *appendRequest) decode(b []byte) bool {
	*r = appendRequest{}
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			if !r.isOptions {
				*r = appendRequest{isOptions: true}
			}
			f.broken = !r.options.decode(f.bytes, false)
		case 2<<3 | isBytes:
			if !r.isEvent {
				*r = appendRequest{isEvent: true}
			}
			f.broken = !r.event[0].decode(f.bytes)
		}
	}
	own(r.event[:])
	return !f.broken
}

// batchRequest is a message of BatchAppend: a write or a part of one.
type batchRequest struct {
	correlation []byte // an id as it came
	id          wireID // the same
	hasOptions  bool
	options     appendOptions
	events      []proposal
	isFinal     bool
}

// fewProposals is of how many events the memory is kept for the next request.
const fewProposals = 128

func (r *batchRequest) generated() proto.Message { return new(streams.BatchAppendReq) }

// forget lets go of the events.
func (r *batchRequest) forget() {
	clear(r.events)
	r.events = r.events[:0]
	if cap(r.events) > fewProposals {
		r.events = nil
	}
}

func (r *batchRequest) decode(b []byte) bool {
	r.forget()
	*r = batchRequest{events: r.events}
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case 1<<3 | isBytes:
			r.correlation = append(r.correlation, f.bytes...) // So they merge.
			f.broken = !r.id.decode(f.bytes)
		case 2<<3 | isBytes:
			r.hasOptions = true
			f.broken = !r.options.decode(f.bytes, true)
		case 3<<3 | isBytes:
			r.events = append(r.events, proposal{})
			f.broken = !r.events[len(r.events)-1].decode(f.bytes)
		case 4<<3 | isNumber:
			r.isFinal = f.number != 0
		}
	}
	own(r.events)
	return !f.broken
}

// groupAnswer is a message of a consumer after its first.
type groupAnswer struct {
	form   uint64 // the tag of its field; 0: it has none
	ids    []event.ID
	err    error // an id is wrong
	action persistent.ReadReq_Nack_Action
	reason string
}

const isAck, isNack = 2<<3 | isBytes, 3<<3 | isBytes

func (a *groupAnswer) generated() proto.Message { return new(persistent.ReadReq) }

func (a *groupAnswer) decode(b []byte) bool {
	*a = groupAnswer{}
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case 1<<3 | isBytes: // Options, which come too late.
			*a = groupAnswer{}
			f.broken = proto.Unmarshal(f.bytes, new(persistent.ReadReq_Options)) != nil
		case isAck, isNack:
			if a.form != f.tag {
				*a = groupAnswer{form: f.tag}
			}
			f.broken = !a.answer(f.bytes)
		}
	}
	return !f.broken
}

func (a *groupAnswer) answer(b []byte) bool {
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case 2<<3 | isBytes:
			var u wireID
			f.broken = !u.decode(f.bytes)
			id, err := u.get()
			if a.ids = append(a.ids, id); a.err == nil {
				a.err = err
			}
		case 3<<3 | isNumber:
			a.action = persistent.ReadReq_Nack_Action(f.number)
		case 4<<3 | isBytes:
			if a.form == isNack {
				a.reason, f.broken = string(f.bytes), !utf8.Valid(f.bytes)
			}
		}
	}
	return !f.broken
}
