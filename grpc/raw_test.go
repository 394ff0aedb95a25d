package grpcapi_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/annalsdb/annals/api"
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/internal/http1"
	"github.com/annalsdb/annals/internal/testkit"
)

const (
	methodFeatures = "/event_store.client.server_features.ServerFeatures/GetSupportedMethods"
	methodRead     = "/event_store.client.streams.Streams/Read"
	methodBatch    = "/event_store.client.streams.Streams/BatchAppend"
	methodAppend   = "/event_store.client.streams.Streams/Append"
)

// rawClient speaks HTTP/2 by hand, as clients do that are broken or mean harm.
type rawClient struct {
	*http2.Framer
	net.Conn
	t testing.TB
}

// dialRaw connects, and sends the preface and settings.
func dialRaw(t testing.TB, address string, settings ...http2.Setting) *rawClient {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // The test or the server may have closed it.
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	raw := &rawClient{http2.NewFramer(c, c), c, t}
	raw.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err = io.WriteString(c, http2.ClientPreface)
	raw.sent(err)
	raw.sent(raw.WriteSettings(settings...))
	return raw
}

func (c *rawClient) sent(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// call begins a call.
func (c *rawClient) call(stream uint32, method string, more ...string) {
	c.t.Helper()
	c.request(stream, method, append([]string{"content-type", "application/grpc"}, more...)...)
}

func (c *rawClient) request(stream uint32, path string, more ...string) {
	c.t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	e.SetMaxDynamicTableSize(0)
	fields := append([]string{":method", "POST", ":scheme", "http", ":path", path, ":authority", "x"}, more...)
	for i := 0; i < len(fields); i += 2 {
		c.sent(e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	c.sent(c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}))
}

// until reads frames up to one of a kind on a stream.
func (c *rawClient) until(kind http2.FrameType, stream uint32) http2.Frame {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatalf("waiting for %v: %v", kind, err)
		}
		if h := f.Header(); h.Type == kind && h.StreamID == stream {
			return f
		}
	}
}

// end reads up to the end of a call, and returns its code and text.
func (c *rawClient) end(stream uint32) (code, text string) {
	c.t.Helper()
	for {
		h := c.until(http2.FrameHeaders, stream).(*http2.MetaHeadersFrame)
		for _, f := range h.Fields {
			switch f.Name {
			case "grpc-status":
				code = f.Value
			case "grpc-message":
				text = f.Value
			}
		}
		if h.StreamEnded() {
			return code, text
		}
	}
}

