package grpcapi

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"

	"github.com/annalsdb/annals/api"
)

// wireFrame is a message of so many bytes on the wire.
func wireFrame(size int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), make([]byte, size)...)
}

// TestMessagesAreClaimedAsTheyCome: what a call is sent is counted, whatever pieces it comes in,
// and messages beyond the limit of their method are refused before they are there.
func TestMessagesAreClaimedAsTheyCome(t *testing.T) {
	small, large := wireFrame(100), wireFrame(200<<10)
	for _, test := range []struct {
		name     string
		messages [][]byte
		whole    int // messages that are whole at the end
		held     int // bytes that are claimed then
		refused  bool
	}{
		{name: "nothing"},
		{name: "small ones", messages: [][]byte{small, small, small}, whole: 3, held: 3 * len(small)},
		{name: "a large one", messages: [][]byte{large}, whole: 1, held: len(large)},
		{name: "empty ones", messages: slices.Repeat([][]byte{wireFrame(0)}, 1000), whole: 1000, held: 1000 * leastMessage},
		{name: "half of one", messages: [][]byte{large[:1000]}, held: 1000},
		{name: "too large", messages: [][]byte{wireFrame(20 << 20)[:100]}, held: frameHead, refused: true},
		{name: "one after one too large", messages: [][]byte{wireFrame(20 << 20)[:100], small}, held: frameHead, refused: true},
	} {
		for _, piece := range []int{1, 7, 4096, 1 << 20} {
			f := &inflow{limits: limitsOf(streams.Streams_BatchAppend_FullMethodName), more: make(chan struct{}, 1)}
			held := 0
			for part := range slices.Chunk(bytes.Join(test.messages, nil), piece) {
				held += f.note(part, new(api.Claim))
			}
			if refused := f.refusal() != nil; len(f.whole) != test.whole || held != test.held || refused != test.refused {
				t.Errorf("%s in pieces of %d: %d messages, %d bytes claimed, refused %v", test.name, piece, len(f.whole), held, refused)
			}
			for _, m := range test.messages {
				if f.refused != nil || test.whole == 0 {
					break
				}
				w, ok := f.receive()
				if held -= w.size; !ok || len(m) > frameHead && !bytes.Equal(*w.data, m[frameHead:]) {
					t.Errorf("%s in pieces of %d: another message was received", test.name, piece)
				}
			}
			if test.whole > 0 && held != 0 {
				t.Errorf("%s in pieces of %d: %d bytes are claimed when all were received", test.name, piece, held)
			}
		}
	}
}

// TestLargeMessagesHaveNoMemoryAhead: a message gets memory for what has come of it, until the rest
// is claimed.
func TestLargeMessagesHaveNoMemoryAhead(t *testing.T) {
	f := &inflow{limits: limitsOf(streams.Streams_BatchAppend_FullMethodName), more: make(chan struct{}, 1)}
	large := wireFrame(16 << 20)
	f.note(large[:10_000], new(api.Claim))
	if c := cap(*f.data); c > 64<<10 {
		t.Errorf("%d bytes of memory for 10,000", c)
	}
	rest, ready, err := f.ready()
	if !ready || err != nil || rest != len(large)-10_000 {
		t.Fatal(rest, ready, err)
	}
	if grant, twice := f.expect(rest); grant != len(large) || twice != 0 {
		t.Errorf("the client may send %d bytes; %d are claimed twice", grant, twice)
	}
	if _, ready, _ = f.ready(); ready {
		t.Error("it is there")
	}
	if unclaimed := f.note(large[10_000:], new(api.Claim)); unclaimed != 0 {
		t.Errorf("%d bytes are claimed twice", unclaimed)
	}
	if w, ok := f.receive(); !ok || !w.granted || len(*w.data) != 16<<20 {
		t.Error("it was not received")
	}
}

