package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/google/uuid"
	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
)

// recover finds the valid log in the chunk files, cuts what follows it, and publishes it.
func (r *recovery) recover() error {
	cut := r.l.syncer.chk.Truncate.Value
	if cut >= 0 {
		if err := r.prepareCut(cut); err != nil {
			return err
		}
	}
	names, err := r.listChunks()
	if err != nil {
		return err
	}
	r.durable, r.cut, r.epoch = r.l.syncer.chk.Writer.Value, max(cut, -1), -1
	if r.bytes, err = r.chunkBytes(names); err != nil {
		return err
	}
	r.l.progress.begin(doingRecover, r.bytes)
	for i, name := range names {
		more, err := r.take(name, names[i+1:])
		if err != nil {
			return err
		}
		if !more {
			if err := r.cutAway(names[i+1:]); err != nil {
				return err
			}
			break
		}
	}
	return r.finish()
}

// prepareCut checks what truncate.chk asks for, and lowers the other
// checkpoints first: if the machine stops half-way, the next start cuts again.
func (r *recovery) prepareCut(cut int64) error {
	writer := r.l.syncer.chk.Writer.Value
	lost := writer - cut
	if r.l.opts.MaxTruncate >= 0 && lost > r.l.opts.MaxTruncate && cut == r.l.syncer.chk.Chaser.Value {
		// A restore as it is documented. Where a chunk was completed between the copies of the two
		// checkpoints they are far from each other, with hardly a byte between.
		bytes, err := r.bytesBehind(cut)
		if err != nil {
			return err
		}
		lost = min(lost, bytes)
	}
	if r.l.opts.MaxTruncate >= 0 && lost > r.l.opts.MaxTruncate {
		return fmt.Errorf("%s asks to cut %d bytes off the log, more than MaxTruncation (%d) allows", datadir.TruncateCheckpoint, lost, r.l.opts.MaxTruncate)
	}
	if r.l.opts.BeforeCut != nil {
		if err := r.l.opts.BeforeCut(cut); err != nil {
			return err
		}
	}
	// It may know of metadata and tombstones that go.
	if err := r.l.removeScavengeState(); err != nil {
		return fmt.Errorf("remove what is known of scavenging: %w", err)
	}
	r.l.logger.Warn("cutting the log", "at", cut, logkey.End, writer)
	return r.l.syncer.chk.Lower(cut)
}

// bytesBehind is how many bytes the chunk files have after a position. A rewritten file in which
// the position may lie counts whole.
func (r *recovery) bytesBehind(position int64) (sum int64, err error) {
	names, err := r.l.opts.FS.List(r.l.opts.Dir)
	if err != nil {
		return 0, err
	}
	rewritten := int64(0) // bytes of the last rewritten file before the position
	for _, name := range names {
		number, version, ok := chunkfile.ParseFileName(name)
		if !ok {
			continue
		}
		info, err := r.l.opts.FS.Stat(filepath.Join(r.l.opts.Dir, name))
		if err != nil {
			return 0, err
		}
		switch start := chunkfile.ChunkStart(number); {
		case start >= position:
			sum += info.Size()
		case version > 0:
			rewritten = info.Size()
		default:
			rewritten = 0
			sum += max(0, info.Size()-chunkfile.HeaderSize-(position-start))
		}
	}
	return sum + rewritten, nil
}

// recovery walks the chunk files in order and finds where the valid log ends.
type recovery struct {
	l       *Log
	durable int64 // the log was durable up to here: anything less is a loss
	cut     int64 // of truncate.chk, -1 for none

	tail  event.Tail
	epoch int64 // where the newest term begins, -1 when the walk did not see it
	next  int   // first logical chunk number of the next file

	bytes, read int64 // of all files, and of those that are done with
}