// wire is a message as it is sent.
func wire(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

func claims(t testing.TB, memory *api.Memory, what string, isRight func(used int64) bool) {
	t.Helper()
	testkit.Eventually(t, 5*time.Second, func() error {
		if used := memory.Used(); !isRight(used) {
			return fmt.Errorf("%s: %d bytes are claimed", what, used)
		}
		return nil
	})
}

func none(used int64) bool { return used == 0 }

// TestFirstFrames: the node announces its bounds before the first request, acknowledges the
// client's SETTINGS, and opens the window of the connection.
func TestFirstFrames(t *testing.T) {
	s := grpcapi.New(grpcapi.Options{Node: api.Node{Store: newEndlessStore(), Cluster: &changingCluster{leads: true}, Access: allowAll{}}})
	c := dialRaw(t, listen(t, s))
	f := c.until(http2.FrameSettings, 0).(*http2.SettingsFrame)
	if v, ok := f.Value(http2.SettingMaxConcurrentStreams); !ok || v != 10_000 {
		t.Errorf("%v", f)
	}
	c.call(1, methodFeatures)
	if !c.until(http2.FrameSettings, 0).(*http2.SettingsFrame).IsAck() {
		t.Error("SETTINGS come twice")
	}
	if n := c.until(http2.FrameWindowUpdate, 0).(*http2.WindowUpdateFrame).Increment; n < 1<<20 {
		t.Errorf("the window grows by %d", n)
	}
}

// TestDataAfterTheEndOfACall: what a client sends on when its call has ended is not claimed for
// ever.
func TestDataAfterTheEndOfACall(t *testing.T) {
	memory := api.NewMemory(64 * mib)
	s := grpcapi.New(grpcapi.Options{Node: api.Node{Store: newEndlessStore(), Cluster: &changingCluster{leads: true}, Access: allowAll{}, Memory: memory}})
	c := dialRaw(t, listen(t, s))
	const frame = 16 << 10
	for i := range uint32(8) {
		stream := 2*i + 1
		c.call(stream, "/unknown.Service/Method")
		// The head of a frame, and the rest of it when the call has ended.
		_, err := c.Write([]byte{frame >> 16, frame >> 8 & 0xff, frame & 0xff, byte(http2.FrameData), 0, 0, 0, 0, byte(stream), 0, 0, 1, 0, 0})
		c.sent(err)
		if code, _ := c.end(stream); code != "12" {
			t.Fatal(code)
		}
		_, err = c.Write(make([]byte, frame-5))
		c.sent(err)
	}
	c.sent(c.WritePing(false, [8]byte{}))
	c.until(http2.FramePing, 0)
	claims(t, memory, "all calls have ended", none)
}

// TestDataOfCallsWhoseAnswerIsNotTaken: what a client sends on after its mistake is not kept,
// though it takes no answer, and the call ends when it does.
func TestDataOfCallsWhoseAnswerIsNotTaken(t *testing.T) {
	memory := api.NewMemory(64 * mib)
	s := grpcapi.New(grpcapi.Options{Node: api.Node{Store: newEndlessStore(), Cluster: &changingCluster{leads: true}, Access: allowAll{}, Memory: memory}})
	c := dialRaw(t, listen(t, s), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	const calls, more = 4, 10 * (16 << 10)
	for i := range uint32(calls) {
		stream := 2*i + 1
		c.call(stream, methodBatch)
		// It is answered.
		write := &streams.BatchAppendReq{CorrelationId: newID(), IsFinal: true, Options: &streams.BatchAppendReq_Options{StreamIdentifier: identifier("s")}}
		c.sent(c.WriteData(stream, false, wire(t, write)))
		c.until(http2.FrameHeaders, stream)
		c.sent(c.WriteData(stream, false, []byte{9, 0, 0, 0, 0})) // That ends it.
		for range more / (16 << 10) {
			c.sent(c.WriteData(2*i+1, false, make([]byte, 16<<10)))
		}
	}
	c.sent(c.WritePing(false, [8]byte{}))
	c.until(http2.FramePing, 0)
	claims(t, memory, "the answers are not taken", func(used int64) bool { return used < 16<<10 })
	c.sent(c.WriteRSTStream(1, http2.ErrCodeCancel))
	c.sent(c.WriteWindowUpdate(3, 1<<20))
	if code, text := c.end(3); code != "3" {
		t.Fatal(code, text)
	}
	_ = c.Conn.Close()
	claims(t, memory, "the connection has ended", none)
	allEnded(t, s)
}

// ticking is a server that looks for stalled calls when the test says.
func ticking(t *testing.T, o grpcapi.Options) (s *grpcapi.Server, address string, look func()) {
	ticks := make(chan time.Time)
	s = grpcapi.New(grpcapi.WithTicks(o, ticks))
	return s, listen(t, s), func() { ticks <- time.Time{} }
}

// TestStalledCalls: a call whose client owes bytes, or takes nothing, ends; other calls of the
// connection stay, whatever moves there. What it held is free then.
func TestStalledCalls(t *testing.T) {
	memory := api.NewMemory(64 * mib)
	s, address, look := ticking(t, grpcapi.Options{Node: api.Node{Store: &heavyStore{}, Cluster: &changingCluster{leads: true}, Access: allowAll{}, Memory: memory}})
	c := dialRaw(t, address)
	// Stream 1 owes bytes, and an append may not rest; 3 rests; 5 does not take; 7 takes.
	c.sent(c.WriteWindowUpdate(0, 1<<20))
	c.call(1, methodAppend)
	c.sent(c.WriteData(1, false, []byte{0, 0, 0, 1}))
	c.call(3, methodBatch)
	c.call(5, methodRead)
	c.sent(c.WriteData(5, true, wire(t, read(ofStream("heavy", start)))))
	c.call(7, methodRead)
	c.sent(c.WriteData(7, true, wire(t, read(ofStream("heavy", start)))))
	claims(t, memory, "two reads wait", func(used int64) bool { return used >= 2*heavy })
	taken, seen := 0, map[uint32]string{}
	read := func() {
		f, err := c.ReadFrame()
		c.sent(err)
		switch f := f.(type) {
		case *http2.DataFrame:
			if f.StreamID == 7 {
				taken += int(f.Length)
			}
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				if field.Name == "grpc-status" {
					seen[f.StreamID] = field.Value
				}
			}
		case *http2.RSTStreamFrame:
			seen[f.StreamID] = cmp.Or(seen[f.StreamID], "reset") // Or its end was before.
		}
	}
	// The methods may begin to wait many looks later, on a machine that has other work.
	for i := 0; len(seen) < 2; i++ {
		if i <= grpcapi.StallLooks && len(seen) > 0 {
			t.Errorf("%v after %d looks", seen, i)
		}
		look()
		const step = 8 << 10
		c.sent(c.WriteWindowUpdate(7, step))
		for taken < (i+1)*step {
			read()
		}
	}
	if seen[1] != "4" || seen[5] != "reset" {
		t.Errorf("%v", seen)
	}
	claims(t, memory, "one read waits", func(used int64) bool { return used < 2*heavy })
	testkit.Eventually(t, 5*time.Second, func() error {
		if n := grpcapi.OpenCalls(s); n != 2 {
			return fmt.Errorf("%d calls are open", n)
		}
		return nil
	})
}

// TestMessagesThatAreRefused: a call that is not as its method wants it ends with the client's
// fault.
func TestMessagesThatAreRefused(t *testing.T) {
	s := grpcapi.New(grpcapi.Options{Node: api.Node{Store: newEndlessStore(), Cluster: &changingCluster{leads: true}, Access: allowAll{}}})
	address := listen(t, s)
	empty := []byte{0, 0, 0, 0, 0}
	for _, test := range []struct {
		name, method string
		sent         []byte
		encoding     string
		code, text   string
	}{
		{"two requests", methodFeatures, append(empty, empty...), "identity", "3", "cardinality violation: received multiple request messages for non-client-streaming RPC"},
		{"no request", methodFeatures, nil, "identity", "3", "cardinality violation: received no request message from non-client-streaming RPC"},
		{"two reads", methodRead, append(empty, empty...), "identity", "3", "cardinality violation: received multiple request messages for non-client-streaming RPC"},
		{"no read", methodRead, nil, "identity", "3", "cardinality violation: received no request message from non-client-streaming RPC"},
		{"compressed with no encoding", methodFeatures, []byte{1, 0, 0, 0, 1, 0}, "identity", "3", "grpc: compressed flag set with identity or empty encoding"},
		{"unknown encoding", methodFeatures, []byte{1, 0, 0, 0, 1, 0}, "br", "12", `grpc: Decompressor is not installed for grpc-encoding "br"`},
		{"4 GiB", methodFeatures, []byte{0, 255, 255, 255, 255}, "identity", "8", "grpc: received message larger than max 262144"},
		{"half a message", methodBatch, []byte{0, 0, 0, 0, 9, 1}, "identity", "3", "unexpected EOF"},
		{"half a head", methodBatch, []byte{0, 0, 0}, "identity", "3", "unexpected EOF"},
		{"a wrong flag", methodBatch, []byte{7, 0, 0, 0, 0}, "identity", "3", "grpc: the first byte before a message is neither 0 nor 1"},
	} {
		c := dialRaw(t, address)
		c.call(1, test.method, "grpc-encoding", test.encoding)
		c.sent(c.WriteData(1, true, test.sent))
		if code, text := c.end(1); code != test.code || text != test.text {
			t.Errorf("%s: %s, %q", test.name, code, text)
		}
	}
}

// TestOtherRequestsOnAConnectionOfCalls: they get 415, and calls are served. A call on a connection
// that began with another request is UNAVAILABLE, and the connection ends.
func TestOtherRequestsOnAConnectionOfCalls(t *testing.T) {
	s := grpcapi.New(grpcapi.Options{Node: api.Node{Store: newEndlessStore(), Cluster: &changingCluster{leads: true}, Access: allowAll{}}})
	address := listen(t, s)
	c := dialRaw(t, address)
	features := func(stream uint32) {
		c.call(stream, methodFeatures)
		c.sent(c.WriteData(stream, true, []byte{0, 0, 0, 0, 0}))
	}
	features(1)
	c.end(1)
	c.request(3, "/streams/x")
	if status := c.until(http2.FrameHeaders, 3).(*http2.MetaHeadersFrame).PseudoValue("status"); status != "415" {
		t.Error(status)
	}
	features(5)
	if code, text := c.end(5); code != "0" {
		t.Error(code, text)
	}
	c = dialRaw(t, address)
	c.request(1, "/streams/x", "content-type", "application/json")
	c.until(http2.FrameHeaders, 1)
	features(3)
	code, leaves := "", false
	for { // Up to the end of the connection.
		f, err := c.ReadFrame()
		if err != nil {
			break
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				if f.StreamID == 3 && field.Name == "grpc-status" {
					code = field.Value
				}
			}
		case *http2.GoAwayFrame:
			leaves = f.ErrCode == http2.ErrCodeNo
		}
	}
	if code != "14" || !leaves {
		t.Errorf("code %q, GOAWAY %v", code, leaves)
	}
	allEnded(t, s)
}

