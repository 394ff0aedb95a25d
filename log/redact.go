package eventlog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// EventPosition says where an event lies in the files of this node.
type EventPosition struct {
	Position int64
	File     string // of the chunk, in the folder of the log
	Format   int    // of the chunk file
	Complete bool   // no frame will be added to the file: Rewrite takes it
	First    int    // logical chunks that the file covers
	Last     int
	Offset   int64 // of the record in the file, bytes
	ID       event.ID
	Type     string
	Redacted bool
	IsBare   bool // nothing is left of its metadata
}

// EventPositions finds an event by the index and the log alone: whatever metadata or a
// tombstone hides is found as long as it is there. None means that there is no such event.
func (cs *Chunks) EventPositions(stream string, number int64) (found []EventPosition, err error) {
	err = cs.read(func(v view) error {
		var buf [4]index.Entry
		var scratch []byte
		entries, err := cs.index.Get(buf[:0], chunkfile.HashStream(stream), number)
		if err != nil {
			return err
		}
		for _, e := range entries {
			it, err := cs.reads.confirm(v, e, stream, &scratch)
			if err != nil {
				return err
			}
			if it == nil {
				continue
			}
			c := v.set.at(e.Position)
			p := EventPosition{
				Position: e.Position, File: filepath.Base(c.Name), Format: int(chunkfile.FileVersion(c.Header.Mapped)), Complete: c.Settled(v.tail.End),
				First: c.Header.First, Last: c.Header.Last,
				ID: it.Id(), Type: string(it.EventType()), Redacted: event.Flags(it.Flags())&event.FlagRedacted != 0, IsBare: isBlank(it.Metadata()),
			}
			if p.Offset, _, err = c.Find(e.Position, &scratch); err != nil {
				return err
			}
			found = append(found, p)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("event %d@%s: %w", number, stream, err)
	}
	return found, nil
}

// blanks are the positions of records to blank, rising.
type blanks struct {
	data     []int64
	metadata []int64 // those of them whose metadata go, too
}

// add adds a redaction that is not before the others. A record may come twice.
func (b *blanks) add(r Redaction) {
	b.data = append(b.data, r.Position)
	if r.Metadata {
		b.metadata = append(b.metadata, r.Position)
	}
}

// redactor blanks chosen records on their way into another file.
type redactor struct {
	blanks   // still to come
	redacted []byte
}

// next reports whether a position is in a rising list, and returns what follows.
func next(list []int64, position int64) (bool, []int64) {
	for len(list) > 0 && list[0] < position {
		list = list[1:]
	}
	return len(list) > 0 && list[0] == position, list
}

// isBlank reports whether nothing is left of what was redacted.
func isBlank(b []byte) bool { return len(bytes.TrimLeft(b, "\xff")) == 0 }

func blank(b []byte) {
	for i := range b {
		b[i] = 0xFF
	}
}

// item returns the blanked record in place of one that was chosen and is not blank
// yet, nil for every other. It is overwritten by the next call.
func (r *redactor) item(it chunkfile.Item, position int64) chunkfile.Item {
	var chosen, metadata bool
	chosen, r.data = next(r.data, position)
	metadata, r.metadata = next(r.metadata, position)
	if !chosen || isRedacted(it, metadata) {
		return nil
	}
	r.redacted = append(r.redacted[:0], it...)
	b := chunkfile.Item(r.redacted)
	chunkfile.Order.PutUint16(b[6:], it.Flags()|uint16(event.FlagRedacted))
	blank(b.Data())
	if metadata {
		blank(b.Metadata())
	}
	r.redacted = chunkfile.CloseItem(r.redacted[:len(it)-chunkfile.ItemFoot], 0, len(it))
	return chunkfile.Item(r.redacted)
}

// isRedacted reports whether a record is blank already; with metadata, its metadata, too.
func isRedacted(it chunkfile.Item, metadata bool) bool {
	return event.Flags(it.Flags())&event.FlagRedacted != 0 && (!metadata || isBlank(it.Metadata()))
}

// redactionsIn returns the events in a file that this node redacted and that are whole there. more
// are redacted events that are not in the node's list.
func (cs *Chunks) redactionsIn(c *chunkfile.Chunk, more ...Redaction) (found blanks, err error) {
	var all []Redaction
	if cs.opts.Redacted != nil {
		all = cs.opts.Redacted(c.Start(), c.Footer.End)
	}
	for _, r := range more {
		if r.Position >= c.Start() && r.Position < c.Footer.End {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Redaction) int { return cmp.Compare(a.Position, b.Position) })
	defer chunkfile.GuardFaults(&err)()
	var scratch []byte
	for _, r := range all {
		offset, there, err := c.Find(r.Position, &scratch)
		if err != nil {
			return found, err
		}
		if !there {
			continue // It is gone already.
		}
		it, err := c.ItemAt(offset, c.DataEnd(c.Footer.End), &scratch)
		if err != nil {
			return found, err
		}
		if it.IsRecord() && it.Position() == r.Position && it.Number() == r.Number && it.StreamHash() == r.Stream && !isRedacted(it, r.Metadata) {
			found.add(r)
		}
	}
	return found, nil
}

// Reasons why a file is not put in the place of a chunk, as the tools that redact know them.
const (
	SwitchTargetNameInvalid  = "TargetChunkFileNameInvalid"
	SwitchTargetNotFound     = "TargetChunkFileNotFound"
	SwitchTargetExcessive    = "TargetChunkExcessive"
	SwitchTargetInactive     = "TargetChunkInactive"
	SwitchTargetNotCompleted = "TargetChunkNotCompleted"
	SwitchNewNameInvalid     = "NewChunkFileNameInvalid"
	SwitchNewNotFound        = "NewChunkFileNotFound"
	SwitchNewOpenFailed      = "NewChunkOpenFailed"
	SwitchNewHeaderOrFooter  = "NewChunkHeaderOrFooterInvalid"
	SwitchNewNotCompleted    = "NewChunkNotCompleted"
	SwitchNewHashInvalid     = "NewChunkHashInvalid"
	SwitchRangeDoesNotMatch  = "ChunkRangeDoesNotMatch"
	SwitchRecordsDoNotMatch  = "NewChunkRecordsDoNotMatch"
	SwitchUnexpected         = "UnexpectedError"
)

var errOtherRecords = errors.New("the records of the new file do not stand where those of the present one do")

// SwitchRefused says why a file was not put in the place of a chunk. Nothing has changed.
type SwitchRefused struct {
	Reason string // one of the constants
	Err    error  // more of it, may be nil
}

func (e *SwitchRefused) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}

func (e *SwitchRefused) Unwrap() error { return e.Err }

// SwitchFile puts a chunk file that a tool made in the log's folder in the place of one that is in
// use, target. Refusals are of type SwitchRefused; their order is part of what tools rely on. The
// new file must hold the same events at the same positions, with the same sizes.
func (cs *Chunks) SwitchFile(target, tmp string) error {
	cs.jobs.RLock() // Close waits for it.
	defer cs.jobs.RUnlock()
	if err := cs.usable(); err != nil {
		return err
	}
	old, err := cs.switchTarget(target, tmp)
	if err != nil {
		return err
	}
	defer func() { cs.closeFailed(old.Release()) }()
	if err := cs.checkSwitch(old, filepath.Join(cs.opts.Dir, tmp)); err != nil {
		return err
	}
	if _, err := cs.switchChunk(tmp, []*chunkfile.Chunk{old}); err != nil {
		if cs.Failed() != nil {
			return err
		}
		return &SwitchRefused{SwitchUnexpected, err}
	}
	return nil
}

// switchTarget checks both names and returns the chunk of the first one, held.
func (cs *Chunks) switchTarget(target, tmp string) (*chunkfile.Chunk, error) {
	bad := func(name string) bool {
		return name == "" || bytes.ContainsAny([]byte(name), `/\`) || bytes.Contains([]byte(name), []byte(".."))
	}
	number, _, isChunk := chunkfile.ParseFileName(target)
	v, err := cs.view()
	if err != nil {
		return nil, err
	}
	defer v.release()
	fsys, dir := cs.opts.FS, cs.opts.Dir
	switch {
	case bad(target):
		return nil, &SwitchRefused{Reason: SwitchTargetNameInvalid}
	case bad(tmp):
		return nil, &SwitchRefused{Reason: SwitchNewNameInvalid}
	case !isChunk:
		return nil, &SwitchRefused{Reason: SwitchTargetNameInvalid}
	case !isTemp(tmp):
		return nil, &SwitchRefused{Reason: SwitchNewNameInvalid}
	}
	if _, err := fsys.Stat(filepath.Join(dir, target)); err != nil {
		return nil, &SwitchRefused{SwitchTargetNotFound, err}
	}
	if _, err := fsys.Stat(filepath.Join(dir, tmp)); err != nil {
		return nil, &SwitchRefused{SwitchNewNotFound, err}
	}
	c := v.set.at(chunkfile.ChunkStart(number))
	switch {
	case c == nil:
		return nil, &SwitchRefused{Reason: SwitchTargetExcessive}
	case filepath.Base(c.Name) != target:
		return nil, &SwitchRefused{Reason: SwitchTargetInactive}
	case !c.Settled(v.tail.End):
		return nil, &SwitchRefused{Reason: SwitchTargetNotCompleted}
	}
	c.Retain()
	return c, nil
}

// checkSwitch compares a new file with the chunk that it is to replace.
func (cs *Chunks) checkSwitch(old *chunkfile.Chunk, path string) (err error) {
	c, err := chunkfile.Open(cs.opts.FS, path, 0)
	switch {
	case event.IsCorruption(err) || errors.Is(err, chunkfile.ErrNewer):
		return &SwitchRefused{SwitchNewHeaderOrFooter, err}
	case err != nil:
		return &SwitchRefused{SwitchNewOpenFailed, err}
	}
	c.Retain()
	defer func() { err = errors.Join(err, c.Release()) }()
	switch {
	case c.Header.First != old.Header.First || c.Header.Last != old.Header.Last:
		return &SwitchRefused{Reason: SwitchRangeDoesNotMatch}
	case !c.Complete:
		return &SwitchRefused{Reason: SwitchNewNotCompleted}
	}
	sum, err := c.ComputeChecksum(func(b []byte, at int64) error { return vfs.ReadFull(c.File, b, at) })
	switch {
	case err != nil:
		return &SwitchRefused{SwitchNewOpenFailed, err}
	case sum != c.Footer.Checksum:
		return &SwitchRefused{Reason: SwitchNewHashInvalid}
	}
	// It was made by another process: what the switch relies on is made sure of here.
	if err := chunkfile.Sync(cs.opts.FS, path); err != nil {
		return &SwitchRefused{SwitchUnexpected, err}
	}
	if err := c.Use(); err != nil {
		return &SwitchRefused{SwitchUnexpected, err}
	}
	if _, err := c.CheckContent(); err != nil {
		return &SwitchRefused{SwitchRecordsDoNotMatch, err}
	}
	if err := sameRecords(old, c); err != nil {
		return &SwitchRefused{SwitchRecordsDoNotMatch, err}
	}
	return nil
}

// sameRecords compares two files item by item: all must be the same but for the
// data of records that are redacted in the second one.
func sameRecords(old, c *chunkfile.Chunk) (err error) {
	defer chunkfile.GuardFaults(&err)()
	a := chunkfile.ItemReader{C: old, Offset: chunkfile.HeaderSize, Limit: chunkfile.HeaderSize + old.Footer.DataSize}
	b := chunkfile.ItemReader{C: c, Offset: chunkfile.HeaderSize, Limit: chunkfile.HeaderSize + c.Footer.DataSize}
	var blank redactor
	for {
		x, at, err := a.Next()
		if err != nil {
			return err
		}
		y, bt, err := b.Next()
		if err != nil {
			return err
		}
		if x == nil && y == nil {
			return nil
		}
		if x == nil || y == nil || at != bt || len(x) != len(y) {
			return errOtherRecords
		}
		if bytes.Equal(x, y) {
			continue
		}
		if !x.IsRecord() {
			return errOtherRecords
		}
		blank.data = []int64{at}
		if z := blank.item(x, at); z == nil || !bytes.Equal(z, y) {
			return fmt.Errorf("the record at position %d differs in more than its blanked data", at)
		}
	}
}
