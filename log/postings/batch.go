package postings

import (
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/log/index"
)

// Batch is what records of the log between two ends of frames say of themselves. The zero value is
// ready.
type Batch struct {
	Entries []index.Entry

	names []string // of categories and types that the dictionary may not have, see nameOf
	known *dictionary
	since uint64 // the generation of the dictionary that was asked for all names
}

// Reset makes the batch empty. x knows the names that it has; nil: of none is it known whether it
// is there.
func (b *Batch) Reset(x *Index) {
	b.Entries, b.names, b.known = b.Entries[:0], b.names[:0], nil
	if x != nil {
		b.known = x.names
		b.since = b.known.generation.Load()
	}
}

// Add adds labels of the record at a position.
func (b *Batch) Add(labels []label.Label, position int64) {
	for _, l := range labels {
		hash := l.Hash()
		b.Entries = append(b.Entries, index.Entry{Hash: hash, Number: position, Position: position})
		if (l.Kind == label.Category || l.Kind == label.Type) && (b.known == nil || !b.known.has(hash)) {
			b.note(nameOf(l.Kind, l.Key))
		}
	}
}

// note leaves out a name that has just come.
func (b *Batch) note(name string) {
	for _, n := range b.names[max(0, len(b.names)-8):] {
		if n == name {
			return
		}
	}
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
