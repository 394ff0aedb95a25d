package subscription

import (
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/annalsdb/annals/event"
)

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
