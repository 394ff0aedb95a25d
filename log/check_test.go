package eventlog

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

const week = 7 * 24 * time.Hour

func checkOptions(fsys vfs.FS) Options {
	o := testOptions(fsys)
	o.CheckEvery, o.Now = week, time.Now
	o.RecentIDs = 2 // A start reads no more than them.
	return o
}

func after(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// TestCheckEvery: rot in a place that is never read is found within a week, even if the node was
// restarted in the meantime.
func TestCheckEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys, m := vfs.NewMem(), newModel()
		o := checkOptions(fsys)
		l := mustOpen(t, o)
		write(t, l, m.someFrames(16, true)...)
		begun := time.Now()
		after(week - time.Hour)
		rot(t, fsys, chunkfile.FileName(0, 0), 200)
		if d := l.Health.Damaged(); len(d) > 0 {
			t.Fatalf("found without a check: %+v", d)
		}
		closeLog(t, l)
		l = mustOpen(t, o)
		after(30 * time.Minute)
		if d := l.Health.Damaged(); len(d) > 0 {
			t.Fatalf("checked again by a start: %+v", d)
		}
		after(time.Hour)
		if d := l.Health.Damaged(); len(d) != 1 || d[0].First != 0 {
			t.Fatalf("a week later: %+v", d)
		}
		p := l.Health.CheckProgress()
		if p.Running || p.Done != p.Total || p.Total == 0 || p.Ended.Sub(begun) < week || p.Ended.Sub(begun) > week+time.Hour {
			t.Fatalf("%+v, begun %v", p, begun)
		}
		rot(t, fsys, chunkfile.FileName(1, 0), 200)
		after(week + time.Hour)
		if d := l.Health.Damaged(); len(d) != 2 {
			t.Fatalf("two weeks later: %+v", d)
		}
		closeLog(t, l)
	})
}

// TestCheckResumes: an interrupted check continues after what it had read.
func TestCheckResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, ended := range map[string]time.Time{"resumed": time.Now().Add(-week), "garbage": {}, "future": time.Now().Add(week)} {
			state := check.Value(json.Marshal(checkState{Next: 1, Ended: ended})).Must(t)
			if name == "garbage" {
				state = []byte("no state")
			}
			fsys, m := vfs.NewMem(), newModel()
			o := checkOptions(fsys)
			l := mustOpen(t, o)
			write(t, l, m.someFrames(16, true)...)
			closeLog(t, l)
			rot(t, fsys, chunkfile.FileName(0, 0), 200)
			rot(t, fsys, chunkfile.FileName(1, 0), 200)
			check.Must(t, vfs.WriteFileAtomic(fsys, filepath.Join(testDir, checkFile), state))
			l = mustOpen(t, o)
			after(time.Minute)
			d := l.Health.Damaged()
			if resumed := name == "resumed"; resumed && (len(d) != 1 || d[0].First != 1) || !resumed && len(d) > 0 {
				t.Errorf("%s: %+v", name, d)
			}
			closeLog(t, l)
		}
	})
}

// TestCheckPaced: a check takes the time that it is given.
func TestCheckPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys, m := vfs.NewMem(), newModel()
		l := mustOpen(t, testOptions(fsys))
		write(t, l, m.someFrames(16, true)...)
		closeLog(t, l)
		o := testOptions(fsys)
		o.SkipVerify, o.VerifyPerSec = false, 100
		l = mustOpen(t, o)
		after(time.Second)
		p := l.Health.CheckProgress()
		if !p.Running || p.Total == 0 {
			t.Fatalf("%+v", p)
		}
		all := p.Total
		for _, table := range l.index.Tables() {
			all += table.Bytes
		}
		after(time.Duration(all/100+2) * time.Second)
		if p = l.Health.CheckProgress(); p.Running || p.Done != p.Total || p.Ended.IsZero() {
			t.Fatalf("%+v", p)
		}
		closeLog(t, l)
	})
}
