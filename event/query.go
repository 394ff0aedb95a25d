package event

import (
	"errors"
	"fmt"
	"slices"
)

// Limits of a query.
const (
	MaxQueryBytes = 64 << 10 // as JSON
	MaxQueryItems = 32
	MaxItemNames  = 64 // of types, of categories and of streams, in one item
	MaxItemTags   = 16
)

// Query chooses events by what they say of themselves: those that match one of its items, or all.
// It does not choose an event whose stream or type begins with "$", unless System is set.
type Query struct {
	Items []QueryItem `json:"items,omitempty"`
	All   bool        `json:"all,omitempty"` // without items
	// events of types that begin with "$" are found too, by a type that an item names
	System bool `json:"-"`
	Index  bool `json:"-"` // an index stream shows what it chooses
}

// QueryItem matches an event when each of its members that is not empty does.
type QueryItem struct {
	Types       []string `json:"types,omitempty"`       // the type is one of them
	Tags        []string `json:"tags,omitempty"`        // the event has all of them
	Categories  []string `json:"categories,omitempty"`  // that of the stream is one of them
	Streams     []string `json:"streams,omitempty"`     // the stream is one of them
	Correlation string   `json:"correlation,omitempty"` // the correlation id
}

// Plan tells how the events of a page were found.
type Plan struct {
	Lists  []PlannedList `json:"lists,omitempty"` // none where the log itself was read
	Looked int           `json:"looked"`          // events that were looked at
}

// PlannedList is what is posted of one name.
type PlannedList struct {
	Item     int    `json:"item"` // of the query
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	Postings int    `json:"postings"` // that were read
}

// Matches reports whether the query chooses an event.
func (q *Query) Matches(f *Facts) bool {
	if f.IsSystem() && !q.System {
		return false
	}
	for i := range q.Items {
		if q.Items[i].matches(f) {
			return true
		}
	}
	return q.All
}

func (i *QueryItem) matches(f *Facts) bool {
	for _, tag := range i.Tags {
		if !slices.Contains(f.Tags, tag) {
			return false
		}
	}
	return (len(i.Types) == 0 || slices.Contains(i.Types, f.Type)) &&
		(len(i.Categories) == 0 || slices.Contains(i.Categories, CategoryOf(f.Stream))) &&
		(len(i.Streams) == 0 || slices.Contains(i.Streams, f.Stream)) &&
		(i.Correlation == "" || i.Correlation == f.Correlation)
}

// Check returns a *BadRequest that says what is wrong with the query, nil when it can be asked.
func (q *Query) Check() error {
	switch {
	case q.All && len(q.Items) > 0:
		return badRequest("all: not possible with items")
	case q.All:
		return nil
	case len(q.Items) == 0:
		return badRequest("items: at least one is needed")
	case len(q.Items) > MaxQueryItems:
		return badRequest("items: %d, at most %d are possible", len(q.Items), MaxQueryItems)
	}
	for n := range q.Items {
		if err := q.Items[n].check(); err != nil {
			return badRequest("items[%d]%v", n, err)
		}
	}
	return nil
}

// check says what is wrong with an item, as what follows its name.
func (i *QueryItem) check() error {
	empty := i.Correlation == ""
	for _, list := range []struct {
		name string
		of   []string
		most int
	}{{"types", i.Types, MaxItemNames}, {"tags", i.Tags, MaxItemTags}, {"categories", i.Categories, MaxItemNames}, {"streams", i.Streams, MaxItemNames}} {
		empty = empty && len(list.of) == 0
		if len(list.of) > list.most {
			return fmt.Errorf(".%s: %d, at most %d are possible", list.name, len(list.of), list.most)
		}
		if slices.Contains(list.of, "") {
			return fmt.Errorf(".%s: one is empty", list.name)
		}
	}
	for _, tag := range i.Tags {
		if err := CheckTag(tag); err != nil {
			return fmt.Errorf(".tags: %w", err)
		}
	}
	switch {
	case empty:
		return errors.New(": at least one member is needed")
	case len(i.Correlation) > MaxLabelSize:
		return fmt.Errorf(".correlation: %d bytes, at most %d are possible", len(i.Correlation), MaxLabelSize)
	}
	return nil
}
