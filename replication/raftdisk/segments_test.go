package raftdisk

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
)

// smallSegment holds some twenty entries of storedEntry.
const smallSegment = 8 << 10

func createSegments(t *testing.T, files vfs.FS) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), segmentKind.name)
	check.Must(t, vfs.MkdirAllSync(files, path))
	check.Must(t, segmentKind.create(files, path))
	return path
}

func openSmall(t *testing.T, files vfs.FS, path string) *segmentLog {
	t.Helper()
	s := check.Value(openSegments(files, path, smallSegment, hclog.NewNullLogger())).Must(t)
	return s
}

// storedEntry is one of many sizes.
func storedEntry(index, term uint64) *raft.Log {
	size := 100 + int(index*term*7919%500)
	one := fmt.Appendf(nil, "%d/%d ", index, term)
	e := &raft.Log{Index: index, Term: term, Data: bytes.Repeat(one, size/len(one)+1)[:size], AppendedAt: time.Unix(0, int64(index))}
	if index%3 == 0 {
		e.Extensions = []byte{byte(index)}
	}
	if index%5 == 0 {
		e.Type, e.Data = raft.LogNoop, nil
	}
	return e
}

func storedEntries(from, to, term uint64) (logs []*raft.Log) {
	for i := from; i <= to; i++ {
		logs = append(logs, storedEntry(i, term))
	}
	return logs
}

// logModel is what a Raft log is to hold.
type logModel struct {
	first, last uint64
	terms       map[uint64]uint64
}

func (m *logModel) store(from, to, term uint64) {
	if m.last == 0 {
		m.first = from
	}
	for i := from; i <= to; i++ {
		m.terms[i] = term
	}
	m.last = to
}

func (m *logModel) delete(low, high uint64) {
	switch {
	case low == m.first && high == m.last:
		m.first, m.last = 0, 0
	case low == m.first:
		m.first = high + 1
	default:
		m.last = low - 1
	}
}

func (m *logModel) clone() logModel {
	terms := map[uint64]uint64{}
	for i := m.first; i <= m.last && i > 0; i++ {
		terms[i] = m.terms[i]
	}
	return logModel{m.first, m.last, terms}
}

// check compares a Raft log with the model.
func (m *logModel) check(t *testing.T, when string, s *segmentLog) {
	t.Helper()
	first, err1 := s.FirstIndex()
	last, err2 := s.LastIndex()
	if err := errors.Join(err1, err2); err != nil || first != m.first || last != m.last {
		t.Fatalf("%s: entries %d to %d, %v; want %d to %d", when, first, last, err, m.first, m.last)
	}
	for i := first; i <= last && last > 0; i++ {
		var got raft.Log
		want := storedEntry(i, m.terms[i])
		if err := s.GetLog(i, &got); err != nil || got.Index != i || got.Term != want.Term || got.Type != want.Type || !got.AppendedAt.Equal(want.AppendedAt) ||
			!bytes.Equal(got.Data, want.Data) || !bytes.Equal(got.Extensions, want.Extensions) {
			t.Fatalf("%s: entry %d is %+v, %v; want %+v", when, i, got, err, want)
		}
	}
	for _, i := range []uint64{0, first - 1, last + 1} {
		check.MustEqual(t, s.GetLog(i, new(raft.Log)), raft.ErrLogNotFound, when, "entry", i)
	}
}

// logStep changes a Raft log. What a power cut in its middle leaves is one of several states.
type logStep struct {
	name  string
	do    func(s *segmentLog) error
	apply func(m *logModel)
	// between are states that are neither before nor after.
	between []logModel
}

