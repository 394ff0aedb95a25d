package label

import (
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
)

// Kind is the kind of a label. The numbers are part of stored hashes: do not change.
type Kind uint8

const (
	Category    Kind = 1
	Type        Kind = 2
	Correlation Kind = 3
	Tag         Kind = 4
	// Malformed is what events with malformed tags have, under no key: so they can be counted.
	Malformed Kind = 5
)

// String returns the name of the kind.
func (k Kind) String() string {
	return [...]string{"", "category", "type", "correlation", "tag", "malformed"}[k]
}

// Label is one thing that an event is found by.
type Label struct {
	Kind Kind
	Key  string
}

// Hash is the label in 64 bits, of which the highest three are the kind. It is part of stored data:
// do not change.
func (l Label) Hash() uint64 {
	return uint64(l.Kind)<<61 | xxh3.HashStringSeed(l.Key, uint64(l.Kind))>>3
}

// Append appends the labels of an event, none of them twice. Their memory is that of the facts.
func Append(to []Label, f *event.Facts) []Label {
	if !event.ShownInAll(f.Stream) {
		return to
	}
	to = add(to, Type, f.Type)
	if f.IsSystem() {
		return to
	}
	to = add(to, Category, event.CategoryOf(f.Stream))
	to = add(to, Correlation, f.Correlation)
	for _, tag := range f.Tags {
		to = add(to, Tag, tag)
	}
	return to
}

// add leaves out what has no name: nothing can ask for it.
func add(to []Label, kind Kind, key string) []Label {
	if key == "" {
		return to
	}
	return append(to, Label{kind, key})
}

// Reader reads the facts of events, one after another. The zero value is ready.
type Reader struct{ tags []string }

// Labels appends the labels of an event. They share the memory of what is given, which must not
// change while they are in use, and hold until the next call. With malformed tags the event has
// none, and the label Malformed.
func (r *Reader) Labels(to []Label, stream, eventType string, metadata []byte) []Label {
	facts, err := r.Read(stream, eventType, metadata)
	if to = Append(to, &facts); err != nil {
		to = append(to, Label{Kind: Malformed})
	}
	return to
}

// Read returns the facts of an event. They share the memory of what is given, which must not change
// while they are in use, and hold until the next call. Where the tags are malformed the event has
// none, and the error, a *event.BadRequest, says why.
func (r *Reader) Read(stream, eventType string, metadata []byte) (event.Facts, error) {
	f := event.Facts{Stream: stream, Type: eventType}
	if !mayHave(metadata) || f.IsSystem() {
		return f, nil
	}
	m := membersOf(metadata)
	f.Correlation = m.correlationID()
	tags, err := m.appendTags(r.tags[:0])
	r.tags = tags[:0]
	if err == nil {
		f.Tags = tags
	}
	return f, err
}

// text is a string that shares the memory of b.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
