package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// bareOf are those positions whose metadata are blanked in tests.
func bareOf(positions []int64) (some []int64) {
	for _, p := range positions {
		if p%2 == 0 {
			some = append(some, p)
		}
	}
	return some
}

// redactedFrames are frames as they are when some records are blanked.
func redactedFrames(t testing.TB, frames []testFrame, positions []int64) []testFrame {
	t.Helper()
	return blankedFrames(t, frames, blanks{positions, bareOf(positions)})
}

func blankedFrames(t testing.TB, frames []testFrame, what blanks) []testFrame {
	t.Helper()
	frames = slices.Clone(frames)
	for i := range frames {
		f := &frames[i]
		blank := redactor{blanks: what}
		var records []byte
		for at := 0; at < len(f.Records); {
			it := check.Value(chunkfile.ParseItem(f.Records[at:])).Must(t)
			position := f.First + int64(at)
			at += len(it)
			if b := blank.item(it, position); b != nil {
				it = b
			}
			records = append(records, it...)
		}
		f.Records = records
	}
	return frames
}

const secret = "a secret that must go"

// secretFrames are frames of three chunks and a bit, with the positions of the events in chunks 0
// and 1 that hold the secret.
func secretFrames(m *model) (positions []int64) {
	for i := range 17 {
		f := m.frame(i%5 == 4, ev("plain", fmt.Sprint("data ", i)), testEvent{stream: "private", typ: "t", data: fmt.Sprintf("%s %02d", secret, i), metadata: fmt.Sprint("meta ", i)}, ev("plain", ""))
		if f.First < 2*chunkfile.ChunkSize && i%2 == 1 {
			positions = append(positions, f.events[1].position)
		}
	}
	return positions
}

// secretsIn are the files of a folder that hold the secret followed by one of some numbers.
func secretsIn(t testing.TB, fsys vfs.FS, dir string, numbers ...int) (files []string) {
	t.Helper()
	names := check.Value(fsys.List(dir)).Must(t)
	for _, name := range names {
		path := filepath.Join(dir, name)
		if info, err := fsys.Stat(path); err != nil || info.IsDir() {
			check.Must(t, err)
			files = append(files, secretsIn(t, fsys, path, numbers...)...)
			continue
		}
		b := check.Value(vfs.ReadFile(fsys, path)).Must(t)
		for _, n := range numbers {
			if bytes.Contains(b, fmt.Appendf(nil, "%s %02d", secret, n)) {
				files = append(files, path)
				break
			}
		}
	}
	return files
}

func byChunk(positions []int64) map[int][]int64 {
	found := map[int][]int64{}
	for _, p := range positions {
		found[chunkfile.ChunkNumber(p)] = append(found[chunkfile.ChunkNumber(p)], p)
	}
	return found
}

func TestRedact(t *testing.T) {
	onBoth(t, func(t *testing.T, o Options) {
		m := newModel()
		positions := secretFrames(m)
		l := mustOpen(t, o)
		write(t, l, m.frames...)
		before, err := l.Chunks.EventPositions("private", 1)
		check.Must(t, err)
		if len(before) != 1 || before[0].Redacted || !before[0].Complete || before[0].Type != "t" {
			t.Fatalf("%+v", before)
		}
		old, err := l.view() // A reader keeps what it began with.
		check.Must(t, err)
		for n, some := range byChunk(positions) {
			done, err := l.Chunks.Rewrite(background, Rewrite{First: n, Last: n, Redact: some, RedactMetadata: bareOf(some)})
			check.Must(t, err)
			check.MustEqual(t, done.Redacted, len(some), done)
			check.MustEqual(t, done.Removed, 0, done)
			ctx, cancel := context.WithCancel(background)
			cancel()
			if err := done.Closed(ctx); !errors.Is(err, context.Canceled) {
				t.Fatalf("the file that a reader holds is closed: %v", err)
			}
			defer func() { check.Must(t, done.Closed(background)) }()
		}
		old.release()
		frames := redactedFrames(t, m.frames, positions)
		verify(t, l, frames, nil)
		checkFiles(t, l)
		noTemps(t, l)
		if files := secretsIn(t, o.FS, l.opts.Dir, 1, 3, 5, 7, 9); len(files) > 0 {
			t.Fatalf("the secret is in %v", files)
		}
		after, err := l.Chunks.EventPositions("private", 1)
		check.Must(t, err)
		if len(after) != 1 || !after[0].Redacted || after[0].Position != before[0].Position || after[0].ID != before[0].ID {
			t.Fatalf("%+v, before %+v", after, before)
		}
		it, err := chunkfile.ParseItem(mustRecord(t, l, after[0]))
		check.Must(t, err)
		if want := bytes.Repeat([]byte{0xFF}, len(secret)+3); !bytes.Equal(it.Data(), want) {
			t.Fatalf("data are %q", it.Data())
		}
		// Metadata may follow later.
		first := byChunk(positions)[0]
		done, err := l.Chunks.Rewrite(background, Rewrite{First: 0, Last: 0, Redact: first, RedactMetadata: first})
		check.Must(t, err)
		check.Equal(t, done.Redacted, len(first)-len(bareOf(first)), "events of which metadata were left")
		if p, err := l.Chunks.EventPositions("private", 1); err != nil || !p[0].IsBare {
			t.Errorf("%+v, %v", p, err)
		}
		frames = blankedFrames(t, frames, blanks{first, first})
		// Merging, scavenging and a rebuilt index keep it so.
		_, err = l.Chunks.Rewrite(background, Rewrite{First: 0, Last: 1})
		check.Must(t, err)
		verify(t, l, frames, nil)
		closeLog(t, l)
		check.Must(t, o.FS.RemoveAll(filepath.Join(l.opts.Dir, "index")))
		l = mustOpen(t, o)
		verify(t, l, frames, nil)
		inspected(t, l.opts)
	})
}

