package label

import (
	"strings"

	"github.com/annalsdb/annals/event"
)

// IndexQuery returns the query of which an index stream shows the events. It is not ok for the name
// of none.
func IndexQuery(name string) (q *event.Query, ok bool) {
	name, ok = strings.CutPrefix(name, event.IndexPrefix+"-")
	if name == "all" && ok {
		return &event.Query{All: true, Index: true}, true
	}
	kind, key, _ := strings.Cut(name, "-")
	var item event.QueryItem
	switch kind {
	case "ce":
		item.Categories = []string{key}
	case "et":
		item.Types = []string{key}
	case "co":
		item.Correlation = key
	case "tag":
		item.Tags = []string{key}
	default:
		ok = false
	}
	return &event.Query{Items: []event.QueryItem{item}, System: kind == "et", Index: true}, ok && key != ""
}
