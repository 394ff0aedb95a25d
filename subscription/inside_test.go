package subscription

import (
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/annalsdb/annals/event"
)

func TestHash32(t *testing.T) {
	for text, want := range map[string]uint32{
		"": 0x02CC5D05, "a": 0x550D7456, "abc": 0x32D153FF, "Nobody inspects the spammish repetition": 0xE2293B2F,
	} {
		if got := hash32([]byte(text)); got != want {
			t.Errorf("%q: %#x, want %#x", text, got, want)
		}
	}
}

func TestPinnedShares(t *testing.T) {
	g := &group{}
	p := &pinned{g: g}
	join := func() *Connection {
		c := &Connection{g: g}
		g.connections = append(g.connections, c)
		p.joined(c)
		return c
	}
	one := join()
	for b := range 10 {
		p.give(b, one)
	}
	p.inFlight[0], p.inFlight[1] = 1, 1
	two := join()
	if one.buckets != 5 || two.buckets != 5 || p.owner[0] != one || p.owner[1] != one {
		t.Errorf("%d and %d", one.buckets, two.buckets)
	}
	three := join()
	if three.buckets != 3 {
		t.Errorf("the third has %d", three.buckets)
	}
	p.left(one)
	if one.buckets != 0 || p.owner[0] != nil {
		t.Errorf("who left has %d", one.buckets)
	}
}

// What a page holds is the same afterwards, and nothing of it lies in the block of
// the page any more when that is mostly empty.
func TestCompact(t *testing.T) {
	for _, c := range []struct {
		name  string
		data  string
		moved bool
	}{{"little", "data", true}, {"nothing", "", true}, {"much", strings.Repeat("x", 3000), false}} {
		t.Run(c.name, func(t *testing.T) {
			block := make([]byte, 0, 4*sharedBlock)
			put := func(s string) []byte {
				at := len(block)
				block = append(block, s...)
				return block[at:len(block):len(block)]
			}
			text := func(s string) string { b := put(s); return unsafe.String(unsafe.SliceData(b), len(b)) }
			record := func(n int64, stream string) event.Record {
				return event.Record{Stream: stream, Number: n, Type: text("type"), Data: put(c.data), Metadata: put("metadata")}
			}
			page := func() []event.Resolved {
				block = block[:0]
				target := record(7, text("target"))
				return []event.Resolved{{Record: record(1, "s")},
					{Record: record(2, "s"), Link: event.LinkResolved, Target: &target, TargetStream: text("target"), TargetNumber: 7}}
			}
			events, want := page(), page()
			compact(events)
			if !reflect.DeepEqual(events, want) {
				t.Fatalf("got %+v\nwant %+v", events, want)
			}
			clear(block)
			if same := reflect.DeepEqual(events, want); same == c.moved {
				t.Errorf("moved: %t, want %t", !same, c.moved)
			}
		})
	}
}
