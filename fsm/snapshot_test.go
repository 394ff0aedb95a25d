package fsm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// sink keeps what is persisted, and how that ended.
type sink struct {
	bytes.Buffer
	ends               []string
	onWrite            func()
	writeErr, closeErr error
}

var _ raft.SnapshotSink = (*sink)(nil)

func (s *sink) ID() string { return "sink" }

func (s *sink) Write(b []byte) (int, error) {
	if s.onWrite != nil {
		s.onWrite()
	}
	if s.writeErr != nil {
		return 0, s.writeErr
	}
	return s.Buffer.Write(b)
}

func (s *sink) Close() error {
	s.ends = append(s.ends, "closed")
	return s.closeErr
}

func (s *sink) Cancel() error {
	s.ends = append(s.ends, "cancelled")
	return nil
}

// body is a snapshot on its way in.
type body struct {
	io.Reader
	closed   int
	closeErr error
}

func (b *body) Close() error {
	b.closed++
	return b.closeErr
}

func source(text string) *body { return &body{Reader: strings.NewReader(text)} }

func captured(t *testing.T, n *node) raft.FSMSnapshot {
	t.Helper()
	s := check.Value(n.m.Snapshot()).Must(t)
	return s
}

// A snapshot describes what was applied when it was captured, and is written when that is durable.
func TestSnapshot(t *testing.T) {
	fs := vfs.NewCrashMem()
	l := newLeader(t, fs)
	defer func() { l.close() }()
	for i := range 10 {
		l.write(appending("s", -2, i))
		l.flush()
	}
	l.write(scavengePoint(90))
	l.flush()
	l.write(appending("s", -2, 10))
	l.flush()
	tail := l.log.Tail()
	s := captured(t, l.node)
	l.write(appending("s", -2, 11))
	l.flush()
	l.write(scavengePoint(91))
	l.flush()

	var after *vfs.Mem
	out := &sink{}
	// before the first byte of the snapshot
	out.onWrite = func() { after = fs.CrashClone(vfs.CrashOptions{}) }
	check.Must(t, s.Persist(out))
	s.Release()
	check.MustEqual(t, strings.Join(out.ends, " "), "closed", "the sink")
	var m event.Snapshot
	check.Must(t, json.Unmarshal(out.Bytes(), &m))
	check.MustEqual(t, m.Tail, tail, "snapshot of")
	if len(m.Chunks) != 1 || m.Chunks[0].First != 0 || m.Chunks[0].Last != 0 || m.Chunks[0].Checksum == "" {
		t.Fatalf("chunks %+v", m.Chunks)
	}
	n := startNode(t, after)
	if chain, ok, err := n.log.ChainAt(tail.End); !ok || chain != tail.Chain || err != nil {
		t.Fatalf("after a power cut the log ends at %+v, and should reach %+v (%v)", n.log.Tail(), tail, err)
	}
	// The rest comes out of the Raft log, from wherever that begins.
	for _, a := range n.m.ApplyBatch(l.history[5:]) {
		if a != nil {
			t.Fatal(a)
		}
	}
	check.MustEqual(t, n.log.Tail(), l.log.Tail(), "tail")
}

func TestSnapshotOfEmptyLog(t *testing.T) {
	l := startLeader(t)
	out := &sink{}
	check.Must(t, captured(t, l.node).Persist(out))
	n := startNode(t, vfs.NewMem())
	check.Must(t, n.m.Restore(source(out.String())))
}

func TestPersistFails(t *testing.T) {
	broken := errors.New("broken")
	t.Run("write", func(t *testing.T) {
		l := startLeader(t)
		out := &sink{writeErr: broken}
		check.MustBe(t, captured(t, l.node).Persist(out), broken)
		check.MustEqual(t, strings.Join(out.ends, " "), "cancelled", "the sink")
	})
	t.Run("close", func(t *testing.T) {
		l := startLeader(t)
		check.MustBe(t, captured(t, l.node).Persist(&sink{closeErr: broken}), broken)
	})
	t.Run("sync", func(t *testing.T) {
		var armed atomic.Bool // the log reads in the background too
		fs := vfs.NewFaulty(vfs.NewMem(), func(op vfs.Op) error {
			if armed.Load() && op.Kind == vfs.OpSync {
				return broken
			}
			return nil
		})
		l := newLeader(t, fs)
		l.write(appending("s", -2, 1))
		l.flush()
		l.write(appending("s", -2, 2))
		l.seal()
		s := captured(t, l.node)
		armed.Store(true)
		out := &sink{}
		check.MustBe(t, s.Persist(out), broken)
		if got := strings.Join(out.ends, " "); got != "cancelled" || out.Len() > 0 {
			t.Fatalf("the sink was %s and has %d bytes", got, out.Len())
		}
		// A failed sync is final, also for the machine.
		mustFail(t, l.node, commands(2, 1, l.sealed...), broken.Error())
		l.close()
	})
}

func TestRestore(t *testing.T) {
	l := startLeader(t)
	var snapshots []string
	for i := range 5 {
		l.write(appending("s", -2, i))
		l.flush()
		out := &sink{}
		check.Must(t, captured(t, l.node).Persist(out))
		snapshots = append(snapshots, out.String())
	}
	fs := vfs.NewCrashMem()
	n := startNode(t, fs)
	for _, a := range n.m.ApplyBatch(l.history[:3]) {
		if a != nil {
			t.Fatal(a)
		}
	}
	tail := n.log.Tail()
	stranger := startLeader(t)
	for i := range 5 {
		stranger.write(appending("t", -2, i))
		stranger.flush()
	}
	out := &sink{}
	check.Must(t, captured(t, stranger.node).Persist(out))

	for _, c := range []struct {
		name string
		n    *node
		text string
		want string // "" or a part of the error
		is   error  // what it is recognised by
	}{
		{"its own end", n, snapshots[2], "", nil},
		{"below its end", n, snapshots[0], "", nil},
		{"above its end", n, snapshots[3], "the log ends at", event.ErrDataMissing},
		{"of another history, below its end", stranger.node, snapshots[2], "different histories", event.ErrOtherHistory},
		{"of another history, at its end", l.node, out.String(), "different histories", event.ErrOtherHistory},
		{"of another history, above its end", n, out.String(), "the log ends at", event.ErrDataMissing},
		{"no frame ends there", n, strings.Replace(snapshots[0], `"end":`, `"end":1`, 1), "the log", event.ErrDataMissing},
		{"empty", n, "", "read snapshot", nil},
		{"damaged", n, snapshots[0][:20], "read snapshot", nil},
		{"of nothing", n, "{}", "different histories", event.ErrOtherHistory},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.n.log.Tail()
			b := source(c.text)
			err := c.n.m.Restore(b)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("restore: %v, want %q", err, c.want)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("restore: %v, want %v", err, c.is)
			}
			check.MustEqual(t, b.closed, 1, "closed ... times")
			if c.n.log.Tail() != before || len(c.n.fatals) > 0 {
				t.Fatalf("tail %+v, want %+v; fatal %v", c.n.log.Tail(), before, c.n.fatals)
			}
		})
	}
	// What was accepted is durable.
	after := startNode(t, fs.CrashClone(vfs.CrashOptions{}))
	check.MustEqual(t, after.log.Tail(), tail, "after a power cut the log ends at")
	broken := errors.New("broken")
	check.MustBe(t, n.m.Restore(&body{Reader: strings.NewReader(snapshots[0]), closeErr: broken}), broken)
}
