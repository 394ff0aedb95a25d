package grpcapi

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/projections"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	gzipped "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/annalsdb/annals/event"
)

// limits are how many bytes the messages of a call may have, not compressed.
type limits struct {
	first, more int64
	rests       bool // the client may take its time between them
	gathers     bool // they can wait for each other
}

// Sizes of messages that hold no events. The first message of an append has the name of its
// stream: the right to write is known before an event is received.
const (
	maxOptions = 128 << 10
	maxRequest = 256 << 10
	maxAnswers = 1 << 20 // of a consumer
)

func limitsOf(method string) limits {
	switch method {
	case streams.Streams_Append_FullMethodName:
		return limits{maxOptions, maxMessage, false, true}
	case streams.Streams_BatchAppend_FullMethodName:
		return limits{maxMessage, maxMessage, true, false}
	case projections.Projections_Create_FullMethodName, projections.Projections_Update_FullMethodName:
		return limits{maxSmallMessage, maxSmallMessage, true, false}
	case persistent.PersistentSubscriptions_Read_FullMethodName:
		return limits{maxRequest, maxAnswers, true, false}
	}
	return limits{maxRequest, maxRequest, true, false}
}

// largeMessage is the answer to a message beyond its limit, as grpc-go has it.
func largeMessage(most int64) *problem {
	return plain(codes.ResourceExhausted, fmt.Sprintf("grpc: received message larger than max %d", most))
}

// zipSize is how many bytes at the end of a compressed message say how many it was before
// (RFC 1952). They are part of a format: do not change.
const zipSize = 4

// maxRatio is how many times as long as it is compressed a message can be (RFC 1951: 258 bytes in
// two bits).
const maxRatio = 1032

// unpackedSize returns how long a message was that ends so and has so many bytes; 0 when it
// cannot have been: it cannot be unpacked either.
func unpackedSize(last []byte, packed int) int64 {
	size := int64(binary.LittleEndian.Uint32(last))
	if size > int64(packed)*maxRatio {
		return 0
	}
	return size
}

var errZipSize = errors.New("the message does not have the length in its gzip trailer, or has several gzip members")

// unpacked is a message that was compressed, and claimed as its end says. One that would be longer,
// or of several members, is not unpacked any further.
func unpacked(packed []byte, size int64) ([]byte, error) {
	if len(packed) < zipSize {
		return nil, io.ErrUnexpectedEOF
	}
	in := bytes.NewReader(packed)
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("unpack a message: %w", err)
	}
	z.Multistream(false)
	message := make([]byte, size)
	if _, err := io.ReadFull(z, message); err != nil {
		return nil, fmt.Errorf("unpack a message: %w", err)
	}
	if n, err := z.Read(make([]byte, 1)); n != 0 || err != io.EOF || in.Len() > 0 {
		return nil, errZipSize
	}
	return message, nil
}

// packed leaves messages compressed for the receiver: grpc-go gives its own decompressors no bound,
// and ends the call itself when one fails.
type packed struct{}

func (packed) Type() string                   { return gzipped.Name }
func (packed) Do(r io.Reader) ([]byte, error) { return io.ReadAll(r) }

// receiver is a stream that notes what its method receives.
type receiver struct {
	grpc.ServerStream
	call  *call
	isOne bool // the client sends one message
}

// What grpc-go says in these cases.
var (
	problemNoMessage    = plain(codes.InvalidArgument, "cardinality violation: received no request message from non-client-streaming RPC")
	problemManyMessages = plain(codes.InvalidArgument, "cardinality violation: received multiple request messages for non-client-streaming RPC")
	problemNotZipped    = plain(codes.InvalidArgument, "grpc: compressed flag set with identity or empty encoding")
)

// Context ends with the stream, and when the caller is refused.
func (r *receiver) Context() context.Context {
	if r.call.lease == nil {
		return r.ServerStream.Context()
	}
	return r.call.lease.Context()
}

// SendMsg sends a message: one that is encoded, or encodes itself, or a generated one.
func (r *receiver) SendMsg(m any) error {
	c := r.call
	out, isEncoded := m.(*frame)
	if !isEncoded {
		b, err := c.sent.make(c.ended, nil, 0, func(pool mem.BufferPool) (mem.Buffer, error) {
			if a, ok := m.(answer); ok {
				return encodeAnswer(a, pool), nil
			}
			return encode(m.(proto.Message), pool)
		})
		if err != nil {
			return err
		}
		out = &frame{b}
	}
	if err := c.ended.Err(); err != nil { // grpc-go would compress it first.
		out.buffer.Free()
		c.sent.unsent()
		return err
	}
	c.sending.Store(true)
	defer c.sending.Store(false)
	err := r.ServerStream.SendMsg(out)
	if err != nil {
		c.sent.unsent()
	}
	return err
}

