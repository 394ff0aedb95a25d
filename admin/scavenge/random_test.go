package scavenge_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/log/postings"
)

// errPowerCut ends every operation after the power was cut.
var errPowerCut = errors.New("power cut")

// house is a log with a scavenge service, which is opened again and again.
type house struct {
	t    *testing.T
	rng  *rand.Rand
	m    *model
	disk *vfs.Mem
	opts func(*scavenge.Options)
	real string // a folder of the real file system; empty: in memory

	// Operations that change files until the power is cut; below 0: it is not.
	fuse atomic.Int64

	fsys    vfs.FS
	log     *eventlog.Log
	service *scavenge.Service
	history *history.Writer
	writing sync.Mutex // of frames
}

func newHouse(t *testing.T, seed uint64) *house {
	h := &house{t: t, rng: rand.New(rand.NewPCG(seed, 2)), m: newModel(), disk: vfs.NewCrashMem(), opts: func(*scavenge.Options) {}}
	h.fuse.Store(-1)
	return h
}

// open opens the log as a start of the process would, and brings it up to what was written.
func (h *house) open() {
	h.t.Helper()
	dir := "db"
	h.fsys = vfs.NewFaulty(h.disk, func(op vfs.Op) error {
		if !op.Kind.Mutates() {
			return nil
		}
		for {
			left := h.fuse.Load()
			switch {
			case left < 0:
				return nil
			case left == 0:
				return errPowerCut
			case h.fuse.CompareAndSwap(left, left-1):
				return nil
			}
		}
	})
	if h.real != "" {
		dir, h.fsys = h.real, vfs.OS
	}
	var err error
	h.log, err = eventlog.Open(eventlog.Options{
		Dir: dir, FS: h.fsys, ClusterID: h.m.cluster, Index: index.Options{MaxMemTable: 16}, StreamCache: 8, SkipVerify: true,
		Now: func() time.Time { return time.Unix(0, h.m.clock) },
	})
	check.Must(h.t, err, "open")
	h.replay()
	h.history = history.New(history.Options{Store: noStore{}, Endpoint: func() string { return "test" }})
	o := scavenge.Options{
		Log: func() (*eventlog.Log, error) { return h.log, nil }, FS: h.fsys, Dir: filepath.Join(dir, "index", scavenge.Folder), Write: h.writePoint, History: h.history,
		DatabasePageSize: 512, Logger: hclog.NewNullLogger(), Now: func() time.Time { return time.Unix(0, h.m.clock) },
	}
	if testing.Verbose() && os.Getenv("ANNALS_SCAVENGE_LOG") != "" {
		o.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug})
	}
	h.opts(&o)
	h.service = scavenge.New(o)
}

// replay appends the frames that the log lost, as Raft would.
func (h *house) replay() {
	h.t.Helper()
	for _, f := range h.m.frames {
		if f.Index > h.log.Appended().Index {
			check.Must(h.t, h.log.Append(f), "replay entry", f.Index)
		}
	}
	check.Must(h.t, h.log.Commit(), "replay")
}

// close ends the process in good order.
func (h *house) close() {
	h.t.Helper()
	h.service.Close()
	h.history.Close()
	if err := h.log.Close(); err != nil && !errors.Is(err, errPowerCut) {
		h.t.Fatalf("close: %v", err)
	}
}

// crash ends the process, and the power with it.
func (h *house) crash() {
	h.t.Helper()
	h.fuse.CompareAndSwap(-1, 0)
	h.service.Close()
	h.history.Close()
	_ = h.log.Close() // It cannot write any more.
	h.disk = h.disk.CrashClone(vfs.CrashOptions{Rand: h.rng})
	h.fuse.Store(-1)
}

func (h *house) append(events ...proposed) {
	h.t.Helper()
	check.Must(h.t, h.tryAppend(events...), "append")
}

func (h *house) tryAppend(events ...proposed) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	return errors.Join(h.log.Append(h.m.write(events...)), h.log.Commit())
}

// writePoint is the leader.
func (h *house) writePoint(ctx context.Context, w *event.Write) (event.Written, error) {
	h.writing.Lock()
	defer h.writing.Unlock()
	last := int64(len(h.m.points)) - 1
	if w.ExpectedVersion != last && (last >= 0 || w.ExpectedVersion != event.NoStream) {
		return event.Written{}, &event.WrongExpectedVersion{Stream: w.Stream, Expected: w.ExpectedVersion, Current: last}
	}
	f := h.m.write(proposed{stream: w.Stream, typ: w.Events[0].Type, flags: event.FlagJSON, data: w.Events[0].Data})
	if err := errors.Join(h.log.Append(f), h.log.Commit()); err != nil {
		return event.Written{}, err
	}
	return event.Written{First: last + 1, Last: last + 1}, nil
}

