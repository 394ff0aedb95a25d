package eventlog_test

import (
	"fmt"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
)

func frame(l *eventlog.Log, index uint64, stream string, number int64, data ...string) eventlog.Frame {
	size := 0
	var events []event.Proposed
	for i, d := range data {
		e := event.Proposed{ID: event.ID{byte(index), byte(i), byte(number)}, Type: "t", Flags: event.FlagJSON, Data: []byte(d)}
		events = append(events, e)
		size += eventlog.RecordSize(stream, &e)
	}
	first := eventlog.Place(l.Appended().End, size)
	var b []byte
	for i := range events {
		b = eventlog.AppendRecord(b, first+int64(len(b)), stream, number+int64(i), int64(index), events[i].Flags, &events[i])
	}
	return eventlog.Frame{First: first, Records: b, Index: index, Term: 1}
}

func TestSmoke(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *eventlog.Log {
		l, err := eventlog.Open(eventlog.Options{Dir: "/db", FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open()
	for i := range 100 {
		if err := l.Append(frame(l, uint64(i+1), fmt.Sprint("s", i%3), int64(i/3), `{"a":1}`)); err != nil {
			t.Fatal(err)
		}
		if err := l.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	tail := l.Tail()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open()
	if l.Tail() != tail {
		t.Fatalf("%+v, want %+v", l.Tail(), tail)
	}
	p, err := l.ReadStream(event.StreamRead{Stream: "s1", From: event.Head, Count: 20, Backward: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Events) != 20 || p.Last != 32 || p.Events[0].Number != 32 {
		t.Fatalf("%+v", p)
	}
	all, err := l.ReadAll(event.AllRead{From: 0, Count: 1000})
	if err != nil || len(all.Events) != 100 {
		t.Fatal(len(all.Events), err)
	}
	back, err := l.ReadAll(event.AllRead{From: event.End, Count: 1000, Backward: true})
	if err != nil || len(back.Events) != 100 {
		t.Fatal(len(back.Events), err)
	}
	if n, ok, err := l.FindID("s1", p.Events[3].ID); n != 29 || !ok || err != nil {
		t.Fatal(n, ok, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
