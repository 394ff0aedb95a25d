package eventlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

const (
	lockFile   = "annals.lock"
	formatFile = "annals.format"

	// directoryFormat is the version of the layout of a data directory. A newer one is refused.
	directoryFormat = 1
)

// directoryInfo is the content of the format file.
type directoryInfo struct {
	Format    int    `json:"format"`
	Directory string `json:"directoryId"`
}

// openDirectory makes or checks the folder, takes its lock, and opens the checkpoint files.
func (l *Log) openDirectory() error {
	fsys, dir := l.opts.FS, l.opts.Dir
	if err := vfs.MkdirAllSync(fsys, dir); err != nil {
		return err
	}
	lock, err := fsys.Lock(filepath.Join(dir, lockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("another process uses the folder: %w", err)
	}
	if err != nil {
		return err
	}
	l.lock = lock
	info, err := readDirectoryInfo(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		info = directoryInfo{Format: directoryFormat, Directory: newID().String()}
		data, err := json.Marshal(info)
		if err != nil {
			return err
		}
		if err := vfs.WriteFileAtomic(fsys, filepath.Join(dir, formatFile), append(data, '\n')); err != nil {
			return fmt.Errorf("write format file: %w", err)
		}
	} else if err != nil {
		return err
	}
	if l.directory, err = event.ParseID(info.Directory); err != nil {
		return fmt.Errorf("%s: directory id: %w", formatFile, err)
	}
	l.chk, err = openCheckpoints(fsys, dir)
	return err
}

func readDirectoryInfo(fsys vfs.FS, dir string) (info directoryInfo, err error) {
	data, err := vfs.ReadFile(fsys, filepath.Join(dir, formatFile))
	if err != nil {
		return info, err
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return info, fmt.Errorf("%s: %w", formatFile, err)
	}
	if info.Format > directoryFormat {
		return info, fmt.Errorf("the folder has format version %d, newer than %d, the newest known to this program", info.Format, directoryFormat)
	}
	return info, nil
}

// recover finds the valid log in the chunk files, cuts what follows it, and publishes it.
func (l *Log) recover() error {
	cut := l.chk.truncate.value
	if cut >= 0 {
		if err := l.prepareCut(cut); err != nil {
			return err
		}
	}
	names, err := l.listChunks()
	if err != nil {
		return err
	}
	r := recovery{l: l, durable: l.chk.writer.value, cut: cut, epoch: -1}
	for i, name := range names {
		last := i == len(names)-1
		if done, err := r.take(name, last); err != nil {
			return err
		} else if done {
			if err := r.drop(names[i+1:]); err != nil {
				return err
			}
			break
		}
	}
	return r.finish()
}

// prepareCut checks what truncate.chk asks for, and lowers the other
// checkpoints first: if the machine stops half-way, the next start cuts again.
func (l *Log) prepareCut(cut int64) error {
	writer := l.chk.writer.value
	if lost := writer - cut; l.opts.MaxTruncate >= 0 && lost > l.opts.MaxTruncate {
		return fmt.Errorf("%s asks to cut %d bytes off the log, more than MaxTruncation (%d) allows", truncateCheckpoint, lost, l.opts.MaxTruncate)
	}
	l.logger.Warn("cutting the log", "at", cut, "end", writer)
	if l.chk.epoch.value >= cut {
		if err := l.chk.epoch.set(-1); err != nil {
			return err
		}
	}
	if err := l.chk.chaser.set(min(l.chk.chaser.value, cut)); err != nil {
		return err
	}
	return l.chk.writer.set(min(writer, cut))
}

// listChunks returns the names of the chunk files in use, in order; it removes
// temporary files and files that a newer version replaces.
func (l *Log) listChunks() ([]string, error) {
	names, err := l.opts.FS.List(l.opts.Dir)
	if err != nil {
		return nil, err
	}
	newest := map[int]int{}
	var stale []string
	for _, name := range names {
		if strings.HasSuffix(name, ".tmp") {
			stale = append(stale, name)
			continue
		}
		number, version, ok := parseChunkFileName(name)
		if !ok {
			continue
		}
		if old, seen := newest[number]; seen {
			stale = append(stale, chunkFileName(number, min(old, version)))
		}
		newest[number] = max(newest[number], version)
	}
	numbers := make([]int, 0, len(newest))
	for n := range newest {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	var used []string
	covered := -1
	for _, n := range numbers {
		name := chunkFileName(n, newest[n])
		if n <= covered { // A merged file before it took its place.
			stale = append(stale, name)
			continue
		}
		used = append(used, name)
		covered = n
		if h, err := l.peekHeader(name); err == nil {
			covered = h.last
		}
	}
	for _, name := range stale {
		l.logger.Info("removing a file that is no longer in use", "file", name)
		if err := l.opts.FS.Remove(filepath.Join(l.opts.Dir, name)); err != nil {
			return nil, err
		}
	}
	return used, nil
}

func (l *Log) peekHeader(name string) (h header, err error) {
	f, err := l.opts.FS.Open(filepath.Join(l.opts.Dir, name))
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := make([]byte, headerSize)
	if err := readFull(f, b, 0); err != nil {
		return h, err
	}
	return parseHeader(b)
}

// recovery walks the chunk files in order and finds where the valid log ends.
type recovery struct {
	l       *Log
	durable int64 // the log was durable up to here: anything less is a loss
	cut     int64 // of truncate.chk, -1 for none

	tail   event.Tail
	epoch  int64
	active *activeChunk
	next   int // first logical chunk number of the next file
}

// take adds one file to the log; done says that the log ends in or before it.
func (r *recovery) take(name string, last bool) (done bool, err error) {
	l := r.l
	number, _, _ := parseChunkFileName(name)
	if number != r.next {
		if chunkStart(r.next) >= r.durable && r.next > 0 {
			return true, r.drop([]string{name})
		}
		return false, fmt.Errorf("chunk %d is missing: the next file is %s", r.next, name)
	}
	if r.cut >= 0 && chunkStart(number) >= r.cut && number > 0 {
		return true, r.drop([]string{name})
	}
	c, err := openChunk(l.opts.FS, l.opts.Dir, name)
	if event.IsCorruption(err) && chunkStart(number) >= r.durable {
		l.logger.Warn("dropping a chunk file that was never completely made", "file", name, "error", err)
		return true, r.drop([]string{name})
	}
	if err != nil {
		return false, err
	}
	keep := false
	defer func() {
		if !keep {
			err = errors.Join(err, c.close())
		}
	}()
	if err := r.checkCluster(c); err != nil {
		return false, err
	}
	if c.complete {
		ok, err := r.trust(c)
		if err != nil {
			return false, err
		}
		switch {
		case ok && c.header.mapped && r.cut >= 0 && r.cut < c.footer.logEnd():
			// A scavenged chunk cannot be cut in the middle: its start becomes the end.
			return true, r.drop([]string{name})
		case ok && (r.cut < 0 || r.cut >= c.footer.logEnd()):
			keep = true
			return false, r.takeComplete(c)
		case c.header.mapped:
			return false, c.corrupt(-1, "checksum of the whole file does not match")
		}
		c.complete = false
	}
	scanned, err := r.scan(c)
	if err != nil {
		return false, err
	}
	if scanned.frames == 0 && number > 0 {
		return true, r.drop([]string{name})
	}
	more := !last && !scanned.lastCompletes && !scanned.cut && r.continues(number+1, scanned.tail)
	return r.takeScanned(c, scanned, more)
}

func (r *recovery) checkCluster(c *chunk) error {
	l := r.l
	if c.header.first == 0 {
		if want := l.opts.ClusterID; !want.IsZero() && want != c.header.cluster {
			return fmt.Errorf("the log belongs to cluster %s, not to %s", c.header.cluster, want)
		}
		l.cluster = c.header.cluster
		r.tail = event.Tail{Chain: GenesisChain(l.cluster)}
	}
	if c.header.cluster != l.cluster {
		return c.corrupt(40, "the chunk belongs to cluster %s, the log to %s", c.header.cluster, l.cluster)
	}
	return nil
}

// trust decides whether a footer can be believed: data that were never synced
// may be missing behind a footer that reached the disk.
func (r *recovery) trust(c *chunk) (bool, error) {
	if c.footer.end <= r.durable {
		return true, nil
	}
	sum, err := c.computeChecksum(func(b []byte, at int64) error { return readFull(c.file, b, at) })
	if err != nil {
		return false, err
	}
	return sum == c.footer.checksum, nil
}

func (r *recovery) takeComplete(c *chunk) error {
	if c.footer.lastIndex <= r.tail.Index && r.tail.Index > 0 || c.footer.lastTerm < r.tail.Term {
		return c.corrupt(-1, "Raft index %d and term %d do not follow %d and %d", c.footer.lastIndex, c.footer.lastTerm, r.tail.Index, r.tail.Term)
	}
	if c.footer.lastTerm > r.tail.Term {
		r.epoch = -1 // Somewhere inside; the checkpoint file or a scan tells.
	}
	r.tail = event.Tail{End: c.footer.logEnd(), Chain: c.footer.chain, Index: c.footer.lastIndex, Term: c.footer.lastTerm, Time: c.footer.lastTime}
	r.next = c.header.last + 1
	if err := c.use(); err != nil {
		return err
	}
	r.l.chunks = append(r.l.chunks, c)
	return nil
}

// scanResult is what scanFrames found valid in a chunk.
type scanResult struct {
	tail          event.Tail // End is behind the last valid frame
	size          int64      // bytes of valid data
	frames        int
	records       int
	first         uint64 // Raft index of the first frame
	epoch         int64  // where the newest term begins, -1 when not here
	lastCompletes bool
	cut           bool // ended by truncate.chk, not by what the data are
	why           error
}

// scanFrames reads frames from data, which lies at the position start, for as
// long as they are valid and follow what is before them. No frame behind limit is taken, if limit is not negative.
func scanFrames(data []byte, start int64, before event.Tail, limit int64) scanResult {
	r := scanResult{tail: before, epoch: -1}
	frame, records := 0, 0
	for at := 0; ; {
		it, err := parseItem(data[at:])
		if err == nil && it.position() != start+int64(at) {
			err = fmt.Errorf("position %d stands where %d belongs", it.position(), start+int64(at))
		}
		if err != nil {
			r.why = err
			return r
		}
		at += len(it)
		if it.isRecord() {
			records++
			continue
		}
		t := it.trailer()
		body := data[frame : at-trailerSize]
		switch {
		case t.length != len(body) || t.length == 0:
			err = errors.New("length of the frame does not match")
		case t.index <= r.tail.Index || t.term < r.tail.Term || t.time < r.tail.Time:
			err = fmt.Errorf("index %d or term %d does not follow %d and %d", t.index, t.term, r.tail.Index, r.tail.Term)
		case t.chain != NextChain(r.tail.Chain, t.first, body):
			err = errors.New("chain does not match")
		}
		if err != nil {
			r.why = err
			return r
		}
		if limit >= 0 && t.end() > limit {
			r.cut = true
			return r
		}
		if t.term > r.tail.Term {
			r.epoch = t.first
		}
		if r.first == 0 {
			r.first = t.index
		}
		r.tail = event.Tail{End: t.end(), Chain: t.chain, Index: t.index, Term: t.term, Time: t.time}
		r.size, r.lastCompletes = int64(at), t.completes
		r.frames++
		r.records += records
		frame, records = at, 0
		if t.completes {
			return r
		}
	}
}

// scan validates the frames of a chunk that has no footer to trust.
func (r *recovery) scan(c *chunk) (s scanResult, err error) {
	size, err := c.file.Size()
	if err != nil {
		return s, err
	}
	size = min(size-headerSize, ChunkSize)
	if size > 0 {
		data, release, err := wholeFile(c.file, headerSize+size)
		if err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, release()) }()
		defer guardFaults(&err)()
		s = scanFrames(data[headerSize:], c.start(), r.tail, r.cut)
	} else {
		s = scanResult{tail: r.tail, epoch: -1}
	}
	end := s.tail.End
	if s.lastCompletes {
		end = nextChunk(end)
	}
	if end < r.durable && !s.cut {
		return s, c.corrupt(headerSize+s.size, "the log was durable up to position %d, but ends at %d: %v", r.durable, end, s.why)
	}
	if lost := size - s.size; lost > 0 && s.why != nil {
		r.l.logger.Info("cutting what follows the last valid frame", "file", c.name, "end", end, "bytes", lost, "reason", s.why)
	}
	return s, nil
}

