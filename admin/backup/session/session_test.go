package session_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/session"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database is a log with one event in a file system that counts open files.
type database struct {
	*eventlog.Log
	fs       *vfs.Counting
	sessions *session.Service
	stats    *stats.Registry
}

func open(t *testing.T, change ...func(*session.Options)) *database {
	t.Helper()
	d := &database{fs: vfs.NewCounting(vfs.NewMem()), stats: new(stats.Registry)}
	var err error
	d.Log, err = eventlog.Open(eventlog.Options{Dir: "/db", FS: d.fs, ClusterID: event.ID{1}, SkipVerify: true})
	check.Must(t, err)
	d.write(t)
	o := session.Options{Pin: d.Pin, NodeID: func() string { return "n1" }, Stats: d.stats}
	for _, c := range change {
		c(&o)
	}
	d.sessions = session.New(o)
	return d
}

func (d *database) write(t *testing.T) {
	t.Helper()
	tail := d.Tail()
	e := event.Proposed{ID: event.ID{byte(tail.Index + 1)}, Type: "t", Data: []byte("data")}
	check.Must(t, d.Append(eventlog.Frame{
		First: tail.End, Records: chunkfile.AppendRecord(nil, tail.End, "s", int64(tail.Index), 1700000000e9, 0, &e), Index: tail.Index + 1, Term: 1,
	}))
	check.Must(t, d.Commit())
}

// close ends all and checks that no session left a file open.
func (d *database) close(t *testing.T) {
	t.Helper()
	d.sessions.Close()
	check.Must(t, d.Close())
	if left := d.fs.OpenFiles(); len(left) > 0 {
		t.Errorf("left open: %v", left)
	}
}

func (d *database) figure(name string) (value float64) {
	d.stats.Each(func(s stats.Sample) {
		if s.Name == name {
			value = s.Value
		}
	})
	return value
}

func (d *database) begin(t *testing.T) backup.Session {
	t.Helper()
	s := check.Value(d.sessions.Begin(t.Context())).Must(t)
	return s
}

func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		defer d.close(t)
		s := d.begin(t)
		tail := d.Tail()
		if s.Position != tail.End || s.Chain != tail.Chain.String() || !s.Time.Equal(time.Unix(1700000000, 0)) ||
			s.ClusterID != d.Cluster().String() || s.NodeID != "n1" || !s.Expires.Equal(time.Now().Add(session.Idle)) {
			t.Errorf("the session is %+v of a log that ends at %+v", s, tail)
		}
		for range 3 {
			d.write(t)
		}
		names := []string{}
		for _, f := range s.Files {
			names = append(names, f.Name)
			sum := f.Sum()
			r, err := d.sessions.Open(t.Context(), s.ID, f.Name, 0)
			check.Must(t, err)
			n, err := io.Copy(sum, r)
			check.Must(t, errors.Join(err, r.Close()))
			got, err := sum.Sum()
			if n != f.Size || got != f.Checksum || err != nil {
				t.Errorf("%s: %d bytes with checksum %s (%v), want %+v", f.Name, n, got, err, f)
			}
			r, err = d.sessions.Open(t.Context(), s.ID, f.Name, f.Size-3)
			check.Must(t, err)
			rest, err := io.ReadAll(r)
			check.Must(t, errors.Join(err, r.Close()))
			check.Equal(t, len(rest), 3, f.Name, "bytes after all but three")
		}
		check.Slice(t, names, []string{"chaser.chk", "epoch.chk", "proposal.chk", "truncate.chk", "writer.chk", "chunk-000000.000000"}, "the files are")
		_, err := d.sessions.File(s.ID, "annals.lock")
		check.Is(t, err, backup.ErrNoSuchFile, "a file that is not listed")
		_, err = d.sessions.File("unknown", "writer.chk")
		check.Is(t, err, backup.ErrSessionGone, "a session that never was")
		check.Must(t, d.sessions.End(t.Context(), s.ID))
		check.Must(t, d.sessions.End(t.Context(), s.ID))
		check.Is(t, d.sessions.Stop(s.ID), backup.ErrSessionGone, "stopping it again")
	})
}

