package eventlog

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// pinSource gives the pinned files of a log.
type pinSource struct{ *Pin }

func (s pinSource) Cluster() string { return s.Pin.Cluster.String() }

func (s pinSource) Chunks() (files []PinnedFile) {
	for _, f := range s.Files() {
		if strings.HasPrefix(f.Name, "chunk-") {
			files = append(files, f)
		}
	}
	return files
}

func (s pinSource) Fetch(_ context.Context, name string, into io.WriterAt) error {
	r, err := s.Open(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.NewOffsetWriter(into, 0), io.NewSectionReader(r, 0, r.Size()))
	return errors.Join(err, r.Close())
}

func sourceOf(t testing.TB, m *model, merged ...[2]int) pinSource {
	t.Helper()
	from := emptyLog(t)
	write(t, from, m.frames...)
	for _, r := range merged {
		merge(t, from, r[0], r[1])
	}
	p := check.Value(from.Pin()).Must(t)
	t.Cleanup(func() { check.Must(t, p.Close()) })
	return pinSource{p}
}

func repairWith(fsys vfs.FS, s RepairSource) ([]Repaired, error) {
	return Repair(background, RepairOptions{FS: fsys, Dir: testDir, Source: func() (RepairSource, error) { return s, nil }})
}

// TestRepair damages files of a folder that is not open, and repairs it from another log.
func TestRepair(t *testing.T) {
	m := newModel()
	m.someFrames(22, true)
	sources := map[string]pinSource{"as written": sourceOf(t, m), "merged": sourceOf(t, m, [2]int{0, 2}), "partly": sourceOf(t, m, [2]int{1, 2})}
	cases := map[string]struct {
		merged [][2]int
		damage func(t *testing.T, fsys vfs.FS)
		want   int
	}{
		"nothing": {nil, func(*testing.T, vfs.FS) {}, 0},
		"data":    {nil, func(t *testing.T, fsys vfs.FS) { rot(t, fsys, chunkfile.FileName(1, 0), 200) }, 1},
		"header":  {nil, func(t *testing.T, fsys vfs.FS) { rot(t, fsys, chunkfile.FileName(1, 0), 20) }, 1},
		"footer":  {nil, func(t *testing.T, fsys vfs.FS) { rot(t, fsys, chunkfile.FileName(1, 0), -60) }, 1},
		"missing": {nil, func(t *testing.T, fsys vfs.FS) { check.Must(t, fsys.Remove(testDir+"/"+chunkfile.FileName(1, 0))) }, 1},
		"first and second": {nil, func(t *testing.T, fsys vfs.FS) {
			rot(t, fsys, chunkfile.FileName(0, 0), 20)
			rot(t, fsys, chunkfile.FileName(1, 0), 300)
		}, 2},
		"data of merged":   {[][2]int{{0, 1}}, func(t *testing.T, fsys vfs.FS) { rot(t, fsys, chunkfile.FileName(0, 1), 200) }, 1},
		"map of merged":    {[][2]int{{0, 1}}, func(t *testing.T, fsys vfs.FS) { rot(t, fsys, chunkfile.FileName(0, 1), -200) }, 1},
		"header of merged": {[][2]int{{0, 1}}, func(t *testing.T, fsys vfs.FS) { rot(t, fsys, chunkfile.FileName(0, 1), 20) }, 1},
		"footer of merged": {[][2]int{{1, 2}}, func(t *testing.T, fsys vfs.FS) { rot(t, fsys, chunkfile.FileName(1, 1), -20) }, 1},
		"merged, missing":  {[][2]int{{1, 2}}, func(t *testing.T, fsys vfs.FS) { check.Must(t, fsys.Remove(testDir+"/"+chunkfile.FileName(1, 1))) }, 1},
		"missing before damaged": {nil, func(t *testing.T, fsys vfs.FS) {
			check.Must(t, fsys.Remove(testDir+"/"+chunkfile.FileName(0, 0)))
			rot(t, fsys, chunkfile.FileName(1, 0), 300)
		}, 2},
	}
	for name, c := range cases {
		for from, source := range sources {
			t.Run(name+" from "+from, func(t *testing.T) {
				fsys := vfs.NewMem()
				l := mustOpen(t, testOptions(fsys))
				write(t, l, m.frames...)
				for _, r := range c.merged {
					merge(t, l, r[0], r[1])
				}
				closeLog(t, l)
				c.damage(t, fsys)
				list := check.Value(repairWith(fsys, source)).Must(t)
				for _, one := range list {
					if one.Error != "" || one.New == "" || one.Why == "" {
						t.Errorf("%+v", one)
					}
				}
				check.Equal(t, len(list), c.want, "repaired are", list)
				if again, err := repairWith(fsys, source); err != nil || len(again) > 0 {
					t.Errorf("a second time: %+v, %v", again, err)
				}
				o := testOptions(fsys)
				l = mustOpen(t, o)
				verify(t, l, m.frames, nil)
				checkFiles(t, l)
				noTemps(t, l)
				closeLog(t, l)
				inspected(t, o)
			})
		}
	}
}

