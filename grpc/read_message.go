package grpcapi

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"strconv"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/annalsdb/annals/event"
)

// Events are encoded by hand, which takes an eighth of the time that the generated messages with
// their maps take: it is what a node does most when it is read from.

// Numbers of fields: ReadResp 1 event; ReadEvent 1 event, 2 link, 3 commit_position, 5 retry_count;
// RecordedEvent; entry of a map; UUID; StreamIdentifier. Those of persistent subscriptions are the
// same, and only they have a count. They are part of the wire contract: do not change.
const (
	fieldRespEvent = 1

	fieldEvent, fieldLink, fieldPosition, fieldRetries = 1, 2, 3, 5

	fieldID, fieldStream, fieldRevision, fieldPrepare, fieldCommit, fieldMap, fieldMetadata, fieldData = 1, 2, 3, 4, 5, 6, 7, 8

	fieldKey, fieldValue             = 1, 2
	fieldStructured, fieldText       = 1, 2
	fieldMostSignificant, fieldLeast = 1, 2
	fieldStreamName                  = 3
)

// frame are messages that have been encoded, with their heads.
type frame struct{ room *[]byte }

// sender sends the messages of a call that has many.
type sender struct {
	stream grpc.ServerStream
	send   frame // is being sent
}

// message sends a message that is not encoded yet.
func (s *sender) message(m proto.Message) error {
	room, err := encode(m)
	if err != nil {
		return err
	}
	return s.add(room)
}

// add sends encoded messages, which go out when the call flushes, ends or waits.
func (s *sender) add(room *[]byte) error {
	s.send.room = room
	if err := s.stream.SendMsg(&s.send); err != nil {
		return cmp.Or(s.stream.Context().Err(), fmt.Errorf("send a message: %w: %w", event.ErrClosed, err))
	}
	return nil
}

// encode encodes a message with its head into a buffer of the pool.
func encode(m proto.Message) (*[]byte, error) {
	room := mem.DefaultBufferPool().Get(frameHead + proto.Size(m))
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*room)[:frameHead], m)
	if err != nil {
		mem.DefaultBufferPool().Put(room)
		return nil, fmt.Errorf("encode a message: %w", err)
	}
	setHead(b)
	*room = b
	return room, nil
}

// Entries of the map that tell the content type.
var (
	entryJSON  = string(appendEntry(nil, mapContentType, contentJSON))
	entryBytes = string(appendEntry(nil, mapContentType, contentBytes))
)

// sized is a record with what its encoded form needs besides.
type sized struct {
	*event.Record
	id          []byte // the fields of its UUID
	eventType   string
	created     []byte
	contentType string // an entry of its map
	size        int

	idRoom      [40]byte
	createdRoom [20]byte
}

// set measures a record.
func (z *sized) set(r *event.Record, textIDs bool) {
	z.Record, z.id, z.eventType, z.contentType = r, z.idRoom[:0], typeOf(r), entryBytes
	if textIDs {
		z.id = protowire.AppendTag(z.id, fieldText, protowire.BytesType)
		z.id = protowire.AppendVarint(z.id, 36)
		z.id = r.ID.AppendTo(z.id)
	} else {
		most, least := binary.BigEndian.Uint64(r.ID[:8]), binary.BigEndian.Uint64(r.ID[8:])
		z.id = protowire.AppendTag(z.id, fieldStructured, protowire.BytesType)
		z.id = protowire.AppendVarint(z.id, uint64(numberSize(most)+numberSize(least)))
		z.id = appendNumber(z.id, fieldMostSignificant, most)
		z.id = appendNumber(z.id, fieldLeast, least)
	}
	z.created = strconv.AppendInt(z.createdRoom[:0], ticksOf(r.Time), 10)
	if r.IsJSON() {
		z.contentType = entryJSON
	}
	z.size = bytesSize(len(z.id)) + bytesSize(bytesSize(len(r.Stream))) +
		numberSize(uint64(r.Number)) + 2*numberSize(uint64(r.Position)) +
		bytesSize(entrySize(mapType, len(z.eventType))) + bytesSize(entrySize(mapCreated, len(z.created))) +
		len(z.contentType)
	if len(r.Metadata) > 0 {
		z.size += bytesSize(len(r.Metadata))
	}
	if len(r.Data) > 0 {
		z.size += bytesSize(len(r.Data))
	}
}

