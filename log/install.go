package eventlog

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// Install makes the file a part of the log and its new end. It replaces every file that it overlaps
// as a whole, also the active one. If the file begins inside a file of this log, Install takes only
// the part after that file. Only the goroutine that appends may call it.
//
// The file must contain the end of this log, with its chain, or begin right after it: else the
// error is an event.OtherHistory, or event.ErrDataMissing for a gap. It must not end before the log
// does. A refusal changes nothing. From the rename on an error is final, as with Append. A crash
// leaves the log as it was before, or with the file in its place.
//
// If the file begins right after the log's end, the file itself does not prove that it continues
// this history, only that its first frame has its place there: records of that frame may be gone.
// So it must be what Continue answered for that end.
func (p *PreparedChunk) Install() error {
	tr := p.tr
	if p.c == nil {
		return event.ErrClosed
	}
	if err := tr.appender.Commit(); err != nil {
		return err
	}
	tr.chunks.switchMu.Lock()
	defer tr.chunks.switchMu.Unlock()
	// The start looks for the file after the durable end, so a power failure must not cut anything
	// before it.
	if err := tr.syncer.Sync(); err != nil {
		return err
	}
	defer tr.postings.Hold()()
	var n *installation
	err := p.fit() // Files of this log may have been merged since PrepareChunk, now they cannot.
	if err == nil {
		n, err = tr.planInstall(p.c, &p.first)
	}
	if err == nil {
		err = tr.indexReturning(n)
	}
	if err == nil {
		err = tr.removeScavengeState()
	}
	if err != nil {
		n.release()
		return fmt.Errorf("install chunk: %w", err)
	}
	err = p.install(n)
	n.release()
	if err != nil {
		return tr.fail(fmt.Errorf("install chunk: %w", err))
	}
	return tr.syncer.Sync()
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
func (tr *Transfer) planInstall(c *chunkfile.Chunk, first *chunkfile.Trailer) (_ *installation, err error) {
	f, tail := &c.Footer, tr.appender.tail
	tr.setMu.Lock()
	chunks := slices.Clone(tr.files)
	tr.setMu.Unlock()
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
	case at < len(chunks) && chunks[at].Header.First < c.Header.First:
		// fit saw to it, but this would lose events.
		panic(fmt.Sprintf("a file from chunk %d on would replace a part of %s", c.Header.First, chunks[at].Name))
	case f.LogEnd() < tail.End:
		return nil, fmt.Errorf("the log ends at %d, the file at %d already", tail.End, f.LogEnd())
	case f.LastIndex < tail.Index || f.LastTerm < tail.Term || f.LastTime < tail.Time:
		return nil, &event.OtherHistory{Position: tail.End}
	}
	n := &installation{
		c: c, at: at, old: chunks[at:], version: 1,
		tail: f.Tail(), set: newChunkSet(append(slices.Clone(chunks[:at]), c), tr.closeFailed),
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
		t, err := n.view().frameEndingAt(tail.End, tr.cluster)
		if err != nil {
			return nil, err
		}
		if t == nil || t.Chain != tail.Chain {
			return nil, &event.OtherHistory{Position: tail.End}
		}
	}
	names, err := tr.opts.FS.List(tr.opts.Dir)
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
func (tr *Transfer) indexReturning(n *installation) (err error) {
	if !slices.ContainsFunc(n.old, (*chunkfile.Chunk).Rewritten) {
		return nil
	}
	defer chunkfile.GuardFaults(&err)()
	end := tr.appender.tail
	var lacking returning
	added := false
	for _, o := range n.old {
		if !o.Rewritten() {
			continue
		}
		for it, position := range n.view().forward(o.Start(), &err) {
			if position >= min(end.End, chunkfile.ChunkStart(o.Header.Last+1)) {
				break
			}
			if it.IsRecord() {
				if err := tr.noteReturning(&lacking, it, position); err != nil {
					return err
				}
			}
			if len(lacking.entries)+len(lacking.poster.batch.Entries) >= indexBatch {
				if err := tr.addReturning(&lacking, false); err != nil {
					return err
				}
				added = true
			}
		}
		if err != nil {
			return err
		}
	}
	if lacking.isEmpty() && !added {
		return nil
	}
	return tr.addReturning(&lacking, true)
}

// install does what cannot be taken back.
func (p *PreparedChunk) install(n *installation) error {
	tr, a, c := p.tr, p.tr.appender, p.c
	if len(n.old) == 0 && a.active != nil {
		// Its footer is durable before the file has its name. Without the footer the next start
		// would take the chunk for the active one, and find a file after the end of the log.
		if err := tr.appender.completeActive(false); err != nil {
			return err
		}
		if err := tr.syncer.Sync(); err != nil {
			return err
		}
		// Only the new reader's side of the chunk knows where its data end.
		n.set.release()
		tr.setMu.Lock()
		n.set = newChunkSet(append(slices.Clone(tr.files), c), tr.closeFailed)
		tr.setMu.Unlock()
	}
	name := filepath.Join(tr.opts.Dir, chunkfile.FileName(c.Header.First, n.version))
	p.made = false // Under that name, or perhaps under it, it must not go.
	if err := tr.opts.FS.Rename(p.path, name); err != nil {
		return err
	}
	// From here on the next start uses the file: it is whole and durable, so that
	// its checksum is right however little of it writer.chk covers, and it hides what it replaces.
	if err := tr.opts.FS.SyncDir(tr.opts.Dir); err != nil {
		return err
	}
	c.Name, c.Version = name, n.version
	if err := tr.appender.dropActive(); err != nil {
		return err
	}
	if err := tr.syncer.chk.Chaser.Put(n.tail.End); err != nil {
		return err
	}
	// In the order of a commit: what readers find is in the index and in the memory of ids.
	epoch, err := tr.appender.learn(n.view(), a.tail, a.epoch)
	if err != nil {
		return err
	}
	a.tail, a.epoch = n.tail, epoch
	for _, o := range n.old {
		o.Obsolete.Store(true)
	}
	tr.setMu.Lock()
	tr.files = append(slices.Clone(tr.files[:n.at]), c)
	tr.filesChanged = true
	replaced := tr.publishLocked(n.tail, epoch)
	tr.setMu.Unlock()
	p.c = nil // The list holds it now.
	if p.fetched != "" {
		if err := tr.opts.FS.Remove(p.fetched); err != nil { // It goes at the next start.
			tr.logger.Warn("a fetched file cannot be removed, the next start removes it", logkey.Error, err)
		}
	}
	replaced.release()
	for _, o := range n.old {
		if err := o.Release(); err != nil {
			tr.closeFailed(err)
		}
	}
	tr.reads.streams.reset()
	tr.reads.notify.wakeAll()
	tr.metrics.commits.Inc()
	tr.logger.Info("chunk fetched from another node is in use", logkey.File, filepath.Base(name), logkey.End, n.tail.End)
	return nil
}

// dropActive lets go of the active chunk, if there is one: its file is replaced.
func (a *appender) dropActive() error {
	if a.active == nil {
		return nil
	}
	// A running sync uses the file.
	a.syncer.syncMu.Lock()
	defer a.syncer.syncMu.Unlock()
	a.syncer.dirty.mu.Lock()
	a.syncer.dirty.active = nil
	a.syncer.dirty.mu.Unlock()
	file := a.active.file
	a.active = nil
	return file.Close()
}

// learn adds the records after a tail to the index and to the memory of event ids. It returns where
// the newest term begins.
func (a *appender) learn(v view, tail event.Tail, epoch int64) (_ int64, err error) {
	defer chunkfile.GuardFaults(&err)()
	entries := make([]index.Entry, 0, indexBatch)
	ids := make([]recentID, 0, indexBatch)
	term, bytes := tail.Term, 0
	err = v.batches(tail.End, v.tail.End, func(it chunkfile.Item, position int64) {
		bytes += len(it)
		if it.IsTrailer() {
			if t := it.Trailer(); t.Term > term {
				term, epoch = t.Term, t.First
			}
			return
		}
		id := recentID{id: it.Id(), stream: it.StreamHash(), number: it.Number()}
		ids = append(ids, id)
		if it.IsRecord() {
			entries = append(entries, index.Entry{Hash: id.stream, Number: id.number, Position: position})
			a.reads.withdrawn.note(it)
		}
	}, func(upTo int64, chain event.Chain) error {
		if err := a.index.Add(entries, upTo, chain); err != nil {
			return fmt.Errorf("index: %w", err)
		}
		a.reads.ids.add(ids)
		a.metrics.writtenEvents.Add(uint64(len(entries)))
		a.metrics.writtenBytes.Add(uint64(bytes))
		bytes = 0
		entries, ids = entries[:0], ids[:0]
		return nil
	})
	return epoch, err
}
