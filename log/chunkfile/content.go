package chunkfile

import (
	"errors"

	"github.com/annalsdb/annals/event"
)

// CheckContent walks through a complete chunk and returns its first trailer. It checks that every
// item is whole and in its place, that frames follow one another, and that the position map and the
// footer agree with the data.
func (c *Chunk) CheckContent() (first Trailer, err error) {
	defer GuardFaults(&err)()
	f := &c.Footer
	limit := HeaderSize + f.DataSize
	var scratch, entry []byte
	var last Trailer
	before := event.Tail{End: c.Start()}
	free := c.Start()                           // The next item is here or later.
	lowest := int64(-1)                         // position of the first record of the frame at hand
	items, frames, records, stubs := 0, 0, 0, 0 // seen
	for offset := int64(HeaderSize); offset < limit; {
		it, err := c.ItemAt(offset, limit, &scratch)
		if err != nil {
			return first, err
		}
		position := it.Position()
		if err := c.checkPlace(items, position, offset, &entry); err != nil {
			return first, err
		}
		if position < free {
			return first, c.Corrupt(offset, "position %d follows an item that ends at %d", position, free)
		}
		items++
		offset += int64(len(it))
		free = position + int64(len(it))
		if !it.IsTrailer() {
			if it.IsStub() {
				stubs++
			} else {
				records++
			}
			if lowest < 0 {
				lowest = position
			}
			continue
		}
		last = it.Trailer()
		if faults := last.Faults(before); len(faults) > 0 {
			return first, c.Corrupt(offset-TrailerSize, "%v", faults[0])
		}
		if lowest >= 0 && lowest < last.First {
			return first, c.Corrupt(offset-TrailerSize, "the record at position %d does not lie in its frame, which begins at %d", lowest, last.First)
		}
		if frames++; frames == 1 {
			first = last
		}
		before = last.Tail()
		lowest = -1
	}
	is := Footer{
		Mapped: f.Mapped, MapSize: f.MapSize, DataSize: f.DataSize, Checksum: f.Checksum,
		LastCompletes: last.Completes, Records: records, Stubs: stubs, End: last.End(), FirstIndex: first.Index,
		LastIndex: last.Index, LastTerm: last.Term, LastTime: last.Time, Chain: last.Chain,
	}
	switch {
	case lowest >= 0:
		return first, c.Corrupt(limit, "the last records have no trailer")
	case c.Header.Mapped && items != c.MapEntries():
		return first, c.Corrupt(limit, "the position map has %d entries for %d items", c.MapEntries(), items)
	case is != *f || ChunkNumber(f.End-1) != c.Header.Last:
		return first, c.Corrupt(limit+f.MapSize, "the footer does not say what stands before it")
	}
	return first, nil
}

// checkPlace checks that the n-th item of a chunk is where readers look for it.
func (c *Chunk) checkPlace(n int, position, offset int64, scratch *[]byte) error {
	at, stands := c.Start()+offset-HeaderSize, offset
	if c.Header.Mapped {
		if n >= c.MapEntries() {
			return c.Corrupt(offset, "the position map does not name the item of position %d", position)
		}
		var err error
		if at, stands, err = c.MapEntry(n, scratch); err != nil {
			return err
		}
	}
	if at != position || stands != offset {
		return c.Corrupt(offset, "the item of position %d stands where that of %d belongs", position, at)
	}
	return nil
}

// Locate looks for the place of a damage that the checksum of the whole file has shown.
func (c *Chunk) Locate(found error) error {
	corruption, ok := errors.AsType[*event.Corruption](found)
	if !ok || corruption.Offset >= 0 {
		return found
	}
	fresh, err := OpenMapped(c.fs, c.Name, c.Version)
	if err != nil {
		return errors.Join(found, err)
	}
	fresh.Retain()
	defer func() { _ = fresh.Release() }() // It was only read.
	if !fresh.Complete {
		return c.Corrupt(c.FileSize()-FooterSize, "the footer is not what was written")
	}
	if _, err := fresh.CheckContent(); err != nil {
		return err
	}
	return found
}
