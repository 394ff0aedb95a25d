package activity_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/annalsdb/annals/admin/activity"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const metaStream = "$$" + activity.Stream

// database keeps what is written, an event with the same id once.
type database struct {
	mu      sync.Mutex
	streams map[string][]event.Proposed
	appends int           // to the stream itself
	fail    error         // of every write
	hold    chan struct{} // writes wait until it is closed, or for their context
	stuck   bool          // they wait whatever their context says
}

func (d *database) WriteOwn(ctx context.Context, w *event.Write) (event.Written, error) {
	d.mu.Lock()
	hold, stuck := d.hold, d.stuck
	d.mu.Unlock()
	if hold != nil {
		done := ctx.Done()
		if stuck {
			done = nil
		}
		select {
		case <-hold:
		case <-done:
			return event.Written{}, ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return event.Written{}, d.fail
	}
	have := d.streams[w.Stream]
	if w.ExpectedVersion != event.AnyVersion && w.ExpectedVersion != int64(len(have))-1 {
		return event.Written{}, &event.WrongExpectedVersion{Current: int64(len(have)) - 1}
	}
	if w.Stream == activity.Stream {
		d.appends++
	}
	for _, e := range w.Events {
		if !slices.ContainsFunc(have, func(o event.Proposed) bool { return o.ID == e.ID }) {
			have = append(have, e)
		}
	}
	d.streams[w.Stream] = have
	return event.Written{}, nil
}

func (d *database) StreamInfo(_ context.Context, stream string) (event.StreamInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return event.StreamInfo{Last: int64(len(d.streams[stream])) - 1, MetaLast: int64(len(d.streams[event.MetaStreamOf(stream)])) - 1}, nil
}

func (d *database) ReadEvent(context.Context, string, int64, event.LinkReader) (event.Resolved, error) {
	return event.Resolved{}, errors.New("no one should ask")
}

// set changes how writes go.
func (d *database) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// data are the operations that were written.
func (d *database) data(t *testing.T) (all []string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.streams[activity.Stream] {
		if e.Type != "$operation" || e.Flags&event.FlagJSON == 0 || !json.Valid(e.Data) {
			t.Errorf("%+v", e)
		}
		all = append(all, string(e.Data))
	}
	return all
}

// kit is a Recorder over a database.
type kit struct {
	*activity.Recorder
	*database
	stats *stats.Registry
	lines *bytes.Buffer
}

func start(d *database) *kit {
	k := &kit{database: d, stats: &stats.Registry{}, lines: &bytes.Buffer{}}
	if d.streams == nil {
		d.streams = map[string][]event.Proposed{}
	}
	k.Recorder = activity.New(activity.Options{
		Store: d, Endpoint: func() string { return "node:2113" }, Stats: k.stats, Logger: hclog.New(&hclog.LoggerOptions{Output: k.lines}),
	})
	return k
}

// figures are the metrics: written, and left out by reason.
func (k *kit) figures() string {
	got := map[string]float64{}
	k.stats.Each(func(s stats.Sample) {
		name := strings.TrimPrefix(s.Name, "annals_activity_")
		for _, l := range s.Labels {
			name += " " + l.Value
		}
		got[name] = s.Value
	})
	return fmt.Sprint(got["written_total"], got["left_out_total anonymous"], got["left_out_total queue"], got["left_out_total failed"])
}

func (k *kit) check(t *testing.T, figures string, warnings int) {
	t.Helper()
	synctest.Wait()
	check.Equal(t, k.figures(), figures, "written, and left out as anonymous, for the queue, failed")
	check.Equal(t, strings.Count(k.lines.String(), "[WARN]"), warnings, "warnings", k.lines)
}

func by(who string) activity.Operation {
	return activity.Operation{Who: who, From: "10.0.0.1:5000", Method: "PUT", Path: "/users/x", Status: 200}
}

func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(&database{})
		k.Note(activity.Operation{Who: "<b>\xff", From: "10.0.0.1:5000", Method: "POST", Path: "/users/%3C", Query: "a=1&Pass%77ord=hidden;apikey=hidden&x&token&%zz=hidden", Status: 201})
		synctest.Wait()
		k.Note(activity.Operation{Who: "é" + strings.Repeat("é", 1000), Path: "/" + strings.Repeat("x", 2000)})
		k.Close()
		k.Note(by("too late"))
		k.Close()
		want := []string{
			`{"who":"<b>\ufffd","from":"10.0.0.1:5000","node":"node:2113","method":"POST","path":"/users/%3C","query":"a=1&Pass%77ord=***&apikey=***&x&token&%zz=***","status":201}`,
			`{"who":"` + strings.Repeat("é", 512) + `...","from":"","node":"node:2113","method":"","path":"/` + strings.Repeat("x", 1023) + `...","query":"","status":0}`,
		}
		check.Slice(t, k.data(t), want)
		meta := k.streams[metaStream]
		if len(meta) != 1 || meta[0].Type != event.TypeMetadata || string(meta[0].Data) != `{"$maxAge":7776000,"$acl":{"$r":"$ops","$w":[],"$d":[],"$mr":[],"$mw":[]}}` {
			t.Errorf("%+v", meta)
		}
		k.check(t, "2 0 1 0", 1)
	})
}

