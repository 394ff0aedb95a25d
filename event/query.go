package event

import "slices"

// Query asks for events by what they say of themselves. Names are exact. Those of streams or types
// that begin with "$" are not found, unless System is set.
type Query struct {
	Items []QueryItem // an event is asked for if one of them matches
	All   bool        // every event matches; there are no Items then
	// events of types that begin with "$" are found too, by a type that an item names
	System bool `json:"-"`
}

// QueryItem matches an event that has what each member that is given says. One is given at least.
type QueryItem struct {
	Types       []string // its type is one of them
	Tags        []string // it has all of them
	Categories  []string // the category of its stream is one of them
	Streams     []string // its stream is one of them
	Correlation string   // its correlation id
}

// Matches reports whether an event is asked for.
func (q *Query) Matches(f *Facts) bool {
	if f.IsSystem() && !q.System {
		return false
	}
	return q.All || slices.ContainsFunc(q.Items, func(item QueryItem) bool { return item.matches(f) })
}

func (i *QueryItem) matches(f *Facts) bool {
	has := func(list []string, what string) bool { return list == nil || slices.Contains(list, what) }
	return has(i.Types, f.Type) && has(i.Streams, f.Stream) &&
		(i.Categories == nil || slices.Contains(i.Categories, CategoryOf(f.Stream))) &&
		(i.Correlation == "" || i.Correlation == f.Correlation) &&
		!slices.ContainsFunc(i.Tags, func(tag string) bool { return !slices.Contains(f.Tags, tag) })
}