// chunkBytes is the size of all chunk files.
func (r *recovery) chunkBytes(names []string) (sum int64, err error) {
	if r.l.opts.Progress == nil {
		return 0, nil
	}
	for _, name := range names {
		info, err := r.l.opts.FS.Stat(filepath.Join(r.l.opts.Dir, name))
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum, nil
}

// progress tells how much of the file at hand was read.
func (r *recovery) progress(read int64) { r.l.progress.at(doingRecover, r.read+read, r.bytes) }

// take adds one file to the log; more says that the log may continue in the next file, the first of
// following.
func (r *recovery) take(name string, following []string) (more bool, err error) {
	l := r.l
	size := int64(0)
	defer func() { r.read += size; r.progress(0) }()
	number, _, _ := chunkfile.ParseFileName(name)
	switch {
	case r.goesWithCut(name):
		if number == r.next {
			if err := r.lower(); err != nil {
				return false, err
			}
		}
		return false, r.cutAway([]string{name})
	case number != r.next:
		return false, r.refuseBehind(name, fmt.Errorf("chunk %d is missing", r.next))
	}
	if err := r.renew(name); err != nil {
		return false, err
	}
	c, err := chunkfile.OpenNamed(l.opts.FS, l.opts.Dir, name)
	if err != nil {
		return false, err
	}
	keep := false
	defer func() {
		if !keep {
			err = errors.Join(err, c.Close())
		}
	}()
	if size, err = c.File.Size(); err != nil {
		return false, err
	}
	if err := r.checkCluster(c); err != nil {
		return false, err
	}
	if c.Complete {
		ok, err := r.trust(c)
		if err != nil {
			return false, err
		}
		inside := r.cut >= 0 && r.cut < c.Footer.LogEnd()
		switch {
		case ok && !inside:
			keep = true
			return true, r.takeComplete(c)
		case ok && c.Rewritten():
			// A rewritten chunk cannot be cut in the middle: its start becomes the end.
			if err := r.lower(); err != nil {
				return false, err
			}
			return false, r.remove(name)
		case c.Rewritten():
			return false, c.Corrupt(-1, "checksum of the whole file does not match")
		}
		c.Complete = false
	}
	return r.takeIncomplete(c, name, following)
}

// renew writes what a file holds after the old writer.chk again and makes it durable, before any of
// it is trusted. The previous process may have ended because a sync failed, or before a sync. After
// a failed sync the system may keep the pages and call them clean: they can be read, the next sync
// succeeds, and the disk has never seen them. Chunks of other versions were synced before they got
// their names.
func (r *recovery) renew(name string) (err error) {
	number, version, _ := chunkfile.ParseFileName(name)
	from := int64(0)
	if start := chunkfile.ChunkStart(number); r.durable > start {
		from = chunkfile.HeaderSize + r.durable - start
	}
	path := filepath.Join(r.l.opts.Dir, name)
	info, err := r.l.opts.FS.Stat(path)
	if err != nil || version > 0 || info.Size() <= from {
		return err
	}
	file, err := r.l.opts.FS.OpenReadWrite(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	err = chunkfile.Pieces(from, info.Size(), func(b []byte, at int64) error {
		err := vfs.ReadFull(file, b, at)
		if err == nil {
			_, err = file.WriteAt(b, at)
		}
		return err
	})
	if err != nil {
		return err
	}
	return file.Sync()
}

// takeIncomplete adds a file without a footer that can be believed.
func (r *recovery) takeIncomplete(c *chunkfile.Chunk, name string, following []string) (more bool, err error) {
	s, err := r.scan(c)
	if err != nil {
		return false, err
	}
	ends := s.lastCompletes
	if !ends && len(following) > 0 && !s.cut {
		if ends, err = r.continues(c.Header.Last+1, s.tail); err != nil {
			return false, err
		}
	}
	if !ends && !s.cut && s.tail.End < r.durable && chunkfile.ChunkStart(c.Header.First) < r.durable {
		return false, c.Corrupt(chunkfile.HeaderSize+s.size, "the log was durable up to position %d, but ends at %d: %v", r.durable, s.tail.End, s.why)
	}
	// Before anything changes: a chunk after this one shows that more data was here.
	if !ends && !s.cut && len(following) > 0 && !r.goesWithCut(following[0]) {
		return false, r.refuseBehind(following[0], c.Corrupt(chunkfile.HeaderSize+s.size, "the log ends there at position %d: %v", s.tail.End, s.why))
	}
	if s.cut {
		// Before the file changes: if the machine stops half-way, the next start finds nothing
		// missing.
		whole := r.tail
		r.tail = s.tail
		err := r.lower()
		r.tail = whole
		if err != nil {
			return false, err
		}
	}
	switch {
	case s.frames > 0 || c.Header.First == 0:
		return ends, r.takeScanned(c, s, ends)
	case s.cut:
		return false, r.remove(name)
	}
	return false, r.setAside(c, name)
}

// lower says in the checkpoint files that the log will end where the walk is
// now. Only truncate.chk can make that lower than what was durable.
func (r *recovery) lower() error {
	if r.tail.End >= r.durable {
		return nil
	}
	r.durable = r.tail.End
	return r.l.syncer.chk.Lower(r.tail.End)
}

func (r *recovery) checkCluster(c *chunkfile.Chunk) error {
	l := r.l
	if c.Header.First == 0 {
		if want := l.opts.ClusterID; !want.IsZero() && want != c.Header.Cluster {
			return fmt.Errorf("the log belongs to cluster %s, not to %s", c.Header.Cluster, want)
		}
		l.cluster = c.Header.Cluster
		r.tail = event.Tail{Chain: chunkfile.GenesisChain(l.cluster)}
	}
	if c.Header.Cluster != l.cluster {
		return c.Corrupt(40, "the chunk belongs to cluster %s, the log to %s", c.Header.Cluster, l.cluster)
	}
	return nil
}

// trust decides whether a footer can be believed. The footer may have reached the disk although the
// data before it was never synced.
func (r *recovery) trust(c *chunkfile.Chunk) (bool, error) {
	if c.Footer.End <= r.durable {
		return true, nil
	}
	sum, err := c.ComputeChecksum(func(b []byte, at int64) error {
		r.progress(at)
		return vfs.ReadFull(c.File, b, at)
	})
	if err != nil {
		return false, err
	}
	return sum == c.Footer.Checksum, nil
}

func (r *recovery) takeComplete(c *chunkfile.Chunk) error {
	if f := &c.Footer; f.FirstIndex <= r.tail.Index || f.LastIndex < f.FirstIndex || f.LastTerm < r.tail.Term {
		return errors.Join(c.Corrupt(-1, "Raft indexes %d to %d and term %d do not follow %d and %d", f.FirstIndex, f.LastIndex, f.LastTerm, r.tail.Index, r.tail.Term), c.Close())
	}
	if c.Footer.LastTerm > r.tail.Term {
		r.epoch = -1 // Somewhere inside; findEpoch tells.
	}
	r.tail = c.Footer.Tail()
	r.next = c.Header.Last + 1
	if err := c.Use(); err != nil {
		return errors.Join(err, c.Close())
	}
	c.Retain()
	r.l.files = append(r.l.files, c)
	return nil
}

// scan validates the frames of a chunk that has no footer to trust.
func (r *recovery) scan(c *chunkfile.Chunk) (s scanned, err error) {
	size, err := c.File.Size()
	if err != nil {
		return s, err
	}
	size = min(size-chunkfile.HeaderSize, chunkfile.ChunkSize)
	if size > 0 {
		data, release, err := chunkfile.Whole(c.File, chunkfile.HeaderSize+size)
		if err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, release()) }()
		defer chunkfile.GuardFaults(&err)()
		s = scanFrames(data[chunkfile.HeaderSize:], c.Start(), r.tail, r.cut, r.progress)
	} else {
		s = scanned{tail: r.tail, epoch: -1}
	}
	if lost := size - s.size; lost > 0 && s.why != nil {
		r.l.logger.Info("data after the last valid frame", logkey.File, c.Name, logkey.End, s.tail.End, logkey.Bytes, lost, logkey.Reason, s.why)
	}
	return s, nil
}

