package eventlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// mendFrom heals a damaged file out of what is whole in it and in those of other logs. It returns
// the holes that are left.
func mendFrom(to *Log, d Damage, others ...*Log) (left []Span, err error) {
	m, err := to.Transfer.Mend(d)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	for _, from := range others {
		if len(m.Holes()) == 0 {
			break
		}
		if err := from.Transfer.Salvage(slices.Clone(m.Holes()), m.Anchors(), m.Fill); err != nil {
			return m.Holes(), err
		}
	}
	if len(m.Holes()) > 0 {
		return m.Holes(), nil
	}
	return nil, m.Finish(atOnce)
}

// TestMend damages the same range in three logs whose files differ, each at another place, and
// heals each from the two others.
func TestMend(t *testing.T) {
	shapes := map[string][][2]int{"as written": nil, "each": {{0, 0}, {1, 1}, {2, 2}}, "merged": {{0, 2}}, "first two": {{0, 1}}}
	names := []string{"as written", "each", "merged", "first two"}
	rnd := rand.New(rand.NewPCG(1, 7))
	for round := range 60 {
		var logs []*Log
		m := newModel()
		m.someFrames(22, true)
		what := fmt.Sprint(round, ":")
		for range 3 {
			shape := names[rnd.IntN(len(names))]
			l := emptyLog(t)
			write(t, l, m.frames...)
			for _, r := range shapes[shape] {
				merge(t, l, r[0], r[1])
			}
			logs = append(logs, l)
			what += " " + shape
		}
		t.Run(what, func(t *testing.T) {
			// Each third of the file of one log, so that no byte of the log is wrong in all of
			// them.
			for i, l := range logs {
				file := newestFile(t, l.opts.FS, 0)
				info := check.Value(l.opts.FS.Stat(filepath.Join(testDir, file))).Must(t)
				data := (info.Size() - chunkfile.HeaderSize) / 3
				if i == 0 && round%3 == 0 {
					rot(t, l.opts.FS, file, -rnd.Int64N(chunkfile.FooterSize)-1)
				}
				for range 1 + rnd.IntN(3) {
					rot(t, l.opts.FS, file, chunkfile.HeaderSize+int64(i)*data+rnd.Int64N(data/3))
				}
			}
			for i, l := range logs {
				d := look(t, l)
				check.MustEqual(t, len(d), 1, "log", i, d)
				left, err := mendFrom(l, d[0], logs[(i+1)%3], logs[(i+2)%3])
				if err != nil || len(left) > 0 {
					t.Fatalf("log %d: left %v, %v", i, left, err)
				}
			}
			for _, l := range logs {
				if d := look(t, l); len(d) > 0 || l.Health.Unhealthy() != nil {
					t.Fatalf("damaged are %+v", d)
				}
				verify(t, l, m.frames, nil)
				checkFiles(t, l)
				noTemps(t, l)
				o := l.opts
				o.Stats = nil
				closeLog(t, l)
				inspected(t, o)
			}
		})
	}
}

// TestMendAlone: a log repairs header, position map and footer by itself: it can make them from the
// events.
func TestMendAlone(t *testing.T) {
	for what, at := range map[string]int64{"header": 17, "map": -chunkfile.FooterSize - 12*5 + 2, "last of the map": -chunkfile.FooterSize - 1, "footer": -100, "checksum": -30} {
		t.Run(what, func(t *testing.T) {
			m := newModel()
			m.someFrames(16, true)
			l := emptyLog(t)
			write(t, l, m.frames...)
			merge(t, l, 0, 1)
			check.Must(t, vfs.MkdirAllSync(l.opts.FS, filepath.Join(l.opts.IndexDir, scavengeFolder)))
			rot(t, l.opts.FS, newestFile(t, l.opts.FS, 0), at)
			d := look(t, l)
			left, err := mendFrom(l, d[0])
			if err != nil || len(left) > 0 || len(look(t, l)) > 0 {
				t.Fatalf("left %v, %v", left, err)
			}
			if _, err := l.opts.FS.Stat(filepath.Join(l.opts.IndexDir, scavengeFolder)); err != nil {
				t.Errorf("what is known of scavenging has gone, though nothing came from elsewhere: %v", err)
			}
			verify(t, l, m.frames, nil)
		})
	}
}

// TestMendNames: what is damaged everywhere is named, and nothing changes.
func TestMendNames(t *testing.T) {
	m := newModel()
	m.someFrames(16, true)
	a, b := emptyLog(t), emptyLog(t)
	for _, l := range []*Log{a, b} {
		write(t, l, m.frames...)
		e := m.frames[6].events[0]
		rot(t, l.opts.FS, chunkfile.FileName(1, 0), chunkfile.HeaderSize+e.position-chunkfile.ChunkStart(1)+40)
	}
	rot(t, a.opts.FS, chunkfile.FileName(1, 0), 140)
	d := look(t, a)[0]
	left, err := mendFrom(a, d, b)
	e := m.frames[6].events
	if want := []Span{{e[0].position, e[1].position}}; err != nil || !slices.Equal(left, want) {
		t.Fatalf("left %v, want %v, %v", left, want, err)
	}
	if d := a.Health.Damaged(); len(d) != 1 {
		t.Errorf("%+v", d)
	}
	noTemps(t, a)
}

