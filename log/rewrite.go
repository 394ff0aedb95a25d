package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

const (
	// scavengeSuffix ends the names of the files that Rewrite makes.
	scavengeSuffix = ".scavenge" + vfs.TempSuffix

	// paceBytes is how much is read between two calls of Rewrite.Pace.
	paceBytes = 4 << 20

	// yieldEvery is how many items are copied between two occasions for everything else.
	yieldEvery = 256

	// maxRewrittenData bounds the data of a rewritten file: the position map has offsets of four
	// bytes.
	maxRewrittenData = math.MaxUint32 - chunkfile.HeaderSize
)

// Rewrite writes the events to be kept, unchanged, and every trailer into a temporary file
// `<uuid>.scavenge.tmp`, makes it durable and puts it in the place of the files, as switchChunk
// does. Rewrites of different files may run at the same time. Whatever goes wrong before the
// switch, ctx included, which is looked at as often as by Scan, leaves the log as it was and the
// temporary file removed. If the files were replaced meanwhile that is event.ErrChunkReplaced.
func (cs *Chunks) Rewrite(ctx context.Context, r Rewrite) (done Rewritten, err error) {
	cs.jobs.RLock() // Close waits for it.
	defer cs.jobs.RUnlock()
	if err := cs.usable(); err != nil {
		return done, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(cs.lifetime, func() { cancel(event.ErrClosed) })()
	done, err = cs.rewrite(ctx, &r)
	if err == nil {
		return done, nil
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = context.Cause(ctx)
	}
	return Rewritten{}, fmt.Errorf("rewrite chunks %d to %d: %w", r.First, r.Last, err)
}

func (cs *Chunks) rewrite(ctx context.Context, r *Rewrite) (done Rewritten, err error) {
	sources, err := cs.sources(r.First, r.Last)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, chunkfile.ReleaseAll(sources)) }()
	tmp := uuid.NewString() + scavengeSuffix
	path := filepath.Join(cs.opts.Dir, tmp)
	// Never made, or switched already.
	defer vfs.Undo(&err, func() error { return vfs.RemoveIfThere(cs.opts.FS, path) })
	if err := cs.writeSurvivors(ctx, r, sources, path, &done); err != nil {
		return done, err
	}
	used := sources[:len(done.Sources)]
	done.replaced = (*replacedFiles)(&used)
	for _, c := range used {
		done.OldBytes += c.FileSize()
	}
	// The new file would be the old one, with a map.
	if len(used) == 1 && len(sources) > 1 && done.Removed+done.Redacted == 0 {
		used, done.Chunk = nil, chunkInfo(used[0], cs.pub.Load().tail.End)
		return done, vfs.RemoveIfThere(cs.opts.FS, path)
	}
	c, err := cs.switchChunk(tmp, used)
	if err != nil {
		return done, err
	}
	done.Chunk = c
	return done, nil
}

// sources returns the files that cover a range of chunks, each held.
func (cs *Chunks) sources(first, last int) ([]*chunkfile.Chunk, error) {
	v, err := cs.view()
	if err != nil {
		return nil, err
	}
	defer v.release()
	var found []*chunkfile.Chunk
	for _, c := range v.set.chunks {
		switch {
		case c.Header.Last < first || c.Header.First > last:
			continue
		case c.Header.First < first || c.Header.Last > last:
			return nil, fmt.Errorf("%w: %s covers chunks %d to %d", event.ErrChunkReplaced, filepath.Base(c.Name), c.Header.First, c.Header.Last)
		case !c.Settled(v.tail.End):
			return nil, fmt.Errorf("%s may still grow", filepath.Base(c.Name))
		}
		found = append(found, c)
	}
	if len(found) == 0 || found[0].Header.First != first || found[len(found)-1].Header.Last != last {
		return nil, errors.New("the log has no such chunks")
	}
	for _, c := range found {
		c.Retain()
	}
	return found, nil
}