// noStore records nothing of runs.
type noStore struct{}

func (noStore) WriteOwn(context.Context, *event.Write) (event.Written, error) {
	return event.Written{}, nil
}
func (noStore) StreamInfo(context.Context, string) (event.StreamInfo, error) {
	return event.StreamInfo{Last: -1, MetaLast: -1}, nil
}
func (noStore) ReadStream(context.Context, event.StreamRead) (event.StreamPage, error) {
	return event.StreamPage{}, event.ErrStreamNotFound
}
func (noStore) ReadEvent(context.Context, string, int64, event.LinkReader) (event.Resolved, error) {
	return event.Resolved{}, event.ErrStreamNotFound
}

// names of the streams that random lives write to.
var names = []string{"a", "b", "c", "long-name-of-a-stream", "$system", "$ce-x", "d", "e"}

// live writes something at random.
func (h *house) live() {
	h.t.Helper()
	h.m.advance(time.Duration(h.rng.IntN(3)) * time.Second)
	name := names[h.rng.IntN(len(names))]
	if h.m.dead[name] {
		if h.rng.IntN(3) == 0 { // Late metadata, which are numbered by their positions.
			late := h.metadata(name)
			if h.rng.IntN(4) == 0 {
				late.stream = event.MetaStreamOf(late.stream)
			}
			h.append(late, late)
		}
		return
	}
	switch h.rng.IntN(12) {
	case 0, 1:
		h.append(h.metadata(name))
	case 2:
		if h.rng.IntN(8) == 0 {
			h.append(proposed{stream: name, typ: event.TypeStreamDeleted, flags: event.FlagDeleted})
		}
	case 3:
		meta := event.MetaStreamOf(event.MetaStreamOf(name))
		h.append(proposed{stream: meta, typ: event.TypeMetadata, flags: event.FlagJSON, data: []byte(`{"$maxCount":3}`)})
	default:
		var events []proposed
		for range 1 + h.rng.IntN(4) {
			events = append(events, proposed{stream: name, typ: "type", data: fmt.Appendf(nil, "%0*d", h.rng.IntN(60), h.rng.IntN(1000))})
		}
		h.append(events...)
	}
}

// metadata makes metadata that never loosen a maximum age: whether what is too old
// for one inside a chunk went is for each run to decide.
func (h *house) metadata(name string) proposed {
	last := len(h.m.streams[name])
	data := fmt.Sprintf(`{"$maxAge":20,"$tb":%d}`, h.rng.IntN(last+2))
	switch h.rng.IntN(7) {
	case 0:
		data = fmt.Sprintf(`{"$maxAge":20,"$maxCount":%d}`, h.rng.IntN(6))
	case 1:
		data = fmt.Sprintf(`{"$maxAge":20,"$maxCount":%d,"$tb":%d}`, 1+h.rng.IntN(5), h.rng.IntN(last+2))
	case 2:
		if name != "a" && name != "b" {
			data = fmt.Sprintf(`{"$tb":%d}`, event.TombstoneNumber)
		}
	}
	if name == "a" || name == "b" { // Without a maximum age there may be anything.
		switch h.rng.IntN(4) {
		case 0:
			data = "no metadata"
		case 1:
			data = fmt.Sprintf(`{"$maxCount":%d}`, h.rng.IntN(6))
		case 2:
			data = fmt.Sprintf(`{"$tb":%d}`, h.rng.IntN(last+2))
		default:
			data = `{"$acl":{"$r":"x"}}`
		}
	}
	if h.rng.IntN(4) == 0 { // By the names without sign.
		data = strings.NewReplacer(event.KeyMaxAge, event.PlainMaxAge, event.KeyMaxCount, event.PlainMaxCount, event.KeyTruncateBefore, event.PlainTruncateBefore).Replace(data)
	}
	return proposed{stream: event.MetaStreamOf(name), typ: []string{event.TypeMetadata, "odd"}[h.rng.IntN(2)], flags: event.FlagJSON, data: []byte(data)}
}

// point returns the point that the next run is about, nil when it makes one.
func (h *house) point(done int) *record {
	if n := len(h.m.points); n > done {
		return h.m.points[n-1]
	}
	return nil
}

func seeds(t *testing.T, usual int) []uint64 {
	if text := os.Getenv("ANNALS_SCAVENGE_SEED"); text != "" {
		seed := check.Value(strconv.ParseUint(text, 10, 64)).Must(t)
		return []uint64{seed}
	}
	if text := os.Getenv("ANNALS_SCAVENGE_SEEDS"); text != "" {
		n := check.Value(strconv.Atoi(text)).Must(t)
		usual = n
	}
	if raced {
		usual = max(1, usual/4)
	}
	first := rand.Uint64() >> 16
	all := make([]uint64, usual)
	for i := range all {
		all[i] = first + uint64(i)
	}
	return all
}