// wholeFile returns the first size bytes of a file, mapped if that can be.
func wholeFile(f vfs.File, size int64) (data []byte, release func() error, err error) {
	m, err := f.Map(size)
	if err == nil {
		return m.Bytes(), m.Close, nil
	}
	if !errors.Is(err, vfs.ErrNotMappable) {
		return nil, nil, err
	}
	data = make([]byte, size)
	if err := readFull(f, data, 0); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return data, func() error { return nil }, nil
}

// continues reports whether the first frame of the given chunk follows a tail.
func (r *recovery) continues(number int, tail event.Tail) bool {
	c, err := openChunk(r.l.opts.FS, r.l.opts.Dir, chunkFileName(number, 0))
	if err != nil {
		return false
	}
	defer c.close()
	if c.header.cluster != r.l.cluster || c.header.mapped {
		return false
	}
	// The first frame is at most one entry long.
	size, err := c.file.Size()
	if err != nil || size <= headerSize {
		return false
	}
	data := make([]byte, min(size-headerSize, MaxFrameBytes+trailerSize))
	if readFull(c.file, data, headerSize) != nil {
		return false
	}
	return scanFrames(data, c.start(), tail, -1).frames > 0
}

// takeScanned makes a scanned chunk part of the log: complete when its last
// frame says so or more follows, else the active one. Its file is cut to what is valid.
func (r *recovery) takeScanned(c *chunk, s scanResult, more bool) (done bool, err error) {
	l := r.l
	file, err := l.opts.FS.OpenReadWrite(c.name)
	if err != nil {
		return false, err
	}
	a := &activeChunk{number: c.header.first, file: file, written: headerSize + s.size, sum: xxh3.New(), records: s.records, first: s.first}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	if size, err := file.Size(); err != nil {
		return false, err
	} else if size > a.written {
		if err := file.Truncate(a.written); err != nil {
			return false, err
		}
	}
	if err := hashFile(a.sum, file, a.written); err != nil {
		return false, err
	}
	r.tail = s.tail
	if s.epoch >= 0 {
		r.epoch = s.epoch
	}
	r.next = c.header.last + 1
	if s.lastCompletes || more {
		f := footer{
			lastCompletes: s.lastCompletes, records: s.records, dataSize: s.size, end: s.tail.End,
			firstIndex: s.first, lastIndex: s.tail.Index, lastTerm: s.tail.Term, lastTime: s.tail.Time, chain: s.tail.Chain,
		}
		if err := writeFooter(a, &f); err != nil {
			return false, err
		}
		r.tail.End = f.logEnd()
	}
	if err := file.Sync(); err != nil {
		return false, err
	}
	reader, err := openChunkFile(l.opts.FS, c.name, c.version)
	if err != nil {
		return false, err
	}
	if err := reader.use(); err != nil {
		return false, errors.Join(err, reader.close())
	}
	l.chunks = append(l.chunks, reader)
	if s.lastCompletes || more {
		return !more, file.Close()
	}
	r.active = a
	return true, nil
}

