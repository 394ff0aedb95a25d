package eventlog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// scavengeable makes streams of which a part is hidden by each kind of limit, and
// says which events a scavenge would remove.
func scavengeable(m *model) (removed map[int64]bool) {
	limits := map[string]string{
		"count": `{"$maxCount":3}`, "one": `{"$maxCount":1}`, "tb": `{"$tb":7}`, "age": `{"$maxAge":10}`, "both": `{"$maxCount":5,"$maxAge":10}`,
		"old": `{"$maxAge":1}`, "soft": `{"$tb":9223372036854775807}`, "all": `{}`, "link": `{"$maxCount":2}`, "dead": `{"$maxCount":2}`,
	}
	names := []string{"count", "one", "tb", "age", "both", "old", "soft", "all", "link", "dead"}
	for i := range 20 {
		m.now = int64(time.Duration(i+1) * time.Second)
		var events []testEvent
		for _, name := range names {
			e := ev(name, fmt.Sprint(i))
			if name == "link" {
				e.typ, e.data = event.TypeLink, fmt.Sprintf("%d@count", i)
			}
			if i == 3 || i == 9 {
				events = append(events, meta(name, limits[name]))
			}
			events = append(events, e)
		}
		m.frame(i%4 == 3, events...)
	}
	m.frame(true, tombstone("dead"))
	m.frame(false, ev("other", "x"))
	const now = 25 * int64(time.Second) // Of testNow.
	removed = map[int64]bool{}
	for _, f := range m.frames {
		for _, e := range f.events {
			if e.number == event.TombstoneNumber || e.position >= m.frames[len(m.frames)-2].First {
				continue
			}
			if e.stream == "dead" || e.stream == "$$dead" {
				removed[e.position] = true
				continue
			}
			if e.number == m.last[e.stream] {
				continue
			}
			md := event.ParseMetadata([]byte(limits[e.stream]))
			if event.IsMetaStream(e.stream) {
				md = event.Metadata{Retention: event.Retention{MaxCount: 1}}
			}
			if e.number < md.MinVisible(m.last[e.stream]) || md.MaxAge > 0 && e.time < now-int64(md.MaxAge) {
				removed[e.position] = true
			}
		}
	}
	return removed
}

// TestScavengedReads: what streams show does not change by removing what they hide.
func TestScavengedReads(t *testing.T) {
	m := newModel()
	removed := scavengeable(m)
	o := testOptions(vfs.NewMem())
	o.Now = func() time.Time { return time.Unix(25, 0) }
	l := mustOpen(t, o)
	write(t, l, m.frames...)
	streams := map[string]bool{"never": true}
	for _, f := range m.frames {
		for _, e := range f.events {
			streams[e.stream] = true
		}
	}
	ask := func() (all []string) {
		for _, name := range slices.Sorted(maps.Keys(streams)) {
			for from := int64(-1); from < 24; from++ {
				for _, count := range []int{1, 2, 5, 30} {
					for _, backward := range []bool{false, true} {
						page, err := l.Reads.ReadStream(event.StreamRead{Stream: name, From: from, Count: count, Backward: backward, Links: event.EveryLink})
						all = append(all, fmt.Sprintf("%s from %d, %d, %v: %+v, %v", name, from, count, backward, show(page), err))
					}
				}
				rec, err := l.Reads.ReadEvent(name, from, event.EveryLink)
				all = append(all, fmt.Sprintf("%s %d: %+v, %v", name, from, showEvent(&rec), err))
			}
			ctx, cancel := context.WithCancel(background)
			cancel()
			for _, after := range []int64{-1, 18, 19, 20} {
				err := l.Reads.WaitStream(ctx, name, after)
				all = append(all, fmt.Sprintf("%s waits after %d: %v", name, after, err))
			}
			if name == "dead" || name == "$$dead" {
				continue // All that counts is that it is deleted.
			}
			info, err := l.Reads.StreamInfo(name)
			last, lerr := l.Reads.LastRecord(name)
			all = append(all, fmt.Sprintf("%s: %+v, %v, last %d, %v", name, info, err, last.Number, lerr))
		}
		return all
	}
	want := ask()
	same := func(when string) {
		t.Helper()
		got := ask()
		for i := range got {
			check.MustEqual(t, got[i], want[i], when, "before")
		}
	}
	_, err := l.Chunks.Rewrite(background, Rewrite{First: 1, Last: 2, Keep: keepNot(removed), IDsFrom: 2 * chunkfile.ChunkSize})
	check.Must(t, err)
	same("a part rewritten")
	_, err = l.Chunks.Rewrite(background, Rewrite{First: 0, Last: 5, Keep: keepNot(removed), IDsFrom: 2 * chunkfile.ChunkSize})
	check.Must(t, err)
	l.Reads.streams.reset()
	same("all rewritten")
	check.Must(t, l.index.Flush())
	half := 0
	check.Must(t, l.index.Scavenge(background, index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { half++; return !removed[e.Position] || half%2 == 0, nil }}))
	l.Reads.streams.reset()
	same("with half of the entries gone")
	check.Must(t, l.index.Scavenge(background, index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { return !removed[e.Position], nil }}))
	l.Reads.streams.reset()
	same("with all of the entries gone")
	closeLog(t, l)
	l = mustOpen(t, o)
	same("opened again")
	check.MustBe(t, check.Err(l.Reads.ReadEvent("dead", 3, nil)), event.ErrStreamDeleted)
}

// show prints a page with what its links name.
func show(p event.StreamPage) string {
	s := fmt.Sprintf("from %d, last %d, min %d, end %v, %+v:", p.From, p.Last, p.Min, p.End, p.Metadata)
	for i := range p.Events {
		s += " " + showEvent(&p.Events[i])
	}
	return s
}

func showEvent(e *event.Resolved) string {
	s := fmt.Sprintf("%+v %v %d@%s", e.Record, e.Link, e.TargetNumber, e.TargetStream)
	if e.Target != nil {
		s += fmt.Sprintf(" %+v", *e.Target)
	}
	return s
}
