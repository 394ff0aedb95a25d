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
	"github.com/annalsdb/annals/internal/vfs"
)

const describes = `$metadata {"$maxAge":2592000,"$acl":{"$r":"$ops","$w":[],"$d":[],"$mr":[],"$mw":[]}}
`

func TestSuccess(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options.Keep = 2
		n := w.start()
		equal(t, "result before", n.last().Result, manager.Unknown)
		equal(t, "metric before", w.metric("annals_backup_last_result"), -1)
		for range 3 {
			id := n.backUp()
			time.Sleep(5 * time.Second)
			s := n.current()
			equal(t, "id", s.ID, id)
			equal(t, "progress", s.Progress, backup.Progress{Phase: backup.PhaseCopy, Done: 10, Total: 100})
			equal(t, "last", n.last().Result, manager.InProgress)
			time.Sleep(6 * time.Second)
			s = n.last()
			equal(t, "result", s.Result, manager.Success)
			equal(t, "position", s.Position, 4711)
			equal(t, "bytes", s.Bytes, 100)
			equal(t, "seconds", s.Seconds(time.Now()), 10)
			equal(t, "current", n.current().ID, "")
		}
		equal(t, "kept", w.place.count(), 2)
		equal(t, "metric", w.metric("annals_backup_last_result"), 1)
		equal(t, "end", w.metric("annals_backup_last_end_timestamp_seconds"), n.last().Ended.Unix())
		last := n.last()
		n.close()
		n = w.start()
		defer n.close()
		equal(t, "after a restart", n.last(), last)
		equal(t, "metric after a restart", w.metric("annals_backup_last_success_timestamp_seconds"), last.Ended.Unix())
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
		equal(t, "record", w.records.String(), describes+
			`$backupStarted {"backupId":"<1>","nodeEndpoint":"a:2113","to":"/backups"}
$backupCompleted {"backupId":"<1>","nodeEndpoint":"a:2113","result":"Success","position":4711,"bytes":100,"bytesCopied":60,"seconds":10,"error":null}
$backupStarted {"backupId":"<2>","nodeEndpoint":"a:2113","to":"/backups"}
$backupCompleted {"backupId":"<2>","nodeEndpoint":"a:2113","result":"Failed","position":0,"bytes":0,"bytesCopied":0,"seconds":10,"error":"write /backups: no space left on device"}
`)
	})
}

// Backups work without a leader; they are recorded when there is one.
func TestRecordWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		w.records.refuse(event.ErrNotReady)
		n := w.start()
		n.backUp()
		time.Sleep(time.Hour)
		equal(t, "result", n.last().Result, manager.Success)
		equal(t, "record", w.records.String(), "")
		w.records.refuse(nil)
		time.Sleep(time.Minute)
		equal(t, "events", strings.Count(w.records.String(), "$backup"), 2)
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
					if !errors.Is(err, c.want) {
						t.Errorf("call %d: %v, expected %v", i, err, c.want)
					}
				}
				n.close()
			})
		})
	}
	inWorld(t, func(w *world) {
		n := w.start()
		if _, err := n.Stop(w.t.Context()); !errors.Is(err, manager.ErrNoSuchRun) {
			t.Errorf("stop: %v", err)
		}
		n.backUp()
		if _, err := n.Start(); !errors.Is(err, manager.ErrRunning) {
			t.Errorf("second: %v", err)
		}
		n.close()
		if _, err := n.Start(); !errors.Is(err, event.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestStop(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start()
		defer n.close()
		id := n.backUp()
		stopped, err := n.Stop(w.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "id", stopped, id)
		equal(t, "result", n.last().Result, manager.Stopped)
		equal(t, "listed", w.place.count(), 0)
		n.backUp() // At once.
		time.Sleep(time.Minute)
		equal(t, "result", n.last().Result, manager.Success)

		n.backUp()
		ctx, cancel := context.WithCancel(w.t.Context())
		cancel()
		if _, err := n.Stop(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("impatient: %v", err)
		}
		synctest.Wait()
		equal(t, "result", n.last().Result, manager.Stopped)
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
				equal(t, "result", n.last().Result, c.want)
				equal(t, "tries", len(w.place.times()), c.tries)
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
		equal(t, "result", n.last().Result, manager.Success)
		equal(t, "error", n.last().Error, "The backup was made, but remove old backups: permission denied")
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
				state, err := vfs.ReadFile(w.fs, "/db/backups.json")
				if err != nil {
					t.Fatal(err)
				}
				n.close()
				if err := vfs.WriteFileAtomic(w.fs, "/db/backups.json", state); err != nil {
					t.Fatal(err)
				}
			} else {
				n.close()
			}
			equal(t, "listed", w.place.count(), 0)
			time.Sleep(time.Hour)

			n = w.start()
			equal(t, "begun again", n.current().Begun, 2)
			time.Sleep(time.Minute)
			equal(t, "result", n.last().Result, manager.Success)
			equal(t, "listed", w.place.count(), 1)
			n.close()
			n = w.start()
			time.Sleep(time.Minute)
			n.close()
			equal(t, "runs", len(w.place.times()), 2)
			got := w.records.String()
			if !strings.Contains(got, `{"backupId":"<1>","nodeEndpoint":"a:2113","result":"Failed",`) || !strings.Contains(got, `"error":"The node was restarted."`) {
				t.Errorf("record:\n%s", got)
			}
			equal(t, "events", strings.Count(got, "$backup"), 4)
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
		equal(t, "runs", len(w.place.times()), 3)
		equal(t, "result", n.last().Result, manager.Failed)
		equal(t, "metric", w.metric("annals_backup_last_result"), 0)
		n.close()
	})
}

func TestDamagedState(t *testing.T) {
	inWorld(t, func(w *world) {
		if err := vfs.WriteFileAtomic(w.fs, "/db/backups.json", []byte(`{"runn`)); err != nil {
			t.Fatal(err)
		}
		n := w.start()
		equal(t, "result", n.last().Result, manager.Unknown)
		n.backUp()
		time.Sleep(time.Minute)
		equal(t, "result", n.last().Result, manager.Success)
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
		equal(t, "runs", strings.Join(got, " "), "00:15:00 01:15:00 02:15:00")
		n.close()
		time.Sleep(5 * time.Hour)
		n = w.start()
		time.Sleep(time.Minute)
		equal(t, "missed", len(w.place.times()), 4)
		w.place.take(150 * time.Minute) // Longer than from one time to the next.
		time.Sleep(4 * time.Hour)
		equal(t, "long", len(w.place.times()), 6)
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
		equal(t, "waited", time.Since(began), 40*time.Second)
		equal(t, "times the place was closed", hangs.closed, 1)
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
