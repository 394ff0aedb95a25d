//go:build sabotage

package fsm

import (
	"bytes"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

// Moved records are those that would have been written at the other place.
func TestRebased(t *testing.T) {
	at := func(first int64) (b []byte) {
		for i := range 3 {
			e := event.Proposed{ID: event.ID{byte(i)}, Type: "t", Data: bytes.Repeat([]byte("x"), i*7)}
			b = chunkfile.AppendRecord(b, first+int64(len(b)), "stream", int64(i), 1, 0, &e)
		}
		return b
	}
	from := at(1000)
	if got := rebased(from, 5000); !bytes.Equal(got, at(5000)) {
		t.Fatalf("%x, want %x", got, at(5000))
	}
	if !bytes.Equal(from, at(1000)) {
		t.Fatal("what was given has changed")
	}
	for n := 1; n < len(from); n++ {
		if got := rebased(from[:n], 5000); got != nil && len(got) != n {
			t.Fatalf("%d bytes give %d", n, len(got))
		}
	}
}
