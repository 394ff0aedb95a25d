package fsm_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// pull brings a node to the end of another one's log, and returns how many frames that took.
func pull(from, to *node) (frames int, err error) {
	tail := to.log.Tail()
	k, err := from.log.Transfer.Continue(tail.End, tail.Chain)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	for {
		b, err := k.Next(0)
		if err == io.EOF {
			return frames, nil
		}
		if err != nil {
			return frames, err
		}
		n, err := to.m.AppendFrames(b.First, b.Raw)
		if frames += n; err != nil {
			return frames, err
		}
	}
}

// What was pulled is skipped when Raft comes to it, and what Raft refused is refused again.
func TestApplyAfterPull(t *testing.T) {
	l := startLeader(t)
	for i := range 8 {
		l.write(appending("s", -2, i))
		l.flush()
		if i == 4 {
			l.write(scavengePoint(90))
			l.flush()
		}
	}
	stale := entriesOf(l, appending("t", -2, 1))
	l.write(appending("s", -2, 99))
	l.flush()
	mustAnswer(t, l.m.ApplyBatch([]*raft.Log{l.command(stale[0])}), "refused")
	n := startNode(t, vfs.NewMem())
	mustAnswer(t, n.m.ApplyBatch(l.history[:3]), "ok ok ok")
	if frames, err := pull(l.node, n); frames != 7 || err != nil {
		t.Fatalf("%d frames, %v", frames, err)
	}
	check.MustEqual(t, n.log.Tail(), l.log.Tail(), "tail")
	// A snapshot between the two: the log is ahead of what Raft applied here.
	out := &sink{}
	check.Must(t, captured(t, n).Persist(out))
	mustAnswer(t, n.m.ApplyBatch(l.history[3:]), strings.Repeat("ok ", 7)+"refused")
	l.write(appending("s", -2, 100))
	l.flush()
	mustAnswer(t, n.m.ApplyBatch(l.history[len(l.history)-1:]), "ok")
	if n.log.Tail() != l.log.Tail() || len(n.all()) != len(l.all()) || len(n.fatals) > 0 {
		t.Fatalf("tail %+v, want %+v; fatal %v", n.log.Tail(), l.log.Tail(), n.fatals)
	}
	check.Must(t, n.m.Restore(source(out.String())))
}

// The entry of the last pulled frame must have its term.
func TestApplyAfterPullOfAnotherTerm(t *testing.T) {
	l := startLeader(t)
	for i := range 3 {
		l.write(appending("s", -2, i))
		l.flush()
	}
	n := startNode(t, vfs.NewMem())
	check.Must(t, check.Err(pull(l.node, n)))
	last := *l.history[2]
	last.Term++
	mustFail(t, n, []*raft.Log{&last}, "another history")
	if _, err := n.m.AppendFrames(n.log.Tail().End, []byte("x")); err == nil || !strings.Contains(err.Error(), "another history") {
		t.Fatalf("a stopped machine takes frames: %v", err)
	}
	file, name, err := n.log.Transfer.CreateTemp()
	check.Must(t, err)
	check.Must(t, file.Close())
	check.MustFail(t, n.m.InstallChunk(name), "a stopped machine takes a file")
}

// Data that cannot be taken stop nothing; a disk that fails does.
func TestPullFails(t *testing.T) {
	broken := errors.New("broken")
	var armed atomic.Bool
	l := startLeader(t)
	n := openNode(t, vfs.NewFaulty(vfs.NewMem(), func(op vfs.Op) error {
		if armed.Load() && op.Kind == vfs.OpWrite {
			return broken
		}
		return nil
	}))
	l.write(appending("s", -2, 1))
	l.flush()
	if _, err := n.m.AppendFrames(0, []byte("no frames")); !errors.Is(err, event.ErrBadFrames) || len(n.fatals) > 0 {
		t.Fatalf("%v, fatal %v", err, n.fatals)
	}
	file, name, err := n.log.Transfer.CreateTemp()
	check.Must(t, err)
	check.Must(t, file.Close())
	if err := n.m.InstallChunk(name); !event.IsCorruption(err) || len(n.fatals) > 0 {
		t.Fatalf("%v, fatal %v", err, n.fatals)
	}
	check.Must(t, check.Err(pull(l.node, n)))
	l.write(appending("s", -2, 2))
	l.flush()
	armed.Store(true)
	check.MustBe(t, check.Err(pull(l.node, n)), broken)
	mustFail(t, n, l.history[1:], broken.Error())
	n.close()
}

// Raft applies and takes snapshots while data are pulled: each frame is taken once.
func TestPullWhileApplying(t *testing.T) {
	l := startLeader(t)
	n := startNode(t, vfs.NewMem())
	for i := range 300 {
		l.write(appending("s", -2, i))
		l.flush()
	}
	var others sync.WaitGroup
	others.Go(func() {
		for n.log.Tail() != l.log.Tail() {
			if _, err := pull(l.node, n); err != nil {
				t.Error(err)
				return
			}
		}
	})
	others.Go(func() {
		for batch := range slices.Chunk(l.history, 3) {
			for _, a := range n.m.ApplyBatch(batch) {
				if a != nil {
					t.Error(a)
					return
				}
			}
			check.NoError(t, check.Err(n.m.Snapshot()))
		}
	})
	others.Wait()
	if n.log.Tail() != l.log.Tail() || len(n.all()) != 300 {
		t.Fatalf("tail %+v, want %+v; %d records", n.log.Tail(), l.log.Tail(), len(n.all()))
	}
}