// writeSurvivors writes the new file and makes it durable.
func (cs *Chunks) writeSurvivors(ctx context.Context, r *Rewrite, sources []*chunkfile.Chunk, path string, done *Rewritten) (err error) {
	h := chunkfile.Header{First: r.First, Last: r.Last, Mapped: true, FileID: event.ID(uuid.New()), Cluster: cs.cluster}
	w, err := chunkfile.Create(cs.opts.FS, path, &h, r.Reserve, cs.Yielder())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	p := rewriting{Rewrite: r, w: w, done: done, redact: redactor{blanks: blanks{r.Redact, r.RedactMetadata}}}
	begin, end := chunkfile.ChunkStart(r.First), chunkfile.ChunkStart(r.Last+1)
	for i, c := range sources {
		before, footer, mark := *done, p.footer, w.Mark()
		err := p.copy(ctx, c, begin, end)
		if errors.Is(err, errFull) && p.room > 0 {
			*done, p.footer = before, footer
			h.Last = sources[i-1].Header.Last
			if err := w.Back(mark, &h); err != nil {
				return err
			}
			break
		}
		if err != nil {
			return err
		}
		left := w.Mark().Since(mark)
		done.Sources = append(done.Sources, Source{
			First: c.Header.First, Last: c.Header.Last, Removed: done.Removed - before.Removed, Saved: c.Footer.DataSize + c.Footer.MapSize - left,
		})
		// What the next file has before it is the same.
		begin = max(begin, chunkfile.ChunkStart(c.Header.Last+1))
		p.room = r.MaxData
	}
	if err := p.pace(ctx); err != nil {
		return err
	}
	return w.Finish(&p.footer)
}

// errFull says that an item does not fit into the new file.
var errFull = errors.New("too much data for one file")

// rewriting is a running Rewrite.
type rewriting struct {
	*Rewrite
	w      *chunkfile.Writer
	done   *Rewritten
	room   int64 // for data of the new file; 0: as much as it can hold
	unpaid int64 // bytes read since Pace was called
	stub   [chunkfile.StubSize]byte
	redact redactor
	footer chunkfile.Footer // what the trailers say
}

func (p *rewriting) pace(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n := p.unpaid
	p.unpaid = 0
	if p.Pace == nil || n == 0 {
		return nil
	}
	return p.Pace(ctx, n)
}

// copy copies what is to be kept of one file, between two positions.
func (p *rewriting) copy(ctx context.Context, c *chunkfile.Chunk, begin, end int64) (err error) {
	defer chunkfile.GuardFaults(&err)()
	in := chunkfile.ItemReader{C: c, Offset: chunkfile.HeaderSize, Limit: chunkfile.HeaderSize + c.Footer.DataSize}
	var s Stored
	var last chunkfile.Trailer
	free, records, stubs, room := c.Start(), 0, 0, cmp.Or(p.room, maxRewrittenData)
	for n := 1; ; n++ {
		if n%yieldEvery == 0 {
			p.w.Yielder.GiveWay()
		}
		if n%lookEvery == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		at := in.Offset
		it, position, err := in.Next()
		if err != nil {
			return err
		}
		if it == nil || position >= end {
			break
		}
		if position < begin {
			continue
		}
		if position < free {
			return c.Corrupt(at, "position %d follows an item that ends at %d", position, free)
		}
		free = position + int64(len(it))
		if p.unpaid += int64(len(it)); p.unpaid >= paceBytes-chunkfile.ReadWindow {
			if err := p.pace(ctx); err != nil {
				return err
			}
		}
		switch {
		case it.IsTrailer():
			if last = it.Trailer(); p.footer.FirstIndex == 0 {
				p.footer.FirstIndex = last.Index
			}
		case it.IsStub():
			if stubs++; position < p.IDsFrom {
				continue
			}
			p.w.Stubs++
		default:
			records++
			if blanked := p.redact.item(it, position); blanked != nil {
				it = blanked
				p.done.Redacted++
			}
			if p.Keep == nil {
				p.w.Records++
				break
			}
			if s.set(it, position); p.Keep(&s) {
				p.w.Records++
				break
			}
			p.done.Removed++
			p.done.RemovedBytes += int64(len(it))
			if position < p.IDsFrom {
				continue
			}
			it = chunkfile.AppendStub(p.stub[:0], it)
			p.w.Stubs++
		}
		if p.w.DataSize+int64(len(it)) > room {
			return errFull
		}
		if err := p.w.Add(it, position); err != nil {
			return err
		}
	}
	if last.Length > 0 {
		f := &p.footer
		f.End, f.Chain, f.LastIndex, f.LastTerm, f.LastTime, f.LastCompletes = last.End(), last.Chain, last.Index, last.Term, last.Time, last.Completes
	}
	if c.Start() < begin || c.Footer.End > end {
		return nil
	}
	f := &c.Footer
	if records != f.Records || stubs != f.Stubs || last.End() != f.End || last.Index != f.LastIndex || last.Term != f.LastTerm || last.Chain != f.Chain || last.Completes != f.LastCompletes {
		return c.Corrupt(in.Limit+f.MapSize, "the footer does not say what stands before it")
	}
	return nil
}
