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
	"net"
	"sync"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/projections"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	v2 "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/grpc/query"
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
	maxQuery   = 2 * event.MaxQueryBytes
)

func limitsOf(method string) limits {
	switch method {
	case streams.Streams_Append_FullMethodName:
		return limits{maxOptions, maxMessage, false, true}
	case streams.Streams_BatchAppend_FullMethodName:
		return limits{maxMessage, maxMessage, true, false}
	case v2.StreamsService_AppendSession_FullMethodName:
		return limits{maxMessage, maxMessage, false, true}
	case v2.StreamsService_AppendRecords_FullMethodName, query.QueryService_Append_FullMethodName:
		return limits{maxMessage, maxMessage, false, false}
	case query.QueryService_Read_FullMethodName, query.QueryService_Subscribe_FullMethodName:
		return limits{maxQuery, maxQuery, true, false}
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

// unpackedSize returns how long a message says it was; 0 when it cannot have been: it cannot be
// unpacked either.
func unpackedSize(packed []byte) int64 {
	size := int64(binary.LittleEndian.Uint32(packed[len(packed)-zipSize:]))
	if size > int64(len(packed))*maxRatio {
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

// receiver is the stream of a method, as the services' stubs want it.
type receiver struct {
	*call
	isOne bool // the client sends one message
}

// What EventStoreDB and grpc-go say in these cases.
var (
	problemNoMessage    = plain(codes.InvalidArgument, "cardinality violation: received no request message from non-client-streaming RPC")
	problemManyMessages = plain(codes.InvalidArgument, "cardinality violation: received multiple request messages for non-client-streaming RPC")
	problemNotZipped    = plain(codes.InvalidArgument, "grpc: compressed flag set with identity or empty encoding")
)

// Context ends with the call, and when the caller is refused.
func (r *receiver) Context() context.Context {
	if r.lease == nil {
		return r.ended
	}
	return r.lease.Context()
}

// The headers of an answer are always the same, and its trailers are those of a problem.
func (r *receiver) SetHeader(metadata.MD) error  { return errors.ErrUnsupported }
func (r *receiver) SendHeader(metadata.MD) error { return errors.ErrUnsupported }
func (r *receiver) SetTrailer(metadata.MD)       {}

// SendMsg sends a message: one that is encoded, or encodes itself, or a generated one. The first
// two go out with what follows, or when they are flushed.
func (r *receiver) SendMsg(m any) error {
	switch m := m.(type) {
	case *frame:
		return r.write(m.room)
	case answer:
		return r.write(encodeAnswer(m))
	}
	room, err := encode(m.(proto.Message))
	if err != nil {
		return err
	}
	if err := r.write(room); err != nil {
		return err
	}
	r.flush()
	return nil
}

// write writes encoded messages with their heads, and puts their buffer back.
func (c *call) write(room *[]byte) error {
	defer mem.DefaultBufferPool().Put(room)
	b := *room
	if c.encoding == encodingGzip {
		b = packed(b)
	}
	c.conn.unsent.Add(int64(len(b)))
	defer c.conn.unsent.Add(-int64(len(b)))
	c.sending.Store(true)
	defer c.sending.Store(false)
	return c.stream.Write(c.ended, c.header, b)
}

// flush has what was written go out at once.
func (c *call) flush() {
	if c.stream != nil {
		c.stream.Flush()
	}
}

// Bounds of messages that wait for their clients, in bytes.
const (
	weightyEvent = 64 << 10 // from here on the message of an event is claimed
	muchUnsent   = 1 << 20  // so much of a connection goes unclaimed
)

// send sends messages whose events have so many bytes. They are claimed before they are encoded, if
// they are large or their client is slow, until they are written. It does nothing if there is
// nothing to send: isThere is false then.
func (c *call) send(ctx context.Context, bytes int64, out *sender, encode func() (*[]byte, error)) (isThere bool, err error) {
	if bytes >= weightyEvent || c.conn.unsent.Load() > muchUnsent {
		var claim api.Claim
		claim.Use(c.s.opts.Memory)
		if err := claim.Grow(ctx, bytes); err != nil {
			return false, err
		}
		defer claim.Release()
	}
	room, err := encode()
	if err != nil || room == nil {
		return false, err
	}
	return true, out.add(room)
}

// packed compresses messages, each by itself.
func packed(messages []byte) []byte {
	var to bytes.Buffer
	z := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(z)
	for len(messages) > 0 {
		end := frameHead + int(binary.BigEndian.Uint32(messages[1:]))
		at := to.Len()
		to.Write([]byte{1, 0, 0, 0, 0})
		z.Reset(&to)
		_, _ = z.Write(messages[frameHead:end]) // A buffer takes everything.
		_ = z.Close()
		binary.BigEndian.PutUint32(to.Bytes()[at+1:], uint32(to.Len()-at-frameHead))
		messages = messages[end:]
	}
	return to.Bytes()
}

var gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

func (r *receiver) RecvMsg(m any) error {
	c := r.call
	c.claim.Shrink(c.message) // Its method is done with the one before.
	c.message = 0
	c.receiving.Store(true)
	defer c.receiving.Store(false)
	if err := c.await(); err != nil {
		return c.unreceived(err)
	}
	if err := r.refusal(); err != nil {
		return c.unreceived(err)
	}
	w, ok := c.in.receive()
	if !ok {
		return io.EOF
	}
	if w.data != nil {
		defer mem.DefaultBufferPool().Put(w.data)
	}
	if !w.granted {
		defer c.stream.Grant(w.wire())
	}
	defer c.claim.Shrink(int64(w.size))
	if err := c.decode(&w, m); err != nil {
		return c.unreceived(err)
	}
	return r.onlyOne()
}

// await waits until the next message is there, or none comes.
func (c *call) await() error {
	for {
		rest, err := c.in.wait(c.ended)
		if err != nil || rest == 0 {
			return err
		}
		if err := c.grow(int64(rest)); err != nil {
			return err
		}
		grant, twice := c.in.expect(rest)
		c.claim.Shrink(int64(twice))
		c.stream.Grant(grant)
	}
}

// refusal is why the next message may not be received.
func (r *receiver) refusal() error {
	isThere, isZipped := r.in.next()
	switch {
	case r.isOne && !isThere:
		return problemNoMessage
	case isZipped && r.encoding != encodingGzip:
		return problemNotZipped
	}
	return nil
}

// onlyOne waits for the client to send no more, if it may send one message alone.
func (r *receiver) onlyOne() error {
	if !r.isOne {
		return nil
	}
	if _, err := r.in.wait(r.ended); err != nil {
		return r.unreceived(err)
	}
	if more, _ := r.in.next(); more {
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
func (c *call) decode(w *whole, v any) error {
	var message []byte
	if w.data != nil {
		message = *w.data
	}
	if w.zipped {
		if err := c.grow(w.unpacked); err != nil {
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

// grow claims more, unless the call is over: a method may receive on a goroutine that it does not
// wait for.
func (c *call) grow(bytes int64) error {
	if err := c.claim.Grow(c.ended, bytes); err != nil {
		return err
	}
	c.mu.Lock()
	isOver := c.state == isOver
	c.mu.Unlock()
	if isOver {
		c.claim.Release()
		return net.ErrClosed
	}
	return nil
}

// claimMessage claims a message that is about to be decoded.
func (c *call) claimMessage(bytes int64) error {
	bytes = min(bytes, c.most) // One that is larger may be alone.
	if err := c.grow(bytes); err != nil {
		return err
	}
	c.message = bytes
	return nil
}

// maxNesting is how deep parts of a message are counted. Properties may nest as their client likes;
// what lies deeper counts as if all of it were parts.
const maxNesting = 200

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
		switch inner, n := protowire.ConsumeBytes(value); {
		case n > 0 && depth < maxNesting:
			parts += countParts(f.Message(), inner, depth+1)
		case n > 0:
			parts += len(inner)
		}
	}
	return parts
}

// sendAll sends a message for each element of a list.
func sendAll[E, M any](stream grpc.ServerStreamingServer[M], list []E, message func(*E) *M) error {
	for i := range list {
		if err := stream.Send(message(&list[i])); err != nil {
			return unsent(err)
		}
	}
	return nil
}

// unsent is the error of a message that was not sent. That the client is gone is not worth a line
// in the log.
func unsent(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("send: %w", context.Canceled)
	}
	return fmt.Errorf("send: %w", err)
}