// TestRandomLives scavenges logs with random content at random times, stops runs,
// cuts the power in the middle of them, and holds the log against the model.
func TestRandomLives(t *testing.T) {
	for _, seed := range seeds(t, 12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, seed)
			h.opts = func(o *scavenge.Options) { o.DisableMerging = seed%3 == 0 }
			h.open()
			done := 0 // points that were scavenged, or passed over
			for range 12 {
				for range h.rng.IntN(40) {
					h.live()
				}
				h.m.check(t, h.log, false)
				done = h.scavenge(done)
			}
			h.close()
		})
	}
}

// scavenge has one point scavenged, with whatever comes between.
func (h *house) scavenge(done int) int {
	t := h.t
	t.Helper()
	r := scavenge.Request{Threads: 1 + h.rng.IntN(3), Threshold: []int{0, 0, 0, -1, 6}[h.rng.IntN(5)]}
	if h.rng.IntN(4) == 0 { // As if another node had made it, with events after it.
		h.append(proposed{stream: event.ScavengePointsStream, typ: event.TypeScavengePoint, flags: event.FlagJSON, data: fmt.Appendf(nil, `{"threshold":%d}`, r.Threshold)})
		for range h.rng.IntN(5) {
			h.append(proposed{stream: "e2", typ: "type", data: []byte("after the point")})
		}
	}
	decided := false
	for {
		if !decided && h.point(done) != nil {
			h.m.decide(h.point(done))
			decided = true
		}
		cut := int64(-1)
		if h.real == "" && h.rng.IntN(2) == 0 {
			cut = h.rng.Int64N(150)
		}
		h.fuse.Store(cut)
		points := len(h.m.points)
		id := check.Value(h.service.Start(r)).Must(t, "start")
		if h.rng.IntN(3) == 0 {
			h.stopSoon(id)
		}
		status := check.Value(h.service.Wait(context.Background(), id)).Must(t, "wait")
		if len(h.m.points) > points && !decided {
			h.m.decide(h.point(done))
			decided = true
		}
		t.Logf("run ended as %s after %s (power left: %d)", status.Result, status.Error, h.fuse.Load())
		switch {
		case h.fuse.Load() == 0: // The power went.
			h.crash()
			h.open()
		case status.Result == scavenge.ResultErrored:
			t.Fatalf("run: %s", status.Error)
		}
		h.fuse.Store(-1)
		if status.Result == scavenge.ResultSuccess {
			newest := h.m.points[len(h.m.points)-1]
			h.m.check(t, h.log, threshold(newest) <= 0)
			h.checkPostings()
			h.maybeReopen()
			return len(h.m.points)
		}
		h.m.check(t, h.log, false)
		h.maybeReopen()
	}
}

// checkPostings looks for postings of records that are gone.
func (h *house) checkPostings() {
	h.t.Helper()
	posted := label.Label{Kind: label.Type, Key: "type"}
	walk := h.log.Postings().Walk(h.log.Tail().End, [][][]uint64{{{posted.Hash()}}}, postings.WalkOptions{Most: math.MaxInt})
	for at := int64(0); ; at++ {
		position, found, err := walk.Next(at)
		check.Must(h.t, err)
		if found == postings.None {
			return
		}
		at = position
		if e := (index.Entry{Hash: posted.Hash(), Number: at, Position: at}); !check.Value(h.log.Chunks.Backs(e)).Must(h.t) {
			h.t.Fatalf("position %d is posted, and its record is gone", at)
		}
	}
}

func threshold(point *record) int {
	var n int
	if _, err := fmt.Sscanf(string(point.data), `{"threshold":%d}`, &n); err != nil {
		panic(err)
	}
	return n
}

// maybeReopen ends the process and starts it again, at times without the index.
func (h *house) maybeReopen() {
	h.t.Helper()
	if h.rng.IntN(3) > 0 {
		return
	}
	h.close()
	h.open()
	h.m.check(h.t, h.log, false)
}

// stopSoon stops a run after some of its phases have begun.
func (h *house) stopSoon(id event.ID) {
	for range h.rng.IntN(2000) {
		if h.service.Current().ID != id {
			return
		}
	}
	if _, err := h.service.Stop(context.Background(), id); err != nil && !errors.Is(err, scavenge.ErrNoSuchRun) {
		h.t.Errorf("stop: %v", err)
	}
}
