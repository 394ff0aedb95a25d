package manager_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/manager"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

const describes = `$metadata {"$maxAge":2592000,"$acl":{"$r":"$ops","$w":[],"$d":[],"$mr":[],"$mw":[]}}
`

func TestSuccess(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options.Keep = 2
		n := w.start()
		check.Equal(t, n.last().Result, manager.Unknown, "result before")
		check.Equal(t, w.metric("annals_backup_last_result"), -1, "metric before")
		for range 3 {
			id := n.backUp()
			time.Sleep(5 * time.Second)
			s := n.current()
			check.Equal(t, s.ID, id, "id")
			check.Equal(t, s.Progress, backup.Progress{Phase: backup.PhaseCopy, Done: 10, Total: 100}, "progress")
			check.Equal(t, n.last().Result, manager.InProgress, "last")
			time.Sleep(6 * time.Second)
			s = n.last()
			check.Equal(t, s.Result, manager.Success, "result")
			check.Equal(t, s.Position, 4711, "position")
			check.Equal(t, s.Bytes, 100, "bytes")
			check.Equal(t, s.Seconds(time.Now()), 10, "seconds")
			check.Equal(t, n.current().ID, "", "current")
		}
		check.Equal(t, w.place.count(), 2, "kept")
		check.Equal(t, w.metric("annals_backup_last_result"), 1, "metric")
		check.Equal(t, w.metric("annals_backup_last_end_timestamp_seconds"), n.last().Ended.Unix(), "end")
		last := n.last()
		n.close()
		n = w.start()
		defer n.close()
		check.Equal(t, n.last(), last, "after a restart")
		check.Equal(t, w.metric("annals_backup_last_success_timestamp_seconds"), last.Ended.Unix(), "metric after a restart")
	})
}

func TestRecord(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start()
		n.backUp()
		time.Sleep(time.Minute)
		w.place.fail(errors.New("write /backups: no space left on device"))
		n.backUp()
		time.Sleep(time.Minute)
		n.close()
		check.Equal(t, w.records.String(), describes+
			`$backupStarted {"backupId":"<1>","nodeEndpoint":"a:2113","to":"/backups"}
$backupCompleted {"backupId":"<1>","nodeEndpoint":"a:2113","result":"Success","position":4711,"bytes":100,"bytesCopied":60,"seconds":10,"error":null}
$backupStarted {"backupId":"<2>","nodeEndpoint":"a:2113","to":"/backups"}
$backupCompleted {"backupId":"<2>","nodeEndpoint":"a:2113","result":"Failed","position":0,"bytes":0,"bytesCopied":0,"seconds":10,"error":"write /backups: no space left on device"}
`, "record")
	})
}

// Backups work without a leader; they are recorded when there is one.
func TestRecordWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		w.records.refuse(event.ErrNotReady)
		n := w.start()
		n.backUp()
		time.Sleep(time.Hour)
		check.Equal(t, n.last().Result, manager.Success, "result")
		check.Equal(t, w.records.String(), "", "record")
		w.records.refuse(nil)
		time.Sleep(time.Minute)
		check.Equal(t, strings.Count(w.records.String(), "$backup"), 2, "events")
		n.close()
	})
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*manager.Options)
		want   error
	}{
		{"not configured", func(o *manager.Options) { o.Target = nil }, manager.ErrNotConfigured},
		{"in memory", func(o *manager.Options) { o.InMemory = true }, backup.ErrInMemory},
		{"in memory and not configured", func(o *manager.Options) { o.InMemory, o.Target = true, nil }, backup.ErrInMemory},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c.change(&w.options)
				n := w.start()
				_, start := n.Start()
				_, stop := n.Stop(w.t.Context())
				_, current := n.Current()
				_, last := n.Last()
				_, list := n.List(w.t.Context())
				for i, err := range []error{start, stop, current, last, list} {
					check.Is(t, err, c.want, "call", i)
				}
				n.close()
			})
		})
	}
	inWorld(t, func(w *world) {
		n := w.start()
		check.Is(t, check.Err(n.Stop(w.t.Context())), manager.ErrNoSuchRun, "stop")
		n.backUp()
		check.Is(t, check.Err(n.Start()), manager.ErrRunning, "second")
		n.close()
		check.Is(t, check.Err(n.Start()), event.ErrClosed, "after the end")
	})
}

func TestStop(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start()
		defer n.close()
		id := n.backUp()
		stopped := check.Value(n.Stop(w.t.Context())).Must(t)
		check.Equal(t, stopped, id, "id")
		check.Equal(t, n.last().Result, manager.Stopped, "result")
		check.Equal(t, w.place.count(), 0, "listed")
		n.backUp() // At once.
		time.Sleep(time.Minute)
		check.Equal(t, n.last().Result, manager.Success, "result")

		n.backUp()
		ctx, cancel := context.WithCancel(w.t.Context())
		cancel()
		if _, err := n.Stop(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("impatient: %v", err)
		}
		synctest.Wait()
		check.Equal(t, n.last().Result, manager.Stopped, "result")
	})
}