func mustRecord(t testing.TB, l *Log, p EventPosition) []byte {
	t.Helper()
	b := check.Value(vfs.ReadFile(l.opts.FS, filepath.Join(l.opts.Dir, p.File))).Must(t)
	return b[p.Offset:]
}

func TestEventPositions(t *testing.T) {
	m := newModel()
	o := testOptions(vfs.NewMem())
	l := mustOpen(t, o)
	m.frame(true, ev("s", "0"), ev("s", "1"))
	m.frame(false, ev("s", "2"), tombstone("s"))
	write(t, l, m.frames...)
	for _, c := range []struct {
		stream   string
		number   int64
		complete bool
		found    bool
	}{
		{"s", 0, true, true}, {"s", 1, true, true}, {"s", 2, false, true}, {"s", event.TombstoneNumber, false, true},
		{"s", 3, false, false}, {"other", 0, false, false},
	} {
		got := check.Value(l.Chunks.EventPositions(c.stream, c.number)).Must(t)
		if len(got) > 0 != c.found || c.found && got[0].Complete != c.complete {
			t.Errorf("%d@%s: %+v", c.number, c.stream, got)
		}
	}
}

// TestRedactFetched: what this node redacted is blanked in files that come from elsewhere.
func TestRedactFetched(t *testing.T) {
	for name, last := range map[string]int{"the same range": 0, "merged": 1} {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			positions := secretFrames(m)
			from := rewrittenSource(t, m, 0, last, keepAll)
			o := testOptions(vfs.NewMem())
			o.Redacted = func(from, to int64) (some []Redaction) {
				for _, f := range m.frames {
					for _, e := range f.events {
						if slices.Contains(positions, e.position) && e.position >= from && e.position < to {
							some = append(some, Redaction{Position: e.position, Stream: chunkfile.HashStream(e.stream), Number: e.number, Metadata: e.position%2 == 0})
						}
						if e.stream == "plain" && e.position >= from && e.position < to {
							// Of an earlier life: another event.
							some = append(some, Redaction{Position: e.position, Stream: chunkfile.HashStream("another"), Number: e.number})
						}
					}
				}
				return some
			}
			to := mustOpen(t, o)
			write(t, to, m.frames[:3]...)
			check.Must(t, to.Transfer.InstallChunk(chunkFrom(t, from, to, 0)))
			ends := slices.IndexFunc(m.frames, func(f testFrame) bool { return f.tail.End == chunkfile.ChunkStart(last+1) }) + 1
			verify(t, to, redactedFrames(t, m.frames[:ends], positions), nil)
			checkFiles(t, to)
			noTemps(t, to)
		})
	}
}

// TestRedactPowerCut cuts the power before every file operation: events are whole or redacted,
// files whole.
func TestRedactPowerCut(t *testing.T) {
	m := newModel()
	positions := secretFrames(m)
	d := powercut.New(powercut.Options[int]{Off: true, More: 1, Seed: 1})
	l := check.Value(Open(testOptions(d))).Must(t)
	<-l.Reads.ids.loaded
	write(t, l, m.frames...)
	check.Must(t, l.syncer.Sync())
	d.On()
	chunks := byChunk(positions)
	for _, n := range slices.Sorted(maps.Keys(chunks)) {
		_, err := l.Chunks.Rewrite(background, Rewrite{First: n, Last: n, Redact: chunks[n], RedactMetadata: bareOf(chunks[n])})
		check.Must(t, err)
	}
	d.Off()
	check.Must(t, l.Close())
	states := [][]testFrame{m.frames, redactedFrames(t, m.frames, chunks[0]), redactedFrames(t, m.frames, positions)}
	for _, c := range d.Cuts() {
		l := check.Value(Open(testOptions(c.FS))).Must(t, c.What)
		<-l.Reads.ids.loaded
		if !slices.ContainsFunc(states, func(frames []testFrame) bool { return holds(l, frames, nil) == nil }) {
			t.Fatalf("%s: %v", c.What, holds(l, states[2], nil))
		}
		checkFiles(t, l)
		noTemps(t, l)
		check.Must(t, l.Close())
	}
}

