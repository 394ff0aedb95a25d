package eventlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// scavengeFolder lies in the folder of the index. It says what was scavenged of
// the files that are there, and is void when others take their place.
const scavengeFolder = "scavenging"

// InstallChunk verifies a chunk file that was fetched from another node and
// makes it a part of the log, as PrepareChunk and Install do. tmp is its name in the log's folder.
func (l *Log) InstallChunk(tmp string) error {
	p, err := l.PrepareChunk(tmp)
	if err != nil {
		return fmt.Errorf("install chunk: %w", err)
	}
	return errors.Join(p.Install(), p.Close())
}

// Install makes the file a part of the log. It replaces every file that it
// overlaps, whole, the active one among them, and becomes the end of the log. Of a file that
// begins inside one of this log only what lies behind that is taken. Only the goroutine
// that appends may call it.
//
// It refuses a file that does not contain the end of this log, with its chain,
// nor begins right behind it (an event.OtherHistory, or event.ErrDataMissing if there
// were a gap), and one that ends before the log does. A refusal changes nothing. From the rename on an error is final, as with Append;
// a crash leaves the log as it was before, or with the file in its place.
//
// Where the file begins right behind the log's end nothing in it tells whether it
// continues this history, only that its first frame has its place there: records of
// that frame may be gone. It must be what Continue answered for that end.
func (p *PreparedChunk) Install() error {
	l := p.l
	if p.c == nil {
		return event.ErrClosed
	}
	if err := l.Commit(); err != nil {
		return err
	}
	l.switchMu.Lock()
	defer l.switchMu.Unlock()
	// The start looks for the file behind what is durable: nothing before it may be cut by a power failure.
	if err := l.Sync(); err != nil {
		return err
	}
	var n *installation
	err := p.fit() // Files of this log may have been merged since PrepareChunk, now they cannot.
	if err == nil {
		n, err = l.planInstall(p.c, &p.first)
	}
	if err == nil {
		err = l.indexReturning(n)
	}
	if err == nil {
		err = l.removeScavengeState()
	}
	if err != nil {
		n.release()
		return fmt.Errorf("install chunk: %w", err)
	}
	err = p.install(n)
	n.release()
	if err != nil {
		return l.fail(fmt.Errorf("install chunk: %w", err))
	}
	return l.Sync()
}

// installation is where a fetched file goes.
type installation struct {
	c       *chunkfile.Chunk
	at      int                // in the log's list of chunks
	old     []*chunkfile.Chunk // the end of the list, replaced
	tail    event.Tail
	version int
	set     *chunkSet // the files of the log as they will be
}

func (n *installation) view() view {
	return view{&published{set: n.set, tail: n.tail}}
}

func (n *installation) release() {
	if n != nil {
		n.set.release()
	}
}

