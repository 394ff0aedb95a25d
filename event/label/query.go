package label

import "github.com/annalsdb/annals/event"

// Alternatives returns the hashes of labels that events have which a query asks for, of items that
// are alternatives: an event has one hash of each list of one item. It has more than is asked for
// where the query names streams, of which only the categories are labels. These are left out if the
// caller finds the events of streams.
func Alternatives(q *event.Query, findsStreams bool) [][][]uint64 {
	return alternatives(q, findsStreams, func(int, Label) {})
}

// Lists names the hashes of Alternatives, in their order.
func Lists(q *event.Query, findsStreams bool) (lists []event.PlannedList) {
	alternatives(q, findsStreams, func(item int, l Label) {
		lists = append(lists, event.PlannedList{Item: item, Kind: l.Kind.String(), Name: l.Key})
	})
	return lists
}

func alternatives(q *event.Query, findsStreams bool, each func(item int, l Label)) [][][]uint64 {
	alternatives := make([][][]uint64, 0, len(q.Items))
	for i := range q.Items {
		item := &q.Items[i]
		var all [][]uint64
		one := func(kind Kind, keys []string) {
			if len(keys) == 0 {
				return
			}
			var hashes []uint64
			for _, key := range keys {
				l := Label{kind, key}
				each(i, l)
				hashes = append(hashes, l.Hash())
			}
			all = append(all, hashes)
		}
		one(Type, item.Types)
		one(Category, item.Categories)
		if len(item.Streams) > 0 && !findsStreams {
			var categories []string
			for _, s := range item.Streams {
				categories = append(categories, event.CategoryOf(s))
			}
			one(Category, categories)
		}
		if item.Correlation != "" {
			one(Correlation, []string{item.Correlation})
		}
		for _, tag := range item.Tags {
			one(Tag, []string{tag})
		}
		alternatives = append(alternatives, all)
	}
	return alternatives
}
