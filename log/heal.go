package eventlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// ChunkFiles describes the complete files that cover a range of logical chunks, for a node of
// which the file is damaged. None are returned when this log does not have all of the
// range in files that take no more frames, or knows one of them to be damaged.
func (tr *Transfer) ChunkFiles(first, last int) ([]ChunkFile, error) {
	v, err := tr.view()
	if err != nil {
		return nil, err
	}
	defer v.release()
	if first < 0 || last < first || last >= len(v.set.byNumber) {
		return nil, nil
	}
	found := v.covering(first, last)
	var files []ChunkFile
	damaged := tr.health.Damaged()
	for _, c := range found {
		if slices.ContainsFunc(damaged, func(d Damage) bool { return d.File == filepath.Base(c.Name) }) {
			files = nil
			break
		}
		files = append(files, *describe(c))
	}
	return files, chunkfile.ReleaseAll(found)
}

// OpenChunkFile gives a complete file to read that ChunkFiles described; fs.ErrNotExist says that
// it was replaced meanwhile. With verified the file was compared with its checksum before. It must
// be closed.
func (tr *Transfer) OpenChunkFile(first int, checksum [16]byte, verified bool) (*Continuation, error) {
	v, err := tr.view()
	if err != nil {
		return nil, err
	}
	defer v.release()
	if first < 0 || first >= len(v.set.byNumber) {
		return nil, fmt.Errorf("chunk %d: %w", first, fs.ErrNotExist)
	}
	c := v.set.at(chunkfile.ChunkStart(first))
	if c.Header.First != first || !c.Settled(v.tail.End) || c.Footer.Checksum != checksum {
		return nil, fmt.Errorf("chunk %d with this checksum: %w", first, fs.ErrNotExist)
	}
	if verified {
		whole, err := tr.health.examine(c, func(int64) error { return tr.lifetime.Err() })
		if err != nil {
			return nil, err
		}
		if !whole {
			return nil, &event.Corruption{File: c.Name, Offset: -1, Detail: "it is not what was written"}
		}
	}
	c.Retain()
	return &Continuation{chunks: []*chunkfile.Chunk{c}, end: v.tail.End, file: describe(c)}, nil
}

// Heal replaces a damaged file with data from other nodes. fetched are the names of temporary files
// that cover its chunks one after the other; they are gone afterwards. turn runs a function while
// nothing is appended.
//
// The files are verified, must end at the end of the damaged one with the same chain, and are
// blanked where this node redacted. Nodes may have merged differently: if the files do not cover
// exactly the same chunks, one file is made that does. Records that were removed here and come back
// are indexed. A crash leaves the damaged file or the new one in use.
func (tr *Transfer) Heal(d Damage, fetched []string, turn func(func() error) error) (err error) {
	tr.chunks.jobs.RLock() // Close waits for it.
	defer tr.chunks.jobs.RUnlock()
	if err := tr.usable(); err != nil {
		return err
	}
	h := healing{tr: tr}
	for _, name := range fetched {
		path, err := tr.tempPath(name)
		if err != nil {
			return err
		}
		h.temps = append(h.temps, path)
	}
	defer func() { err = errors.Join(err, h.close()) }()
	old, err := tr.damaged(d)
	if err != nil {
		return fmt.Errorf("heal %s: %w", d.File, err)
	}
	defer func() { err = errors.Join(err, old.Release()) }()
	if err := h.make(old.Header.First, old.Header.Last, blankIn(old)...); err != nil {
		return fmt.Errorf("heal %s: %w", d.File, err)
	}
	if err := tr.replace(old, &h, turn); err != nil {
		return fmt.Errorf("heal %s: %w", d.File, err)
	}
	tr.logger.Info("a damaged chunk was replaced with the copy of another node", logkey.File, d.File, logkey.Events, h.made.Footer.Records, "returning", len(h.returning.entries))
	if h.blank > 0 {
		tr.logger.Warn("the copy of a damaged chunk lacks the data of events that the other node has redacted", logkey.File, d.File, logkey.Events, h.blank)
	}
	if tr.reads.ids.reload() {
		tr.reads.loadRecentIDs(tr.lifetime)
	}
	return nil
}