func hashFile(sum *xxh3.Hasher, file vfs.File, size int64) error {
	buf := make([]byte, 1<<20)
	for at := int64(0); at < size; {
		n := min(int64(len(buf)), size-at)
		if err := readFull(file, buf[:n], at); err != nil {
			return err
		}
		if _, err := sum.Write(buf[:n]); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// drop removes files behind the log's end. None of them may hold durable data.
func (r *recovery) drop(names []string) error {
	for _, name := range names {
		number, _, _ := parseChunkFileName(name)
		if r.tail.End < r.durable && r.cut < 0 {
			return fmt.Errorf("the log was durable up to position %d, but ends at %d, before %s", r.durable, r.tail.End, name)
		}
		r.l.logger.Warn("removing a chunk behind the log's end", "chunk", number, "end", r.tail.End)
		if err := r.l.opts.FS.Remove(filepath.Join(r.l.opts.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// finish opens the last chunk for appending, makes the result durable and publishes it.
func (r *recovery) finish() error {
	l := r.l
	l.appender.tail, l.appender.epoch = r.tail, -1
	if len(l.chunks) == 0 {
		if r.durable > 0 && r.cut < 0 {
			return fmt.Errorf("the log was durable up to position %d, but its chunks are gone", r.durable)
		}
		l.cluster = l.opts.ClusterID
		if l.cluster.IsZero() {
			l.cluster = newID()
		}
		r.tail = event.Tail{Chain: GenesisChain(l.cluster)}
		l.appender.tail = r.tail
		if err := l.startChunk(0); err != nil {
			return err
		}
		if err := l.appender.active.file.Sync(); err != nil {
			return err
		}
	} else if r.active != nil {
		l.appender.active = r.active
		l.dirty.active = r.active.file
	} else if err := r.reopenLast(); err != nil {
		return err
	}
	if r.tail.End < r.durable && r.cut < 0 {
		return fmt.Errorf("the log was durable up to position %d, but ends at %d", r.durable, r.tail.End)
	}
	l.appender.epoch = r.findEpoch()
	if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil {
		return err
	}
	l.publish(r.tail, l.appender.epoch)
	if r.cut >= 0 && r.tail.End < l.chk.writer.value {
		if err := errors.Join(l.chk.chaser.set(r.tail.End), l.chk.writer.set(r.tail.End)); err != nil {
			return err
		}
	}
	if err := l.Sync(); err != nil {
		return err
	}
	return l.chk.truncate.set(-1)
}

// reopenLast makes a last chunk active again that was completed because a frame
// did not fit, if that frame is not there: where it goes is decided when it comes.
func (r *recovery) reopenLast() error {
	l := r.l
	c := l.chunks[len(l.chunks)-1]
	if c.footer.lastCompletes {
		return nil
	}
	if c.header.mapped {
		return c.corrupt(-1, "the log ends in a scavenged chunk that does not complete itself")
	}
	f := c.footer
	if err := c.close(); err != nil {
		return err
	}
	l.chunks = l.chunks[:len(l.chunks)-1]
	c, err := openChunkFile(l.opts.FS, c.name, c.version)
	if err != nil {
		return err
	}
	c.complete = false
	_, err = r.takeScanned(c, scanResult{
		tail: r.tail, size: f.dataSize, records: f.records, first: f.firstIndex, epoch: -1,
	}, false)
	if err = errors.Join(err, c.close()); err != nil {
		return err
	}
	l.appender.active = r.active
	l.dirty.active = r.active.file
	return nil
}

// findEpoch returns where the newest term begins: as the walk saw it, else as
// the checkpoint file says; -1 when neither knows.
func (r *recovery) findEpoch() int64 {
	if r.tail.Index == 0 {
		return -1
	}
	if r.epoch >= 0 {
		return r.epoch
	}
	return r.l.chk.epoch.value
}
