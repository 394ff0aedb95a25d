package eventlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

const (
	// scavengeSuffix ends the names of the files that Rewrite makes.
	scavengeSuffix = ".scavenge" + vfs.TempSuffix

	// paceBytes is how much is read between two calls of Rewrite.Pace.
	paceBytes = 4 << 20

	// yieldEvery is how many items are copied between two occasions for everything else.
	yieldEvery = 256

	// maxRewrittenData bounds the data of a rewritten file: the position map has offsets of four bytes.
	maxRewrittenData = math.MaxUint32 - headerSize
)

// Rewrite writes the events to be kept, unchanged, and every trailer into a temporary
// file `<uuid>.scavenge.tmp`, makes it durable and puts it in the place of the files, as switchChunk does. Rewrites
// of different files may run at the same time. Whatever goes wrong before the
// switch, ctx included, which is looked at as often as by Scan, leaves the log as it was and the temporary file removed. If the
// files were replaced meanwhile that is event.ErrChunkReplaced.
func (l *Log) Rewrite(ctx context.Context, r Rewrite) (done Rewritten, err error) {
	l.jobs.RLock() // Close waits for it.
	defer l.jobs.RUnlock()
	if err := l.usable(); err != nil {
		return done, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.lifetime, func() { cancel(event.ErrClosed) })()
	done, err = l.rewrite(ctx, &r)
	if err == nil {
		return done, nil
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = context.Cause(ctx)
	}
	return Rewritten{}, fmt.Errorf("rewrite chunks %d to %d: %w", r.First, r.Last, err)
}

func (l *Log) rewrite(ctx context.Context, r *Rewrite) (done Rewritten, err error) {
	sources, err := l.sources(r.First, r.Last)
	if err != nil {
		return done, err
	}
	defer func() {
		for _, c := range sources {
			err = errors.Join(err, c.release())
		}
	}()
	done.Files, done.replaced = len(sources), (*replacedFiles)(&sources)
	for _, c := range sources {
		done.OldBytes += c.fileSize()
	}
	tmp := uuid.NewString() + scavengeSuffix
	path := filepath.Join(l.opts.Dir, tmp)
	defer func() {
		if err != nil {
			if e := l.opts.FS.Remove(path); !errors.Is(e, fs.ErrNotExist) { // Never made, or switched already.
				err = errors.Join(err, e)
			}
		}
	}()
	if err := l.writeSurvivors(ctx, r, sources, path, &done); err != nil {
		return done, err
	}
	c, err := l.switchChunk(tmp, sources)
	if err != nil {
		return done, err
	}
	done.Chunk = c
	return done, nil
}

// sources returns the files that cover a range of chunks, each held.
func (l *Log) sources(first, last int) ([]*chunk, error) {
	v, err := l.view()
	if err != nil {
		return nil, err
	}
	defer v.release()
	var found []*chunk
	data := int64(0)
	for _, c := range v.set.chunks {
		switch {
		case c.header.last < first || c.header.first > last:
			continue
		case c.header.first < first || c.header.last > last:
			return nil, fmt.Errorf("%w: %s covers chunks %d to %d", event.ErrChunkReplaced, filepath.Base(c.name), c.header.first, c.header.last)
		case !c.settled(v.tail.End):
			return nil, fmt.Errorf("%s may still grow", filepath.Base(c.name))
		}
		data += c.footer.dataSize
		found = append(found, c)
	}
	if len(found) == 0 || found[0].header.first != first || found[len(found)-1].header.last != last {
		return nil, errors.New("the log has no such chunks")
	}
	if data > maxRewrittenData {
		return nil, fmt.Errorf("%d bytes of data are too many for one file", data)
	}
	for _, c := range found {
		c.retain()
	}
	return found, nil
}

// writeSurvivors writes the new file and makes it durable.
func (l *Log) writeSurvivors(ctx context.Context, r *Rewrite, sources []*chunk, path string, done *Rewritten) (err error) {
	h := header{first: r.First, last: r.Last, mapped: true, fileID: event.ID(uuid.New()), cluster: l.cluster}
	w, err := l.createRewritten(path, &h, r.Reserve)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	p := rewriting{Rewrite: r, w: w, done: done, redact: redactor{positions: r.Redact}}
	for _, c := range sources {
		if err := p.copy(ctx, c); err != nil {
			return err
		}
	}
	if err := p.pace(ctx); err != nil {
		return err
	}
	f := sources[len(sources)-1].footer
	f.firstIndex = sources[0].footer.firstIndex
	return w.finish(&f)
}

// rewriting is a Rewrite under way.
type rewriting struct {
	*Rewrite
	w      *rewrittenFile
	done   *Rewritten
	unpaid int64 // bytes read since Pace was called
	stub   [stubSize]byte
	redact redactor
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

// copy copies what is to be kept of one file.
func (p *rewriting) copy(ctx context.Context, c *chunk) (err error) {
	defer guardFaults(&err)()
	in := itemReader{c: c, offset: headerSize, limit: headerSize + c.footer.dataSize}
	var s Stored
	var last trailer
	free, records, stubs := c.start(), 0, 0
	for n := 1; ; n++ {
		if n%yieldEvery == 0 {
			p.w.yielder.GiveWay()
		}
		if n%lookEvery == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		at := in.offset
		it, position, err := in.next()
		if err != nil {
			return err
		}
		if it == nil {
			break
		}
		if position < free {
			return c.corrupt(at, "position %d stands behind an item that reaches up to %d", position, free)
		}
		free = position + int64(len(it))
		if p.unpaid += int64(len(it)); p.unpaid >= paceBytes-readWindow {
			if err := p.pace(ctx); err != nil {
				return err
			}
		}
		switch {
		case it.isTrailer():
			last = it.trailer()
		case it.isStub():
			if stubs++; position < p.IDsFrom {
				continue
			}
			p.w.stubs++
		default:
			records++
			if blanked := p.redact.item(it, position); blanked != nil {
				it = blanked
				p.done.Redacted++
			}
			if p.Keep == nil {
				p.w.records++
				break
			}
			if s.set(it, position); p.Keep(&s) {
				p.w.records++
				break
			}
			p.done.Removed++
			p.done.RemovedBytes += int64(len(it))
			if position < p.IDsFrom {
				continue
			}
			it = appendStub(p.stub[:0], it)
			p.w.stubs++
		}
		if err := p.w.add(it, position); err != nil {
			return err
		}
	}
	f := &c.footer
	if records != f.records || stubs != f.stubs || last.end() != f.end || last.index != f.lastIndex || last.term != f.lastTerm || last.chain != f.chain || last.completes != f.lastCompletes {
		return c.corrupt(in.limit+f.mapSize, "the footer does not say what stands before it")
	}
	return nil
}
