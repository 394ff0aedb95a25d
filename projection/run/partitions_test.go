package run

import (
	"fmt"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
)

// TestPartitionsInMemory lists what is in memory by name, page by page.
func TestPartitionsInMemory(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add("b:", "ab:", "b:", "c:", "a:")
		o := options(handler.Definition{ByStreams: true})
		o.Mode = Transient
		r := start(t.Context(), o, w.parts())
		ended(t, r, Completed)
		for _, c := range []struct {
			contains, after string
			most            int
			want            string
		}{
			{"", "", 10, "[{a 1} {ab 1} {b 1} {c 1}] false"},
			{"", "", 2, "[{a 1} {ab 1}] true"},
			{"", "ab", 2, "[{b 1} {c 1}] false"},
			{"b", "", 1, "[{ab 1}] true"},
			{"x", "", 1, "[] false"},
		} {
			list, more, err := r.Partitions(t.Context(), c.contains, c.after, c.most)
			check.Equal(t, fmt.Sprint(list, more, err), c.want+" <nil>", c.contains, c.after)
		}
	})
}