// scanned is what was found valid in a chunk.
type scanned struct {
	tail          event.Tail // End is after the last valid frame
	size          int64      // bytes of valid data
	frames        int
	records       int
	first         uint64 // Raft index of the first frame
	epoch         int64  // where the newest term begins, -1 when not here
	lastCompletes bool
	cut           bool // ended by truncate.chk, not by what the data are
	why           error
}

// scanFrames reads frames from data, which lies at the position start, for as long as they are
// valid and follow the log before them. It takes no frame after limit, if limit is not negative.
// progress gets the bytes read so far, once in a while.
func scanFrames(data []byte, start int64, before event.Tail, limit int64, progress func(read int64)) scanned {
	s := scanned{tail: before, epoch: -1}
	frames := chunkfile.Frames{Data: data, Start: start, Before: before}
	for next := 0; ; {
		if frames.At >= next {
			progress(int64(frames.At))
			next = frames.At + 1<<20
		}
		f, err := frames.Next(func(chunkfile.Item) {})
		switch {
		case err != nil:
			s.why = err
			return s
		case limit >= 0 && f.End() > limit:
			s.cut = true
			return s
		case f.Term > s.tail.Term:
			s.epoch = f.First
		}
		if s.first == 0 {
			s.first = f.Index
		}
		// Whether the chunk ends here is for the file to say.
		s.tail = f.Tail()
		s.tail.End = f.End()
		s.size, s.lastCompletes = int64(frames.At), f.Completes
		s.frames++
		s.records += f.Count
		if f.Completes {
			return s
		}
	}
}

