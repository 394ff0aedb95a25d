package output_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/memdb"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/position"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ours = position.Version{Projection: 7, Epoch: -1, Version: 2}

func at(n int64) position.Position { return position.Position{Log: true, Commit: n, Prepare: n} }

// metadataAt is what an event that we emitted at a position has.
func metadataAt(n int64) string { return fmt.Sprintf(`{"$v":"7:-1:2:4","$c":%d,"$p":%d}`, n, n) }

func options(s *memdb.DB) output.Options {
	return output.Options{Store: s, Streams: output.Streams{Projection: "p"}, Version: ours, From: at(-1)}
}

// run is an Output and what a test does with it.
type run struct {
	t testing.TB
	*output.Output
}

func start(t testing.TB, o output.Options) run {
	r := run{t, output.New(o)}
	t.Cleanup(r.Close)
	return r
}

// emit emits events "stream type data" at a position.
func (r run) emit(n int64, all ...string) run {
	r.Emit(at(n), nil, emissions(all...))
	return r
}

func emissions(all ...string) (es []handler.Emission) {
	for _, text := range all {
		f := strings.SplitN(text, " ", 3)
		e := handler.Emission{Stream: f[0], Type: f[1], Data: []byte(f[2])}
		if e.Type == event.TypeLink {
			number, stream, _ := event.ParseLink(e.Data)
			e.To = &handler.Target{Stream: stream, Number: number}
		}
		es = append(es, e)
	}
	return es
}

func (r run) flush() {
	r.t.Helper()
	check.Must(r.t, r.Flush(context.Background()), "flush")
	if r.Pending() != 0 || r.Bytes() != 0 {
		r.t.Errorf("%d events, %d bytes pending after a flush", r.Pending(), r.Bytes())
	}
}

// fails returns the text of the fault that a flush ends with.
func (r run) fails() string {
	r.t.Helper()
	err := r.Flush(context.Background())
	var fault *handler.Fault
	if !errors.As(err, &fault) {
		r.t.Fatalf("flush ended with %v", err)
	}
	<-r.Failed().Done()
	return fault.Message
}

func same[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	check.Deep(t, got, want, what)
}

