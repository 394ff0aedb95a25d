package postings

import (
	"math"
	"slices"
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
	list     list
	keys     []*keyList
	backward bool
	budget   budget
}

// budget counts postings that were read.
type budget struct{ read, most int }

// Walk begins a walk over what has, of one of the alternatives, one hash of each list. It pauses
// when it has read so many postings. It is nil unless all of the log before an end is posted.
func (x *Index) Walk(end int64, alternatives [][][]uint64, backward bool, most int) *Walk {
	return x.walk(end, alternatives, backward, false, most)
}

// WalkCertain is a Walk forward that believes no checksum that was right before: decisions rest on
// it.
func (x *Index) WalkCertain(end int64, alternatives [][][]uint64, most int) *Walk {
	return x.walk(end, alternatives, false, true, most)
}

func (x *Index) walk(end int64, alternatives [][][]uint64, backward, certain bool, most int) *Walk {
	current := x.covering(end)
	if current == nil {
		return nil
	}
	w := &Walk{backward: backward, budget: budget{most: most}}
	var either union
	for _, all := range alternatives {
		both := intersection{budget: &w.budget}
		for _, keys := range all {
			var one union
			for _, hash := range keys {
				key := &keyList{index: current, hash: hash, certain: certain, budget: &w.budget}
				w.keys, one = append(w.keys, key), append(one, key)
			}
			both.lists = append(both.lists, one)
		}
		either = append(either, &both)
	}
	w.list = either
	return w
}

// Next returns the nearest position that is not before the given one in the direction of the walk,
// which must not be before the one returned last.
func (w *Walk) Next(at int64) (int64, Found, error) { return w.list.next(at, w.backward) }

// Read is how many postings were read so far.
func (w *Walk) Read() int { return w.budget.read }

// ReadOf is how many postings were read so far of the hash at a place among those of the query.
func (w *Walk) ReadOf(place int) int { return w.keys[place].read }

// list is a list of positions, read in one direction.
type list interface {
	next(at int64, backward bool) (int64, Found, error)
}

// Pages of postings grow while a list is read on.
const (
	firstPage = 16
	largePage = 1024
)

// keyList is what is posted under one hash.
type keyList struct {
	index   *index.Index
	hash    uint64
	certain bool
	page    []index.Entry // those not passed yet
	size    int           // of the last page
	whole   bool          // nothing follows the page
	read    int           // postings
	budget  *budget
}

func (l *keyList) next(at int64, backward bool) (int64, Found, error) {
	for {
		i := sort.Search(len(l.page), func(i int) bool { return !before(l.page[i].Position, at, backward) })
		if l.page = l.page[i:]; len(l.page) > 0 {
			return l.page[0].Position, Match, nil
		}
		if l.whole {
			return 0, None, nil
		}
		if err := l.more(at, backward); err != nil {
			return 0, None, err
		}
	}
}

func before(a, b int64, backward bool) bool {
	if backward {
		return a > b
	}
	return a < b
}

func (l *keyList) more(at int64, backward bool) (err error) {
	l.size = min(max(firstPage, 2*l.size), largePage)
	if l.page = slices.Grow(l.page[:0], l.size); backward {
		l.page, err = l.index.Descend(l.page, l.hash, at, math.MinInt64, l.size)
	} else if l.certain {
		l.page, err = index.AscendCertain(l.index, l.page, l.hash, at, math.MaxInt64, l.size)
	} else {
		l.page, err = l.index.Ascend(l.page, l.hash, at, math.MaxInt64, l.size)
	}
	l.read += len(l.page)
	l.budget.read += len(l.page)
	l.whole = len(l.page) < l.size
	return err
}

// union is what is in one of its lists.
type union []list

func (u union) next(at int64, backward bool) (nearest int64, found Found, err error) {
	for _, l := range u {
		position, state, err := l.next(at, backward)
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
	lists  []list
	budget *budget
}

func (s *intersection) next(at int64, backward bool) (int64, Found, error) {
	for agreed := 0; agreed < len(s.lists); {
		if s.budget.read > s.budget.most {
			return at, Paused, nil
		}
		for _, l := range s.lists {
			position, state, err := l.next(at, backward)
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