// TestMetadataStay keeps what an operator made of the stream's metadata.
func TestMetadataStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{streams: map[string][]event.Proposed{metaStream: {{Data: []byte(`{"$maxAge":1}`)}}}}
		k := start(d)
		k.Note(by("admin"))
		k.Close()
		check.MustEqual(t, len(d.streams[metaStream]), 1, d.streams)
		check.Equal(t, len(d.streams[activity.Stream]), 1, d.streams)
	})
}

// refused is by for a request that changed nothing.
func refused(who string) activity.Operation {
	o := by(who)
	o.Status = 401
	return o
}

// TestNothingDoneIsLeftOut: every change is recorded, however many come at once, and while other
// requests are refused. While too many wait to be written, changes wait too.
func TestNothingDoneIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{hold: make(chan struct{})}
		k := start(d)
		k.Note(by("first"))
		synctest.Wait()
		for range 600 {
			k.Note(refused("jane"))
		}
		k.check(t, "0 0 100 0", 1)
		var noted sync.WaitGroup
		for i := range 2000 {
			o := by("")
			o.Path = fmt.Sprint("/streams/", i)
			if i%4 == 0 {
				o.Status = 500 // It may have been done.
			}
			noted.Go(func() { k.Note(o) })
		}
		k.check(t, "0 0 100 0", 1)
		close(d.hold)
		noted.Wait()
		k.check(t, "2501 0 100 0", 1)
		all := strings.Join(k.data(t), "\n")
		for i := range 2000 {
			if strings.Count(all, fmt.Sprintf(`"/streams/%d"`, i)) != 1 {
				t.Errorf("change %d is not there once", i)
			}
		}
		// 100 at most go together. How many do is up to the scheduler.
		if d.appends < 25 || d.appends > 500 || strings.Count(all, `"leftOut"`) != 1 {
			t.Errorf("%d appends, %d say what is left out", d.appends, strings.Count(all, `"leftOut"`))
		}
		k.Close()
	})
}

// TestAnonymous bounds how fast requests without a login that are refused make the stream
// grow. What they do is recorded.
func TestAnonymous(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(&database{})
		for range 10_000 {
			k.Note(refused(""))
		}
		k.check(t, "20 9980 0 0", 0)
		time.Sleep(25 * time.Second)
		for range 100 {
			k.Note(refused(""))
		}
		k.Note(refused("admin"))
		k.check(t, "23 10078 0 0", 0)
		for range 30 {
			k.Note(by(""))
		}
		k.check(t, "53 10078 0 0", 0)
		left := 0
		for _, text := range k.data(t) {
			var d struct{ LeftOut int }
			check.Must(t, json.Unmarshal([]byte(text), &d))
			left += d.LeftOut
		}
		check.Equal(t, left, 10078, "the events count ... that have none")
		k.Close()
	})
}

