package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/google/uuid"
	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// Mending puts a damaged chunk file together again: what is whole in it stays, and the positions of
// which it does not tell are filled with what other nodes have there, each a part if need be.
// Nodes' files differ, for they scavenge, merge and redact by themselves; so the unit is the item
// with its position and its checksum. It is not safe for concurrent use, and must be closed.
type Mending struct {
	tr             *Transfer
	old            *chunkfile.Chunk // held
	holes          []Span           // rising
	records, stubs int              // whole in the old file

	fills []fill
	temp  vfs.File // of their items; nil: none came
	path  string   // of temp
	size  int64
}

const maxAnchors = 32

// fill is what came for a span without a hole any more.
type fill struct {
	Span
	at, size int64 // of its items in the temporary file
}

// Mend looks for what is whole in a damaged file.
func (tr *Transfer) Mend(d Damage) (_ *Mending, err error) {
	tr.chunks.jobs.RLock()
	defer tr.chunks.jobs.RUnlock()
	if err := tr.usable(); err != nil {
		return nil, err
	}
	old, err := tr.damaged(d)
	if err != nil {
		return nil, fmt.Errorf("mend %s: %w", d.File, err)
	}
	m := &Mending{tr: tr, old: old}
	m.holes, m.records, m.stubs = holesOf(m.old)
	return m, nil
}

// Holes are the positions of which nothing is known yet, rising.
func (m *Mending) Holes() []Span { return m.holes }

// Anchors are ends of frames at or after the end of the file, and the chains there. Another node's
// data for a hole must have the same chain at one of them. There are several, because one place may
// be damaged on the other node, or not be there yet.
func (m *Mending) Anchors() []Anchor {
	f := &m.old.Footer
	list := []Anchor{{f.End, f.Chain}}
	v, err := m.tr.view()
	if err != nil {
		return list
	}
	defer v.release()
	for _, c := range v.set.chunks {
		if c.Complete && c.Footer.End > f.End && c.Footer.End <= v.tail.End && len(list) < maxAnchors {
			list = append(list, Anchor{c.Footer.End, c.Footer.Chain})
		}
	}
	if v.tail.End > f.End {
		list = append(list, Anchor{v.tail.End, v.tail.Chain})
	}
	return list
}

// Fill takes what another node has within a span: these items and no others. Nothing is taken
// that does not verify by its checksum, stands out of place, or reaches into what is whole here.
func (m *Mending) Fill(s Span, raw []byte) error {
	items, err := parseSpan(s, raw)
	if err != nil {
		return fmt.Errorf("%w: %w", event.ErrBadFrames, err)
	}
	var left []Span
	var fills []fill
	var taken []byte
	for _, hole := range m.holes {
		part := Span{max(s.From, hole.From), min(s.To, hole.To)}
		if part.From >= part.To {
			left = append(left, hole)
			continue
		}
		f := fill{Span: part, at: m.size + int64(len(taken))}
		for _, it := range items {
			position := it.Position()
			if position < part.From || position >= part.To {
				continue
			}
			if position+int64(len(it)) > part.To {
				return fmt.Errorf("%w: the item at %d reaches beyond %d", event.ErrBadFrames, position, part.To)
			}
			taken = append(taken, it...)
		}
		f.size = m.size + int64(len(taken)) - f.at
		fills = append(fills, f)
		if hole.From < part.From {
			left = append(left, Span{hole.From, part.From})
		}
		if part.To < hole.To {
			left = append(left, Span{part.To, hole.To})
		}
	}
	if err := m.keep(taken); err != nil {
		return err
	}
	m.holes, m.fills = left, append(m.fills, fills...)
	return nil
}

// parseSpan checks the items that came for a span.
func parseSpan(s Span, raw []byte) (items []chunkfile.Item, err error) {
	for free := s.From; len(raw) > 0; {
		it, err := chunkfile.ParseItem(raw)
		if err != nil {
			return nil, err
		}
		position := it.Position()
		if position < free || position+int64(len(it)) > s.To {
			return nil, fmt.Errorf("an item of position %d where %d to %d is free", position, free, s.To)
		}
		free = position + int64(len(it))
		items = append(items, it)
		raw = raw[len(it):]
	}
	return items, nil
}

// keep writes items to the temporary file.
func (m *Mending) keep(items []byte) (err error) {
	if len(items) == 0 {
		return nil
	}
	if m.temp == nil {
		m.path = filepath.Join(m.tr.opts.Dir, uuid.NewString()+vfs.TempSuffix)
		if m.temp, err = m.tr.opts.FS.Create(m.path); err != nil {
			return fmt.Errorf("create temporary file: %w", err)
		}
	}
	if _, err := m.temp.WriteAt(items, m.size); err != nil {
		return fmt.Errorf("write temporary file: %w", err)
	}
	m.size += int64(len(items))
	return nil
}

// Finish puts the file together and in the place of the damaged one, if no hole is left. What this
// node redacted is blank in it. The caller holds the lock of chunk files; turn runs a function
// while nothing is appended.
func (m *Mending) Finish(turn func(func() error) error) (err error) {
	tr := m.tr
	tr.chunks.jobs.RLock()
	defer tr.chunks.jobs.RUnlock()
	name := filepath.Base(m.old.Name)
	if err := tr.usable(); err != nil {
		return err
	}
	if len(m.holes) > 0 {
		return fmt.Errorf("mend %s: nothing whole is known of the positions %v", name, m.holes)
	}
	h := healing{tr: tr, ownItems: len(m.fills) == 0}
	defer func() { err = errors.Join(err, h.close()) }()
	path := filepath.Join(tr.opts.Dir, uuid.NewString()+vfs.TempSuffix)
	h.temps = append(h.temps, path)
	if err := m.write(path); err != nil {
		return fmt.Errorf("mend %s: %w", name, err)
	}
	if h.made, _, err = tr.openFetched(path); err != nil {
		return fmt.Errorf("mend %s: %w", name, err)
	}
	h.own = true
	if err := tr.replace(m.old, &h, turn); err != nil {
		return fmt.Errorf("mend %s: %w", name, err)
	}
	tr.logger.Info("a damaged chunk was repaired from its intact parts and those of other nodes", logkey.File, name,
		logkey.Records, h.made.Footer.Records, "fetchedBytes", m.size, "returning", len(h.returning.entries))
	if tr.reads.ids.reload() {
		tr.reads.loadRecentIDs(tr.lifetime)
	}
	return nil
}

