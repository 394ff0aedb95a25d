package eventlog

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/postings"
)

// What choosing between the index of postings and the records themselves may take.
const (
	mostLists = 256 // of postings, to find what a filter chooses
	listCost  = 8   // records that could be looked at while a list is begun
	matchTime = 100 * time.Millisecond
)

// choosing says how a filtered read of the log decides how it finds its events.
type choosing struct {
	part int64 // bytes of log that a decision is for
	few  int64 // bytes of log that are looked at without one
	// items that each page looks at without one, up to eight times as many if it is large: a page
	// that they fill is cheaper than the begin of a list
	first int
	// pays reports whether it is cheaper to look at so many records that the index names than at
	// so many that there are.
	pays func(named, records int64) bool
}

func newChoosing() choosing {
	return choosing{part: 32 << 20, few: 256 << 10, first: 1000, pays: func(named, records int64) bool { return 4*named < records }}
}

// found is what a reader with a filter found out, and keeps from page to page.
type found struct {
	index      *postings.Index
	generation uint64   // of the names when they were looked up
	upTo       int64    // of the log, whose names there were then; 0: they could not be
	hashes     []uint64 // all that is chosen up to there is posted under one of them

	from, to int64 // places of the log for which it is decided
	byIndex  bool
}

// seeker goes over the items of the log that a page may show, in one direction: over all, or from
// one that the index of postings names to the next. The page shows the same.
type seeker struct {
	*state
	choosing *choosing
	names    *event.FilterNames // nil: over all
	found    *found
	backward bool
	end      int64 // of what the page may show
	at       int64 // the next item begins there, or later; backward: it ends there, or before
	placed   bool  // the cursor stands there
	first    int   // items to look at in turn
	scanned  int   // those that were
	leapt    bool  // the index was used
	spared   int64

	cu      cursor
	walk    *postings.Walk
	scratch []byte
}

func (c *choosing) newSeeker(st *state, v view, page *event.AllPage, r *event.AllRead) *seeker {
	s := &seeker{state: st, choosing: c, names: r.Names, backward: r.Backward, end: page.LogEnd, at: page.From, cu: cursor{v: v}}
	if s.names != nil {
		most := 8 * c.first
		if r.MaxScan > 0 {
			most = min(most, r.MaxScan/8)
		}
		s.first = max(1, min(max(c.first, 8*r.Count), most))
		generation, _ := st.postings.Now()
		var ok bool
		if s.found, ok = s.names.Kept.(*found); !ok || s.found.index != st.postings || s.found.generation != generation {
			s.found = &found{index: st.postings}
			s.names.Kept = s.found
		}
	}
	return s
}

// next returns the next item that the page may show, and its position; nil at the end (forward) or
// the start (backward) of the log. The first item is always the nearest: it shows whether there is
// one at a position that came from outside.
func (s *seeker) next() (chunkfile.Item, int64, error) {
	for s.scanned >= s.first && s.decide() {
		from := s.at
		if s.backward {
			from--
		}
		position, state, err := s.walk.Next(from)
		if err != nil {
			s.names = nil // It is damaged, or closed: the log has all.
			break
		}
		limit := min(s.end, s.found.upTo)
		if s.backward && state == postings.None {
			s.leap(0)
			return nil, 0, nil
		}
		if state == postings.None || position >= limit && !s.backward {
			if s.leap(limit); limit == s.end {
				return nil, 0, nil
			}
			continue // The names of what comes then were not known.
		}
		it, err := s.cu.v.itemAt(position, &s.scratch)
		if err != nil {
			return nil, 0, err
		}
		if it == nil {
			s.leap(position)
			break // A scavenge removed it. What comes next is as good.
		}
		near, far := position, position+int64(len(it))
		if s.backward {
			near, far = far, near
		}
		s.leap(near)
		s.at = far
		return it, position, nil
	}
	s.scanned++
	return s.scan()
}

// leap passes over what lies before a place.
func (s *seeker) leap(to int64) {
	s.spared += max(to-s.at, s.at-to)
	s.at, s.placed = to, false
}

// scan returns the next item of all.
func (s *seeker) scan() (chunkfile.Item, int64, error) {
	if !s.placed {
		seek := s.cu.seekForward
		if s.backward {
			seek = s.cu.seekBackward
		}
		if err := seek(s.at); err != nil {
			return nil, 0, err
		}
		s.placed = true
	}
	if s.backward {
		it, position, err := s.cu.prev()
		s.at = position
		return it, position, err
	}
	it, position, err := s.cu.next()
	s.at = position + int64(len(it))
	return it, position, err
}

// decide reports whether the next item is found by the index. It decides again for each part of the
// log.
func (s *seeker) decide() bool {
	if s.names == nil {
		return false
	}
	f, left := s.found, s.end-s.at
	isDecided := f.from <= s.at && s.at < f.to
	if s.backward {
		left, isDecided = s.at, f.from < s.at && s.at <= f.to
	}
	if !isDecided {
		if left < s.choosing.few {
			s.names = nil
			return false
		}
		f.byIndex = s.choose()
	}
	if f.byIndex && s.walk == nil {
		s.walk = s.postings.Walk(s.end, [][][]uint64{{f.hashes}}, postings.WalkOptions{Backward: s.backward, Most: math.MaxInt})
		if s.walk == nil {
			s.names = nil // The index is being built.
			return false
		}
		if !s.leapt {
			s.leapt = true
			s.metrics.filtered.Inc()
		}
	}
	return f.byIndex
}