// damaged returns a damaged file, held, if it is still in use.
func (tr *Transfer) damaged(d Damage) (*chunkfile.Chunk, error) {
	olds, err := tr.chunks.sources(d.First, d.Last)
	if err == nil && (len(olds) != 1 || filepath.Base(olds[0].Name) != d.File) {
		err = errors.Join(event.ErrChunkReplaced, chunkfile.ReleaseAll(olds))
	}
	if err != nil {
		return nil, err
	}
	return olds[0], nil
}

// replace puts a file that was made in the place of a damaged one.
func (tr *Transfer) replace(old *chunkfile.Chunk, h *healing, turn func(func() error) error) error {
	tr.bringing.Lock()
	defer tr.bringing.Unlock()
	defer tr.postings.Hold()()
	if err := tr.findReturning(old, h); err != nil {
		return err
	}
	// Durable before the file gets its name: the next start does not look below where the index
	// ends. Entries of records that are not there read as absent, so it does no harm if the file
	// never comes.
	if !h.returning.isEmpty() {
		if err := turn(func() error { return tr.addReturning(&h.returning, true) }); err != nil {
			return fmt.Errorf("index: %w", err)
		}
	}
	if old.Rewritten() && !h.ownItems {
		if err := tr.removeScavengeState(); err != nil {
			return err
		}
	}
	_, err := tr.chunks.switchChunk(filepath.Base(h.made.Name), []*chunkfile.Chunk{old})
	return err
}

// findReturning finds what the index lacks of a new file, and how many events are blank in it that
// were not redacted here.
func (tr *Transfer) findReturning(old *chunkfile.Chunk, h *healing) (err error) {
	defer chunkfile.GuardFaults(&err)()
	own := map[int64]bool{}
	if tr.opts.Redacted != nil {
		for _, r := range tr.opts.Redacted(old.Start(), old.Footer.End) {
			own[r.Position] = true
		}
	}
	c := h.made
	in := chunkfile.ItemReader{C: c, Offset: chunkfile.HeaderSize, Limit: chunkfile.HeaderSize + c.Footer.DataSize}
	for {
		it, position, err := in.Next()
		if err != nil || it == nil {
			return err
		}
		if !it.IsRecord() {
			continue
		}
		if event.Flags(it.Flags())&event.FlagRedacted != 0 && !own[position] {
			h.blank++
		}
		if !old.Rewritten() {
			continue // The index has all that was ever there.
		}
		if err := tr.noteReturning(&h.returning, it, position); err != nil {
			return err
		}
	}
}

// returning is what the index lacks of records that come back into files, and their postings.
type returning struct {
	entries []index.Entry
	poster  poster // of those of which an index lacks something
}

func (r *returning) isEmpty() bool { return len(r.entries)+len(r.poster.batch.Entries) == 0 }

// noteReturning notes what the index, and that of postings, lack of a record. One may have what the
// other has not: postings of a part may have been read from the log when the record was gone.
func (s *state) noteReturning(r *returning, it chunkfile.Item, position int64) error {
	var room [4]index.Entry
	e := index.Entry{Hash: it.StreamHash(), Number: it.Number(), Position: position}
	found, err := s.index.Get(room[:0], e.Hash, e.Number)
	if err != nil {
		return err
	}
	if !slices.Contains(found, e) {
		r.entries = append(r.entries, e)
	}
	r.poster.malformed = s.metrics.malformedTags
	lacking, err := s.postings.Lacking(r.poster.read(it), position)
	r.poster.batch.Add(lacking, position)
	return err
}

