package grpcapi

import (
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/grpc/query"
)

// wording is how a service tells what a read or a subscription comes to.
type wording interface {
	// append appends the message of an event, with its head; one encodes it alone.
	append(b []byte, e *event.Resolved) []byte
	one(e *event.Resolved) *[]byte
	// begun is the message that a subscription has begun; nil: there is none.
	begun() proto.Message
	// checkpoint tells a position that a subscription has passed.
	checkpoint(position int64) proto.Message
	// caughtUp tells that all there was has been sent, up to a number, or a position of the log;
	// -1: there was nothing.
	caughtUp(seen int64, isLog bool) proto.Message
}

// streamsWords are the messages of the service Streams.
type streamsWords struct {
	textIDs bool
	frame   eventFrame // of the event that is being encoded
}

func (w *streamsWords) append(b []byte, e *event.Resolved) []byte {
	w.frame.set(e, w.textIDs, notRetried)
	b = w.frame.frameTo(b)
	w.frame = eventFrame{} // A subscription at rest must not keep the memory of an event.
	return b
}

func (w *streamsWords) one(e *event.Resolved) *[]byte { return frameOf(e, w.textIDs, notRetried) }

func (w *streamsWords) begun() proto.Message {
	return &streams.ReadResp{Content: &streams.ReadResp_Confirmation{
		Confirmation: &streams.ReadResp_SubscriptionConfirmation{SubscriptionId: uuid.NewString()},
	}}
}

func (w *streamsWords) checkpoint(position int64) proto.Message {
	at := uint64(position)
	return &streams.ReadResp{Content: &streams.ReadResp_Checkpoint_{
		Checkpoint: &streams.ReadResp_Checkpoint{CommitPosition: at, PreparePosition: at, Timestamp: timestamppb.Now()},
	}}
}

func (w *streamsWords) caughtUp(seen int64, isLog bool) proto.Message {
	c := &streams.ReadResp_CaughtUp{Timestamp: timestamppb.Now()}
	switch {
	case seen < 0:
	case isLog:
		c.Position = &streams.ReadResp_Position{CommitPosition: uint64(seen), PreparePosition: uint64(seen)}
	default:
		c.StreamRevision = new(seen)
	}
	return &streams.ReadResp{Content: &streams.ReadResp_CaughtUp_{CaughtUp: c}}
}

// Numbers of fields of a found event, and of that event in the messages of Read and of Subscribe.
// They are part of the wire contract: do not change.
const (
	foundPosition, foundStream, foundNumber, foundID, foundType, foundCreated = 1, 2, 3, 4, 5, 6

	foundIsJSON, foundData, foundMetadata, foundTags, foundRedacted = 7, 8, 9, 10, 11

	fieldReadEvent, fieldSubscribedEvent = 2, 1
)

// queryWords are the messages of the service of queries.
type queryWords struct {
	field  protowire.Number // of an event
	noData bool
	labels label.Reader
}

func (w *queryWords) append(b []byte, e *event.Resolved) []byte {
	// A header of HTTP can give names any bytes.
	r, stream, kind := &e.Record, validText(e.Stream), typeOf(&e.Record)
	facts, _ := w.labels.Read(r.Stream, r.Type, r.Metadata) // Malformed tags are none.
	flag := map[bool]uint64{true: 1}
	data, metadata := r.Data, r.Metadata
	if r.IsRedacted() {
		data = nil
	}
	if w.noData {
		data, metadata = nil, nil
	}
	at := len(b)
	b = append(b, make([]byte, frameHead)...)
	size := numberSize(uint64(r.Position)) + numberSize(uint64(r.Number)) + numberSize(uint64(ticksOf(r.Time))) +
		numberSize(flag[r.IsJSON()]) + numberSize(flag[r.IsRedacted()]) + textSize(len(stream)) + textSize(len(kind)) +
		textSize(idText) + textSize(len(data)) + textSize(len(metadata))
	for _, tag := range facts.Tags {
		size += textSize(len(tag))
	}
	b = appendHeader(b, w.field, size)
	b = appendText(appendNumber(b, foundPosition, uint64(r.Position)), foundStream, stream)
	b = r.ID.AppendTo(appendHeader(appendNumber(b, foundNumber, uint64(r.Number)), foundID, idText))
	b = appendNumber(appendText(b, foundType, kind), foundCreated, uint64(ticksOf(r.Time)))
	b = appendNumber(b, foundIsJSON, flag[r.IsJSON()])
	if len(data) > 0 {
		b = appendMessage(b, foundData, data)
	}
	if len(metadata) > 0 {
		b = appendMessage(b, foundMetadata, metadata)
	}
	for _, tag := range facts.Tags {
		b = appendText(b, foundTags, tag)
	}
	b = appendNumber(b, foundRedacted, flag[r.IsRedacted()])
	setHead(b[at:])
	clear(facts.Tags) // As above: they lie in the event.
	return b
}

// idText is how many bytes an id has as text.
const idText = 36

// textSize is the size of a field with so many bytes, which is not there when they are none.
func textSize(n int) int {
	if n == 0 {
		return 0
	}
	return bytesSize(n)
}

func (w *queryWords) one(e *event.Resolved) *[]byte {
	most := leastTogether + e.PayloadBytes() + len(e.Metadata) + len(e.Stream) + utf8.UTFMax*len(e.Type)
	room := mem.DefaultBufferPool().Get(most)
	*room = w.append((*room)[:0], e)
	return room
}

func (w *queryWords) begun() proto.Message { return nil }

func (w *queryWords) checkpoint(position int64) proto.Message {
	return &query.SubscribeResp{Content: &query.SubscribeResp_Checkpoint_{Checkpoint: &query.SubscribeResp_Checkpoint{Position: position}}}
}

func (w *queryWords) caughtUp(seen int64, _ bool) proto.Message {
	return &query.SubscribeResp{Content: &query.SubscribeResp_CaughtUp_{CaughtUp: &query.SubscribeResp_CaughtUp{Position: positionOrNone(seen)}}}
}

// positionOrNone is a position of the log as messages have it: without one the log is empty.
func positionOrNone(position int64) *int64 {
	if position < 0 {
		return nil
	}
	return &position
}