// someStep is what raft might do next.
func someStep(r *rand.Rand, m *logModel, term *uint64) logStep {
	before := m.clone()
	front := func(high uint64) logStep {
		return logStep{
			fmt.Sprintf("delete %d to %d", m.first, high),
			func(s *segmentLog) error { return s.DeleteRange(before.first, high) },
			func(m *logModel) { m.delete(m.first, high) }, nil,
		}
	}
	switch k := r.IntN(20); {
	case k < 3 && m.last > 0: // as after a snapshot
		return front(m.first + r.Uint64N(m.last-m.first+1)*9/10)
	case k == 3 && m.last > 0: // another leader's
		*term++
		low := m.last - min(r.Uint64N(1+m.last-m.first), r.Uint64N(60))
		step := logStep{fmt.Sprintf("delete %d to %d", low, m.last), func(s *segmentLog) error { return s.DeleteRange(low, before.last) }, func(m *logModel) { m.delete(low, m.last) }, nil}
		for last := low; last < before.last && low > before.first; last++ {
			some := before.clone()
			some.last = last
			step.between = append(step.between, some)
		}
		return step
	case k == 4 && m.last > 0 && r.IntN(3) == 0: // a snapshot was installed
		*term++
		return front(m.last)
	}
	from := m.last + 1
	if m.last == 0 {
		from = 1 + r.Uint64N(500) // also below what was there before
	}
	to, of := from+r.Uint64N(1+r.Uint64N(12)), *term
	if r.IntN(60) == 0 {
		to = from + 60 // more than a segment takes
	}
	step := logStep{fmt.Sprintf("store %d to %d", from, to), func(s *segmentLog) error { return s.StoreLogs(storedEntries(from, to, of)) }, func(m *logModel) { m.store(from, to, of) }, nil}
	for last := from; last < to; last++ {
		some := before.clone()
		some.store(from, last, of)
		step.between = append(step.between, some)
	}
	return step
}

// A Raft log holds what it is to hold, whatever raft does with it and however often the process is
// started again.
func TestSegmentsHoldWhatTheyAreTo(t *testing.T) {
	t.Parallel()
	for range 8 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		files := vfs.NewMem()
		path := createSegments(t, files)
		s, m, term := openSmall(t, files, path), logModel{terms: map[uint64]uint64{}}, uint64(1)
		check.Must(t, s.Set(keyCreation, []byte("who")))
		for i := range 300 {
			step := someStep(r, &m, &term)
			when := fmt.Sprintf("seed %d, step %d: %s", seed, i, step.name)
			check.Must(t, step.do(s), when)
			step.apply(&m)
			if r.IntN(10) == 0 {
				check.Must(t, s.Close())
				s = openSmall(t, files, path)
			}
			if r.IntN(4) == 0 {
				m.check(t, when, s)
			}
		}
		if id, err := s.Get(keyCreation); err != nil || string(id) != "who" {
			t.Errorf("creation id %q, %v", id, err)
		}
		check.Must(t, s.Close())
	}
}