func (r *receiver) RecvMsg(m any) error {
	c := r.call
	c.claim.Shrink(c.message) // Its method is done with the one before.
	c.message = 0
	c.receiving.Store(true)
	defer c.receiving.Store(false)
	rest, err := c.in.wait(c.ended)
	if err == nil {
		err = c.claim.Grow(c.ended, int64(rest))
	}
	if err == nil {
		err = r.refusal()
	}
	if err != nil {
		return c.unreceived(err)
	}
	var in incoming
	switch err := r.ServerStream.RecvMsg(&in); {
	case err == io.EOF:
		return err
	case err != nil:
		return c.unreceived(err)
	}
	defer in.data.Free()
	w := c.in.received()
	defer c.claim.Shrink(int64(w.size))
	if err := c.decode(in.data, w, m); err != nil {
		return c.unreceived(err)
	}
	return r.onlyOne()
}

// refusal is why grpc-go may not receive the next message: it would answer INTERNAL.
func (r *receiver) refusal() error {
	isThere, isZipped := r.call.in.next()
	switch {
	case r.isOne && !isThere:
		return problemNoMessage
	case isZipped && r.call.encoding != gzipped.Name && (r.call.encoding == "" || r.call.encoding == encoding.Identity):
		return problemNotZipped
	}
	return nil
}

// onlyOne waits for the client to send no more, if it may send one message alone.
func (r *receiver) onlyOne() error {
	if !r.isOne {
		return nil
	}
	c := r.call
	if _, err := c.in.wait(c.ended); err != nil {
		return c.unreceived(err)
	}
	if more, _ := c.in.next(); more {
		return problemManyMessages
	}
	return nil
}

// unreceived is why a message was not received: the client left, took too long, or sent bytes that
// are not such a message. None is a fault of the node.
func (c *call) unreceived(err error) error {
	if p := c.in.refusal(); p != nil {
		return p
	}
	if errors.Is(err, event.ErrNoRoom) {
		return problemNoRoom
	}
	if _, ok := errors.AsType[*problem](err); ok {
		return err
	}
	s := status.FromContextError(err)
	if known, ok := status.FromError(err); ok {
		s = known
	}
	switch code := s.Code(); code {
	case codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Unavailable, codes.Unimplemented:
		return plain(code, s.Message())
	}
	return plain(codes.InvalidArgument, s.Message())
}

// incoming is a message as it was sent.
type incoming struct{ data mem.BufferSlice }

// Unmarshal keeps a message for the receiver.
func (framing) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	v.(*incoming).data = data
	return nil
}

// Bounds that a message is held to before it is decoded: empty events would take sixty times the
// memory that they have on the wire, and compressed they have next to none.
const (
	fewBytes = 64 << 10 // are decoded whatever they are
	// bytes of a message within a message, an entry of a map, or a text of a list, on average
	leastElement  = 12
	elementMemory = 128 // bytes that one of them takes when it is decoded
)

var (
	errCrowded   = errors.New("it has too many parts for its size")
	errMalformed = errors.New("it is malformed")
)

// decode decodes a message, once it is claimed.
func (c *call) decode(data mem.BufferSlice, w whole, v any) error {
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	message := buffer.ReadOnlyData()
	if w.zipped {
		if err := c.claim.Grow(c.ended, w.unpacked); err != nil {
			return err
		}
		defer c.claim.Shrink(w.unpacked)
		var err error
		if message, err = unpacked(message, w.unpacked); err != nil {
			return err
		}
	}
	if len(message) > fewBytes {
		parts := countParts(generated(v).ProtoReflect().Descriptor(), message, 0)
		if parts*leastElement > len(message) {
			return errCrowded
		}
		if err := c.claimMessage(int64(len(message) + parts*elementMemory)); err != nil {
			return err
		}
	}
	hand, isByHand := v.(byHand)
	if isByHand && hand.decode(message) {
		return nil
	}
	err := proto.Unmarshal(message, generated(v))
	if isByHand {
		err = cmp.Or(err, errMalformed)
	}
	return err
}

// generated is what protobuf decodes a message into.
func generated(v any) proto.Message {
	if m, ok := v.(byHand); ok {
		return m.generated()
	}
	return v.(proto.Message)
}

// claimMessage claims a message that is about to be decoded.
func (c *call) claimMessage(bytes int64) error {
	bytes = min(bytes, c.most) // One that is larger may be alone.
	if err := c.claim.Grow(c.ended, bytes); err != nil {
		return err
	}
	c.message = bytes
	return nil
}

// maxNesting is how deep the parts of a message nest, and then some.
const maxNesting = 8

// countParts counts the parts that make a decoded message larger than its bytes. A message that is
// not well formed is found when it is decoded.
func countParts(d protoreflect.MessageDescriptor, message []byte, depth int) (parts int) {
	fields := d.Fields()
	for rest := message; len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return parts
		}
		rest = rest[n:]
		if n = protowire.ConsumeFieldValue(number, kind, rest); n < 0 {
			return parts
		}
		value := rest[:n]
		rest = rest[n:]
		f := fields.ByNumber(number)
		if f == nil || kind != protowire.BytesType {
			continue
		}
		if f.Message() == nil {
			if f.IsList() {
				parts++
			}
			continue
		}
		parts++
		if inner, n := protowire.ConsumeBytes(value); n > 0 && depth < maxNesting {
			parts += countParts(f.Message(), inner, depth+1)
		}
	}
	return parts
}