// TestEndWithSlowClients: Drain ends calls whose client does not take the answer after two looks,
// and leaves appends alone; Close cuts off those that take too long.
func TestEndWithSlowClients(t *testing.T) {
	memory := api.NewMemory(64 * mib)
	s, address, look := ticking(t, grpcapi.Options{Node: api.Node{Store: &heavyStore{}, Cluster: &changingCluster{leads: true}, Access: allowAll{}, Memory: memory}})
	c := dialRaw(t, address)
	c.call(1, methodRead)
	c.sent(c.WriteData(1, true, wire(t, read(ofStream("heavy", start)))))
	c.call(3, methodAppend)
	c.sent(c.WriteData(3, false, []byte{0, 0, 0, 1}))
	claims(t, memory, "the read waits", func(used int64) bool { return used >= heavy })
	open := func(calls int) {
		t.Helper()
		testkit.Eventually(t, 5*time.Second, func() error {
			look()
			if n := grpcapi.OpenCalls(s); n != calls {
				return fmt.Errorf("%d calls are open", n)
			}
			return nil
		})
	}
	open(2)
	s.Drain()
	open(1)
	c.until(http2.FrameRSTStream, 1)
	grpcapi.CutOff(s)
	s.Close()
	claims(t, memory, "the server has closed", none)
	for { // The client sees the end of the connection.
		if _, err := c.ReadFrame(); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
			break
		}
	}
}