// Whenever the power fails, what was acknowledged is there, what was deleted is not, and what a
// file held before is not taken for entries.
func TestPowerCutInSegments(t *testing.T) {
	t.Parallel()
	runs := 5
	if testkit.Sweep() {
		runs = 12
	}
	cuts, reached := 0, map[string]bool{}
	reachesAll := func() bool {
		return reached["write .segment"] && reached["rename .segment"] && reached["rename .free"] && reached["write .free"]
	}
	for run := 0; run < runs || run < 100 && !reachesAll(); run++ {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		mem := vfs.NewCrashMem()
		path := createSegments(t, mem)
		type state struct {
			when    string
			files   *vfs.Mem
			allowed []logModel
		}
		var mu sync.Mutex // The next segment is prepared in parallel.
		cutting := rand.New(rand.NewPCG(seed, 2))
		var states []state
		allowed := []logModel{{terms: map[uint64]uint64{}}}
		when := ""
		s := openSmall(t, vfs.NewFaulty(mem, func(op vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if !op.Kind.Mutates() || cutting.IntN(4) > 0 {
				return nil
			}
			options := vfs.CrashOptions{}
			if cutting.IntN(3) > 0 {
				options.Rand = rand.New(rand.NewPCG(seed, uint64(len(states))))
			}
			kind := fmt.Sprintf("%s %s", op.Kind, filepath.Ext(op.Name))
			reached[kind] = true
			states = append(states, state{fmt.Sprintf("seed %d, %s, before %s of %s", seed, when, op.Kind, filepath.Base(op.Name)), mem.CrashClone(options), slices.Clone(allowed)})
			return nil
		}), path)
		m, term := logModel{terms: map[uint64]uint64{}}, uint64(1)
		for i := range 150 {
			step := someStep(r, &m, &term)
			before := m.clone()
			step.apply(&m)
			mu.Lock()
			when, allowed = fmt.Sprintf("step %d: %s", i, step.name), append([]logModel{before, m.clone()}, step.between...)
			mu.Unlock()
			check.Must(t, step.do(s), "seed", seed, when)
			mu.Lock()
			allowed = []logModel{m.clone()}
			mu.Unlock()
		}
		check.Must(t, s.Close())
		cuts += len(states)
		for _, cut := range states {
			s, err := openSegments(cut.files, path, smallSegment, hclog.NewNullLogger())
			check.Must(t, err, cut.when)
			first, last, err := s.ends()
			check.Must(t, err)
			i := slices.IndexFunc(cut.allowed, func(m logModel) bool { return m.first == first && m.last == last })
			if i < 0 {
				t.Fatalf("%s: there are entries %d to %d", cut.when, first, last)
			}
			m := cut.allowed[i]
			m.check(t, cut.when, s)
			check.Must(t, s.StoreLogs(storedEntries(m.last+1, m.last+3, 1000)))
			m.store(m.last+1, m.last+3, 1000)
			check.Must(t, s.Close())
			s = openSmall(t, cut.files, path)
			m.check(t, cut.when+", then", s)
			check.Must(t, s.Close())
		}
	}
	if cuts < 40*runs || !reachesAll() {
		t.Errorf("the power was cut %d times, %v", cuts, reached)
	}
}

// Entries of another history that were cut off do not follow the entries stored in their place,
// even where they begin right after them.
func TestEntriesCutOffStayAway(t *testing.T) {
	t.Parallel()
	files := vfs.NewMem()
	path := createSegments(t, files)
	s := openSmall(t, files, path)
	// The second entry ends with a page, the rest of which is written with it.
	const size = (pageSize - segmentHeader) / 2
	store := func(from, to, term uint64) {
		for i := from; i <= to; i++ {
			check.Must(t, s.StoreLog(&raft.Log{Index: i, Term: term, Data: make([]byte, size-entryHead)}))
		}
	}
	store(1, 1, 1)
	s.files.wg.Wait()
	store(2, 5, 1) // begins the next segment
	check.Must(t, s.DeleteRange(3, 5))
	store(3, 3, 2)
	if check.Must(t, s.Close()); s.page == nil || len(s.page) > 0 {
		t.Fatalf("the log ends %d bytes after the beginning of a page", len(s.page))
	}
	s = openSmall(t, files, path)
	if _, last, err := s.ends(); err != nil || last != 3 {
		t.Errorf("the entries end at %d, %v", last, err)
	}
	check.Must(t, s.Close())
}

// Deleted segments become the next ones. At the end there are as many files as live entries need,
// the next one, and those that wait.
func TestSegmentsAreUsedAgain(t *testing.T) {
	t.Parallel()
	path := createSegments(t, vfs.OS)
	var mu sync.Mutex // The next segment is prepared in parallel.
	made := map[string]int{}
	s := openSmall(t, vfs.NewFaulty(vfs.OS, func(op vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if !strings.HasSuffix(op.Name, vfs.TempSuffix) {
			made[fmt.Sprint(op.Kind)]++
		}
		return nil
	}), path)
	m := logModel{terms: map[uint64]uint64{}}
	for i := uint64(1); i <= 400; i++ {
		check.Must(t, s.StoreLog(storedEntry(i, 1)))
		m.store(i, i, 1)
		if i%40 == 0 {
			check.Must(t, s.DeleteRange(m.first, i-20))
			m.delete(m.first, i-20)
		}
		s.files.wg.Wait()
	}
	check.Must(t, s.Close())
	if made["create"] > 8 || made["remove"] > 3 {
		t.Errorf("%d files were made, %d removed", made["create"], made["remove"])
	}
	names := check.Value(vfs.OS.List(path)).Must(t)
	if len(names) > 10 {
		t.Errorf("the folder holds %q", names)
	}
	for range 2 { // The second start finds what the first left.
		s = openSmall(t, vfs.OS, path)
		m.check(t, "opened", s)
		check.Must(t, s.Close())
	}
}

