package eventlog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// payloadModel is a stream of events of growing size, a stream of links to them,
// and a few that lie between.
func payloadModel() *model {
	m := newModel()
	for i := range 12 {
		e := ev("s", strings.Repeat("d", i*10))
		e.metadata = strings.Repeat("m", i%3)
		l := ev("links", fmt.Sprintf("%d@s", i))
		l.typ = event.TypeLink
		m.frame(i%5 == 4, e, l, ev("other", "x"))
	}
	return m
}

// TestPagesInARoom: a page read into the memory of another one is the page that has memory of its
// own.
func TestPagesInARoom(t *testing.T) {
	m := payloadModel()
	large := ev("s", strings.Repeat("l", 20_000))
	m.frame(false, large, ev("s", "after it"))
	l := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, l, m.frames...)
	var room event.Room
	same := func(got, want []event.Resolved) {
		t.Helper()
		check.MustEqual(t, len(got), len(want), "events")
		for i := range got {
			check.MustDeep(t, got[i], want[i], "event", i)
		}
	}
	for _, count := range []int{1, 3, 30} {
		for _, bound := range []int{0, 50} {
			for _, backward := range []bool{false, true} {
				for from := int64(-1); from < 16; from++ {
					for _, name := range []string{"s", "links", "none"} {
						r := event.StreamRead{Stream: name, From: max(from, 0), Count: count, Backward: backward, Links: event.EveryLink, MaxPayload: bound}
						if backward {
							r.From = from
						}
						want, errOwn := l.Reads.ReadStream(r)
						r.Room = &room
						got, err := l.Reads.ReadStream(r)
						check.MustBe(t, err, errOwn)
						same(got.Events, want.Events)
					}
					r := event.AllRead{Count: count, Backward: backward, Links: event.EveryLink, MaxPayload: bound}
					if from >= 0 {
						r.From = m.frames[min(int(from), len(m.frames)-1)].First
					}
					want := check.Value(l.Reads.ReadAll(r)).Must(t)
					r.Room = &room
					got := check.Value(l.Reads.ReadAll(r)).Must(t)
					same(got.Events, want.Events)
				}
			}
		}
	}
}

// TestBoundedPayload: a page whose payload is bounded holds the same events as one
// without a bound, and no more payload than that; what is bare can be read.
func TestBoundedPayload(t *testing.T) {
	m := payloadModel()
	l := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, l, m.frames...)
	for _, bound := range []int{1, 2, 50, 300, 1 << 20} {
		for _, backward := range []bool{false, true} {
			for _, links := range []event.LinkReader{nil, event.EveryLink} {
				for _, name := range []string{"s", "links", event.AllStream} {
					read := func(bound int) (events []event.Resolved) {
						if name == event.AllStream {
							from := int64(0)
							if backward {
								from = event.End
							}
							page, err := l.Reads.ReadAll(event.AllRead{From: from, Count: 30, Backward: backward, Links: links, MaxPayload: bound})
							check.Must(t, err)
							return page.Events
						}
						from := int64(0)
						if backward {
							from = event.Head
						}
						page, err := l.Reads.ReadStream(event.StreamRead{Stream: name, From: from, Count: 30, Backward: backward, Links: links, MaxPayload: bound})
						check.Must(t, err)
						return page.Events
					}
					got, want := read(bound), read(0)
					held, bare := 0, 0
					complete := func(r *event.Record) {
						held += len(r.Data) + len(r.Metadata)
						if r.Bare {
							bare++
							if r.Data != nil && len(r.Data)+len(r.Metadata) > 0 {
								t.Errorf("a bare record has %d and %d bytes", len(r.Data), len(r.Metadata))
							}
							check.Must(t, l.Reads.ReadPayload(r))
						}
					}
					for i := range got {
						complete(&got[i].Record)
					}
					for i := range got {
						if got[i].Target != nil {
							complete(got[i].Target)
						}
					}
					what := fmt.Sprintf("%s, backward %v, links %v, at most %d bytes", name, backward, links, bound)
					if held > bound {
						t.Errorf("%s: %d bytes held", what, held)
					}
					if bare == 0 && bound < 50 {
						t.Errorf("%s: nothing was left out", what)
					}
					check.MustEqual(t, len(got), len(want), what, "events")
					for i := range got {
						check.Deep(t, got[i], want[i], what, "event", i)
					}
				}
			}
		}
	}
}

// TestPayloadThatIsGone: what a scavenge removed between a page and its payload is said to be gone.
func TestPayloadThatIsGone(t *testing.T) {
	m := payloadModel()
	l := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, l, m.frames...)
	page, err := l.Reads.ReadStream(event.StreamRead{Stream: "s", Count: 3, MaxPayload: 1})
	check.Must(t, err)
	removed := map[int64]bool{page.Events[2].Position: true}
	_, err = l.Chunks.Rewrite(background, Rewrite{First: 0, Last: 0, Keep: keepNot(removed), IDsFrom: chunkfile.ChunkSize})
	check.Must(t, err)
	check.NoError(t, l.Reads.ReadPayload(&page.Events[1].Record), "of an event that is kept")
	if err := l.Reads.ReadPayload(&page.Events[2].Record); !errors.Is(err, event.ErrEventNotFound) {
		t.Errorf("of an event that is gone: %v", err)
	}
	beyond := event.Record{Position: l.Tail().End}
	if err := l.Reads.ReadPayload(&beyond); !errors.Is(err, event.ErrEventNotFound) {
		t.Errorf("of an event that does not exist: %v", err)
	}
}

// TestBlocksAreFull: the memory of a page that a reader keeps is not mostly empty.
func TestBlocksAreFull(t *testing.T) {
	var longer []int
	for i := range 100 {
		longer = append(longer, 200+i)
	}
	for _, c := range []struct {
		name          string
		sizes         []int
		blocks, empty int // at most
	}{
		{"one", []int{270}, 1, 0},
		{"alike", slices.Repeat([]int{270}, 100), 1, 0},
		{"ever longer", longer, 3, 1 << 10},
		{"large", slices.Repeat([]int{maxAlike/2 + 1}, 100), 100, 0},
		{"a large one first", append([]int{maxAlike / 4}, longer...), 1, maxAlike / 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a arena
			blocks, empty := 0, 0
			for i, size := range c.sizes {
				if free := cap(a.block) - len(a.block); free < size {
					blocks++
					empty += free
				}
				a.coming = len(c.sizes) - i
				a.copy(make([]byte, size))
			}
			if empty += cap(a.block) - len(a.block); blocks > c.blocks || empty > c.empty {
				t.Errorf("%d blocks, %d bytes of them empty; want %d and %d", blocks, empty, c.blocks, c.empty)
			}
		})
	}
}
