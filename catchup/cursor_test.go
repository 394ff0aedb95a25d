package catchup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/catchup"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/memdb"
)

// bench is a cursor over a database.
type bench struct {
	*testing.T
	db *memdb.DB
	catchup.Cursor
	look catchup.Look
}

func open(t *testing.T, stream string) *bench {
	db := memdb.Open(t, memdb.Options{})
	return &bench{t, db, catchup.Cursor{Store: db, Stream: stream, All: stream == "", Seen: -1, Last: -1}, catchup.Look{Count: 3}}
}

// add appends events to a stream.
func (b *bench) add(stream string, count int) {
	for range count {
		b.db.Append(stream, "t", "data", "")
	}
}

// page reads a page and returns its events.
func (b *bench) page() string {
	b.Helper()
	page, err := b.Read(b.Context(), &b.look)
	if err != nil {
		return err.Error()
	}
	names := make([]string, len(page.Events))
	for i := range page.Events {
		names[i] = fmt.Sprintf("%d@%s", page.Events[i].Number, page.Events[i].Stream)
	}
	if page.More {
		names = append(names, "more")
	}
	return strings.Join(names, " ")
}

// reads compares pages.
func (b *bench) reads(want ...string) {
	b.Helper()
	for i, w := range want {
		check.Equal(b, b.page(), w, "page", i)
	}
}

// scavenge removes events of a stream.
func (b *bench) scavenge(stream string, numbers ...int64) {
	b.db.Scavenge(func(r *event.Record) bool { return r.Stream == stream && slices.Contains(numbers, r.Number) })
}

func (b *bench) position(stream string, number int64) int64 { return b.db.All(stream)[number].Position }

func TestCursor(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		test         func(b *bench)
	}{
		{"a stream forward, and what comes later", "s", func(b *bench) {
			b.add("s", 4)
			b.reads("0@s 1@s 2@s more", "3@s", "")
			check.Equal(b, [3]int64{b.Next, b.Seen, b.Last}, [3]int64{4, 3, 3})
			b.add("s", 1)
			b.reads("4@s", "")
		}},
		{"a stream backward", "s", func(b *bench) {
			b.add("s", 4)
			b.Backward, b.Next = true, 1<<62
			b.reads("3@s 2@s 1@s more", "0@s", "")
		}},
		{"the log, both ways", "", func(b *bench) {
			b.add("a", 2)
			b.add("b", 2)
			b.reads("0@a 1@a 0@b more", "1@b", "")
			check.Equal(b, b.Seen, b.position("b", 1))
			b.Backward, b.Next = true, event.End
			b.reads("1@b 0@b 1@a more", "0@a", "")
		}},
		{"a stream that is not there, and comes", "s", func(b *bench) {
			b.reads("", "")
			check.Equal(b, [2]int64{b.Next, b.Last}, [2]int64{0, -1})
			b.add("s", 1)
			b.reads("0@s")
			b.Stream, b.Next, b.Backward = "nothing", 5, true
			b.reads("")
		}},
		{"truncated beyond the end", "s", func(b *bench) {
			b.add("s", 2)
			b.db.SetMetadata("s", `{"$tb":10}`)
			b.reads("", "")
			check.Equal(b, b.Next, 2)
			b.db.SetMetadata("s", `{"$tb":3}`)
			b.add("s", 2)
			b.reads("3@s")
		}},
		{"soft-deleted, and written again", "s", func(b *bench) {
			b.add("s", 2)
			b.db.Delete(event.SoftDelete, "s")
			b.reads("")
			check.Equal(b, b.Deleted, true, "deleted")
			b.add("s", 2)
			b.reads("2@s 3@s")
			check.Equal(b, b.Deleted, false, "deleted")
		}},
		{"deleted and written again between two looks", "s", func(b *bench) {
			b.add("s", 2)
			b.db.BeforeRead.Set(func(context.Context, event.StreamRead) error {
				b.db.BeforeRead.Set(nil)
				b.db.Delete(event.SoftDelete, "s")
				return nil
			})
			b.reads("")
			b.db.BeforeRead.Set(func(context.Context, event.StreamRead) error {
				b.db.BeforeRead.Set(nil)
				b.add("s", 1)
				return nil
			})
			b.reads("2@s")
		}},
		{"hard-deleted, also between two looks", "s", func(b *bench) {
			b.add("s", 2)
			b.db.BeforeRead.Set(func(context.Context, event.StreamRead) error {
				b.db.BeforeRead.Set(nil)
				b.db.Delete(event.HardDelete, "s")
				return nil
			})
			b.reads(event.ErrStreamDeleted.Error())
			check.Equal(b, b.Next, 0)
		}},
		{"an error leaves the cursor where it was", "s", func(b *bench) {
			b.add("s", 1)
			b.db.BeforeRead.Set(func(context.Context, event.StreamRead) error { return event.ErrNotReady })
			b.reads(event.ErrNotReady.Error())
			b.db.BeforeRead.Set(nil)
			b.reads("0@s")
		}},
		{"a gap costs one look", "s", func(b *bench) {
			b.add("s", 1)
			b.db.SetMetadata("s", `{"$maxCount":1}`)
			b.add("s", 1000)
			b.db.SetMetadata("s", `{}`)
			var gone []int64
			for n := int64(1); n < 1000; n++ {
				gone = append(gone, n)
			}
			b.scavenge("s", gone...)
			b.reads("0@s 1000@s")
			b.Backward = true
			b.reads("1000@s 0@s")
		}},
		{"after a record", "", func(b *bench) {
			b.add("a", 3)
			b.Next, b.After = b.position("a", 0), true
			b.reads("1@a 2@a")
			b.Next, b.After = b.position("a", 2), true
			b.reads("")
			check.Equal(b, b.Seen, b.position("a", 2), "what was looked at before")
			b.scavenge("a", 1)
			b.Next, b.After = b.position("a", 1), true
			b.look.Filter = func(stream, _ string) (bool, error) { return stream == "a", nil }
			b.reads("2@a")
		}},
		{"after a record that another node has already", "", func(b *bench) {
			b.add("a", 1)
			b.Next, b.After = b.db.LogEnd(), true
			b.reads("", "")
			b.add("a", 2)
			b.reads("2@a")
		}},
		{"a position that was none", "", func(b *bench) {
			b.add("a", 2)
			b.Next = 1
			b.reads(check.Err(b.db.ReadAll(b.Context(), event.AllRead{From: 1, Count: 1})).Error())
			check.Is(b, b.Check(b.Context()), event.ErrBadPosition)
		}},
		{"a filter that fails", "", func(b *bench) {
			b.add("a", 2)
			b.add("b", 1)
			b.add("a", 1)
			b.look.Filter = func(stream, _ string) (bool, error) {
				if stream == "b" {
					return false, errors.New("too long")
				}
				return true, nil
			}
			b.reads("0@a 1@a more", "too long", "too long")
			b.scavenge("b", 0)
			b.reads("2@a 0@" + event.ScavengePointsStream)
		}},
		{"a filter that chooses nothing moves on", "", func(b *bench) {
			b.add("a", 4)
			b.look.Filter = func(string, string) (bool, error) { return false, nil }
			b.look.MaxScan = 3
			b.reads("more")
			check.Equal(b, b.Seen, b.position("a", 2))
			b.reads("")
			check.Equal(b, [2]int64{b.Seen, b.Next}, [2]int64{b.position("a", 3), b.db.LogEnd()})
		}},
		{"an event is read again", "s", func(b *bench) {
			b.add("s", 3)
			page := check.Value(b.Read(b.Context(), &b.look)).Must(b)
			b.ReadAgain(&page.Events[1])
			b.reads("1@s 2@s")
		}},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(open(t, c.stream)) })
	}
}