// What cannot be prepared is done without.
func TestNoSegmentPrepared(t *testing.T) {
	t.Parallel()
	path := createSegments(t, vfs.OS)
	var mu sync.Mutex
	failed := 0
	s := openSmall(t, vfs.NewFaulty(vfs.OS, func(op vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind == vfs.OpSync && filepath.Ext(op.Name) == freeSuffix {
			failed++
			return syscall.EIO
		}
		return nil
	}), path)
	m := logModel{terms: map[uint64]uint64{}}
	for i := uint64(1); i <= 200; i++ {
		check.Must(t, s.StoreLog(storedEntry(i, 1)))
		m.store(i, i, 1)
		s.files.wg.Wait()
	}
	m.check(t, "", s)
	check.Must(t, s.Close())
	if names, err := vfs.OS.List(path); err != nil || strings.Contains(fmt.Sprint(names), freeSuffix) || failed < 5 {
		t.Errorf("the folder holds %q, %v; %d syncs failed", names, err, failed)
	}
}

// Entries that are not what was written are not given to raft, wherever that is noticed.
func TestDamagedSegments(t *testing.T) {
	t.Parallel()
	fill := func(t *testing.T) (files *vfs.Mem, path string, names []string) {
		files = vfs.NewMem()
		path = createSegments(t, files)
		s := openSmall(t, files, path)
		// The first segment is left when the next is prepared.
		for i := uint64(1); i <= 100; i += 10 {
			check.Must(t, s.StoreLogs(storedEntries(i, i+9, 1)))
		}
		check.Must(t, s.Close())
		names = check.Value(files.List(path)).Must(t)
		return files, path, slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, segmentSuffix) })
	}
	flip := func(t *testing.T, files vfs.FS, name string, at int64) {
		f, err := files.OpenReadWrite(name)
		check.Must(t, err)
		b := make([]byte, 1)
		_, err = f.ReadAt(b, at)
		check.Must(t, err)
		b[0] ^= 4
		_, err = f.WriteAt(b, at)
		check.Must(t, errors.Join(err, f.Close()))
	}
	for _, at := range []int64{segmentHeader, segmentHeader + 9, segmentHeader + 17, segmentHeader + entryHead + 3, 3000} {
		files, path, names := fill(t)
		flip(t, files, filepath.Join(path, names[0]), at)
		s := openSmall(t, files, path)
		if err := s.GetLog(1, new(raft.Log)); !event.IsCorruption(err) {
			t.Errorf("byte %d of the first segment: %v", at, err)
		}
		var last raft.Log
		if check.Must(t, s.GetLog(100, &last)); !bytes.Equal(last.Data, storedEntry(100, 1).Data) {
			t.Errorf("the last entry is %q", last.Data)
		}
		check.Must(t, s.Close())
	}
	// A segment is read while it is damaged.
	files, path, names := fill(t)
	s := openSmall(t, files, path)
	check.Must(t, s.GetLog(1, new(raft.Log)))
	flip(t, files, filepath.Join(path, names[0]), segmentHeader+entryHead)
	if err := s.GetLog(1, new(raft.Log)); !event.IsCorruption(err) {
		t.Errorf("an entry that was right before: %v", err)
	}
	check.Must(t, s.GetLog(3, new(raft.Log)))
	check.Must(t, s.Close())
	// The log does not begin or end where another file says.
	for name, damage := range map[string]func(files vfs.FS, path string, names []string) error{
		"a header": func(files vfs.FS, path string, names []string) error {
			flip(t, files, filepath.Join(path, names[1]), 25)
			return nil
		},
		"no head": func(files vfs.FS, path string, _ []string) error {
			return files.Remove(filepath.Join(path, logHeadFile))
		},
		"a damaged head": func(files vfs.FS, path string, _ []string) error {
			flip(t, files, filepath.Join(path, logHeadFile), 17)
			return nil
		},
	} {
		files, path, names := fill(t)
		check.Must(t, damage(files, path, names))
		if _, err := openSegments(files, path, smallSegment, hclog.NewNullLogger()); err == nil {
			t.Errorf("%s: it opens", name)
		}
	}
}

