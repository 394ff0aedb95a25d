package run

import (
	"cmp"
	"context"
	"slices"
	"strings"
)

// Partition is a partition whose state is in memory.
type Partition struct {
	Name  string `json:"name"`
	Bytes int64  `json:"stateBytes"` // of its state, and of its result if that is another
}

// Partitions returns the partitions in memory whose names contain a text, in the order of their
// names. It begins after a name and returns most of them at most; more says that there are others.
// A partition that was not used for long is in its checkpoint alone.
func (r *Run) Partitions(ctx context.Context, contains, after string, most int) (list []Partition, more bool, err error) {
	if err := r.lock.ask(ctx); err != nil {
		return nil, false, err
	}
	defer r.lock.release()
	if r.cache == nil {
		return nil, false, nil
	}
	list, more = r.cache.partitions(contains, after, most)
	return list, more, nil
}

// partitions lists entries as Run.Partitions does.
func (c *cache) partitions(contains, after string, most int) (list []Partition, more bool) {
	byName := func(p Partition, name string) int { return cmp.Compare(p.Name, name) }
	for name, e := range c.entries {
		full := len(list) == most
		if name <= after || !e.known || !strings.Contains(name, contains) {
			continue
		}
		if full && name > list[most-1].Name {
			more = true
			continue
		}
		if full {
			list, more = list[:most-1], true
		}
		at, _ := slices.BinarySearchFunc(list, name, byName)
		list = slices.Insert(list, at, Partition{Name: name, Bytes: e.bytes()})
	}
	return list, more
}
