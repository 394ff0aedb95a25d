package names

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

const (
	// maxFresh and maxFreshBytes bound what waits in memory for a segment.
	maxFresh      = 1 << 16
	maxFreshBytes = 8 << 20
	// flushEvery is how many bytes of log a start may have to look at again.
	flushEvery = 256 << 20
	// segmentsPerLevel neighbours of one level become one of the next.
	segmentsPerLevel = 4
)

// Options say where a list is kept. FS and Dir are needed.
type Options struct {
	FS     vfs.FS
	Dir    string
	Logger hclog.Logger // nil: silent
	// Belongs reports whether a frame of the log ends at a position with a chain. A list for which
	// it says no is rebuilt.
	Belongs func(position int64, chain event.Chain) (bool, error)
	// BeforeFlush makes the log durable up to where it was looked at, so that no power cut leaves
	// the list ahead of it.
	BeforeFlush func() error
	MaxFresh    int // names in memory; 0: 65,536
	// bytes of them; 0: 8 MiB
	MaxFreshBytes int
}

// Mark is how far the log was looked at, and a frame at or before that by which the log is known
// again.
type Mark struct {
	Position int64
	Fence    int64
	Chain    event.Chain
}

// List is the names of all streams up to a position of the log. One goroutine adds; any number
// reads.
type List struct {
	opt   Options
	mark  Mark
	saved Mark // what the file says
	fresh fresh

	mu       sync.RWMutex // guards what follows; readers hold it
	segments []*segment   // the oldest first
	last     part         // of the names that no segment has
}

// document is the file that names the segments. Its names are part of the format: do not change.
type document struct {
	Version  int               `json:"version"`
	Position int64             `json:"position"`
	Fence    int64             `json:"fence"`
	Chain    string            `json:"chain"`
	Segments []documentSegment `json:"segments"`
}

type documentSegment struct {
	File  string `json:"file"`
	Level int    `json:"level"`
}

const version = 1

