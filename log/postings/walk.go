package postings

import (
	"math"
	"sort"

	"github.com/annalsdb/annals/log/index"
)

// Found says what a walk has come to.
type Found uint8

const (
	None   Found = iota // nothing follows
	Match               // a position
	Paused              // a position before which, in its direction, nothing follows the last one
)

// Walk goes through the positions that are posted under the keys of a query, each once, in one
// direction. Hashes may collide: what it finds is confirmed in the record. It is for one goroutine.
type Walk struct {
	list     List
	keys     []*keyList
	backward bool
	budget   budget
}

// budget counts postings that were read.
type budget struct{ read, most int }

// WalkOptions say how to walk.
type WalkOptions struct {
	Backward bool
	// Certain believes no checksum that was right before: decisions rest on the walk.
	Certain bool
	Most    int // it pauses when it has read so many postings
	// Lists are other lists of positions: what is found is in one list of those of its alternative,
	// too. nil: none.
	Lists [][]List
}

// Walk begins a walk over what has, of one of the alternatives, one hash of each list. It is nil
// unless all of the log before an end is posted.
func (x *Index) Walk(end int64, alternatives [][][]uint64, o WalkOptions) *Walk {
	current := x.covering(end)
	if current == nil {
		return nil
	}
	w := &Walk{backward: o.Backward, budget: budget{most: o.Most}}
	var either union
	for i, all := range alternatives {
		both := intersection{budget: &w.budget}
		for _, keys := range all {
			var one union
			for _, hash := range keys {
				key := &keyList{pages: index.Pages{Index: current, Hash: hash, Certain: o.Certain}, budget: &w.budget}
				w.keys, one = append(w.keys, key), append(one, key)
			}
			both.lists = append(both.lists, one)
		}
		if o.Lists != nil && o.Lists[i] != nil {
			both.lists = append(both.lists, union(o.Lists[i]))
		}
		either = append(either, &both)
	}
	w.list = either
	return w
}

// Next returns the nearest position that is not before the given one in the direction of the walk,
// which must not be before the one returned last.
func (w *Walk) Next(at int64) (int64, Found, error) { return w.list.Next(at, w.backward) }

// Read is how many postings were read so far.
func (w *Walk) Read() int { return w.budget.read }

// ReadOf is how many postings were read so far of the hash at a place among those of the query.
func (w *Walk) ReadOf(place int) int { return w.keys[place].pages.Read }

// List is a list of positions, read in one direction: as Walk.Next.
type List interface {
	Next(at int64, backward bool) (int64, Found, error)
}

// keyList is what is posted under one hash.
type keyList struct {
	pages  index.Pages
	page   []index.Entry // those not passed yet
	whole  bool          // nothing follows the page
	budget *budget
}

func (l *keyList) Next(at int64, backward bool) (int64, Found, error) {
	if len(l.page) > 0 && !before(l.page[0].Position, at, backward) {
		return l.page[0].Position, Match, nil // Most often, of many lists.
	}
	for {
		i := sort.Search(len(l.page), func(i int) bool { return !before(l.page[i].Position, at, backward) })
		if l.page = l.page[i:]; len(l.page) > 0 {
			return l.page[0].Position, Match, nil
		}
		if l.whole {
			return 0, None, nil
		}
		end := int64(math.MaxInt64)
		if backward {
			end = math.MinInt64
		}
		var err error
		if l.page, l.whole, err = l.pages.Next(l.page, at, end, backward); err != nil {
			return 0, None, err
		}
		l.budget.read += len(l.page)
	}
}

func before(a, b int64, backward bool) bool {
	if backward {
		return a > b
	}
	return a < b
}

// union is what is in one of its lists.
type union []List

func (u union) Next(at int64, backward bool) (nearest int64, found Found, err error) {
	for _, l := range u {
		position, state, err := l.Next(at, backward)
		if err != nil {
			return 0, None, err
		}
		if state != None && (found == None || before(position, nearest, backward) || position == nearest && state == Match) {
			nearest, found = position, state
		}
	}
	return nearest, found, nil
}

// intersection is what is in all of its lists.
type intersection struct {
	lists  []List
	budget *budget
}

func (s *intersection) Next(at int64, backward bool) (int64, Found, error) {
	for agreed := 0; agreed < len(s.lists); {
		if s.budget.read > s.budget.most {
			return at, Paused, nil
		}
		for _, l := range s.lists {
			position, state, err := l.Next(at, backward)
			switch {
			case err != nil || state == None:
				return 0, None, err
			case position == at:
				agreed++
			default:
				at, agreed = position, 1
			}
		}
	}
	return at, Match, nil
}
