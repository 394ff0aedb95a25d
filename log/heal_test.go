package eventlog

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
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

// rot changes a byte of a file that others have open. at counts from the end when it is negative.
func rot(t testing.TB, fsys vfs.FS, name string, at int64) {
	t.Helper()
	f, err := fsys.OpenReadWrite(filepath.Join(testDir, name))
	check.Must(t, err)
	size, err := f.Size()
	check.Must(t, err)
	if at < 0 {
		at += size
	}
	b := make([]byte, 1)
	check.Must(t, vfs.ReadFull(f, b, at))
	b[0] ^= 0x40
	_, err = f.WriteAt(b, at)
	check.Must(t, errors.Join(err, f.Close()))
}

// look compares all complete chunks with their checksums.
func look(t testing.TB, l *Log) []Damage {
	t.Helper()
	for n := 0; n >= 0; {
		n, _ = l.Health.checkChunk(background, n, func(int64) error { return nil })
	}
	return l.Health.Damaged()
}

// fetchFor copies the files of a range into temporary files of another log.
func fetchFor(from, to *Log, d Damage) (names []string, err error) {
	files, err := from.Transfer.ChunkFiles(d.First, d.Last)
	if err != nil || len(files) == 0 {
		return nil, errors.Join(errors.New("no files"), err)
	}
	for _, file := range files {
		k, err := from.Transfer.OpenChunkFile(file.First, file.Checksum, true)
		if err != nil {
			return nil, err
		}
		b := make([]byte, file.Size)
		if _, err := k.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		f, name, err := to.Transfer.CreateTemp()
		if err != nil {
			return nil, err
		}
		_, err = f.WriteAt(b, 0)
		if err := errors.Join(err, f.Close(), k.Close()); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

func atOnce(f func() error) error { return f() }

// TestHeal damages a file of one log and heals it from another whose files have other ranges.
func TestHeal(t *testing.T) {
	ranges := map[string][][2]int{
		"as written":  nil,
		"each":        {{0, 0}, {1, 1}, {2, 2}},
		"merged":      {{0, 2}},
		"first two":   {{0, 1}},
		"after first": {{1, 2}},
	}
	bytes := map[string]int64{"header": 17, "header's end": 127, "data": 140, "last data": -300, "footer": -100, "checksum": -30, "last byte": -1}
	for own, ownRanges := range ranges {
		for other, otherRanges := range ranges {
			t.Run(own+" from "+other, func(t *testing.T) {
				m := newModel()
				m.someFrames(22, true)
				from := emptyLog(t)
				write(t, from, m.frames...)
				for _, r := range otherRanges {
					merge(t, from, r[0], r[1])
				}
				for what, at := range bytes {
					to := emptyLog(t)
					write(t, to, m.frames...)
					for _, r := range ownRanges {
						merge(t, to, r[0], r[1])
					}
					chunks := check.Value(to.Chunks.List()).Must(t)
					victim := chunks[1]
					if !victim.Complete {
						victim = chunks[0]
					}
					rot(t, to.opts.FS, victim.File, at)
					damaged := look(t, to)
					if len(damaged) != 1 || damaged[0].File != victim.File || to.Health.Unhealthy() == nil {
						t.Fatalf("%s: damaged are %+v", what, damaged)
					}
					if damaged[0].Offset < 0 {
						t.Errorf("%s: no offset: %v", what, damaged[0].Err)
					}
					names := check.Value(fetchFor(from, to, damaged[0])).Must(t)
					check.Must(t, to.Transfer.Heal(damaged[0], names, atOnce))
					if d := look(t, to); len(d) > 0 || to.Health.Unhealthy() != nil {
						t.Fatalf("%s: damaged are %+v", what, d)
					}
					verify(t, to, m.frames, nil)
					checkFiles(t, to)
					noTemps(t, to)
					o := to.opts
					o.Stats = nil
					closeLog(t, to)
					inspected(t, o)
				}
			})
		}
	}
}

// TestHealReturning: what was removed here and not there is in the index again, and the state of
// scavenging is void.
func TestHealReturning(t *testing.T) {
	m := newModel()
	m.someFrames(17, true)
	from, to := emptyLog(t), emptyLog(t)
	write(t, from, m.frames...)
	write(t, to, m.frames...)
	_, keep := scavenged(m, 3*chunkfile.ChunkSize)
	rewrite(t, to.opts.FS, "x.tmp", []string{chunkfile.FileName(0, 0)}, keep)
	check.Must(t, to.SwitchChunk("x.tmp"))
	closeLog(t, to)
	check.Must(t, to.opts.FS.RemoveAll(to.opts.IndexDir))
	to = mustOpen(t, to.opts)
	check.MustFail(t, holds(to, m.frames, nil), "removed records are indexed")
	check.Must(t, vfs.MkdirAllSync(to.opts.FS, filepath.Join(to.opts.IndexDir, scavengeFolder)))
	rot(t, to.opts.FS, newestFile(t, to.opts.FS, 0), 200)
	d := look(t, to)
	names := check.Value(fetchFor(from, to, d[0])).Must(t)
	check.Must(t, to.Transfer.Heal(d[0], names, atOnce))
	if _, err := to.opts.FS.Stat(filepath.Join(to.opts.IndexDir, scavengeFolder)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("state of scavenging: %v", err)
	}
	check.Must(t, errors.Join(checkItems(to, m.frames, nil), checkPages(to, m.frames, nil)))
	closeLog(t, to)
	to = mustOpen(t, to.opts)
	verify(t, to, m.frames, nil)
}

// TestHealRefuses: what is fetched must be whole, of the range, and end as the damaged file does.
func TestHealRefuses(t *testing.T) {
	m, other := newModel(), newModel()
	m.someFrames(16, true)
	other.frame(false, ev("zz", "another history"))
	other.someFrames(19, true)
	from, foreign, to := emptyLog(t), emptyLog(t), emptyLog(t)
	write(t, from, m.frames...)
	write(t, foreign, other.frames...)
	write(t, to, m.frames...)
	rot(t, to.opts.FS, chunkfile.FileName(1, 0), 200)
	d := look(t, to)[0]
	fetch := func(from *Log, first, last int) []string {
		names := check.Value(fetchFor(from, to, Damage{First: first, Last: last})).Must(t)
		return names
	}
	for name, names := range map[string][]string{
		"another chunk":   fetch(from, 0, 0),
		"another history": fetch(foreign, 1, 1),
		"flipped": func() []string {
			names := fetch(from, 1, 1)
			rot(t, to.opts.FS, names[0], 300)
			return names
		}(),
		"cut": func() []string {
			names := fetch(from, 1, 1)
			edit(t, to.opts.FS, names[0], func(b []byte) []byte { return b[:len(b)-1] })
			return names
		}(),
	} {
		check.Fails(t, to.Transfer.Heal(d, names, atOnce), name, "was taken")
	}
	noTemps(t, to)
	if got := to.Health.Damaged(); len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	rot(t, from.opts.FS, chunkfile.FileName(1, 0), 200)
	if _, err := fetchFor(from, to, d); !event.IsCorruption(err) {
		t.Errorf("a damaged file was sent: %v", err)
	}
	if files, err := from.Transfer.ChunkFiles(1, 1); len(files) > 0 || err != nil {
		t.Errorf("a file known to be damaged is offered: %+v, %v", files, err)
	}
	merge(t, to, 2, 2)
	if err := to.Transfer.Heal(Damage{File: chunkfile.FileName(2, 0), First: 2, Last: 2}, fetch(from, 2, 2), atOnce); !errors.Is(err, event.ErrChunkReplaced) {
		t.Errorf("a file that was replaced: %v", err)
	}
}

// TestReadMeetsDamage: a read of what is damaged fails and names the place, others do not, and the
// chunk is known to be damaged soon.
func TestReadMeetsDamage(t *testing.T) {
	m := newModel()
	m.someFrames(16, true)
	told := make(chan error, 1)
	o := testOptions(vfs.NewMem())
	o.OnDamage = func(err error) { told <- err }
	l := mustOpen(t, o)
	write(t, l, m.frames...)
	bad := m.frames[6].events[0]
	rot(t, l.opts.FS, chunkfile.FileName(1, 0), chunkfile.HeaderSize+bad.position-chunkfile.ChunkStart(1)+40)
	check.Must(t, func() error {
		_, err := l.Reads.ReadAll(event.AllRead{From: m.frames[5].First, Count: 1})
		return err
	}(), "another record of the chunk")
	_, err := l.Reads.ReadAll(event.AllRead{From: bad.position, Count: 1})
	var c *event.Corruption
	if !errors.As(err, &c) || filepath.Base(c.File) != chunkfile.FileName(1, 0) || c.Offset != chunkfile.HeaderSize+bad.position-chunkfile.ChunkStart(1) {
		t.Fatalf("%v", err)
	}
	if err := <-told; !event.IsCorruption(err) || !strings.Contains(l.Health.Unhealthy().Error(), chunkfile.FileName(1, 0)) {
		t.Fatalf("%v, %v", err, l.Health.Unhealthy())
	}
	// A position that is none is not damage.
	check.MustBe(t, check.Err(l.Reads.ReadAll(event.AllRead{From: m.frames[1].First + 7, Count: 1})), event.ErrBadPosition)
	l.Health.suspicions(background)
	if d := l.Health.Damaged(); len(d) != 1 {
		t.Fatalf("%+v", d)
	}
}

// healOnce opens a log with a damaged file and heals it.
func healOnce(fsys vfs.FS, from *Log, began func()) (err error) {
	o := testOptions(fsys)
	o.Index.MaxMemTable, o.RecentIDs = 4, 100
	l, err := Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	<-l.Reads.ids.loaded
	if _, err := l.Health.examine(l.files[1], func(int64) error { return nil }); err != nil {
		return err
	}
	began()
	for _, d := range l.Health.Damaged() {
		names, err := fetchFor(from, l, d)
		if err != nil {
			return err
		}
		if err := l.Transfer.Heal(d, names, atOnce); err != nil {
			return err
		}
	}
	return nil
}

// healedRest opens what is left of a healing, which has the damaged file or the new one, and heals
// it if need be.
func healedRest(m *model, fsys vfs.FS, from *Log) error {
	if err := healOnce(fsys, from, func() {}); err != nil {
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

// damagedFolder is a folder with a log that was merged and of which a file is damaged, and another
// log that is whole.
func damagedFolder(t *testing.T, m *model, fsys vfs.FS) *Log {
	l := mustOpen(t, testOptions(fsys))
	write(t, l, m.frames...)
	merge(t, l, 1, 2)
	check.Must(t, l.index.Flush())
	closeLog(t, l)
	rot(t, fsys, chunkfile.FileName(1, 1), 200)
	from := emptyLog(t)
	write(t, from, m.frames...)
	merge(t, from, 0, 1)
	return from
}

// TestHealPowerCut cuts the power before every operation of a healing.
func TestHealPowerCut(t *testing.T) {
	m := newModel()
	m.someFrames(17, true)
	mem := vfs.NewCrashMem()
	from := damagedFolder(t, m, mem)
	f := check.Value(mem.OpenReadWrite(filepath.Join(testDir, chunkfile.FileName(1, 1)))).Must(t)
	check.Must(t, errors.Join(f.Sync(), f.Close()))
	d := powercut.New(powercut.Options[int]{Mem: mem, Off: true})
	check.Must(t, healOnce(d, from, d.On))
	d.Cut("at the end")
	all := d.Cuts()
	if len(all) < 10 {
		t.Fatal("too few")
	}
	for _, c := range all {
		check.Must(t, healedRest(m, c.FS, from), c.What)
	}
}

// TestHealFaults lets operations of a healing fail, about every fourth in one run.
func TestHealFaults(t *testing.T) {
	m := newModel()
	m.someFrames(17, true)
	folder := vfs.NewCrashMem()
	from := damagedFolder(t, m, folder)
	f := check.Value(folder.OpenReadWrite(filepath.Join(testDir, chunkfile.FileName(1, 1)))).Must(t)
	check.Must(t, errors.Join(f.Sync(), f.Close()))
	for fail, done := int64(1), false; !done; fail += 1 + rand.Int64N(int64(testkit.Fewer(35, 7))) {
		mem := folder.CrashClone(vfs.CrashOptions{})
		var count atomic.Int64
		var armed atomic.Bool
		fsys := vfs.NewFaulty(mem, func(vfs.Op) error {
			if armed.Load() && count.Add(1) == fail {
				return errors.New("broken")
			}
			return nil
		})
		err := healOnce(fsys, from, func() { armed.Store(true) })
		if done = count.Load() < fail; done && err != nil {
			t.Fatal(err)
		}
		check.Must(t, healedRest(m, mem, from), "operation", fail, "failed")
		if done {
			t.Logf("%d operations", fail)
		}
	}
}

// TestHealRedacts: what was redacted here is so in what comes from others.
func TestHealRedacts(t *testing.T) {
	m := newModel()
	m.someFrames(16, true)
	e := m.frames[7].events[0]
	o := testOptions(vfs.NewMem())
	o.Redacted = func(a, b int64) []Redaction {
		if e.position < a || e.position >= b {
			return nil
		}
		return []Redaction{{Position: e.position, Stream: chunkfile.HashStream(e.stream), Number: e.number, Metadata: true}}
	}
	from, to := emptyLog(t), mustOpen(t, o)
	write(t, from, m.frames...)
	write(t, to, m.frames...)
	rot(t, to.opts.FS, chunkfile.FileName(1, 0), 200)
	d := look(t, to)[0]
	names := check.Value(fetchFor(from, to, d)).Must(t)
	check.Must(t, to.Transfer.Heal(d, names, atOnce))
	got := check.Value(to.Reads.ReadEvent(e.stream, e.number, nil)).Must(t)
	if got.Record.Flags&event.FlagRedacted == 0 || !isBlank(got.Record.Data) || !isBlank(got.Record.Metadata) {
		t.Fatalf("%+v", got)
	}
}

// TestHealKeepsBlank: what is blank in the damaged file stays so, though no list says that it was
// redacted.
func TestHealKeepsBlank(t *testing.T) {
	for how, heal := range map[string]func(to *Log, d Damage, from *Log) error{
		"a whole file": func(to *Log, d Damage, from *Log) error {
			names, err := fetchFor(from, to, d)
			return errors.Join(err, to.Transfer.Heal(d, names, atOnce))
		},
		"item by item": func(to *Log, d Damage, from *Log) error { _, err := mendFrom(to, d, from); return err },
	} {
		t.Run(how, func(t *testing.T) {
			m := newModel()
			m.someFrames(16, true)
			e := m.frames[7].events[0]
			from, to := emptyLog(t), emptyLog(t)
			write(t, from, m.frames...)
			write(t, to, m.frames...)
			_, err := to.Chunks.Rewrite(background, Rewrite{First: 1, Last: 1, Redact: []int64{e.position}, RedactMetadata: []int64{e.position}})
			check.Must(t, err)
			rot(t, to.opts.FS, newestFile(t, to.opts.FS, 1), 200)
			check.Must(t, heal(to, look(t, to)[0], from))
			got, err := to.Reads.ReadEvent(e.stream, e.number, nil)
			check.Must(t, err)
			if got.Record.Flags&event.FlagRedacted == 0 || !isBlank(got.Record.Data) || !isBlank(got.Record.Metadata) || len(look(t, to)) > 0 {
				t.Fatalf("%+v", got)
			}
		})
	}
}