func TestBeginsAgain(t *testing.T) {
	ended := &backup.Ended{Reason: backup.EndedByRedaction}
	for _, c := range []struct {
		name  string
		fails []error
		tries int
		want  manager.Result
	}{
		{"redaction", []error{ended}, 2, manager.Success},
		{"others are there", []error{backup.ErrTooManySessions, backup.ErrSuspended, event.ErrNotReady}, 4, manager.Success},
		{"for ever", slices.Repeat([]error{ended}, 20), 8, manager.Failed},
		{"a full target", []error{errors.New("no space left on device")}, 1, manager.Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.place.fail(c.fails...)
				n := w.start()
				n.backUp()
				time.Sleep(time.Hour)
				check.Equal(t, n.last().Result, c.want, "result")
				check.Equal(t, len(w.place.times()), c.tries, "tries")
				n.close()
			})
		})
	}
}

func TestPruneFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options.Keep, w.place.pruning = 1, errors.New("permission denied")
		n := w.start()
		n.backUp()
		time.Sleep(time.Minute)
		check.Equal(t, n.last().Result, manager.Success, "result")
		check.Equal(t, n.last().Error, "The backup was made, but remove old backups: permission denied", "error")
		n.close()
	})
}

func TestRestart(t *testing.T) {
	for _, killed := range []bool{false, true} {
		inWorld(t, func(w *world) {
			n := w.start()
			n.backUp()
			time.Sleep(4 * time.Second)
			if killed { // No one sees what the process does from here on.
				state := check.Value(vfs.ReadFile(w.fs, "/db/backups.json")).Must(t)
				n.close()
				check.Must(t, vfs.WriteFileAtomic(w.fs, "/db/backups.json", state))
			} else {
				n.close()
			}
			check.Equal(t, w.place.count(), 0, "listed")
			time.Sleep(time.Hour)

			n = w.start()
			check.Equal(t, n.current().Begun, 2, "begun again")
			time.Sleep(time.Minute)
			check.Equal(t, n.last().Result, manager.Success, "result")
			check.Equal(t, w.place.count(), 1, "listed")
			n.close()
			n = w.start()
			time.Sleep(time.Minute)
			n.close()
			check.Equal(t, len(w.place.times()), 2, "runs")
			got := w.records.String()
			if !strings.Contains(got, `{"backupId":"<1>","nodeEndpoint":"a:2113","result":"Failed",`) || !strings.Contains(got, `"error":"The node was restarted."`) {
				t.Errorf("record:\n%s", got)
			}
			check.Equal(t, strings.Count(got, "$backup"), 4, "events")
		})
	}
}

// A run that ends its process is not begun for ever.
func TestRestartsTooOften(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start()
		n.backUp()
		for range 5 {
			n.close()
			n = w.start()
		}
		check.Equal(t, len(w.place.times()), 3, "runs")
		check.Equal(t, n.last().Result, manager.Failed, "result")
		check.Equal(t, w.metric("annals_backup_last_result"), 0, "metric")
		n.close()
	})
}

func TestDamagedState(t *testing.T) {
	inWorld(t, func(w *world) {
		check.Must(t, vfs.WriteFileAtomic(w.fs, "/db/backups.json", []byte(`{"runn`)))
		n := w.start()
		check.Equal(t, n.last().Result, manager.Unknown, "result")
		n.backUp()
		time.Sleep(time.Minute)
		check.Equal(t, n.last().Result, manager.Success, "result")
		n.close()
	})
}

func TestSchedule(t *testing.T) {
	inWorld(t, func(w *world) {
		w.schedule("15 * * * *")
		n := w.start() // At midnight.
		time.Sleep(3 * time.Hour)
		var got []string
		for _, at := range w.place.times() {
			got = append(got, at.UTC().Format("15:04:05"))
		}
		check.Equal(t, strings.Join(got, " "), "00:15:00 01:15:00 02:15:00", "runs")
		n.close()
		time.Sleep(5 * time.Hour)
		n = w.start()
		time.Sleep(time.Minute)
		check.Equal(t, len(w.place.times()), 4, "missed")
		w.place.take(150 * time.Minute) // Longer than from one time to the next.
		time.Sleep(4 * time.Hour)
		check.Equal(t, len(w.place.times()), 6, "long")
		n.close()
	})
}

// A place that hangs does not keep the node from ending.
func TestPlaceHangs(t *testing.T) {
	inWorld(t, func(w *world) {
		hangs := &hung{place: w.place, released: make(chan struct{})}
		w.options.Create = hangs.Create
		n := w.start()
		n.backUp()
		began := time.Now()
		n.close()
		check.Equal(t, time.Since(began), 40*time.Second, "waited")
		check.Equal(t, hangs.closed, 1, "times the place was closed")
		close(hangs.released)
		synctest.Wait()
	})
}

// hung is a place where nothing returns before it is released.
type hung struct {
	*place
	released chan struct{}
}

func (h *hung) Create(context.Context, string, func(backup.Progress)) (backup.Manifest, error) {
	<-h.released
	return backup.Manifest{}, errors.New("released")
}