// manySegments is a Raft log that was opened with entries in several segments, of which it knows
// only those of the last.
func manySegments(t *testing.T, hook func(op vfs.Op) error) *segmentLog {
	t.Helper()
	files := vfs.NewMem()
	path := createSegments(t, files)
	s := openSmall(t, files, path)
	for i := uint64(1); i <= 80; i++ {
		check.Must(t, s.StoreLog(storedEntry(i, 1)))
		s.files.wg.Wait()
	}
	check.Must(t, s.Close())
	return openSmall(t, vfs.NewFaulty(files, hook), path)
}

// While a segment is read to know where its entries are, some of them are deleted, and others are
// stored in their place.
func TestEndIsDeletedWhileItIsRead(t *testing.T) {
	t.Parallel()
	var hold atomic.Bool
	reached, read := make(chan struct{}), make(chan struct{})
	s := manySegments(t, func(op vfs.Op) error {
		if op.Kind == vfs.OpRead && hold.CompareAndSwap(true, false) {
			close(reached)
			<-read
		}
		return nil
	})
	first := s.segments[1].head.first
	m := logModel{terms: map[uint64]uint64{}}
	m.store(1, 80, 1)
	hold.Store(true)
	got := make(chan error, 1)
	go func() { got <- s.GetLog(first+1, new(raft.Log)) }()
	<-reached
	check.Must(t, s.DeleteRange(first+3, 80))
	m.delete(first+3, 80)
	check.Must(t, s.StoreLogs(storedEntries(first+3, first+4, 2)))
	m.store(first+3, first+4, 2)
	close(read)
	check.Must(t, <-got)
	check.Must(t, s.StoreLogs(storedEntries(first+5, first+9, 2)))
	m.store(first+5, first+9, 2)
	m.check(t, "", s)
	check.Must(t, s.Close())
}

// Entries are read at each step of a deletion.
func TestReadsDuringADeletion(t *testing.T) {
	t.Parallel()
	var s *segmentLog
	var on, reading atomic.Bool
	steps := 0
	s = manySegments(t, func(op vfs.Op) error {
		if !on.Load() || !op.Kind.Mutates() || !reading.CompareAndSwap(false, true) {
			return nil
		}
		defer reading.Store(false)
		steps++
		first, last, err := s.ends()
		check.Must(t, err)
		for i := first; i <= last; i++ {
			check.Must(t, s.GetLog(i, new(raft.Log)))
		}
		return nil
	})
	on.Store(true)
	check.Must(t, s.DeleteRange(8, 80))
	if _, last, err := s.ends(); err != nil || last != 7 || steps < 6 {
		t.Errorf("the entries end at %d, %v, after %d steps", last, err, steps)
	}
	check.Must(t, s.Close())
}