// Exists reports whether a folder holds a list, of whatever worth.
func Exists(fsys vfs.FS, dir string) (bool, error) {
	_, err := fsys.Stat(filepath.Join(dir, mapName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Open opens the list in a folder. One that is damaged, or of another log, is removed: then the
// list is empty, and its mark is at 0.
func Open(o Options) (*List, error) {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.MaxFresh == 0 {
		o.MaxFresh = maxFresh
	}
	if o.MaxFreshBytes == 0 {
		o.MaxFreshBytes = maxFreshBytes
	}
	l := &List{opt: o}
	ok, err := l.load()
	if event.IsCorruption(err) {
		o.Logger.Warn("the list of names is rebuilt", logkey.Error, err)
		ok, err = false, nil
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the list of names: %w", err), l.Close())
	}
	if !ok {
		return l, l.Clear()
	}
	return l, l.removeOthers()
}

// load reads what is there; false when it is of no use.
func (l *List) load() (bool, error) {
	path := filepath.Join(l.opt.Dir, mapName)
	b, err := vfs.ReadFile(l.opt.FS, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		return false, corrupt(path, err.Error())
	}
	if d.Version != version {
		return false, nil
	}
	m := Mark{Position: d.Position, Fence: d.Fence}
	if n, err := hex.Decode(m.Chain[:], []byte(d.Chain)); err != nil || n != len(m.Chain) {
		return false, corrupt(path, "its chain cannot be read")
	}
	if m == (Mark{}) && len(d.Segments) == 0 {
		return true, nil // It belongs to every log. To clear it would need a disk with room.
	}
	if ok, err := l.opt.Belongs(m.Fence, m.Chain); err != nil || !ok {
		return false, err
	}
	for _, s := range d.Segments {
		opened, err := openSegment(l.opt.FS, l.opt.Dir, filepath.Base(s.File), s.Level)
		if errors.Is(err, fs.ErrNotExist) {
			return false, corrupt(path, err.Error())
		}
		if err != nil {
			return false, err
		}
		l.segments = append(l.segments, opened)
	}
	l.mark, l.saved = m, m
	return true, nil
}

// removeOthers removes what a crash left.
func (l *List) removeOthers() error {
	live := map[string]bool{mapName: true}
	for _, s := range l.segments {
		live[s.file] = true
	}
	files, err := l.opt.FS.List(l.opt.Dir)
	if err != nil {
		return err
	}
	for _, name := range files {
		if !live[name] {
			if err := l.opt.FS.RemoveAll(filepath.Join(l.opt.Dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Mark is how far the log was looked at.
func (l *List) Mark() Mark { return l.mark }

// Clear makes the list empty, in memory and on disk.
func (l *List) Clear() error {
	l.mu.Lock()
	old := l.segments
	l.segments, l.last = nil, part{}
	l.mu.Unlock()
	l.fresh, l.mark = fresh{}, Mark{}
	err := l.save()
	if err != nil { // A disk without room lets files go, and an empty list needs none.
		l.saved, err = l.mark, l.opt.FS.RemoveAll(filepath.Join(l.opt.Dir, mapName))
	}
	for _, s := range old {
		err = errors.Join(err, s.close())
	}
	if err != nil {
		return fmt.Errorf("clear the list of names: %w", err)
	}
	return l.removeOthers()
}

// Has reports whether the list has a name.
func (l *List) Has(name string) bool {
	if _, ok := l.fresh.known[name]; ok {
		return true
	}
	for _, s := range l.segments { // Only this goroutine changes them.
		if _, ok := s.find(name); ok {
			return true
		}
	}
	return false
}

// Add puts a name after all others: that of a stream whose first record lies at a position. The
// caller knows that the list does not have the name. Readers see it after the list was advanced.
func (l *List) Add(name string, position int64) error {
	if len(l.fresh.offsets) >= l.opt.MaxFresh || len(l.fresh.entries) >= l.opt.MaxFreshBytes {
		l.mark.Position = position
		if err := l.flush(); err != nil {
			return err
		}
	}
	return l.fresh.add(name)
}

// Advance says that the log was looked at up to a mark.
func (l *List) Advance(m Mark) error {
	l.mark = m
	if m.Position-l.saved.Position >= flushEvery {
		return l.flush()
	}
	last := l.fresh.part()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = last
	return nil
}

// Flush makes durable what the list has.
func (l *List) Flush() error {
	if len(l.fresh.offsets) == 0 && l.mark == l.saved {
		return nil
	}
	return l.flush()
}

// Keep drops the names for which keep returns false: no file has them when it returns. The memory
// of a name is only valid during the call.
func (l *List) Keep(keep func(name []byte) bool) error {
	if err := l.opt.BeforeFlush(); err != nil {
		return err
	}
	// The files of a second list lie next to those of this one, and are named once they are whole.
	left := &List{opt: l.opt}
	if err := left.collect(l.parts(), keep); err != nil {
		return errors.Join(err, left.Close(), l.removeOthers())
	}
	l.mu.Lock()
	old := l.segments
	l.segments, l.fresh, l.last = left.segments, fresh{}, part{}
	l.mu.Unlock()
	err := l.save()
	for _, s := range old {
		err = errors.Join(err, s.close())
	}
	if err != nil {
		return err
	}
	return l.removeOthers()
}

// collect writes the names to be kept to segments that nothing names yet.
func (l *List) collect(parts []part, keep func(name []byte) bool) error {
	write := func() error {
		s, err := writeSegment(l.opt.FS, l.opt.Dir, 0, []part{l.fresh.part()})
		if err != nil {
			return fmt.Errorf("write names: %w", err)
		}
		l.segments, l.fresh = append(l.segments, s), fresh{}
		return nil
	}
	for _, p := range parts {
		for offset := uint64(0); offset < uint64(len(p.entries)); {
			name := p.at(offset)
			offset += uint64(len(name) + 2*lengthSize)
			if !keep(name) {
				continue
			}
			if len(l.fresh.offsets) >= l.opt.MaxFresh || len(l.fresh.entries) >= l.opt.MaxFreshBytes {
				if err := write(); err != nil {
					return err
				}
			}
			if err := l.fresh.add(string(name)); err != nil {
				return err
			}
		}
	}
	if len(l.fresh.offsets) == 0 {
		return nil
	}
	return write()
}

// Count is how many names begin with a prefix.
func (l *List) Count(prefix string) (n int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, p := range l.parts() {
		from := p.search(prefix)
		n += int64(sort.Search(p.count()-from, func(i int) bool { return !strings.HasPrefix(string(p.name(from+i)), prefix) }))
	}
	return n
}

// flush writes what is in memory to a segment, and merges those that are due.
func (l *List) flush() error {
	if err := l.opt.BeforeFlush(); err != nil {
		return err
	}
	if len(l.fresh.offsets) > 0 {
		s, err := writeSegment(l.opt.FS, l.opt.Dir, 0, []part{l.fresh.part()})
		if err != nil {
			return fmt.Errorf("write names: %w", err)
		}
		l.fresh = fresh{}
		if err := l.replace(0, s); err != nil {
			return err
		}
	}
	for {
		n := l.due()
		if n == 0 {
			break
		}
		parts := make([]part, n)
		inputs := l.segments[len(l.segments)-n:]
		for i, s := range inputs {
			parts[i] = s.part
		}
		s, err := writeSegment(l.opt.FS, l.opt.Dir, inputs[0].level+1, parts)
		if err != nil {
			return fmt.Errorf("merge names: %w", err)
		}
		if err := l.replace(n, s); err != nil {
			return err
		}
	}
	return l.save()
}

// due is how many of the newest segments are to become one.
func (l *List) due() int {
	n := 0
	for i := len(l.segments) - 1; i >= 0 && l.segments[i].level == l.segments[len(l.segments)-1].level; i-- {
		n++
	}
	if n < segmentsPerLevel {
		return 0
	}
	return n
}

// replace puts a segment in the place of the newest n. Their files go once the file that names them
// says so.
func (l *List) replace(n int, s *segment) error {
	l.mu.Lock()
	keep := len(l.segments) - n
	old := l.segments[keep:]
	l.segments = append(l.segments[:keep:keep], s)
	l.last = l.fresh.part()
	l.mu.Unlock()
	if n == 0 {
		return nil
	}
	err := l.save()
	for _, s := range old {
		err = errors.Join(err, s.close())
		if err == nil {
			err = l.opt.FS.Remove(filepath.Join(l.opt.Dir, s.file))
		}
	}
	return err
}

// save writes the file that names the segments.
func (l *List) save() error {
	d := document{Version: version, Position: l.mark.Position, Fence: l.mark.Fence, Chain: hex.EncodeToString(l.mark.Chain[:]), Segments: []documentSegment{}}
	for _, s := range l.segments {
		d.Segments = append(d.Segments, documentSegment{s.file, s.level})
	}
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	// A list that is lost with its folder is made again.
	if err := l.opt.FS.MkdirAll(l.opt.Dir); err != nil {
		return err
	}
	if err := vfs.WriteFileAtomic(l.opt.FS, filepath.Join(l.opt.Dir, mapName), b); err != nil {
		return err
	}
	l.saved = l.mark
	return nil
}

// Close lets go of the files. What is only in memory is found again.
func (l *List) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	for _, s := range l.segments {
		err = errors.Join(err, s.close())
	}
	l.segments, l.last = nil, part{}
	return err
}

// parts are all names. It runs under mu.
func (l *List) parts() []part {
	all := make([]part, 0, len(l.segments)+1)
	for _, s := range l.segments {
		all = append(all, s.part)
	}
	return append(all, l.last)
}

// Check compares the files with their checksums, unless they have more than so many bytes: then it
// is not ok. A mismatch is an *event.Corruption.
func (l *List) Check(most int64) (ok bool, err error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	defer chunkfile.GuardFaults(&err)()
	for _, s := range l.segments {
		if most -= int64(len(s.data)); most < 0 {
			return false, nil
		}
		if err := s.check(filepath.Join(l.opt.Dir, s.file)); err != nil {
			return false, err
		}
	}
	return true, nil
}

// ByName gives f the names that begin with a prefix, in order, starting after one of them ("": from
// the first). It ends when f says false. The memory of a name is only valid during the call.
func (l *List) ByName(prefix, after string, f func(name []byte) bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	parts, from := l.parts(), prefix
	if after != "" {
		from = max(prefix, after+"\x00") // The least name after it.
	}
	for i, offset := range merged(parts, from) {
		name := parts[i].at(offset)
		if !strings.HasPrefix(string(name), prefix) || !f(name) {
			return
		}
	}
}

// ByCreation gives f the names that begin with a prefix, the newest first, that were made before
// one of them; "" for all. A name that is not there has none before it.
func (l *List) ByCreation(prefix, before string, f func(name []byte) bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	parts := l.parts()
	for i := len(parts) - 1; i >= 0; i-- {
		p := parts[i]
		offset := uint64(len(p.entries))
		if before != "" {
			at, ok := p.find(before)
			if !ok {
				continue
			}
			offset, before = at, ""
		}
		for name := range p.before(offset) {
			if strings.HasPrefix(string(name), prefix) && !f(name) {
				return
			}
		}
	}
}