// planInstall decides which files a fetched one, which begins inside none of them, replaces, and
// whether it continues the log. It changes nothing.
func (l *Log) planInstall(c *chunkfile.Chunk, first *chunkfile.Trailer) (_ *installation, err error) {
	f, tail := &c.Footer, l.appender.tail
	l.setMu.Lock()
	chunks := slices.Clone(l.chunks)
	l.setMu.Unlock()
	at := slices.IndexFunc(chunks, func(o *chunkfile.Chunk) bool { return o.Header.Last >= c.Header.First })
	if at < 0 {
		at = len(chunks)
	}
	next := chunks[len(chunks)-1].Header.Last + 1
	if tail.End == 0 {
		next = 0 // The first chunk has a file, but nothing in it.
	}
	switch {
	case c.Header.First > next:
		return nil, fmt.Errorf("%w: the file begins with chunk %d, the log has none from chunk %d on", event.ErrDataMissing, c.Header.First, next)
	case at < len(chunks) && chunks[at].Header.First < c.Header.First: // fit saw to it, but this would lose events.
		panic(fmt.Sprintf("a file from chunk %d on would replace a part of %s", c.Header.First, chunks[at].Name))
	case f.LogEnd() < tail.End:
		return nil, fmt.Errorf("the log ends at %d, the file at %d already", tail.End, f.LogEnd())
	case f.LastIndex < tail.Index || f.LastTerm < tail.Term || f.LastTime < tail.Time:
		return nil, &event.OtherHistory{Position: tail.End}
	}
	n := &installation{
		c: c, at: at, old: chunks[at:], version: 1,
		tail: event.Tail{End: f.LogEnd(), Chain: f.Chain, Index: f.LastIndex, Term: f.LastTerm, Time: f.LastTime},
		set:  newChunkSet(append(slices.Clone(chunks[:at]), c), l.closeFailed),
	}
	defer func() {
		if err != nil {
			n.release()
		}
	}()
	if len(n.old) == 0 {
		if first.First != chunkfile.Place(tail.End, first.Length) {
			return nil, fmt.Errorf("%w: a frame of %d bytes at %d does not follow a log that ends at %d", event.ErrDataMissing, first.Length, first.First, tail.End)
		}
		if first.Index <= tail.Index || first.Term < tail.Term || first.Time < tail.Time {
			return nil, &event.OtherHistory{Position: tail.End}
		}
	} else {
		t, err := n.view().frameEndingAt(tail.End, l.cluster)
		if err != nil {
			return nil, err
		}
		if t == nil || t.Chain != tail.Chain {
			return nil, &event.OtherHistory{Position: tail.End}
		}
	}
	names, err := l.opts.FS.List(l.opts.Dir)
	if err != nil {
		return nil, err
	}
	// Replaced files that readers still hold are among the names, and must not be in the way.
	for _, name := range names {
		if number, version, ok := chunkfile.ParseFileName(name); ok && number == c.Header.First {
			n.version = max(n.version, version+1)
		}
	}
	for _, o := range n.old {
		n.version = max(n.version, o.Version+1)
	}
	return n, nil
}

// indexReturning indexes the records of a fetched file that were removed from
// the files that it replaces, and may have been taken out of the index since. This is made durable
// before the file gets its name: the next start does not look below where the index ends.
// Entries of records that are not there read as absent, so it does no harm if the file never comes.
func (l *Log) indexReturning(n *installation) (err error) {
	if !slices.ContainsFunc(n.old, (*chunkfile.Chunk).Rewritten) {
		return nil
	}
	defer chunkfile.GuardFaults(&err)()
	end := l.appender.tail
	var batch []index.Entry
	var found [4]index.Entry
	added := false
	for _, o := range n.old {
		if !o.Rewritten() {
			continue
		}
		cu := cursor{v: n.view()}
		if err := cu.seekForward(o.Start()); err != nil {
			return err
		}
		for {
			it, position, err := cu.next()
			if err != nil {
				return err
			}
			more := it != nil && position < min(end.End, chunkfile.ChunkStart(o.Header.Last+1))
			if more && it.IsRecord() {
				e := index.Entry{Hash: chunkfile.HashStream(chunkfile.String(it.Stream())), Number: it.Number(), Position: position}
				if !slices.Contains(l.index.Get(found[:0], e.Hash, e.Number), e) {
					batch = append(batch, e)
				}
			}
			if len(batch) == indexBatch || !more && len(batch) > 0 {
				if err := l.index.Add(batch, end.End, end.Chain); err != nil {
					return err
				}
				batch, added = batch[:0], true
			}
			if !more {
				break
			}
		}
	}
	if !added {
		return nil
	}
	return l.index.Flush()
}

func (l *Log) removeScavengeState() error {
	fsys, path := l.opts.FS, filepath.Join(l.opts.IndexDir, scavengeFolder)
	if _, err := fsys.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := fsys.RemoveAll(path); err != nil {
		return err
	}
	return fsys.SyncDir(l.opts.IndexDir)
}