// addReturning hands over what was noted; with durably, it and what came before survive a power cut
// afterwards.
func (tr *Transfer) addReturning(r *returning, durably bool) error {
	tail := tr.appender.tail
	err := errors.Join(tr.index.Add(r.entries, tail.End, tail.Chain), tr.postings.Bring(&r.poster.batch))
	if durably && err == nil {
		err = errors.Join(tr.index.Flush(), tr.postings.Flush(-1))
	}
	r.entries = r.entries[:0]
	r.poster.batch.Reset(nil)
	return err
}

// healing makes one chunk file out of those that another node has of its range.
type healing struct {
	tr    *Transfer
	temps []string           // paths of files that go at the end
	parts []*chunkfile.Chunk // the fetched files, held
	made  *chunkfile.Chunk   // the file to use: one of parts, or held as well
	own   bool               // made is held apart from parts

	ownItems  bool // nothing in made comes from another node
	returning returning
	blank     int
}

// blankIn are the redacted events that a damaged file still names: its list of redactions may be
// lost.
func blankIn(c *chunkfile.Chunk) (list []Redaction) {
	if !c.Rewritten() {
		return nil
	}
	s := salvaging(c, c.Footer.End)
	for it, position, _ := s.next(); it != nil; it, position, _ = s.next() {
		if it.IsRecord() && event.Flags(it.Flags())&event.FlagRedacted != 0 {
			list = append(list, Redaction{Position: position, Stream: it.StreamHash(), Number: it.Number(), Metadata: isBlank(it.Metadata())})
		}
	}
	return list
}

// make verifies the fetched files and makes the file of a range. What is redacted here is blank in
// it.
func (h *healing) make(first, last int, redacted ...Redaction) error {
	for _, path := range h.temps {
		c, _, err := h.tr.openFetched(path)
		if err != nil {
			return err
		}
		h.parts = append(h.parts, c)
	}
	next := first
	var redact blanks
	for _, c := range h.parts {
		if c.Header.First > next || c.Header.Last < next {
			return fmt.Errorf("a file of chunks %d to %d was fetched, chunk %d is needed", c.Header.First, c.Header.Last, next)
		}
		next = c.Header.Last + 1
		found, err := h.tr.chunks.redactionsIn(c, redacted...)
		if err != nil {
			return err
		}
		redact.data, redact.metadata = append(redact.data, found.data...), append(redact.metadata, found.metadata...)
	}
	if next <= last {
		return fmt.Errorf("nothing was fetched of the chunks %d to %d", next, last)
	}
	if c := h.parts[0]; len(h.parts) == 1 && c.Header.First == first && c.Header.Last == last && len(redact.data) == 0 {
		h.made = c
		return nil
	}
	c, _, err := h.tr.madeOf(h.parts, first, last, redact)
	if err != nil {
		return err
	}
	h.temps = append(h.temps, c.Name)
	h.made, h.own = c, true
	return nil
}

// madeOf makes one file of what verified files have of a range of chunks, with some records
// blanked. The new file is durable, verified and held.
func (tr *Transfer) madeOf(parts []*chunkfile.Chunk, first, last int, redact blanks) (_ *chunkfile.Chunk, _ chunkfile.Trailer, err error) {
	path := filepath.Join(tr.opts.Dir, uuid.NewString()+vfs.TempSuffix)
	defer vfs.Undo(&err, func() error { return vfs.RemoveIfThere(tr.opts.FS, path) })
	r := Rewrite{First: first, Last: last, Redact: redact.data, RedactMetadata: redact.metadata}
	if err := tr.chunks.writeSurvivors(context.Background(), &r, parts, path, new(Rewritten)); err != nil {
		return nil, chunkfile.Trailer{}, err
	}
	return tr.openFetched(path)
}

// close lets go of the files and removes those that are not in use.
func (h *healing) close() (err error) {
	if h.own {
		err = h.made.Release()
	}
	err = errors.Join(err, chunkfile.ReleaseAll(h.parts))
	for _, path := range h.temps {
		err = errors.Join(err, vfs.RemoveIfThere(h.tr.opts.FS, path))
	}
	return err
}