// TestSettingsAreAcknowledged: a connection of calls loses none of its frames, though package http1
// has greeted its client.
func TestSettingsAreAcknowledged(t *testing.T) {
	s := grpcapi.New(grpcapi.Options{Node: api.Node{Store: newEndlessStore(), Cluster: &changingCluster{leads: true}, Access: allowAll{}}})
	c := dialRaw(t, listen(t, s))
	c.call(1, methodFeatures)
	for {
		f := c.until(http2.FrameSettings, 0).(*http2.SettingsFrame)
		if f.IsAck() {
			break
		}
	}
}

// TestCallsThatNeverBegin: a call that its client resets before its method begins leaves room for
// another.
func TestCallsThatNeverBegin(t *testing.T) {
	memory := api.NewMemory(64 * mib)
	s := grpcapi.New(grpcapi.Options{Node: api.Node{Store: newEndlessStore(), Cluster: &changingCluster{leads: true}, Access: allowAll{}, Memory: memory}})
	c := dialRaw(t, listen(t, s))
	stream := uint32(1)
	for range http1.MaxStreams {
		c.call(stream, methodAppend)
		c.sent(c.WriteRSTStream(stream, http2.ErrCodeCancel))
		stream += 2
	}
	c.call(stream, methodFeatures)
	c.sent(c.WriteData(stream, true, []byte{0, 0, 0, 0, 0}))
	if code, text := c.end(stream); code != "0" {
		t.Error(code, text)
	}
	claims(t, memory, "all calls have ended", none)
}

// TestLargeHeadersOfCalls: what a call keeps of a large header is claimed as long as it is there,
// and what is said about it is not as long.
func TestLargeHeadersOfCalls(t *testing.T) {
	memory := api.NewMemory(64 * mib)
	s := grpcapi.New(grpcapi.Options{Node: api.Node{Store: newEndlessStore(), Cluster: &changingCluster{leads: true}, Access: allowAll{}, Memory: memory}})
	c := dialRaw(t, listen(t, s))
	const size = 12_000 // They fit into a frame.
	for i := range uint32(10) {
		c.call(2*i+1, methodAppend, "x", strings.Repeat("~", size))
	}
	claims(t, memory, "ten calls wait", func(used int64) bool { return used > 10*size })
	for i := range uint32(10) {
		c.sent(c.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
	}
	claims(t, memory, "they have ended", none)
	for i := range uint32(20) {
		c.call(2*i+21, methodAppend, "grpc-timeout", strings.Repeat("~", size))
	}
	if code, text := c.end(59); code != "3" || len(text) > 100 {
		t.Error(code, len(text))
	}
}