// install does what cannot be taken back.
func (p *PreparedChunk) install(n *installation) error {
	l, a, c := p.l, &p.l.appender, p.c
	if len(n.old) == 0 && a.active != nil {
		// Its footer is durable before the file has its name. Without it the next
		// start would take the chunk for the active one, and find a file behind the end of the log.
		if err := l.completeActive(false); err != nil {
			return err
		}
		if err := l.Sync(); err != nil {
			return err
		}
		// Only the new reader's side of the chunk knows where its data end.
		n.set.release()
		l.setMu.Lock()
		n.set = newChunkSet(append(slices.Clone(l.chunks), c), l.closeFailed)
		l.setMu.Unlock()
	}
	name := filepath.Join(l.opts.Dir, chunkfile.FileName(c.Header.First, n.version))
	p.made = false // Under that name, or perhaps under it, it must not go.
	if err := l.opts.FS.Rename(p.path, name); err != nil {
		return err
	}
	// From here on the next start uses the file: it is whole and durable, so that
	// its checksum is right however little of it writer.chk covers, and it hides what it replaces.
	if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil {
		return err
	}
	c.Name, c.Version = name, n.version
	if err := l.dropActive(); err != nil {
		return err
	}
	if err := l.chk.Chaser.Put(n.tail.End); err != nil {
		return err
	}
	// In the order of a commit: what readers find is in the index and in the memory of ids.
	epoch, err := l.learn(n.view(), a.tail, a.epoch)
	if err != nil {
		return err
	}
	a.tail, a.epoch = n.tail, epoch
	for _, o := range n.old {
		o.Obsolete.Store(true)
	}
	l.setMu.Lock()
	l.chunks = append(slices.Clone(l.chunks[:n.at]), c)
	l.chunksChanged = true
	replaced := l.publishLocked(n.tail, epoch)
	l.setMu.Unlock()
	p.c = nil // The list holds it now.
	if p.fetched != "" {
		if err := l.opts.FS.Remove(p.fetched); err != nil { // It goes at the next start.
			l.logger.Warn("removing a fetched file of which a part is in use", "error", err)
		}
	}
	replaced.release()
	for _, o := range n.old {
		if err := o.Release(); err != nil {
			l.closeFailed(err)
		}
	}
	l.streams.reset()
	l.notify.wakeAll()
	l.metrics.commits.Inc()
	l.logger.Info("chunk fetched from another node is in use", "file", filepath.Base(name), "end", n.tail.End)
	return nil
}

// dropActive lets go of the active chunk, if there is one: its file is replaced.
func (l *Log) dropActive() error {
	a := &l.appender
	if a.active == nil {
		return nil
	}
	// A sync under way uses the file.
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.dirty.mu.Lock()
	l.dirty.active = nil
	l.dirty.mu.Unlock()
	file := a.active.file
	a.active = nil
	return file.Close()
}

// learn adds what lies behind a tail to the index and to the memory of event
// ids. It returns where the newest term begins.
func (l *Log) learn(v view, tail event.Tail, epoch int64) (_ int64, err error) {
	defer chunkfile.GuardFaults(&err)()
	cu := cursor{v: v}
	if err := cu.seekForward(tail.End); err != nil {
		return 0, err
	}
	entries := make([]index.Entry, 0, indexBatch)
	ids := make([]recentID, 0, indexBatch)
	term, upTo, chain, bytes := tail.Term, tail.End, tail.Chain, 0
	for more := true; more; {
		it, position, err := cu.next()
		if err != nil {
			return 0, err
		}
		bytes += len(it)
		switch {
		case it == nil:
			more, upTo, chain = false, v.tail.End, v.tail.Chain
		case it.IsRecord():
			e := index.Entry{Hash: it.StreamHash(), Number: it.Number(), Position: position}
			entries = append(entries, e)
			ids = append(ids, recentID{id: it.Id(), stream: e.Hash, number: e.Number})
		case it.IsStub():
			ids = append(ids, recentID{id: it.Id(), stream: it.StreamHash(), number: it.Number()})
		default:
			t := it.Trailer()
			upTo, chain = t.End(), t.Chain
			if t.Term > term {
				term, epoch = t.Term, t.First
			}
		}
		if more && (!it.IsTrailer() || len(ids) < indexBatch) {
			continue // Only the end of a frame is a place to stop at.
		}
		if err := l.index.Add(entries, upTo, chain); err != nil {
			return 0, fmt.Errorf("index: %w", err)
		}
		l.ids.add(ids)
		l.metrics.writtenEvents.Add(uint64(len(entries)))
		l.metrics.writtenBytes.Add(uint64(bytes))
		bytes = 0
		entries, ids = entries[:0], ids[:0]
	}
	return epoch, nil
}