// A segment whose name may not be on disk is not passed over, whatever is asked for afterwards: a
// start would take its file for a damaged one.
func TestSyncOfPreparedSegmentFails(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(t *testing.T, s *segmentLog, last uint64) (uint64, error){
		"entries": func(_ *testing.T, _ *segmentLog, last uint64) (uint64, error) { return last, nil },
		"deletion": func(t *testing.T, s *segmentLog, last uint64) (uint64, error) {
			low := s.segments[len(s.segments)-1].head.first - 3
			check.Must(t, s.DeleteRange(low, last))
			return low - 1, nil
		},
		"unfilled": func(_ *testing.T, s *segmentLog, last uint64) (uint64, error) {
			s.asked = 0 // as by a segment that was begun without one prepared
			return last, nil
		},
	} {
		var on, failed atomic.Bool
		s := manySegments(t, func(op vfs.Op) error {
			if op.Kind == vfs.OpSyncDir && on.CompareAndSwap(true, false) {
				failed.Store(true)
				return syscall.EMFILE
			}
			return nil
		})
		path := s.files.dir
		m := logModel{terms: map[uint64]uint64{}}
		m.store(1, 80, 1)
		store := func() error {
			err := s.StoreLog(storedEntry(m.last+1, 1))
			if err == nil {
				m.store(m.last+1, m.last+1, 1)
			}
			s.files.wg.Wait()
			return err
		}
		on.Store(true)
		for !failed.Load() && m.last < 400 {
			check.Must(t, store())
		}
		last, err := after(t, s, m.last)
		for m.last = last; err == nil && m.last < 400; {
			err = store()
		}
		check.Is(t, err, syscall.EMFILE, name, "entry", m.last+1)
		check.Must(t, s.Close())
		s = openSmall(t, s.files.files, path)
		m.check(t, name, s)
		check.Must(t, s.Close())
	}
}

