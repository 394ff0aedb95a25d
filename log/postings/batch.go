package postings

import (
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/log/index"
)

// Batch is what records of the log between two ends of frames say of themselves. The zero value is
// ready.
type Batch struct {
	Entries []index.Entry

	names []string // of categories and types that the dictionary may not have, each once; nameOf
	noted map[string]struct{}
	known *dictionary
	since uint64 // the generation of the dictionary that was asked for all names
}

// Reset makes the batch empty. x knows the names that it has; nil: of none is it known whether it
// is there.
func (b *Batch) Reset(x *Index) {
	b.Entries, b.names, b.known = b.Entries[:0], b.names[:0], nil
	if len(b.noted) > manyNoted {
		b.noted = nil // To clear it would take as long as the most names that it ever had.
	}
	clear(b.noted)
	if x != nil {
		b.known = x.names
		b.since = b.known.generation.Load()
	}
}

// Add adds labels of the record at a position.
func (b *Batch) Add(labels []label.Label, position int64) {
	for _, l := range labels {
		b.Entries = append(b.Entries, index.Entry{Hash: l.Hash(), Number: position, Position: position})
		if (l.Kind == label.Category || l.Kind == label.Type) && (b.known == nil || !b.known.has(l)) {
			b.note(nameOf(l.Kind, l.Key))
		}
	}
}

// manyNoted is of how many names the memory is kept for the next batch.
const manyNoted = 1 << 10

// note leaves out a name that came before.
func (b *Batch) note(name string) {
	if _, ok := b.noted[name]; ok {
		return
	}
	if b.noted == nil {
		b.noted = map[string]struct{}{}
	}
	b.noted[name] = struct{}{}
	b.names = append(b.names, name)
}

// nameOf is how the dictionary spells a category or a type.
func nameOf(kind label.Kind, key string) string {
	return string([]byte{'0' + byte(kind)}) + key
}

// labelOf is the label of a name.
func labelOf(name string) label.Label {
	return label.Label{Kind: label.Kind(name[0] - '0'), Key: name[1:]}
}
