package fsm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/fsm"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/index"
)

// TestScavengedDecisions: writes that are tried again are answered as before when
// the events that they wrote were removed, on the node that removed them and on
// one that took its chunk.
func TestScavengedDecisions(t *testing.T) {
	l := startLeader(t)
	next := 1
	for _, stream := range []string{"s", "t", "u"} {
		for version := int64(-1); version < 9; version += 2 {
			l.write(appending(stream, version, next, next+1))
			next += 2
			l.flush()
		}
	}
	// One event again and again: the newest of its numbers is not the one that is asked for.
	for version := int64(-1); version < 4; version++ {
		l.write(appending("again", version, 1000))
	}
	l.write(deleting(event.SoftDelete, "t", event.AnyVersion))
	l.write(describing("u", event.NoStream, 2000, `{"$maxCount":1}`))
	l.flush()
	l.write(scavengePoint(3000))
	l.flush()
	l.write(appending("s", 9, 4000))
	l.flush()

	ask := func(on *eventlog.Log) (all []string) {
		tell := func(w *event.Write) {
			d := fsm.NewDecider(on.Facts, l.now)
			check.Must(t, d.Reset())
			decision := d.Decide(w)
			o := outcomeOf(decision.Written, decision.Err)
			all = append(all, fmt.Sprintf("%s %d %x: %+v", w.Stream, w.ExpectedVersion, w.Events[0].ID[8:], o))
		}
		for i, stream := range []string{"s", "t", "u"} {
			first := 1 + 10*i
			for version := -1; version < 8; version++ {
				tell(appending(stream, int64(version), first+version+1))
				tell(appending(stream, int64(version), first+version+1, first+version+2))
				tell(appending(stream, int64(version), first+version+2))
				tell(appending(stream, int64(version), 5000))
				if stream != "t" {
					tell(appending(stream, event.AnyVersion, first+version+1))
				}
			}
		}
		for version := int64(-1); version < 4; version++ {
			tell(appending("again", version, 1000))
			tell(appending("again", version, 1001))
		}
		return all
	}
	want := ask(l.log)
	same := func(when string, on *eventlog.Log) {
		t.Helper()
		if got := ask(on); !slices.Equal(got, want) {
			for i := range got {
				check.Equal(t, got[i], want[i], when, "..., before")
			}
		}
	}
	ids, err := l.log.Chunks.IDsFrom()
	check.Must(t, err)
	removed := map[int64]bool{}
	done, err := l.log.Chunks.Rewrite(context.Background(), eventlog.Rewrite{IDsFrom: ids, Keep: func(s *eventlog.Stored) bool {
		last := map[string]int64{"s": 9, "t": 9, "u": 9, "again": 4}
		keep := s.Number >= last[string(s.Stream)]
		removed[s.Position] = !keep
		return keep
	}})
	if err != nil || done.Removed != 31 || done.Chunk.Stubs != 31 {
		t.Fatalf("%+v, %v", done, err)
	}
	same("rewritten", l.log)
	l.close()
	l.open()
	same("opened again", l.log)
	check.Must(t, l.log.Index().Flush())
	check.Must(t, l.log.Index().Scavenge(context.Background(), index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { return !removed[e.Position], nil }}))
	same("without the entries", l.log)
	l.close()
	l.open()
	same("opened again without the entries", l.log)

	other := openNode(t, vfs.NewMem())
	defer func() { other.close() }()
	take(t, l.log, other.log)
	same("another node", other.log)
	other.close()
	other.open()
	same("another node, opened again", other.log)
	l.lead()
}

// take brings an empty log to where another one is.
func take(t *testing.T, from, to *eventlog.Log) {
	t.Helper()
	for to.Tail() != from.Tail() {
		check.Must(t, takeSome(from, to))
	}
}

func takeSome(from, to *eventlog.Log) (err error) {
	tail := to.Tail()
	c, err := from.Transfer.Continue(tail.End, tail.Chain)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if f := c.File(); f != nil {
		tmp, name, err := to.Transfer.CreateTemp()
		if err != nil {
			return err
		}
		b := make([]byte, f.Size)
		_, err = c.ReadAt(b, 0)
		_, werr := tmp.WriteAt(b, 0)
		if err = errors.Join(err, werr, tmp.Close()); err != nil {
			return err
		}
		p, err := to.Transfer.PrepareChunk(name)
		if err != nil {
			return err
		}
		return errors.Join(p.Install(), p.Close())
	}
	for {
		b, err := c.Next(0)
		if err == io.EOF {
			return nil
		}
		if err == nil {
			_, err = to.AppendFrames(b.First, b.Raw)
		}
		if err != nil {
			return err
		}
	}
}