func TestMetadata(t *testing.T) {
	id := check.Value(event.ParseID("0f9fad5b-d9cb-469f-a165-70867728950e")).Must(t)
	source := func(flags event.Flags, metadata string) *handler.Event {
		return &handler.Event{Record: &event.Record{ID: id, Flags: flags, Metadata: []byte(metadata)}}
	}
	const caused = `"$causedBy":"0f9fad5b-d9cb-469f-a165-70867728950e"`
	streams := position.Position{Numbers: []position.Number{{Name: "a\"", Number: 3}, {Name: "b", Number: -1}}}
	cases := []struct {
		name string
		at   position.Position
		by   *handler.Event
		own  []handler.Field
		want string
	}{
		{"alone", at(5), nil, nil, `{"$v":"7:-1:2:4","$c":5,"$p":5}`},
		{"streams", streams, source(0, ""), nil, `{"$v":"7:-1:2:4","$s":{"a\"":3,"b":-1},` + caused + `}`},
		{"own", at(5), source(event.FlagJSON, `{"$correlationId":"c"}`), []handler.Field{{Name: "x", Value: []byte("[1]")}, {Name: "y\n", Value: []byte(`"z"`)}},
			`{"$v":"7:-1:2:4","$c":5,"$p":5,"x":[1],"y\n":"z",` + caused + `,"$correlationId":"c"}`},
		{"own correlation", at(5), source(event.FlagJSON, `{"$correlationId":"c"}`), []handler.Field{{Name: "$correlationId", Value: []byte(`"d"`)}},
			`{"$v":"7:-1:2:4","$c":5,"$p":5,"$correlationId":"d",` + caused + `}`},
		{"dropped", at(5), source(event.FlagJSON, `{"$correlationId":null}`), []handler.Field{{Name: "$causedBy", Value: []byte(`1`)}, {Name: "$p", Value: []byte(`9`)}, {Name: "p", Value: []byte(`9`)}, {Name: "u"}},
			`{"$v":"7:-1:2:4","$c":5,"$p":5,"p":9,` + caused + `}`},
		{"not JSON", at(5), source(0, `{"$correlationId":"c"}`), nil, `{"$v":"7:-1:2:4","$c":5,"$p":5,` + caused + `}`},
		{"broken", at(5), source(event.FlagJSON, `{"$correlationId":"c"`), nil, `{"$v":"7:-1:2:4","$c":5,"$p":5,` + caused + `}`},
		{"end of a query", position.Position{Phase: 1, Completed: true}, nil, nil, `{"$v":"7:-1:2:4","$ph":1,"$cp":true}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := memdb.Open(t, memdb.Options{})
			r := start(t, options(s))
			r.Emit(c.at, c.by, []handler.Emission{{Stream: "s", Type: "T", JSON: true, Data: []byte("{}"), Metadata: c.own}})
			r.flush()
			e := s.Seen("s")[0]
			same(t, "metadata", string(e.Metadata), c.want)
			same(t, "data", string(e.Data), "{}")
			if !e.IsJSON() {
				t.Error("not JSON")
			}
		})
	}
	s := memdb.Open(t, memdb.Options{})
	o := options(s)
	o.Volatile = true
	r := start(t, o)
	r.Emit(position.Position{Phase: 1, Completed: true}, nil, []handler.Emission{o.Streams.QueryEnd()})
	r.flush()
	for name := range s.Dump() {
		same(t, "of a query", string(s.Seen(name)[0].Metadata), `{"$ph":1,"$cp":true}`)
	}
}

func TestFirstWrite(t *testing.T) {
	s := memdb.Open(t, memdb.Options{})
	s.SetMetadata("mine", `{"$maxCount":5}`)
	s.Append("gone", "t", "old", "")
	s.Delete(event.SoftDelete, "gone")
	r := start(t, options(s))
	r.emit(1, "out T 1", "$sys T 2", "mine T 3", "gone T 4", "out T 5").flush()
	same(t, "out", s.Lines("out"), []string{"0 T 1", "1 T 5"})
	same(t, "gone", s.Lines("gone"), []string{"1 T 4"})
	same(t, "metadata", []string{s.Metadata("out"), s.Metadata("$sys"), s.Metadata("mine"), s.Metadata("gone")},
		[]string{`{"$acl":{}}`, `{"$acl":{"$r":"$all","$mr":"$all"}}`, `{"$maxCount":5}`, `{"$acl":{},"$tb":1}`})
	ids := map[event.ID]bool{}
	for _, r := range append(s.All("out"), s.All("$sys")...) {
		ids[r.ID] = true
	}
	check.Equal(t, len(ids), 3, "ids of 3 events")
}

// The stream's last event decides, in the order of the contract.
func TestForeignStreams(t *testing.T) {
	const bad = "The given checkpoint is invalid. Possible causes might include having written an event to the projection's managed stream. The bad checkpoint: "
	cases := []struct{ name, metadata, want string }{
		{"no metadata", "", "The 's' stream managed by projection 7 has been written to from the outside.\r\nEvent: 1@s"},
		{"no position", `{"a":1}`, bad + `{"a":1}`},
		{"not JSON", `x`, bad + `x`},
		{"no version", `{"$c":1,"$p":1}`, "The 's' stream managed by projection 7 has been written to from the outside.\r\nEvent: 1@s"},
		{"another projection", `{"$v":"9:-1:0:4","$c":1,"$p":1}`, "Multiple projections emitting to the same stream detected.  Stream: 's'. Last event projection: '9'.  Emitting projection: '7'"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := memdb.Open(t, memdb.Options{})
			s.Append("s", "T", "", metadataAt(0))
			s.Append("s", "T", "", c.metadata)
			same(t, "fault", start(t, options(s)).emit(1, "s T 1").fails(), c.want)
		})
	}
	s := memdb.Open(t, memdb.Options{})
	s.Append("s", "T", "", "")
	s.Delete(event.HardDelete, "s")
	same(t, "tombstone", start(t, options(s)).emit(1, "s T 1").fails(), "Stream : s is deleted. Cannot emit events to it")

	o := options(memdb.Open(t, memdb.Options{}))
	o.MayWrite = func(_ context.Context, stream string) error { return event.ErrNotAuthorized }
	same(t, "right", start(t, o).emit(1, "s T 1").fails(), "Projection cannot write to the stream 's'. Not authorized.")
}

func TestReset(t *testing.T) {
	s := memdb.Open(t, memdb.Options{})
	start(t, options(s)).emit(1, "s T 1").emit(2, "s T 2").flush()
	s.SetMetadata("s", `{"$acl":{"$r":"me"},"x":1}`)
	o := options(s)
	o.Version.Epoch, o.Version.Version = 3, 3
	start(t, o).emit(1, "s T 1").flush()
	same(t, "events", s.Lines("s"), []string{"2 T 1"})
	same(t, "metadata", s.Metadata("s"), `{"$acl":{"$r":"me"},"$tb":2,"x":1}`)
	s.SetMetadata("s", `{"x":1}`)
	o.Version.Epoch, o.Version.Version = 4, 4
	start(t, o).emit(1, "s T 1").flush()
	same(t, "metadata", s.Metadata("s"), `{"$acl":{},"$tb":3,"x":1}`)
	// Truncated, and nothing was written after it when the run ended.
	o.Version.Epoch, o.Version.Version = 5, 5
	s.SetMetadata("s", `{"$tb":4}`)
	start(t, o).emit(1, "s T 1").emit(2, "s T 2").flush()
	same(t, "events", s.Lines("s"), []string{"4 T 1", "5 T 2"})
}

func TestRecovery(t *testing.T) {
	type step func(s *memdb.DB)
	remove := func(stream string) step {
		return func(s *memdb.DB) {
			s.Delete(event.SoftDelete, stream)
		}
	}
	metadata := func(document string) step { return func(s *memdb.DB) { s.SetMetadata("s", document) } }
	type emitted struct {
		at  int64
		all []string
	}
	cases := []struct {
		name    string
		from    int64
		before  []emitted
		between step
		again   []emitted
		want    []string
		fault   string
	}{
		{"all again", -1, []emitted{{1, []string{"s A 1", "s B 1"}}, {2, []string{"s A 2"}}}, nil,
			[]emitted{{1, []string{"s A 1", "s B 1"}}, {2, []string{"s A 2"}}, {3, []string{"s A 3"}}}, []string{"0 A 1", "1 B 1", "2 A 2", "3 A 3"}, ""},
		{"from a checkpoint", 1, []emitted{{1, []string{"s A 1"}}, {2, []string{"s A 2"}}}, nil,
			[]emitted{{2, []string{"s A 2"}}, {3, []string{"s A 3"}}}, []string{"0 A 1", "1 A 2", "2 A 3"}, ""},
		{"part of a position", 1, []emitted{{1, []string{"s A 1"}}, {2, []string{"s A 2"}}}, nil,
			[]emitted{{2, []string{"s A 2", "s A 3"}}}, []string{"0 A 1", "1 A 2", "2 A 3"}, ""},
		{"nothing behind the checkpoint", 2, []emitted{{1, []string{"s A 1"}}, {2, []string{"s A 2"}}}, nil,
			[]emitted{{3, []string{"s A 3"}}}, []string{"0 A 1", "1 A 2", "2 A 3"}, ""},
		{"another type", -1, []emitted{{1, []string{"s A 1"}}}, nil, []emitted{{1, []string{"s B 1"}}}, []string{"0 A 1"},
			"An event emitted in recovery for stream s differs from the originally emitted event. Existing('A', 'C:1/P:1'). New('B', 'C:1/P:1')"},
		{"left out", -1, []emitted{{1, []string{"s A 1"}}, {2, []string{"s A 2"}}}, nil, []emitted{{2, []string{"s A 2"}}}, []string{"0 A 1", "1 A 2"},
			"An event emitted in recovery for stream s differs from the originally emitted event. Existing('A', 'C:1/P:1'). New('A', 'C:2/P:2')"},
		{"one more", -1, []emitted{{2, []string{"s A 2"}}}, nil, []emitted{{1, []string{"s A 1"}}}, []string{"0 A 2"},
			"An event emitted in recovery for stream s differs from the originally emitted event. Existing('A', 'C:2/P:2'). New('A', 'C:1/P:1')"},
		{"the source of a link is gone", -1, []emitted{{1, []string{"x T -", "s $> 0@x"}}, {2, []string{"s A 2"}}}, remove("x"),
			[]emitted{{2, []string{"s A 2"}}, {3, []string{"s A 3"}}}, []string{"0 $> 0@x", "1 A 2", "2 A 3"}, ""},
		{"a new link whose target is gone", -1, []emitted{{1, []string{"x T -"}}, {2, []string{"s A 2"}}}, remove("x"),
			[]emitted{{1, []string{"s $> 0@x"}}, {2, []string{"s A 2"}}, {3, []string{"s A 3"}}}, []string{"0 A 2", "1 A 3"}, ""},
		{"a new link to something", -1, []emitted{{1, []string{"x T -"}}, {2, []string{"s A 2"}}}, nil,
			[]emitted{{1, []string{"s $> 0@x"}}}, []string{"0 A 2"},
			"An event emitted in recovery for stream s differs from the originally emitted event. Existing('A', 'C:2/P:2'). New('$>', 'C:1/P:1')"},
		{"only the last is seen", -1, []emitted{{1, []string{"s A 1", "s A 2"}}, {2, []string{"s A 3", "s A 4", "s A 5"}}}, metadata(`{"$maxCount":1}`),
			[]emitted{{1, []string{"s A 1", "s A 2"}}, {2, []string{"s A 3", "s A 4", "s A 5"}}, {3, []string{"s A 6"}}}, []string{"5 A 6"}, ""},
		{"half is hidden", -1, []emitted{{1, []string{"s A 1"}}, {2, []string{"s A 2"}}, {3, []string{"s A 3"}}}, metadata(`{"$tb":1}`),
			[]emitted{{1, []string{"s A 1"}}, {2, []string{"s A 2"}}, {3, []string{"s A 3"}}, {4, []string{"s A 4"}}}, []string{"1 A 2", "2 A 3", "3 A 4"}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := memdb.Open(t, memdb.Options{})
			r := start(t, options(s))
			for _, e := range c.before {
				r.emit(e.at, e.all...)
			}
			r.flush()
			if c.between != nil {
				c.between(s)
			}
			o := options(s)
			o.From = at(c.from)
			r = start(t, o)
			for _, e := range c.again {
				r.emit(e.at, e.all...)
			}
			if c.fault != "" {
				same(t, "fault", r.fails(), c.fault)
			} else {
				r.flush()
			}
			same(t, "events", s.Lines("s"), c.want)
		})
	}
}

// What is stored may be many pages, of large events, and positions of a definition before.
func TestRecoveryOfMuch(t *testing.T) {
	s := memdb.Open(t, memdb.Options{})
	const n = 1500
	big := strings.Repeat("x", 8000) // A page does not take all of them.
	emit := func(r run, n int64, p func(i int64) position.Position) {
		for i := range n {
			r.Emit(p(i), nil, []handler.Emission{{Stream: "s", Type: "T", Data: []byte(big)}})
		}
		r.flush()
	}
	one := func(i int64) position.Position {
		return position.Position{Numbers: []position.Number{{Name: "a", Number: i}}}
	}
	two := func(i int64) position.Position {
		return position.Position{Numbers: []position.Number{{Name: "b", Number: -1}, {Name: "a", Number: i}}}
	}
	o := options(s)
	o.From = one(-1)
	emit(start(t, o), n, one)
	o.From = two(-1)
	o.Version.Version++
	emit(start(t, o), n+10, two)
	check.Equal(t, len(s.Seen("s")), n+10, "events")
}

func TestForeignWrite(t *testing.T) {
	s := memdb.Open(t, memdb.Options{})
	r := start(t, options(s))
	r.emit(1, "s T 1").flush()
	s.Append("s", "X", "", "")
	r.emit(2, "s T 2")
	check.Is(t, r.Flush(context.Background()), output.ErrRestart, "ended with")
	same(t, "fault", start(t, options(s)).emit(2, "s T 2").fails(), "The 's' stream managed by projection 7 has been written to from the outside.\r\nEvent: 1@s")
}

func TestBadEvents(t *testing.T) {
	for _, c := range []struct{ stream, tags, want string }{
		{"s", `["a,b"]`, `An event cannot be written to the stream 's': $tags: the tag "a,b" has a comma`},
		{"$idx-all", `["a"]`, "An event cannot be written to the stream '$idx-all': Index streams cannot be written to."},
	} {
		r := start(t, options(memdb.Open(t, memdb.Options{})))
		r.Emit(at(1), nil, []handler.Emission{{Stream: c.stream, Type: "T", Metadata: []handler.Field{{Name: event.TagsMember, Value: []byte(c.tags)}}}})
		same(t, "fault", r.fails(), c.want)
	}
}

func TestRetries(t *testing.T) {
	cases := []struct {
		name  string
		fails int // tries of the first event
		after bool
		err   error
		tries int
	}{
		{"not done", 3, false, event.ErrBusy, 4},
		{"done, outcome unknown", 3, true, event.ErrOutcomeUnknown, 2},
		{"until it is too much", 100, false, event.ErrDiskFull, 12},
		{"not the leader", 100, false, &event.NotLeader{}, 1},
		{"closed", 100, false, event.ErrClosed, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memdb.Open(t, memdb.Options{})
				tries := 0
				s.SetFault(func(_ int64, w *event.Write) (before, after error) {
					if w.Stream != "s" {
						return nil, nil
					}
					if tries++; tries > c.fails {
						return nil, nil
					}
					if c.after && tries == 1 {
						return nil, c.err
					} else if c.after {
						return nil, nil
					}
					return c.err, nil
				})
				r := start(t, options(s))
				r.emit(1, "s T 1")
				err := r.Flush(t.Context())
				if c.fails < 12 {
					if err != nil {
						t.Error(err)
					}
					same(t, "events", s.Lines("s"), []string{"0 T 1"})
				} else if !errors.Is(err, c.err) || !errors.Is(r.Err(), c.err) || output.IsLost(err) != (c.tries == 1) {
					t.Errorf("ended with %v, %v", err, r.Err())
				}
				same(t, "tries", tries, c.tries)
			})
		})
	}
}

// Reads are tried again, too, and so is the question of rights.
func TestReadRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdb.Open(t, memdb.Options{})
		start(t, options(s)).emit(1, "x T -", "s T 1", "s $> 0@x").emit(2, "s T 2").flush()
		s.Delete(event.SoftDelete, "x")
		n := 0
		s.Before.Set(func(context.Context, any) error {
			if n++; n%3 != 0 {
				return event.ErrNotReady
			}
			return nil
		})
		o := options(s)
		asked := 0
		o.MayWrite = func(context.Context, string) error {
			if asked++; asked == 1 {
				return event.ErrNotReady
			}
			return nil
		}
		r := start(t, o)
		r.emit(1, "s T 1").emit(2, "s T 2").emit(3, "s T 3").flush()
		s.Before.Set(nil)
		same(t, "events", s.Lines("s"), []string{"0 T 1", "1 $> 0@x", "2 T 2", "3 T 3"})
		s.Before.Set(func(context.Context, any) error { return event.ErrNotReady })
		r = start(t, o)
		r.emit(1, "s T 1")
		check.Is(t, r.Flush(t.Context()), event.ErrNotReady)
	})
}

// Close waits for the write in flight and drops the rest; no caller is left waiting.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdb.Open(t, memdb.Options{})
		under, done := make(chan struct{}), make(chan struct{})
		s.SetFault(func(_ int64, w *event.Write) (before, after error) {
			if w.Stream == "s" {
				close(under)
				<-done
			}
			return nil, nil
		})
		o := options(s)
		o.MaxBatch = 2
		r := start(t, o)
		r.emit(1, "s T 1", "s T 2", "s T 3")
		flushed := make(chan error, 1)
		go func() { flushed <- r.Flush(context.Background()) }()
		<-under
		closed := make(chan struct{})
		go func() { r.Close(); close(closed) }()
		check.Is(t, <-flushed, event.ErrClosed)
		close(done)
		<-closed
		r.Close()
		if got := s.Lines("s"); len(got) == 0 || len(got) == 3 {
			t.Errorf("%q", got)
		}
		check.Is(t, r.WaitBelow(context.Background(), 100), event.ErrClosed)
		r.emit(2, "s T 4")
	})
}

func TestWaitBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memdb.Open(t, memdb.Options{})
		hold := make(chan struct{})
		s.SetFault(func(_ int64, w *event.Write) (before, after error) {
			if w.Stream == "s" {
				<-hold
			}
			return nil, nil
		})
		o := options(s)
		o.MaxBatch = 1
		r := start(t, o)
		r.emit(1, "s T 1", "s T 2", "s T 3")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		check.Is(t, r.WaitBelow(ctx, 2), context.Canceled)
		below := make(chan error)
		go func() { below <- r.WaitBelow(context.Background(), 2) }()
		synctest.Wait()
		if r.Writing() != 1 || r.Pending() != 3 || r.Bytes() == 0 {
			t.Errorf("%d writing, %d pending, %d bytes", r.Writing(), r.Pending(), r.Bytes())
		}
		hold <- struct{}{}
		if err := <-below; err != nil || r.Pending() > 2 {
			t.Errorf("%v with %d pending", err, r.Pending())
		}
		close(hold)
		r.flush()
	})
}

// Streams that were forgotten are looked up again, and what this run wrote is not compared.
func TestForget(t *testing.T) {
	s := memdb.Open(t, memdb.Options{})
	for again := range 2 { // The second run finds everything stored.
		r := start(t, options(s))
		r.SetMaxKnown(10)
		for i := range int64(300) {
			r.emit(i, fmt.Sprintf("s%d T %d", i*7%30, i), fmt.Sprintf("s%d U %d", i%30, i))
			if i%5 == 4 {
				r.flush()
			}
		}
		r.flush()
		if n := r.Known(); n > 20 && again == 0 {
			t.Errorf("%d streams are known", n)
		}
		r.Close()
	}
	total := 0
	for i := range 30 {
		total += len(s.Seen(fmt.Sprint("s", i)))
	}
	same(t, "events", total, 600)
}

// What remains of a forgotten stream does not keep another one from being compared.
func TestForgetInRecovery(t *testing.T) {
	s := memdb.Open(t, memdb.Options{})
	for range 2 {
		r := start(t, options(s))
		r.SetMaxKnown(2)
		for i := range int64(30) {
			r.emit(i, fmt.Sprintf("s%d T 1", i), fmt.Sprintf("t%d T 1", i))
			r.emit(i, fmt.Sprintf("u%d T 1", i)).flush()
		}
		if n := r.Known(); n > 4 {
			t.Errorf("%d streams are known", n)
		}
		r.Close()
	}
	for stream, lines := range s.Dump() {
		check.Equal(t, len(lines), 1, "stream", stream, lines)
	}
}

func TestResults(t *testing.T) {
	s := memdb.Open(t, memdb.Options{})
	o := options(s)
	for range 2 {
		r := start(t, o)
		r.Result(at(1), nil, "", []byte(`{"n":1}`), false)
		r.Result(at(2), nil, "", nil, false)
		for i, p := range []string{"a", "b", "a"} {
			r.Result(at(int64(3+i)), nil, p, fmt.Appendf(nil, "%d", i), i < 2)
		}
		r.Result(at(6), nil, "b", nil, false)
		r.flush()
		r.Close()
	}
	same(t, "root", s.Lines("$projections-p-result"), []string{`0 Result {"n":1}`, "1 ResultRemoved ",
		"2 $> 0@$projections-p-a-result", "3 $> 0@$projections-p-b-result", "4 $> 1@$projections-p-a-result", "5 $> 1@$projections-p-b-result"})
	same(t, "a", s.Lines("$projections-p-a-result"), []string{"0 Result 0", "1 Result 2"})
	same(t, "b", s.Lines("$projections-p-b-result"), []string{"0 Result 1", "1 ResultRemoved "})
	same(t, "partitions", s.Lines("$projections-p-partitions"), []string{"0 $partition a", "1 $partition b"})

	s = memdb.Open(t, memdb.Options{})
	o = options(s)
	o.Streams = output.Streams{Projection: "p", Named: "all", Pattern: "of-{0}"}
	r := start(t, o)
	r.Result(at(1), nil, "a", []byte("1"), true)
	r.flush()
	same(t, "named", [][]string{s.Lines("all"), s.Lines("of-a")}, [][]string{{"0 $> 0@of-a"}, {"0 Result 1"}})
}

// A query's results are those of its last run.
func TestQueries(t *testing.T) {
	for _, isVolatile := range []bool{false, true} {
		s := memdb.Open(t, memdb.Options{})
		o := options(s)
		o.Volatile = isVolatile
		o.Streams.Projection = "p"
		end := position.Position{Phase: 1, Completed: true}
		for i := range 3 {
			r := start(t, o)
			r.Emit(end, nil, []handler.Emission{o.Streams.QueryResult(fmt.Append(nil, i))})
			r.Emit(end, nil, []handler.Emission{o.Streams.QueryResult([]byte("7"))})
			r.Emit(end, nil, []handler.Emission{o.Streams.QueryEnd()})
			r.flush()
			r.Close()
		}
		same(t, fmt.Sprint("results, volatile ", isVolatile), s.Lines("$projections-p-result"), []string{"6 Result 2", "7 Result 7", "8 $Eof "})
	}
}

func TestTrack(t *testing.T) {
	s := memdb.Open(t, memdb.Options{})
	o := options(s)
	start(t, o).emit(1, "early T 1").flush()
	o.Track, o.From = true, at(1)
	for range 2 {
		r := start(t, o)
		for i := range 50 {
			r.emit(2, fmt.Sprintf("s%d T 1", i))
		}
		r.emit(3, "early T 2").flush()
		r.Close()
	}
	got := map[string]int{}
	for _, e := range s.Seen("$projections-p-emittedstreams") {
		same(t, "type", e.Type, "$StreamTracked")
		got[string(e.Data)]++
	}
	if len(got) != 51 || got["early"] != 1 || got["s49"] != 1 {
		t.Errorf("listed: %v", got)
	}
}

func TestMarks(t *testing.T) {
	s := memdb.Open(t, memdb.Options{})
	mark := func(r run, n int64) {
		r.Emit(at(n), nil, []handler.Emission{{Stream: "$et", Type: "$Checkpoint", Data: fmt.Append(nil, n), Mark: true}})
	}
	r := start(t, options(s))
	for _, n := range []int64{1, 4, 4, 9} {
		mark(r, n)
	}
	r.flush()
	o := options(s)
	o.From = at(2)
	r = start(t, o)
	for _, n := range []int64{2, 5, 9, 11, 11} {
		mark(r, n)
		r.flush()
	}
	same(t, "marks", s.Lines("$et"), []string{"0 $Checkpoint 1", "1 $Checkpoint 4", "2 $Checkpoint 9", "3 $Checkpoint 11"})
}

func TestBounds(t *testing.T) {
	s := memdb.Open(t, memdb.Options{})
	largest := 0
	most := 0
	emitted := make(chan struct{})
	s.SetFault(func(_ int64, w *event.Write) (before, after error) {
		<-emitted // so that batches are as large as they may be
		if w.Size() > 1<<20 && len(w.Events) > 1 {
			largest = w.Size()
		}
		most = max(most, len(w.Events))
		return nil, nil
	})
	o := options(s)
	o.MaxBatch, o.MaxInFlight = 20, 1
	r := start(t, o)
	for i := range int64(100) {
		r.Emit(at(i), nil, []handler.Emission{{Stream: "s", Type: "T", Data: make([]byte, 300<<10)}, {Stream: "t", Type: "T"}})
	}
	close(emitted)
	r.flush()
	if largest > 0 || most != 20 && most != 19 {
		t.Errorf("a write of %d bytes, one of %d events", largest, most)
	}
	check.Equal(t, len(s.Seen("s"))+len(s.Seen("t")), 200, "events")
}