// choose decides for the part of the log that comes next.
func (s *seeker) choose() (byIndex bool) {
	f, c := s.found, s.choosing
	if f.from, f.to = s.at, min(s.at+c.part, s.end); s.backward {
		f.from, f.to = max(0, s.at-c.part), s.at
	}
	if !s.postings.Covers(s.end) {
		return false
	}
	if f.upTo < f.to && (s.backward || f.upTo <= s.at) {
		f.generation, f.upTo = s.postings.Now()
		var ok bool
		f.hashes, ok = s.look()
		// Names that went away meanwhile may be lacking.
		if generation, _ := s.postings.Now(); !ok || generation != f.generation {
			f.upTo = 0 // For this part of the log alone: it may have been bad luck.
		}
		s.walk = nil
	}
	if f.upTo < f.to && s.backward || f.upTo <= s.at && !s.backward {
		return false
	}
	f.to = min(f.to, f.upTo)
	records := s.cu.v.recordsIn(f.from, f.to, s.postings.Events())
	named := int64(listCost * len(f.hashes))
	for _, hash := range f.hashes {
		n, err := s.postings.Count(hash, f.from, f.to-1)
		if named += n; err != nil || !c.pays(named, records) {
			return false
		}
	}
	return c.pays(named, records)
}

// look finds the hashes under which all is posted that the filter chooses. It is not ok if it may
// lack one.
func (s *seeker) look() (hashes []uint64, ok bool) {
	prefixes := s.names.Prefixes()
	if s.names.OfStream {
		hashes, ok = s.ofStreams(prefixes)
	} else if isEmpty, err := s.names.Match(""); !isEmpty && err == nil { // No type: not posted.
		if prefixes == nil {
			prefixes = []string{""}
		}
		hashes, ok = s.matching(nil, label.Type, prefixes, s.names.Match)
	}
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	return hashes, ok && len(hashes) <= mostLists
}

// matching appends the hashes of the names of a kind that begin with one of the prefixes and match.
// It is not ok if it may lack one.
func (s *seeker) matching(to []uint64, kind label.Kind, prefixes []string, match func(string) (bool, error)) (_ []uint64, ok bool) {
	begun := time.Now()
	names, ok := s.postings.Find(kind, prefixes)
	for _, name := range names {
		isChosen, err := match(name)
		if isChosen {
			to = append(to, label.Label{Kind: kind, Key: name}.Hash())
		}
		if err != nil || len(to) > 2*mostLists || time.Since(begun) > matchTime {
			return nil, false
		}
	}
	return to, ok
}

// ofStreams is look for names of streams: it finds their categories, and all types that begin with
// "$", since events of these have no category. Streams may have none, either.
func (s *seeker) ofStreams(prefixes []string) (hashes []uint64, ok bool) {
	all := func(string) (bool, error) { return true, nil }
	if prefixes == nil {
		return nil, false
	}
	var open []string // prefixes of categories
	for _, prefix := range prefixes {
		category, _, isWhole := strings.Cut(prefix, "-")
		switch {
		case event.IsSystemStream(prefix) || category == "":
			return nil, false
		case isWhole:
			hashes = append(hashes, label.Label{Kind: label.Category, Key: category}.Hash())
		default:
			open = append(open, prefix)
		}
	}
	if len(open) > 0 {
		if hashes, ok = s.matching(hashes, label.Category, open, all); !ok {
			return nil, false
		}
	}
	return s.matching(hashes, label.Type, []string{"$"}, all)
}

// complete gives a page that ends at a place the last record that a look at all items comes to, and
// returns where that ends with the item before the place.
func (s *seeker) complete(page *event.AllPage, r *event.AllRead, at int64) (next int64, err error) {
	step, seek := s.cu.prev, s.cu.seekBackward
	if s.backward {
		step, seek = s.cu.next, s.cu.seekForward
	}
	next = -1
	for err = seek(at); err == nil; {
		it, position, err := step()
		isLooked := position < page.From == s.backward
		if err != nil || it == nil || !isLooked {
			return next, err
		}
		if edge := position + int64(len(it)); next < 0 && !s.backward {
			next = edge
		} else if next < 0 {
			next = position
		}
		if it.IsRecord() {
			if !r.After || position != r.From {
				page.Last = position
			}
			return next, nil
		}
	}
	return next, err
}

// recordsIn estimates how many records there are between two positions, of a log with so many
// events.
func (v view) recordsIn(from, to, events int64) (n int64) {
	for _, c := range v.set.chunks {
		records, end := int64(c.Footer.Records), chunkfile.ChunkStart(c.Header.Last+1)
		if events -= records; !c.Complete {
			records, end = max(0, events), max(v.tail.End, c.Start()+1)
		}
		if overlap := min(to, end) - max(from, c.Start()); overlap > 0 {
			n += int64(float64(records) * float64(overlap) / float64(end-c.Start()))
		}
	}
	return n
}