// continues reports whether the first frame of the given chunk follows a tail.
func (r *recovery) continues(number int, tail event.Tail) (_ bool, err error) {
	c, err := chunkfile.OpenNamed(r.l.opts.FS, r.l.opts.Dir, chunkfile.FileName(number, 0))
	if errors.Is(err, fs.ErrNotExist) || event.IsCorruption(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	size, err := c.File.Size()
	if err != nil || c.Header.Cluster != r.l.cluster || c.Header.Mapped {
		return false, err
	}
	// The first frame is at most one entry long.
	data := make([]byte, min(size-chunkfile.HeaderSize, chunkfile.MaxFrameBytes+chunkfile.TrailerSize))
	if err := vfs.ReadFull(c.File, data, chunkfile.HeaderSize); err != nil {
		return false, err
	}
	return scanFrames(data, c.Start(), tail, -1, func(int64) {}).frames > 0, nil
}

// takeScanned makes a scanned chunk part of the log: complete, with a footer,
// or the active one. Its file is cut to what is valid.
func (r *recovery) takeScanned(c *chunkfile.Chunk, s scanned, complete bool) (err error) {
	l := r.l
	file, err := l.opts.FS.OpenReadWrite(c.Name)
	if err != nil {
		return err
	}
	l.syncer.dirty.active = file // closeFiles closes it if something goes wrong from here on.
	a := &activeChunk{number: c.Header.First, file: file, written: chunkfile.HeaderSize + s.size, sum: xxh3.New(), records: s.records, first: s.first}
	size, err := file.Size()
	if err != nil {
		return err
	}
	if size > a.written {
		if err := file.Truncate(a.written); err != nil {
			return err
		}
	}
	if err := chunkfile.Hash(a.sum, a.written, func(b []byte, at int64) error { return vfs.ReadFull(file, b, at) }); err != nil {
		return err
	}
	r.tail = s.tail
	if s.epoch >= 0 {
		r.epoch = s.epoch
	}
	r.next = c.Header.Last + 1
	if complete {
		f := chunkfile.Footer{
			LastCompletes: s.lastCompletes, Records: s.records, DataSize: s.size, End: s.tail.End,
			FirstIndex: s.first, LastIndex: s.tail.Index, LastTerm: s.tail.Term, LastTime: s.tail.Time, Chain: s.tail.Chain,
		}
		if err := writeFooter(a, &f); err != nil {
			return err
		}
		r.tail.End = f.LogEnd()
	}
	if err := file.Sync(); err != nil {
		return err
	}
	reader, err := chunkfile.OpenMapped(l.opts.FS, c.Name, c.Version)
	if err != nil {
		return err
	}
	reader.Retain()
	l.files = append(l.files, reader)
	if complete {
		l.syncer.dirty.active = nil
		return file.Close()
	}
	l.appender.active = a
	return nil
}

// goesWithCut reports whether a file lies wholly after the position at which truncate.chk cuts the
// log.
func (r *recovery) goesWithCut(name string) bool {
	number, _, _ := chunkfile.ParseFileName(name)
	return r.cut >= 0 && chunkfile.ChunkStart(number) >= r.cut && number > 0
}

// cutAway removes the files that truncate.chk asks to cut off. Nothing else makes a start remove a
// chunk.
func (r *recovery) cutAway(names []string) error {
	for _, name := range names {
		if !r.goesWithCut(name) {
			return r.refuseBehind(name, fmt.Errorf("the log ends at position %d", r.tail.End))
		}
		number, _, _ := chunkfile.ParseFileName(name)
		r.l.logger.Warn("removing a chunk after the log's end", logkey.Chunk, number, logkey.End, r.tail.End)
		if err := r.remove(name); err != nil {
			return err
		}
	}
	return nil
}

func (r *recovery) remove(name string) error {
	return r.l.opts.FS.Remove(filepath.Join(r.l.opts.Dir, name))
}

// refuseBehind says that a file does not fit the other files and the checkpoints. A chunk gets its
// name when everything before it is durable, so this is not the trace of a crash: something is
// missing or damaged, or files and checkpoints are from different copies.
func (r *recovery) refuseBehind(name string, why error) error {
	return fmt.Errorf("%w: %s lies after the log's end: %w (%s says %d); nothing was removed. Bring back what is missing, from the copy that these files came from or from another node. "+
		"Only if the log is to end there, move %s and the chunks after it to another folder",
		event.ErrDataMissing, name, why, datadir.WriterCheckpoint, r.l.syncer.chk.Writer.Value, name)
}

// setAside moves away a file that got its name in a crash, before its first frame was durable. A
// file that holds only its header is removed. Any other content may be of value, so the file is
// kept under another name.
func (r *recovery) setAside(c *chunkfile.Chunk, name string) error {
	empty, err := r.emptyBehindHeader(c)
	if err != nil {
		return err
	}
	if empty {
		return r.remove(name)
	}
	aside := "aside-" + r.l.opts.Now().UTC().Format("20060102T150405Z") + "-" + name
	r.l.logger.Warn("the last chunk file has no complete frame and was renamed; remove it when no event is missing in the log", logkey.File, name, "as", aside, logkey.End, r.tail.End)
	return r.l.opts.FS.Rename(filepath.Join(r.l.opts.Dir, name), filepath.Join(r.l.opts.Dir, aside))
}

// emptyBehindHeader reports whether a file holds nothing but its header, and zeros where a crash
// has left only its length.
func (r *recovery) emptyBehindHeader(c *chunkfile.Chunk) (empty bool, err error) {
	size, err := c.File.Size()
	if err != nil {
		return false, err
	}
	empty = true
	err = chunkfile.Pieces(chunkfile.HeaderSize, size, func(b []byte, at int64) error {
		err := vfs.ReadFull(c.File, b, at)
		empty = empty && bytes.IndexFunc(b, func(r rune) bool { return r != 0 }) < 0
		return err
	})
	return empty, err
}

// finish opens the last chunk for appending, makes the result durable and publishes it.
func (r *recovery) finish() error {
	l := r.l
	if chunkfile.ChunkStart(r.next) < r.durable && r.tail.End < r.durable {
		return fmt.Errorf("the log was durable up to position %d, but ends at %d", r.durable, r.tail.End)
	}
	if err := r.lower(); err != nil { // Down to the end of a frame, out of the void after it.
		return err
	}
	if len(l.files) == 0 {
		if err := r.startLog(); err != nil {
			return err
		}
	} else if l.appender.active == nil {
		if err := r.reopenLast(); err != nil {
			return err
		}
	}
	epoch, err := r.findEpoch()
	if err != nil {
		return err
	}
	l.appender.tail, l.appender.epoch = r.tail, epoch
	if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil {
		return err
	}
	// Down, where the power was cut before what it speaks of was durable.
	if err := l.syncer.chk.Chaser.Put(r.tail.End); err != nil {
		return err
	}
	l.publish(r.tail, epoch)
	if err := l.syncer.Sync(); err != nil {
		return err
	}
	return l.syncer.chk.Truncate.Set(-1)
}

// startLog begins the log of a new folder, or of one that was cut to nothing.
func (r *recovery) startLog() error {
	l := r.l
	if l.cluster.IsZero() {
		l.cluster = l.opts.ClusterID
	}
	if l.cluster.IsZero() {
		l.cluster = event.ID(uuid.New())
	}
	r.tail = event.Tail{Chain: chunkfile.GenesisChain(l.cluster)}
	if err := l.appender.startChunk(0); err != nil {
		return err
	}
	return l.appender.active.file.Sync()
}

// reopenLast makes a last chunk active again that was completed because a frame
// did not fit, if that frame is not there: where it goes is decided when it comes.
// A rewritten chunk stays as it is. It was rewritten, here or on the node that it was
// fetched from, when a committed frame was in the next chunk: that is where it will come.
func (r *recovery) reopenLast() error {
	l := r.l
	c := l.files[len(l.files)-1]
	if c.Footer.LastCompletes || c.Rewritten() {
		return nil
	}
	l.files = l.files[:len(l.files)-1]
	f := c.Footer
	if err := c.Release(); err != nil {
		return err
	}
	return r.takeScanned(c, scanned{
		tail: r.tail, size: f.DataSize, records: f.Records, first: f.FirstIndex, epoch: -1,
	}, false)
}

// listChunks returns the names of the chunk files in use, in order; it removes
// temporary files and files that a newer version replaces.
func (r *recovery) listChunks() ([]string, error) {
	names, err := r.l.opts.FS.List(r.l.opts.Dir)
	if err != nil {
		return nil, err
	}
	newest, stale := chunkfile.Newest(names)
	for _, name := range names {
		if isTemp(name) {
			stale = append(stale, name)
		}
	}
	var used []string
	covered := -1
	for _, f := range newest {
		if f.Number <= covered { // A merged file before it took its place.
			stale = append(stale, f.Name)
			continue
		}
		used = append(used, f.Name)
		covered = f.Number
		if f.Version > 0 {
			if covered, err = r.checkReplacement(f.Name); err != nil {
				return nil, err
			}
		}
	}
	// Removals last: with a damaged replacement nothing that it replaces is lost.
	for _, name := range stale {
		r.l.logger.Info("removing a file that is no longer in use", logkey.File, name)
		if err := r.l.opts.FS.Remove(filepath.Join(r.l.opts.Dir, name)); err != nil {
			return nil, err
		}
	}
	return used, nil
}

// checkReplacement opens a file that replaced another and returns the last
// chunk that it covers. It got its name when it was whole and durable.
func (r *recovery) checkReplacement(name string) (last int, err error) {
	c, err := chunkfile.OpenNamed(r.l.opts.FS, r.l.opts.Dir, name)
	if err != nil {
		return 0, err
	}
	return c.Header.Last, c.Close()
}

// findEpoch returns where the newest term begins, -1 in an empty log: as the
// walk saw it, else as the checkpoint file says if the log agrees (it may be
// older than the newest frames), else by reading the chunk in which the term begins.
func (r *recovery) findEpoch() (epoch int64, err error) {
	if r.tail.Index == 0 || r.epoch >= 0 {
		return r.epoch, nil
	}
	l := r.l
	epoch, err = r.readEpoch()
	if event.IsCorruption(err) {
		// It is for show only: no reason to refuse the start.
		l.logger.Warn("the start of the newest term cannot be read", logkey.Error, err)
		epoch = l.syncer.chk.Epoch.Value
		if epoch >= r.tail.End {
			epoch = -1
		}
		err = nil
	}
	return epoch, err
}

func (r *recovery) readEpoch() (epoch int64, err error) {
	l := r.l
	set := newChunkSet(l.files, l.closeFailed)
	defer set.release()
	v := view{&published{set: set, tail: r.tail}}
	defer chunkfile.GuardFaults(&err)()
	if epoch := l.syncer.chk.Epoch.Value; epoch >= 0 && epoch < r.tail.End {
		before, _, err := v.frameBefore(epoch)
		if err == nil && (before == nil || before.Term < r.tail.Term) {
			var at int64
			var term uint64
			if at, term, err = v.firstFrame(epoch, 0); err == nil && at == epoch && term == r.tail.Term {
				return epoch, nil
			}
		}
		if err != nil && !event.IsCorruption(err) {
			return -1, err
		}
	}
	for _, c := range l.files {
		if !c.Complete || c.Footer.LastTerm == r.tail.Term {
			epoch, _, err = v.firstFrame(c.Start(), r.tail.Term)
			return epoch, err
		}
	}
	return -1, nil
}

// firstFrame returns the start and term of the first frame at or after a position whose term is at
// least the given one; -1 when there is none.
func (v view) firstFrame(position int64, term uint64) (first int64, is uint64, err error) {
	for it := range v.forward(position, &err) {
		if it.IsTrailer() && it.Trailer().Term >= term {
			return it.Trailer().First, it.Trailer().Term, nil
		}
	}
	return -1, 0, err
}