// appendTo appends the record as a field.
func (z *sized) appendTo(b []byte, field protowire.Number) []byte {
	b = appendHeader(b, field, z.size)
	b = append(appendHeader(b, fieldID, len(z.id)), z.id...)
	b = appendHeader(b, fieldStream, bytesSize(len(z.Stream)))
	b = append(appendHeader(b, fieldStreamName, len(z.Stream)), z.Stream...)
	b = appendNumber(b, fieldRevision, uint64(z.Number))
	b = appendNumber(b, fieldPrepare, uint64(z.Position))
	b = appendNumber(b, fieldCommit, uint64(z.Position))
	b = appendEntry(b, mapType, z.eventType)
	b = appendEntry(b, mapCreated, z.created)
	b = append(b, z.contentType...)
	if len(z.Metadata) > 0 {
		b = append(appendHeader(b, fieldMetadata, len(z.Metadata)), z.Metadata...)
	}
	if len(z.Data) > 0 {
		b = append(appendHeader(b, fieldData, len(z.Data)), z.Data...)
	}
	return b
}

// notRetried is the number of retries of an event that is not of a persistent subscription.
const notRetried = -1

// eventFrame is the message of an event, measured. A link whose target is gone stands alone, as the
// link.
type eventFrame struct {
	of, link sized
	position uint64
	retries  int
	size     int // of what the message has
}

func (f *eventFrame) set(e *event.Resolved, textIDs bool, retries int) {
	f.of.Record, f.link.Record, f.position, f.retries = nil, nil, uint64(e.Position), retries
	f.size = 1 + protowire.SizeVarint(f.position)
	if e.Link != event.LinkDead {
		f.of.set(e.Event(), textIDs)
		f.size += bytesSize(f.of.size)
	}
	if e.Link != event.NotLink {
		f.link.set(&e.Record, textIDs)
		f.size += bytesSize(f.link.size)
	}
	if retries != notRetried {
		f.size += 1 + protowire.SizeVarint(uint64(retries))
	}
}

func (f *eventFrame) appendTo(b []byte) []byte {
	b = appendHeader(b, fieldRespEvent, f.size)
	if f.of.Record != nil {
		b = f.of.appendTo(b, fieldEvent)
	}
	if f.link.Record != nil {
		b = f.link.appendTo(b, fieldLink)
	}
	b = protowire.AppendTag(b, fieldPosition, protowire.VarintType)
	b = protowire.AppendVarint(b, f.position)
	if f.retries != notRetried {
		b = protowire.AppendTag(b, fieldRetries, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(f.retries))
	}
	return b
}

// frameTo appends the message of an event, with its head.
func (f *eventFrame) frameTo(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, frameHead)...)
	b = f.appendTo(b)
	setHead(b[at:])
	return b
}

// frameOf encodes the message of an event.
func frameOf(e *event.Resolved, textIDs bool, retries int) *[]byte {
	var f eventFrame
	f.set(e, textIDs, retries)
	room := mem.DefaultBufferPool().Get(frameHead + bytesSize(f.size))
	*room = f.frameTo((*room)[:0])
	return room
}

// Bounds of events that share a buffer, in bytes: to have one takes longer than to encode a small
// event.
const (
	maxTogether   = 32 << 10
	leastTogether = 205 // counted for each record besides its texts and payload: none takes more
)

// together is how many events of a page can share a buffer, of how many bytes, and how many their
// payloads have. Those that were not read whole cannot.
func together(events []event.Resolved) (n, size, payload int) {
	for i := range events {
		e := &events[i]
		bytes := e.PayloadBytes()
		most := bytes + len(e.Stream) + utf8.UTFMax*len(e.Type) + leastTogether
		if e.Target != nil {
			most += len(e.Target.Stream) + utf8.UTFMax*len(e.Target.Type) + leastTogether
		}
		if e.IsBare() || size+most > maxTogether {
			break
		}
		n, size, payload = n+1, size+most, payload+bytes
	}
	return n, size, payload
}

// bytesSize is the size of a field with so many bytes. The numbers of all fields are below 16, so
// that a tag is one byte.
func bytesSize(n int) int { return 1 + protowire.SizeBytes(n) }

// numberSize is the size of a field with a number, which is not there when it is 0.
func numberSize(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(v)
}

// entrySize is the size of an entry of a map.
func entrySize(key string, valueLen int) int { return bytesSize(len(key)) + bytesSize(valueLen) }

func appendHeader(b []byte, field protowire.Number, size int) []byte {
	tag := byte(field)<<3 | byte(protowire.BytesType)
	if size < 1<<7 {
		return append(b, tag, byte(size))
	}
	return protowire.AppendVarint(append(b, tag), uint64(size))
}

func appendNumber(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, byte(field)<<3|byte(protowire.VarintType)), v)
}

func appendEntry[T ~string | ~[]byte](b []byte, key string, value T) []byte {
	b = appendHeader(b, fieldMap, entrySize(key, len(value)))
	b = append(appendHeader(b, fieldKey, len(key)), key...)
	return append(appendHeader(b, fieldValue, len(value)), value...)
}