// write makes the new file.
func (m *Mending) write(path string) (err error) {
	c := m.old
	h := chunkfile.Header{First: c.Header.First, Last: c.Header.Last, Mapped: true, FileID: event.ID(uuid.New()), Cluster: m.tr.cluster}
	w, err := chunkfile.Create(m.tr.opts.FS, path, &h, 0, m.tr.chunks.Yielder())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	out := mended{c: c, w: w, redactions: m.redactions()}
	out.chain, out.known = m.chainBefore()
	slices.SortFunc(m.fills, func(a, b fill) int { return cmp.Compare(a.From, b.From) })
	if err := m.copyItems(&out); err != nil {
		return err
	}
	if len(m.fills) == 0 && (out.records != c.Footer.Records || out.stubs != c.Footer.Stubs) {
		return c.Corrupt(-1, "%d records and %d stubs are whole of %d and %d", out.records, out.stubs, c.Footer.Records, c.Footer.Stubs)
	}
	footer := c.Footer
	return w.Finish(&footer)
}

// copyItems gives the new file all items by their positions.
func (m *Mending) copyItems(out *mended) (err error) {
	defer chunkfile.GuardFaults(&err)()
	fills := m.fills
	before := func(position int64) error {
		for ; len(fills) > 0 && fills[0].From < position; fills = fills[1:] {
			raw := make([]byte, fills[0].size)
			if err := vfs.ReadFull(m.temp, raw, fills[0].at); err != nil {
				return err
			}
			items, err := parseSpan(fills[0].Span, raw)
			if err != nil {
				return err
			}
			for _, it := range items {
				if err := out.add(it); err != nil {
					return err
				}
			}
		}
		return nil
	}
	s := salvaging(m.old, m.old.Footer.End)
	for n := 1; ; n++ {
		it, position, _ := s.next()
		if it == nil {
			return before(m.old.Footer.End)
		}
		if n%lookEvery == 0 {
			if err := m.tr.lifetime.Err(); err != nil {
				return context.Cause(m.tr.lifetime)
			}
		}
		if err := errors.Join(before(position), out.add(it)); err != nil {
			return err
		}
	}
}

// redactions are those of this node, by position.
func (m *Mending) redactions() map[int64]Redaction {
	if m.tr.opts.Redacted == nil {
		return nil
	}
	all := map[int64]Redaction{}
	for _, r := range m.tr.opts.Redacted(m.old.Start(), m.old.Footer.End) {
		all[r.Position] = r
	}
	return all
}

// chainBefore is the chain where the file begins.
func (m *Mending) chainBefore() (chain event.Chain, known bool) {
	if m.old.Header.First == 0 {
		return chunkfile.GenesisChain(m.tr.cluster), true
	}
	v, err := m.tr.view()
	if err != nil {
		return chain, false
	}
	defer v.release()
	before := v.set.at(m.old.Start() - 1)
	if before == nil || !before.Complete {
		return chain, false
	}
	return before.Footer.Chain, true
}

// mended is a file that is being put together.
type mended struct {
	c              *chunkfile.Chunk
	w              *chunkfile.Writer
	redactions     map[int64]Redaction
	redact         redactor
	records, stubs int

	chain   event.Chain // after the last frame
	known   bool
	sum     *xxh3.Hasher // of the records of the frame at hand
	length  int
	changed bool // some of them are not what was written
}

// add adds an item. Where all records of a frame are there as they were written, its chain must be
// that of the trailer.
func (o *mended) add(it chunkfile.Item) error {
	position := it.Position()
	if o.sum == nil {
		o.sum = xxh3.New()
	}
	switch {
	case it.IsTrailer():
		t := it.Trailer()
		if o.known && !o.changed && o.length == t.Length && chunkfile.ChainOver(o.chain, t.First, o.sum.Sum128()) != t.Chain {
			return fmt.Errorf("frame at %d: %w", t.First, chunkfile.ErrChain)
		}
		o.chain, o.known, o.length, o.changed = t.Chain, true, 0, false
		o.sum.Reset()
	case it.IsStub():
		o.stubs++
		o.w.Stubs++
		o.changed = true
	default:
		o.records++
		o.w.Records++
		o.length += len(it)
		o.changed = o.changed || event.Flags(it.Flags())&event.FlagRedacted != 0
		if _, err := o.sum.Write(it); err != nil {
			return err
		}
		if r, ok := o.redactions[position]; ok && it.Number() == r.Number && it.StreamHash() == r.Stream {
			o.redact.blanks = blanks{}
			o.redact.add(r)
			if blank := o.redact.item(it, position); blank != nil {
				it = blank
			}
		}
	}
	return o.w.Add(it, position)
}

// Close lets go of the files. It is idempotent.
func (m *Mending) Close() (err error) {
	if m.old != nil {
		err = m.old.Release()
		m.old = nil
	}
	if m.temp != nil {
		err = errors.Join(err, m.temp.Close(), vfs.RemoveIfThere(m.tr.opts.FS, m.path))
		m.temp = nil
	}
	return err
}
