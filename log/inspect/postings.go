package inspect

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// postingsFolder is the folder of postings in that of the index.
const postingsFolder = "postings"

// postingsCheck compares the index of postings with the log, both ways.
type postingsCheck struct {
	streams    *indexCheck
	index      *index.Index // nil: there is none to compare with
	checkpoint int64        // up to where it must know every record, -1 without index
	logSum     entrySum     // over the postings of records below checkpoint
	reader     label.Reader
	labels     []label.Label
	bare       map[int64]bool // positions of events without metadata, which a redaction blanked
}

func (p *postingsCheck) dir() string { return filepath.Join(p.streams.n.o.IndexDir, postingsFolder) }

// open opens what there is, before the log is read. A folder without postings is one of an earlier
// version, or of a copy: the next start makes them.
func (p *postingsCheck) open() {
	if _, err := p.streams.n.o.FS.Stat(filepath.Join(p.dir(), indexMapFile)); errors.Is(err, fs.ErrNotExist) {
		return
	}
	x, err := index.OpenReadOnly(p.streams.n.o.FS, p.dir())
	if err != nil {
		p.streams.findIndexError(err)
		return
	}
	p.index, p.checkpoint = x, x.Checkpoint()
}

func (p *postingsCheck) close() error {
	if p.index == nil {
		return nil
	}
	return p.index.Close()
}

// note takes a record of the log.
func (p *postingsCheck) note(it chunkfile.Item, position int64) {
	if position >= p.checkpoint {
		return
	}
	if event.Flags(it.Flags())&event.FlagRedacted != 0 && len(bytes.TrimLeft(it.Metadata(), "\xff")) == 0 {
		if p.bare == nil {
			p.bare = map[int64]bool{}
		}
		p.bare[position] = true // It may be posted for what its metadata said, until a scavenge.
		return
	}
	p.labels = p.reader.Labels(p.labels[:0], chunkfile.String(it.Stream()), chunkfile.String(it.EventType()), it.Metadata())
	for _, l := range p.labels {
		p.logSum.add(l.Hash(), position, position)
	}
}

// inspect compares what the index has with what was noted. Postings of records that are gone do no
// harm, and the same one may be there twice.
func (p *postingsCheck) inspect() error {
	if p.index == nil {
		return nil
	}
	n := p.streams.n
	if p.checkpoint > n.tail.End {
		// It is said of the log that its end is missing, and the next start makes it again.
		return nil
	}
	var sum entrySum
	var before index.Entry
	read := 0
	for e, err := range p.index.Entries() {
		if err != nil {
			p.streams.findIndexError(err)
			return nil
		}
		if read++; read%(1<<20) == 0 && n.ctx.Err() != nil {
			return n.ctx.Err()
		}
		if e != before && !p.bare[e.Position] && p.streams.mustExist(e.Position) {
			sum.add(e.Hash, e.Number, e.Position)
		}
		before = e
	}
	if sum != p.logSum && !n.unsure {
		n.find(Problem, FindIndex, filepath.Join(p.dir(), indexMapFile), -1, -1, "the log has %d postings that the index must know, the index has %d: they differ", p.logSum.count, sum.count)
	}
	return nil
}