func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		defer d.close(t)
		var all []backup.Session
		for range session.Limit {
			all = append(all, d.begin(t))
			time.Sleep(time.Second)
		}
		_, err := d.sessions.Begin(t.Context())
		check.Is(t, err, backup.ErrTooManySessions, "one too many")
		check.Equal(t, d.figure("annals_backup_sessions"), session.Limit, "sessions are counted")
		for i, s := range d.sessions.Sessions() {
			if s.ID != all[i].ID || s.Files != nil || !s.Expires.Equal(all[i].Expires) {
				t.Errorf("listed is %+v, want %+v", s, all[i])
			}
		}
		check.Must(t, d.sessions.Stop(all[2].ID))
		d.begin(t)
	})
}

func TestSessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		defer d.close(t)
		s := d.begin(t)
		f, err := d.sessions.File(s.ID, "writer.chk")
		check.Must(t, err)
		b := make([]byte, 8)
		for range 5 { // Read in time, again and again.
			time.Sleep(session.Idle - time.Second)
			check.Must(t, check.Err(f.ReadAt(b, 0)))
		}
		time.Sleep(session.Idle + time.Second)
		synctest.Wait()
		if list := d.sessions.Sessions(); len(list) > 0 {
			t.Errorf("%v live", list)
		}
		_, err = f.ReadAt(b, 0)
		check.Is(t, err, backup.ErrSessionGone, "reading on")
		var ended *backup.Ended
		if errors.As(err, &ended) {
			t.Errorf("a session that was forgotten was ended for a reason: %v", err)
		}
		check.Must(t, f.Close())
	})
}

func TestSessionsAreEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		defer d.close(t)
		s := d.begin(t)
		f, err := d.sessions.File(s.ID, "chunk-000000.000000")
		check.Must(t, err)
		ended, resume := d.sessions.Suspend(backup.EndedByRedaction)
		check.Equal(t, ended, 1, "sessions ended")
		reason := func(what string, err error) {
			t.Helper()
			var e *backup.Ended
			if !errors.As(err, &e) || e.Reason != backup.EndedByRedaction {
				t.Errorf("%s says %v", what, err)
			}
		}
		_, err = f.ReadAt(make([]byte, 8), 0)
		reason("reading on", err)
		_, err = d.sessions.File(s.ID, "writer.chk")
		reason("the next file", err)
		reason("stopping it", d.sessions.Stop(s.ID))
		check.Must(t, d.sessions.End(t.Context(), s.ID))
		check.Must(t, f.Close())
		_, err = d.sessions.Begin(t.Context())
		check.Is(t, err, backup.ErrSuspended, "beginning while sessions are kept away")
		_, again := d.sessions.Suspend("another")
		resume()
		_, err = d.sessions.Begin(t.Context())
		check.Is(t, err, backup.ErrSuspended, "beginning while one still keeps them away")
		again()
		d.begin(t)
		check.Equal(t, d.sessions.EndAll(backup.EndedByFullDisk), 1, "sessions ended")
		d.begin(t)
	})
}

// A session that is being begun when all are ended must not come to be: it would hold what is to
// go.
func TestEndingMeetsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pinned, goOn := make(chan struct{}), make(chan struct{})
		var d *database
		d = open(t, func(o *session.Options) {
			o.Pin = func() (*eventlog.Pin, error) {
				p, err := d.Pin()
				pinned <- struct{}{}
				<-goOn
				return p, err
			}
		})
		defer d.close(t)
		begun, ended := make(chan error), make(chan struct{})
		go func() {
			_, err := d.sessions.Begin(t.Context())
			begun <- err
		}()
		<-pinned
		go func() {
			d.sessions.EndAll(backup.EndedByRedaction)
			close(ended)
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("all sessions are said to have ended while one is pinned")
		default:
		}
		goOn <- struct{}{}
		check.Is(t, <-begun, backup.ErrSuspended, "beginning")
		<-ended

		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := d.sessions.Begin(ctx)
			begun <- err
		}()
		<-pinned
		cancel()
		goOn <- struct{}{}
		check.Is(t, <-begun, context.Canceled, "beginning for a client that is gone")
		check.Equal(t, len(d.sessions.Sessions()), 0, "sessions")
	})
}

func TestSessionRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, func(o *session.Options) { o.InMemory = true })
		_, err := d.sessions.Begin(t.Context())
		check.Is(t, err, backup.ErrInMemory, "a database in memory")
		d.close(t)
		d = open(t, func(o *session.Options) { o.Pin = func() (*eventlog.Pin, error) { return nil, event.ErrNotReady } })
		for range session.Limit + 1 {
			_, err = d.sessions.Begin(t.Context())
			check.Is(t, err, event.ErrNotReady, "a database that is not open")
		}
		d.close(t)
		_, err = d.sessions.Begin(t.Context())
		check.Is(t, err, event.ErrClosed, "a closed service")
	})
}

func TestPinnedBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		defer d.close(t)
		check.Must(t, d.Index().Flush())
		s, other := d.begin(t), d.begin(t)
		if n := d.figure("annals_backup_pinned_bytes"); n != 0 {
			t.Errorf("%v bytes are there for the session alone", n)
		}
		var want float64
		// The table and its filter are replaced by a merge, the existence filter by the next flush.
		// Files that both pin count once.
		for _, f := range s.Files {
			// Checkpoints are rewritten in place, they are not pinned.
			if strings.HasPrefix(f.Name, "index/") && f.Name != "index/indexmap" && f.Size > 16 {
				want += float64(f.Size)
			}
		}
		d.write(t)
		check.Must(t, d.Index().Flush())
		check.Must(t, d.Index().Merge(t.Context()))
		if n := d.figure("annals_backup_pinned_bytes"); n != want || n == 0 {
			t.Errorf("%v bytes are there for the sessions alone, want %v", n, want)
		}
		check.Must(t, errors.Join(d.sessions.Stop(s.ID), d.sessions.Stop(other.ID)))
		check.Equal(t, d.figure("annals_backup_pinned_bytes"), 0, "bytes are there for no session")
	})
}

// What other nodes have acknowledged is waited for, but not for ever.
func TestSessionAwaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d *database
		lag := time.Duration(0)
		d = open(t, func(o *session.Options) {
			o.Await = func(ctx context.Context) error {
				select {
				case <-time.After(lag):
					d.write(t)
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
		defer d.close(t)
		for _, c := range []struct {
			lag   time.Duration
			waits time.Duration
			gets  bool
		}{{time.Second, time.Second, true}, {time.Hour, 3 * time.Second, false}} {
			lag = c.lag
			before, began := d.Tail().End, time.Now()
			s := d.begin(t)
			if took := time.Since(began); took != c.waits || (s.Position > before) != c.gets {
				t.Errorf("a lag of %s: begun at %d after %s, the log ended at %d", c.lag, s.Position, took, before)
			}
			check.Must(t, d.sessions.Stop(s.ID))
		}
	})
}

// The owner, readers, the idle timer and the node itself end or use a session in any order.
func TestSessionsConcurrently(t *testing.T) {
	d := open(t)
	var all sync.WaitGroup
	for w := range 6 {
		all.Go(func() {
			for i := range 60 {
				s, err := d.sessions.Begin(t.Context())
				if errors.Is(err, backup.ErrTooManySessions) || errors.Is(err, backup.ErrSuspended) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				for _, f := range s.Files {
					r, err := d.sessions.Open(t.Context(), s.ID, f.Name, 0)
					if err == nil {
						_, err = io.Copy(io.Discard, r)
						err = errors.Join(err, r.Close())
					}
					if err != nil && !errors.Is(err, backup.ErrSessionGone) {
						t.Errorf("%s: %v", f.Name, err)
					}
				}
				if (w+i)%3 == 0 {
					d.sessions.EndAll(backup.EndedByFullDisk)
				}
				d.sessions.Sessions()
				d.sessions.PinnedBytes()
				check.NoError(t, d.sessions.End(t.Context(), s.ID))
			}
		})
	}
	all.Go(func() {
		for range 30 {
			d.write(t)
			check.NoError(t, d.Index().Flush())
		}
	})
	all.Wait()
	d.close(t)
	if misuse := d.fs.UsedAfterClose(); len(misuse) > 0 {
		t.Errorf("used after close: %v", misuse)
	}
}