// TestMendScavenged: one log has records removed that are here, and the reverse. What is whole here
// stays, what comes from there is indexed.
func TestMendScavenged(t *testing.T) {
	m := newModel()
	m.someFrames(17, true)
	whole, to := emptyLog(t), emptyLog(t)
	for _, l := range []*Log{whole, to} {
		write(t, l, m.frames...)
	}
	_, keep := scavenged(m, 3*chunkfile.ChunkSize)
	rewrite(t, to.opts.FS, "x.tmp", []string{chunkfile.FileName(0, 0)}, keep)
	check.Must(t, to.SwitchChunk("x.tmp"))
	check.Must(t, vfs.MkdirAllSync(to.opts.FS, filepath.Join(to.opts.IndexDir, scavengeFolder)))
	before := countRecords(t, to)
	for range 2 { // From one that has more, and the other way round.
		rot(t, to.opts.FS, newestFile(t, to.opts.FS, 0), 140)
		rot(t, whole.opts.FS, newestFile(t, whole.opts.FS, 0), -300)
		for _, p := range [][2]*Log{{to, whole}, {whole, to}} {
			d := look(t, p[0])
			if left, err := mendFrom(p[0], d[0], p[1]); err != nil || len(left) > 0 || len(look(t, p[0])) > 0 {
				t.Fatalf("left %v, %v", left, err)
			}
		}
	}
	if _, err := to.opts.FS.Stat(filepath.Join(to.opts.IndexDir, scavengeFolder)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("state of scavenging: %v", err)
	}
	if after := countRecords(t, to); after < before || after >= countRecords(t, whole)+before {
		t.Errorf("%d records, then %d", before, after)
	}
	for _, l := range []*Log{to, whole} {
		o := l.opts
		o.Stats = nil
		closeLog(t, l)
		inspected(t, o)
	}
}

func countRecords(t *testing.T, l *Log) (n int) {
	t.Helper()
	check.Must(t, l.Chunks.Scan(background, 0, l.Tail().End, func(*Stored) error { n++; return nil }))
	return n
}

// TestMendRedacts: what this node redacted is blank in what comes, and what is blank here stays so.
func TestMendRedacts(t *testing.T) {
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
	rot(t, to.opts.FS, chunkfile.FileName(1, 0), chunkfile.HeaderSize+e.position-chunkfile.ChunkStart(1)+20)
	rot(t, from.opts.FS, chunkfile.FileName(1, 0), -400)
	left, err := mendFrom(to, look(t, to)[0], from)
	if err != nil || len(left) > 0 {
		t.Fatalf("left %v, %v", left, err)
	}
	got := check.Value(to.Reads.ReadEvent(e.stream, e.number, nil)).Must(t)
	if got.Record.Flags&event.FlagRedacted == 0 || !isBlank(got.Record.Data) || !isBlank(got.Record.Metadata) {
		t.Fatalf("%+v", got)
	}
}

// TestFillRefuses: nothing is taken that does not verify, or does not belong there.
func TestFillRefuses(t *testing.T) {
	m, other := newModel(), newModel()
	m.someFrames(16, true)
	other.frame(false, ev("zz", "another history"))
	other.someFrames(19, true)
	from, foreign, to := emptyLog(t), emptyLog(t), emptyLog(t)
	write(t, from, m.frames...)
	write(t, foreign, other.frames...)
	write(t, to, m.frames...)
	victim := m.frames[6].events[1]
	rot(t, to.opts.FS, chunkfile.FileName(1, 0), chunkfile.HeaderSize+victim.position-chunkfile.ChunkStart(1)+20)
	d := look(t, to)[0]
	mend := check.Value(to.Transfer.Mend(d)).Must(t)
	defer func() { check.Must(t, mend.Close()) }()
	hole := mend.Holes()[0]
	anchors := mend.Anchors()
	if err := foreign.Transfer.Salvage(mend.Holes(), anchors, mend.Fill); !errors.Is(err, event.ErrOtherHistory) && !errors.Is(err, event.ErrBeyondEnd) {
		t.Errorf("another history: %v", err)
	}
	var right []byte
	check.Must(t, from.Transfer.Salvage(mend.Holes(), anchors, func(_ Span, raw []byte) error { right = append(right, raw...); return nil }))
	flipped := slices.Clone(right)
	flipped[60] ^= 1
	for name, c := range map[string]struct {
		span Span
		raw  []byte
	}{
		"a flipped bit":  {hole, flipped},
		"cut":            {hole, right[:len(right)-1]},
		"twice":          {hole, append(slices.Clone(right), right...)},
		"too narrow":     {Span{hole.From, hole.To - 1}, right},
		"another place":  {Span{0, hole.From}, right},
		"not even a bit": {hole, []byte(strings.Repeat("x", 100))},
	} {
		if err := mend.Fill(c.span, c.raw); err == nil || len(mend.Holes()) != 1 {
			t.Errorf("%s was taken: %v", name, err)
		}
	}
	// A record of that place with other data: its checksum is right, the chain of its frame is not.
	forged := slices.Clone(right)
	forged[chunkfile.RecordHead] ^= 1
	forged = chunkfile.CloseItem(forged[:len(right)-chunkfile.ItemFoot], 0, len(right))
	check.Must(t, mend.Fill(hole, forged))
	check.Is(t, mend.Finish(atOnce), chunkfile.ErrChain, "a forged record was taken")
	if got := to.Health.Damaged(); len(got) != 1 {
		t.Fatalf("%+v", got)
	}
}