// TestRepairRefuses: what does not fit changes nothing.
func TestRepairRefuses(t *testing.T) {
	m, other, short := newModel(), newModel(), newModel()
	m.someFrames(22, true)
	other.frame(false, ev("zz", "another history"))
	other.someFrames(25, true)
	short.someFrames(8, true)
	build := func() *vfs.Mem {
		fsys := vfs.NewMem()
		l := mustOpen(t, testOptions(fsys))
		write(t, l, m.frames...)
		closeLog(t, l)
		rot(t, fsys, chunkfile.FileName(1, 0), 200)
		return fsys
	}
	for name, source := range map[string]pinSource{"another history": sourceOf(t, other), "too short": sourceOf(t, short)} {
		fsys := build()
		list := check.Value(repairWith(fsys, source)).Must(t)
		if len(list) != 1 || list[0].Error == "" || list[0].New != "" {
			t.Errorf("%s: %+v", name, list)
		}
		if names := chunkFiles(t, fsys); len(names) != 5 || names[1] != chunkfile.FileName(1, 0) {
			t.Errorf("%s: %v", name, names)
		}
	}
	fsys := build()
	check.Says(t, check.Err(repairWith(fsys, foreignSource{sourceOf(t, m)})), "cluster", "another cluster")
	l := mustOpen(t, testOptions(fsys))
	check.Is(t, check.Err(repairWith(fsys, sourceOf(t, m))), vfs.ErrLocked, "a running node")
	closeLog(t, l)
}

type foreignSource struct{ pinSource }

func (foreignSource) Cluster() string { return event.ID{9}.String() }

// TestRepairCrash cuts the power before every operation of a repair, and lets each fail.
func TestRepairCrash(t *testing.T) {
	m := newModel()
	m.someFrames(17, true)
	source := sourceOf(t, m, [2]int{0, 1})
	folder := vfs.NewCrashMem()
	o := testOptions(folder)
	o.RecentIDs = 100
	l := mustOpen(t, o)
	write(t, l, m.frames...)
	merge(t, l, 1, 2)
	closeLog(t, l)
	rot(t, folder, chunkfile.FileName(1, 1), 20)
	f, err := folder.OpenReadWrite(filepath.Join(testDir, chunkfile.FileName(1, 1)))
	check.Must(t, err)
	check.Must(t, errors.Join(f.Sync(), f.Close()))
	whole := func(fsys vfs.FS) error {
		list, err := repairWith(fsys, source)
		for _, one := range list {
			if one.Error != "" {
				err = errors.Join(err, errors.New(one.Error))
			}
		}
		if err != nil {
			return err
		}
		o := testOptions(fsys)
		o.RecentIDs = 100
		l, err := Open(o)
		if err != nil {
			return err
		}
		return errors.Join(holds(l, m.frames, nil), l.Close())
	}
	step, first := testkit.Sample(t, everyCut)
	d := powercut.New(powercut.Options[int]{Mem: folder.CrashClone(vfs.CrashOptions{}), Every: step, First: first})
	var operations atomic.Int64
	_, err = repairWith(vfs.NewFaulty(d, func(vfs.Op) error {
		operations.Add(1)
		return nil
	}), source)
	check.Must(t, err)
	for _, c := range d.Cuts() {
		check.Must(t, whole(c.FS), c.What)
	}
	for fail := int64(first); fail < operations.Load(); fail += int64(step) {
		mem := folder.CrashClone(vfs.CrashOptions{})
		var n atomic.Int64
		// What went wrong is in the list or the error; that it can be tried again is what counts.
		_, _ = repairWith(vfs.NewFaulty(mem, func(vfs.Op) error {
			if n.Add(1) == fail+1 {
				return errors.New("broken")
			}
			return nil
		}), source)
		check.Must(t, whole(mem), "operation", fail, "failed")
	}
}
