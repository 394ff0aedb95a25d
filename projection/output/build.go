package output

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
)

// builder makes events of emissions. The common parts of the emissions of one event are made once.
type builder struct {
	version position.Version
	isBare  bool // the metadata do not name the version

	at      position.Position
	heap    *position.Position // at, once it is kept
	by      *handler.Event
	begun   bool
	prefix  []byte // of the metadata: version and position
	members int    // where the position begins in prefix
	cause   []byte // of the metadata: $causedBy
	related []byte // of the metadata: $correlationId
	scratch []byte
}

const keyCausedBy, keyCorrelation = "$causedBy", "$correlationId"

// begin sets the common parts of the next emissions.
func (b *builder) begin(at position.Position, by *handler.Event) {
	if b.begun && b.by == by && equal(b.at, at) {
		return
	}
	b.begun, b.at, b.by, b.heap = true, at, by, nil
	b.prefix = append(b.prefix[:0], '{')
	if !b.isBare {
		b.prefix = append(b.prefix, `"$v":"`...)
		b.prefix = append(append(b.prefix, b.version.String()...), `",`...)
	}
	b.members = len(b.prefix)
	b.prefix = at.AppendMembers(b.prefix, nil)
	b.cause, b.related = b.cause[:0], b.related[:0]
	if by == nil {
		return
	}
	b.cause = append(b.cause, `,"$causedBy":"`...)
	b.cause = append(by.ID.AppendTo(b.cause), '"')
	if by.IsJSON() {
		if id, kind := jsontext.Member(by.Metadata, keyCorrelation); kind != jsontext.Invalid && kind != jsontext.Null {
			b.related = append(append(b.related, `,"$correlationId":`...), id...)
		}
	}
}

// place returns the position in a form that can be kept.
func (b *builder) place() *position.Position {
	if b.heap == nil {
		at := b.at
		b.heap = &at
	}
	return b.heap
}

// event makes the event of an emission, one of several of its position to its
// stream. The strings and data of the emission are kept.
func (b *builder) event(e *handler.Emission, ordinal int, metadata []byte) event.Proposed {
	p := event.Proposed{ID: b.id(e, ordinal), Type: e.Type, Data: e.Data, Metadata: metadata}
	if e.JSON {
		p.Flags = event.FlagJSON
	}
	return p
}

// id makes an id out of what tells one emission from all others. Package output says why it is no
// more than a help.
func (b *builder) id(e *handler.Emission, ordinal int) (id event.ID) {
	t := append(b.scratch[:0], b.prefix[b.members:]...)
	t = append(append(t, 0), e.Stream...)
	t = append(append(t, 0), e.Type...)
	t = binary.LittleEndian.AppendUint64(append(t, 0), uint64(ordinal))
	t = binary.LittleEndian.AppendUint64(t, uint64(b.version.Projection))
	run := b.version.Epoch
	if b.isBare { // Every run of a query begins a stream again.
		run = b.version.Version
	}
	t = binary.LittleEndian.AppendUint64(t, uint64(run))
	b.scratch = t
	id = xxh3.Hash128(t).Bytes()
	id[6] = id[6]&0x0f | 0x80 // Version 8: made by rules of our own.
	id[8] = id[8]&0x3f | 0x80
	return id
}

// metadata makes the metadata of an event.
func (b *builder) metadata(own []handler.Field) []byte {
	size := len(b.prefix) + len(b.cause) + len(b.related) + 1
	for i := range own {
		size += len(own[i].Name) + len(own[i].Value) + 4
	}
	m := append(make([]byte, 0, size), b.prefix...)
	related := b.related
	for i := range own {
		f := &own[i]
		if f.Value == nil || isReserved(f.Name) {
			continue
		}
		if f.Name == keyCorrelation {
			related = nil
		}
		m = append(jsontext.AppendString(append(m, ','), f.Name), ':')
		m = append(m, f.Value...)
	}
	return append(append(append(m, b.cause...), related...), '}')
}

// isReserved reports whether a member of metadata is one that only the database writes.
func isReserved(name string) bool {
	switch name {
	case "$v", "$c", "$p", "$s", "$ph", "$cp", keyCausedBy:
		return true
	}
	return false
}

// Result queues what tells that the result of a partition (empty: of the root) changed; nil:
// it became null. isNew says that the partition was not seen before.
func (o *Output) Result(at position.Position, by *handler.Event, partition string, result []byte, isNew bool) {
	names := &o.opts.Streams
	e := handler.Emission{Stream: names.Result(), Type: TypeResult, JSON: true, Data: result}
	if result == nil {
		e.Type = TypeResultRemoved
	} else {
		e.JSON = jsontext.Valid(result)
	}
	o.build.begin(at, by)
	if partition == "" {
		o.add(&e, nil, nil)
		return
	}
	if isNew {
		o.add(&handler.Emission{Stream: names.Partitions(), Type: TypePartition, Data: []byte(partition)}, nil, nil)
	}
	e.Stream = names.PartitionResult(partition)
	p := &place{stream: e.Stream}
	o.add(&e, p, nil)
	o.add(&handler.Emission{Stream: names.Result(), Type: event.TypeLink}, nil, p)
}