func TestSwitchFile(t *testing.T) {
	m := newModel()
	positions := secretFrames(m)
	fsys := vfs.NewMem()
	l := mustOpen(t, testOptions(fsys))
	write(t, l, m.frames...)
	// A tool's copy of chunk 1, as the log itself would make it.
	c := check.Value(l.Chunks.sources(1, 1)).Must(t)
	chunk1 := byChunk(positions)[1]
	good := uuid.NewString() + ".tmp"
	make := func(name string, from []*chunkfile.Chunk, redact []int64) {
		r := Rewrite{First: from[0].Header.First, Last: from[0].Header.Last, Redact: redact}
		check.Must(t, l.Chunks.writeSurvivors(background, &r, from, filepath.Join(testDir, name), new(Rewritten)))
	}
	make(good, c, chunk1)
	make("plain.tmp", c, nil)
	bare := Rewrite{First: 1, Last: 1, Redact: chunk1, RedactMetadata: chunk1}
	check.Must(t, l.Chunks.writeSurvivors(background, &bare, c, filepath.Join(testDir, "bare.tmp"), new(Rewritten)))
	c2 := check.Value(l.Chunks.sources(2, 2)).Must(t)
	make("other.tmp", c2, nil)
	check.Must(t, c2[0].Release())
	check.Must(t, vfs.WriteFileAtomic(fsys, filepath.Join(testDir, "short.tmp"), []byte("x")))
	make("damaged.tmp", c, nil)
	edit(t, fsys, "damaged.tmp", func(b []byte) []byte { b[chunkfile.HeaderSize+100] ^= 1; return b })
	make("changed.tmp", c, nil)
	edit(t, fsys, "changed.tmp", func(b []byte) []byte { return changedRecord(t, b) })
	check.Must(t, vfs.WriteFileAtomic(fsys, filepath.Join(testDir, "chunk-000009.000000"), []byte("x")))
	check.Must(t, vfs.WriteFileAtomic(fsys, filepath.Join(testDir, "chunk-000001.000007"), []byte("x")))
	check.Must(t, c[0].Release())
	for _, c := range []struct{ name, target, file, reason string }{
		{"separator in the target", "a/chunk-000001.000000", good, SwitchTargetNameInvalid},
		{"separator in the new name", "chunk-000001.000000", `a\` + good, SwitchNewNameInvalid},
		{"dots", "..", good, SwitchTargetNameInvalid},
		{"no chunk name", "chunk-1", good, SwitchTargetNameInvalid},
		{"both wrong", "chunk-1", "../x", SwitchNewNameInvalid},
		{"not temporary", "chunk-000001.000000", "chunk-000001.000001", SwitchNewNameInvalid},
		{"no target", "chunk-000001.000005", good, SwitchTargetNotFound},
		{"no new file", "chunk-000001.000000", "none.tmp", SwitchNewNotFound},
		{"beyond the log", "chunk-000009.000000", good, SwitchTargetExcessive},
		{"another version", "chunk-000001.000007", good, SwitchTargetInactive},
		{"active", "chunk-000003.000000", good, SwitchTargetNotCompleted},
		{"not a chunk file", "chunk-000001.000000", "short.tmp", SwitchNewHeaderOrFooter},
		{"another range", "chunk-000001.000000", "other.tmp", SwitchRangeDoesNotMatch},
		{"damaged", "chunk-000001.000000", "damaged.tmp", SwitchNewHashInvalid},
		{"metadata blanked, which the log does not say", "chunk-000001.000000", "bare.tmp", SwitchRecordsDoNotMatch},
		{"another event", "chunk-000001.000000", "changed.tmp", SwitchRecordsDoNotMatch},
	} {
		t.Run(c.name, func(t *testing.T) {
			var refused *SwitchRefused
			if err := l.Chunks.SwitchFile(c.target, c.file); !errors.As(err, &refused) || refused.Reason != c.reason {
				t.Fatalf("%v, want %s", err, c.reason)
			}
			verify(t, l, m.frames, nil)
		})
	}
	check.Must(t, fsys.Remove(filepath.Join(testDir, "chunk-000009.000000")))
	check.Must(t, fsys.Remove(filepath.Join(testDir, "chunk-000001.000007")))
	check.Must(t, l.Chunks.SwitchFile("chunk-000001.000000", good))
	verify(t, l, blankedFrames(t, m.frames, blanks{data: chunk1}), nil)
	if files := chunkFiles(t, fsys); !slices.Contains(files, "chunk-000001.000001") || slices.Contains(files, "chunk-000001.000000") {
		t.Fatalf("files %s", strings.Join(files, " "))
	}
}

// changedRecord changes the type of the first event of a chunk file, with checksums made right.
func changedRecord(t testing.TB, b []byte) []byte {
	t.Helper()
	it := check.Value(chunkfile.ParseItem(b[chunkfile.HeaderSize:])).Must(t)
	it.EventType()[0]++
	copy(it, chunkfile.CloseItem(slices.Clone(it[:len(it)-chunkfile.ItemFoot]), 0, len(it)))
	foot := b[len(b)-chunkfile.FooterSize:]
	sum := hash128(b[:len(b)-chunkfile.FooterSize+chunkfile.FooterChecksumAt])
	copy(foot[chunkfile.FooterChecksumAt:], sum[:])
	copy(foot[124:], checksumOf(foot[:124]))
	return b
}