// Entries are read while others are stored and deleted at both ends, and files used again.
func TestSegmentsAreReadMeanwhile(t *testing.T) {
	t.Parallel()
	path := createSegments(t, vfs.OS)
	r := rand.New(rand.NewPCG(3, 4))
	last, term := uint64(60), uint64(1)
	s := openSmall(t, vfs.OS, path)
	check.Must(t, s.StoreLogs(storedEntries(1, last, term)))
	// Later ones may be deleted at the end, earlier ones from the front.
	var committed atomic.Uint64
	committed.Store(40)
	for i := range 6 { // After each start the places of most entries are unknown.
		spared := uint64(10 * (i % 2)) // of those that may be deleted from the front
		check.Must(t, s.StoreLogs(storedEntries(last+1, last+40, term)))
		last += 40
		done := make(chan struct{})
		var others sync.WaitGroup
		other := func(do func(r *rand.Rand, first, last uint64) error) {
			seed := r.Uint64()
			others.Go(func() {
				for r := rand.New(rand.NewPCG(seed, 2)); ; {
					select {
					case <-done:
						return
					default:
					}
					first, last, err := s.ends()
					if err == nil && last == 0 && spared == 0 {
						continue // All entries were deleted.
					}
					if err == nil && last < 30 {
						err = fmt.Errorf("the entries end at %d", last)
					}
					if err == nil {
						err = do(r, first, last)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for range 2 {
			other(func(r *rand.Rand, first, last uint64) error {
				index := first + r.Uint64N(last-first+1)
				var got raft.Log
				if err := s.GetLog(index, &got); err == raft.ErrLogNotFound {
					return nil
				} else if err != nil || got.Index != index || !bytes.Equal(got.Data, storedEntry(index, got.Term).Data) {
					return fmt.Errorf("entry %d: %w, %q", index, err, got.Data)
				}
				return nil
			})
		}
		// as after a snapshot, while others are deleted
		other(func(_ *rand.Rand, first, _ uint64) error {
			runtime.Gosched() // There is not always something to be deleted.
			return s.DeleteRange(first, committed.Load()-spared)
		})
		for range 100 {
			if room := last - committed.Load(); r.IntN(4) == 0 && room > 0 {
				cut := 1 + r.Uint64N(room)
				term++
				check.Must(t, s.DeleteRange(last-cut+1, last))
				last -= cut
			}
			more := 1 + r.Uint64N(8)
			check.Must(t, s.StoreLogs(storedEntries(last+1, last+more, term)))
			if last += more; r.IntN(4) == 0 {
				committed.Store(last - r.Uint64N(min(last-committed.Load(), 40)))
			}
		}
		close(done)
		others.Wait()
		check.Must(t, s.Close())
		check.Is(t, s.GetLog(last, new(raft.Log)), event.ErrClosed, "closed")
		s = openSmall(t, vfs.OS, path)
		if _, end, err := s.ends(); err != nil || end != last {
			t.Fatalf("the entries end at %d, %v; not at %d", end, err, last)
		}
	}
	check.Must(t, s.Close())
}

// What does not follow the last entry is refused.
func TestSegmentsHaveNoGap(t *testing.T) {
	t.Parallel()
	files := vfs.NewMem()
	s := openSmall(t, files, createSegments(t, files))
	check.Must(t, s.StoreLogs(storedEntries(5, 9, 1)))
	m := logModel{terms: map[uint64]uint64{}}
	m.store(5, 9, 1)
	for _, logs := range [][]*raft.Log{storedEntries(11, 11, 1), storedEntries(9, 10, 1), {storedEntry(10, 1), storedEntry(12, 1)}} {
		if err := s.StoreLogs(logs); err == nil {
			t.Errorf("entry %d was taken", logs[0].Index)
		}
	}
	check.Fails(t, s.DeleteRange(6, 8), "entries in the middle were deleted")
	check.Fails(t, s.Set([]byte("other"), nil), "another key was taken")
	m.check(t, "", s)
	check.Must(t, s.StoreLogs(storedEntries(10, 10, 1)))
	check.Must(t, s.Close())
}

// FuzzSegment: whatever a segment holds after its header, a start takes what fits as entries, and
// continues after them.
func FuzzSegment(f *testing.F) {
	var some []byte
	head := segmentHead{number: 1, first: 7}
	head.appendTo(nil)
	sum := head.sum
	for _, e := range storedEntries(7, 12, 3) {
		some, sum = appendEntry(some, e, sum, 7, 0)
	}
	f.Add([]byte{}, true)
	f.Add(some, true)
	f.Add(some[:len(some)-9], true)
	f.Add(some, false)
	f.Fuzz(func(t *testing.T, content []byte, sealed bool) {
		files := vfs.NewMem()
		const path = "/segments"
		check.Must(t, segmentKind.create(files, path))
		head := segmentHead{number: 1, first: 7}
		first := head.appendTo(nil)
		// The first entry is right whatever its checksum was.
		if len(content) > entryHead {
			if n := entryHead + entryBytes(content); n <= int64(len(content)) {
				le.PutUint64(content, entrySum(content[:n], head.sum))
			}
		}
		check.Must(t, vfs.WriteFileAtomic(files, segmentPath(path, 1), append(first, content...)))
		if sealed {
			next := segmentHead{number: 2, first: 9}
			b, _ := appendEntry(next.appendTo(nil), storedEntry(9, 3), next.sum, next.mark(), 0)
			check.Must(t, vfs.WriteFileAtomic(files, segmentPath(path, 2), b))
		}
		s, err := openSegments(files, path, smallSegment, hclog.NewNullLogger())
		if err != nil {
			return
		}
		_, last, err := s.ends()
		check.Must(t, err)
		for i := uint64(6); i <= last+1; i++ {
			if err := s.GetLog(i, new(raft.Log)); err != nil && err != raft.ErrLogNotFound && !event.IsCorruption(err) {
				t.Fatal(i, err)
			}
		}
		check.Must(t, s.StoreLogs(storedEntries(last+1, last+2, 4)))
		check.Must(t, s.Close())
		s = openSmall(t, files, path)
		if _, now, err := s.ends(); err != nil || now != last+2 {
			t.Fatalf("the entries end at %d, %v; not at %d", now, err, last+2)
		}
		check.Must(t, s.Close())
	})
}