// One look is bounded, and more so where a filter may take long for each record.
func TestBounds(t *testing.T) {
	b := open(t, "")
	b.add("a", 1)
	var most int
	b.db.BeforeReadAll.Set(func(_ context.Context, r event.AllRead) error { most = r.MaxScan; return nil })
	for _, c := range []struct {
		look catchup.Look
		want int
	}{
		{catchup.Look{Count: 1}, 20_000},
		{catchup.Look{Count: 1, IsSlow: true}, 16},
		{catchup.Look{Count: 1, MaxScan: 7, IsSlow: true}, 7},
		{catchup.Look{Count: 1, MaxScan: 30_000}, 20_000},
	} {
		b.look, b.Next = c.look, 0
		b.page()
		check.Equal(t, most, c.want)
	}
}

// What a scavenge removes between a page and its payload is left out, and a link to it is dead.
func TestGoneBetweenPageAndPayload(t *testing.T) {
	b := open(t, "s")
	b.add("s", 2)
	b.db.Append("l", event.TypeLink, "0@s", "")
	b.look = catchup.Look{Count: 3, Links: event.EveryLink, MaxPayload: 1}
	events := check.Value(b.Read(b.Context(), &b.look)).Must(b).Events
	b.Stream, b.Next = "l", 0
	b.look.MaxPayload = 5
	links := check.Value(b.Read(b.Context(), &b.look)).Must(b).Events
	b.scavenge("s", 0)
	read := func(r *event.Record) error { return b.db.ReadPayload(b.Context(), r) }
	check.Is(t, check.Err(events[0].Complete(read)), event.ErrEventNotFound)
	whole := check.Value(events[1].Complete(read)).Must(b)
	check.Equal(t, string(whole.Data), "data")
	dead := check.Value(links[0].Complete(read)).Must(b)
	check.Equal(t, [2]any{dead.Link, dead.Target == nil}, [2]any{event.LinkDead, true})
}

// A wait ends when there is more, and when a stream is deleted for good, but not when it is
// truncated or deleted softly.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, "s")
		b.add("s", 2)
		b.reads("0@s 1@s")
		ended := make(chan error, 1)
		wait := func() {
			go func() { ended <- b.Wait(t.Context(), b.db) }()
			synctest.Wait()
		}
		wait()
		b.db.SetMetadata("s", `{"$tb":9}`)
		b.db.Delete(event.SoftDelete, "s")
		synctest.Wait()
		check.Equal(t, len(ended), 0, "ended")
		b.add("s", 1)
		check.Must(t, <-ended)
		b.reads("2@s")
		wait()
		b.db.Delete(event.HardDelete, "s")
		check.Must(t, <-ended)
		b.reads(event.ErrStreamDeleted.Error())

		b.All, b.Next = true, b.db.LogEnd()
		wait()
		check.Equal(t, len(ended), 0, "ended")
		b.add("other", 1)
		check.Must(t, <-ended)
		b.reads("0@other")
	})
}