// TestTroubleThatLasts: however long writes fail, with whatever error may pass, what was done is
// written once when they succeed again.
func TestTroubleThatLasts(t *testing.T) {
	for _, err := range []error{event.ErrNotReady, event.ErrDiskFull, event.ErrWriteTimeout, event.ErrOutcomeUnknown, errors.New("broken")} {
		t.Run(err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &database{fail: err}
				k := start(d)
				for range 250 {
					k.Note(by("admin"))
				}
				time.Sleep(time.Hour)
				d.set(func() { d.fail = nil })
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := k.figures(); got != "250 0 0 0" || len(k.data(t)) != 250 {
					t.Errorf("%s, %d events", got, len(k.data(t)))
				}
				k.Close()
			})
		})
	}
}

// TestCloseWaitsForChanges: a change that was begun before the end is recorded, and none is
// begun after it.
func TestCloseWaitsForChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(&database{})
		for range 2 {
			if !k.Begin() {
				t.Fatal("no change may be begun")
			}
		}
		closed := make(chan struct{})
		go func() { k.Close(); close(closed) }()
		synctest.Wait()
		if k.Begin() {
			t.Error("a change is begun after the end")
		}
		k.Note(by("admin"))
		k.End()
		time.Sleep(time.Second)
		k.Note(by("jane"))
		k.End()
		<-closed
		k.check(t, "2 0 0 0", 0)
	})
	synctest.Test(t, func(t *testing.T) { // One that never ends.
		k := start(&database{})
		k.Begin()
		begun := time.Now()
		k.Close()
		check.Equal(t, time.Since(begun), 3*time.Second, "it took")
		k.Note(by("late"))
		k.End()
		k.check(t, "0 0 1 0", 1)
		check.Contains(t, k.lines.String(), "who=late")
	})
}

// TestFailure gives up what cannot be written, says so once, and counts it.
func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{fail: event.ErrStreamDeleted}
		k := start(d)
		for range 3 {
			k.Note(by("admin"))
			synctest.Wait()
		}
		k.check(t, "0 0 0 3", 1+3) // The log has what the stream has not.
		d.set(func() { d.fail = nil })
		k.Note(by("admin"))
		synctest.Wait()
		if data := k.data(t); len(data) != 1 || !strings.Contains(data[0], `"leftOut":3}`) {
			t.Errorf("%s", data)
		}
		k.Close()
	})
}

// TestNoLeader waits for the cluster to take writes, and writes what waited then.
func TestNoLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{fail: event.ErrNotReady}
		k := start(d)
		k.Note(by("admin"))
		time.Sleep(time.Hour)
		k.check(t, "0 0 0 0", 1)
		d.set(func() { d.fail = nil })
		time.Sleep(time.Minute)
		k.check(t, "1 0 0 0", 1)
		k.Close()
	})
}

// TestClose returns in time, whatever the store does.
func TestClose(t *testing.T) {
	for _, c := range []struct {
		name string
		fail error
		hung bool
		took time.Duration
		want [2]int // written, left out
	}{
		{"writes", nil, false, 0, [2]int{201, 0}},
		{"refuses", event.ErrNotReady, false, 0, [2]int{0, 201}},
		{"does not answer", nil, false, 3 * time.Second, [2]int{0, 201}},
		{"hangs", nil, true, 4 * time.Second, [2]int{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &database{fail: c.fail, stuck: c.hung}
				if c.took > 0 {
					d.hold = make(chan struct{})
				}
				k := start(d)
				for range 201 {
					k.Note(by("admin"))
				}
				begun := time.Now()
				k.Close()
				check.Equal(t, time.Since(begun), c.took, "it took")
				if c.hung {
					close(d.hold)
					synctest.Wait()
					return
				}
				var written, anonymous, queue, failed int
				check.Must(t, check.Err(fmt.Sscan(k.figures(), &written, &anonymous, &queue, &failed)))
				check.Equal(t, [2]int{written, queue + failed}, c.want, "written and left out")
			})
		})
	}
}