// TestAppendsAreReceivedTogether: small messages of an append wait for its end, or until there are
// many, a large one follows, or they have waited long. Those of other calls do not.
func TestAppendsAreReceivedTogether(t *testing.T) {
	for _, test := range []struct {
		name   string
		method string
		then   func(f *inflow)
		ready  bool
	}{
		{"a small one", streams.Streams_Append_FullMethodName, func(*inflow) {}, false},
		{"of a batch", streams.Streams_BatchAppend_FullMethodName, func(*inflow) {}, true},
		{"the end", streams.Streams_Append_FullMethodName, func(f *inflow) { f.end() }, true},
		{"another small one", streams.Streams_Append_FullMethodName, func(f *inflow) { f.note(wireFrame(100), new(api.Claim)) }, false},
		{"many", streams.Streams_Append_FullMethodName, func(f *inflow) { f.note(wireFrame(muchUnread), new(api.Claim)) }, true},
		{"the head of a large one", streams.Streams_Append_FullMethodName, func(f *inflow) { f.note(wireFrame(largeFrame)[:frameHead], new(api.Claim)) }, true},
		{"some time", streams.Streams_Append_FullMethodName, func(f *inflow) { f.press() }, true},
		{"those before were received", streams.Streams_Append_FullMethodName, func(f *inflow) {
			f.press()
			f.receive()
			f.note(wireFrame(100), new(api.Claim))
		}, false},
	} {
		f := &inflow{limits: limitsOf(test.method), more: make(chan struct{}, 1)}
		f.note(wireFrame(100), new(api.Claim))
		woken := f.hasNews()
		test.then(f)
		woken = f.hasNews() || f.due || woken
		if _, ready, err := f.ready(); ready != test.ready || err != nil {
			t.Errorf("%s: ready %v, %v", test.name, ready, err)
		}
		if test.ready && !woken {
			t.Errorf("%s: the method is not woken", test.name)
		}
	}
}

// TestLargeMessagesAreClaimedOnce: what comes of a large message while its rest is claimed is given
// back, all of it included.
func TestLargeMessagesAreClaimedOnce(t *testing.T) {
	large := wireFrame(200 << 10)
	for _, meanwhile := range []int{0, 1, 50 << 10, len(large) - 10_000} {
		f := &inflow{limits: limitsOf(streams.Streams_BatchAppend_FullMethodName), more: make(chan struct{}, 1)}
		held := f.note(large[:10_000], new(api.Claim))
		rest, ready, err := f.ready()
		if !ready || err != nil {
			t.Fatal(rest, ready, err)
		}
		held += rest
		held += f.note(large[10_000:][:meanwhile], new(api.Claim))
		_, twice := f.expect(rest)
		held -= twice
		held += f.note(large[10_000+meanwhile:], new(api.Claim))
		if w, ok := f.receive(); !ok || held != w.size {
			t.Errorf("%d bytes meanwhile: %d are claimed, not %d", meanwhile, held, w.size)
		}
	}
}

// TestMessagesThatAreNeverAllReceived: those that were received take no memory, though others wait.
func TestMessagesThatAreNeverAllReceived(t *testing.T) {
	f := &inflow{limits: limitsOf(streams.Streams_BatchAppend_FullMethodName), more: make(chan struct{}, 1)}
	f.note(wireFrame(1), new(api.Claim))
	for i := range byte(200) {
		for range 50 {
			f.note([]byte{0, 0, 0, 0, 1, i}, new(api.Claim))
			f.receive()
		}
		if w := f.whole[f.first]; (*w.data)[0] != i {
			t.Fatalf("%d, not %d", (*w.data)[0], i)
		}
	}
	if n := cap(f.whole); n > 16 {
		t.Errorf("there is memory for %d", n)
	}
}

// TestClaimsAfterTheEnd: a call that is over claims nothing for good.
func TestClaimsAfterTheEnd(t *testing.T) {
	memory := api.NewMemory(1 << 20)
	c := &call{ended: t.Context(), state: isOver, isGone: true}
	c.claim.Use(memory)
	if err := c.grow(100 << 10); err == nil || memory.Used() != 0 {
		t.Errorf("%v; %d bytes are claimed", err, memory.Used())
	}
}

// What is received the moment it has come is no longer claimed either: a call that lasts would
// otherwise hold more and more.
func TestWhatIsReceivedAtOnceIsGivenBack(t *testing.T) {
	memory := api.NewMemory(1 << 30)
	var claim api.Claim
	claim.Use(memory)
	defer claim.Release()
	f := &inflow{limits: limitsOf(streams.Streams_BatchAppend_FullMethodName), more: make(chan struct{}, 1)}
	message := wireFrame(20_000)
	const messages = 20_000
	go func() {
		for range messages {
			f.note(message, &claim)
		}
		f.end()
	}()
	for received := 0; received < messages; {
		if w, ok := f.receive(); ok {
			claim.Shrink(int64(w.size))
			received++
		}
	}
	if held := claim.Held(); held != 0 {
		t.Errorf("%d bytes are claimed when all were received", held)
	}
}
