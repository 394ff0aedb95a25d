package torture

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/annalsdb/annals/client"
)

const (
	// indexPage is how many events of an index are asked for at once.
	indexPage = 100
	// keptHeads is how many readings of the newest events an indexer keeps for the checks.
	keptHeads = 3000
	headCount = 20
)

// index is one that is read: its name, and the query for the same events.
type index struct {
	name  string
	query url.Values
	label string // of its events, "" for all
}

// index returns the one that all indexes of the run are counted by: that of the category, which all
// streams of the run have, and those of tags.
func (l *load) index(i int) index {
	if i%(tagCount+1) == 0 {
		return index{"$idx-ce-torture", url.Values{"categories": {"torture"}, "types": {strings.Join(append(decided[:], eventType), ",")}}, ""}
	}
	label := fmt.Sprintf("%s%d", l.prefix, i%(tagCount+1)-1)
	return index{"$idx-tag-" + label, url.Values{"tags": {label}}, label}
}

// indexer follows an index from its beginning, each page on any node, and also reads its newest
// events. Every second one asks for the pages by a query.
type indexer struct {
	worker
	index
	queries bool
	at      int64 // position from which it continues
	seen    []ref // by following
	heads   []head
}

// head is a reading of the newest events of an index.
type head struct {
	from  place
	refs  []ref // oldest first
	whole bool  // there were no more events
}

func newIndexer(l *load, number int) {
	r := &indexer{worker: l.worker(indexes + number), index: l.index(number), queries: number%2 == 1}
	l.indexers = append(l.indexers, r)
	l.employ(r.turn)
}

func (r *indexer) turn(ctx context.Context) time.Duration {
	to := r.wander()
	if r.rng.IntN(4) > 0 {
		entries, _ := r.follow(func(q client.Request) (*answer, error) { return r.do(ctx, to, q) })
		if entries == indexPage {
			return r.pause(1, 5)
		}
	} else if a, err := r.do(ctx, to, read(streamHead(url.PathEscape(r.name), headCount), false, 0)); err == nil && len(r.heads) < keptHeads {
		if p := r.indexPage(a); p != nil {
			r.heads = append(r.heads, head{r.place(a.from), r.staying(a.from, oldestFirst(p)), len(p.Entries) < headCount})
		}
	}
	return r.pause(10, 60)
}

// indexPage takes a page of the feed out of an answer, nil when there is none.
func (r *indexer) indexPage(a *answer) *page {
	if a.Status != http.StatusOK {
		r.count.add(ofIndexes, "failed", 1)
		return nil
	}
	p, err := client.ParsePage(a.Body)
	if err != nil {
		r.find.add(kindAnswer, "reading %s: %v", r.name, err)
		return nil
	}
	r.count.add(ofIndexes, "pages", 1)
	return p
}

// staying returns the events of the run that the index must have for ever.
func (r *indexer) staying(from Target, entries []entry) (refs []ref) {
	for i := range entries {
		f := r.book.read(&entries[i], r.place(from))
		if !f.ref.isForeign() && !f.stream.fluid {
			refs = append(refs, f.ref)
		}
		if r.label != "" && (f.ref.isForeign() || !r.ids.isTransfer(f.ref) || r.ids.label(f.ref) != r.label) {
			r.find.add(kindFound, "%s: %s is in %s", r.place(from), r.book.say(f), r.name)
		}
	}
	return refs
}

// follow reads the next page. It returns how many events that has.
func (r *indexer) follow(ask func(client.Request) (*answer, error)) (int, error) {
	path := streamForward(url.PathEscape(r.name), r.at, indexPage)
	if r.queries {
		path = fmt.Sprintf("/query?%s&limit=%d&after=%d", r.query.Encode(), indexPage, max(0, r.at-1))
		if r.at == 0 {
			path = fmt.Sprintf("/query?%s&limit=%d", r.query.Encode(), indexPage)
		}
	}
	q := read(path, false, 0)
	if r.queries {
		q.Header["Accept"] = client.MediaJSON
	}
	a, err := ask(q)
	if err != nil {
		r.count.add(ofIndexes, "failed", 1)
		return 0, err
	}
	var entries []entry
	if !r.queries {
		p := r.indexPage(a)
		if p == nil {
			return 0, fmt.Errorf("%s: %s", path, a)
		}
		entries = oldestFirst(p)
	} else if entries, err = found(a); err != nil {
		r.count.add(ofIndexes, "failed", 1)
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	r.count.add(ofIndexes, "entries", len(entries))
	for i := range entries {
		if n := entries[i].ReadNumber; n < r.at {
			r.find.add(kindFound, "%s: %s shows position %d where those from %d on belong", r.place(a.from), r.name, n, r.at)
			return 0, nil
		}
		r.at = entries[i].ReadNumber + 1
	}
	r.seen = append(r.seen, r.staying(a.from, entries)...)
	return len(entries), nil
}

// found reads the answer to a query.
func found(a *answer) (entries []entry, _ error) {
	var p client.QueryPage
	if a.Status != http.StatusOK {
		return nil, fmt.Errorf("%s", a)
	}
	if err := a.Decode(&p); err != nil {
		return nil, err
	}
	for _, e := range p.Events {
		entries = append(entries, entry{ID: e.ID, Type: e.Type, Number: e.Number, Stream: e.Stream, Data: string(e.Data), ReadNumber: e.Position, Redacted: e.Redacted})
	}
	return entries, nil
}

// readIndexes lets the indexers see the rest, and reads all indexes from all nodes: each must have
// exactly the events of the log. The log was read before.
func readIndexes(ctx context.Context, l *load, nodes []Target) {
	if len(l.indexers) == 0 {
		return
	}
	want := map[string][]ref{}
	for _, f := range l.book.facts {
		if f.ref.isForeign() || l.ids.isLink(f.ref) { // Links have no category.
			continue
		}
		want[""] = append(want[""], f.ref)
		if l.ids.isTransfer(f.ref) {
			want[l.ids.label(f.ref)] = append(want[l.ids.label(f.ref)], f.ref)
		}
	}
	end := func(r *indexer, t Target, who string) bool {
		f := finalReader{l, t}
		for n := indexPage; n > 0; {
			var err error
			if n, err = r.follow(func(q client.Request) (*answer, error) { return f.answer(ctx, q) }); err != nil {
				l.find.add(kindHeal, "%s: %s cannot be read: %v", t.Name, r.name, err)
				return false
			}
		}
		r.compare(who, r.seen, want[r.label])
		return true
	}
	for i, r := range l.indexers {
		if !end(r, nodes[i%len(nodes)], "one who moved between nodes") {
			return // Others would wait as long for the same reason.
		}
		for _, h := range r.heads {
			r.within(h, want[r.label])
		}
	}
	for _, t := range nodes {
		for i := range tagCount + 1 {
			if !end(&indexer{worker: l.worker(indexes), index: l.index(i), queries: i%2 == 0}, t, t.Name) {
				break
			}
		}
	}
}

// compare reports the first difference between an index as it was read and the log.
func (r *indexer) compare(who string, got, want []ref) {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			r.find.add(kindFound, "%s: %s lacks %d events of the log, from id %s on; it showed %d", who, r.name, len(want)-i, r.ids.id(want[i]), len(got))
		case i >= len(want):
			r.find.add(kindFound, "%s: %s has %d events too many, from id %s on", who, r.name, len(got)-i, r.ids.id(got[i]))
		case got[i] != want[i]:
			r.find.add(kindFound, "%s: event %d of %s is %s, it should be %s", who, i, r.name, r.ids.id(got[i]), r.ids.id(want[i]))
		default:
			continue
		}
		return
	}
}

// within: the newest events, as one reading showed them, follow each other in the log.
func (r *indexer) within(h head, want []ref) {
	if len(h.refs) == 0 {
		return
	}
	at := 0
	if !h.whole || r.label == "" {
		at = slices.Index(want, h.refs[0])
	}
	if at < 0 || !slices.Equal(want[at:min(at+len(h.refs), len(want))], h.refs) {
		r.find.add(kindFound, "%s: the newest events of %s, from id %s on, do not follow each other in the log", h.from, r.name, r.ids.id(h.refs[0]))
	}
}

// finds looks for the last event of a transfer that was just acknowledged, in an index of the node
// that did.
func (t *transferer) finds(ctx context.Context, a told, r ref) {
	path := fmt.Sprintf("/streams/%s/%d?embed=body", url.PathEscape("$idx-tag-"+t.ids.label(r)), a.position)
	got, err := exchange(ctx, t.http, a.from, client.Request{Method: http.MethodGet, Path: path, Header: map[string]string{"Accept": client.MediaAtom}}, t.timeout)
	switch {
	case err != nil || got.Status != http.StatusOK && got.Status != http.StatusNotFound:
		t.count.add(ofIndexes, "failed", 1)
	case got.Status == http.StatusNotFound:
		t.find.add(kindFound, "%s acknowledged id %s at position %d, and does not find it at %s: %s", a.from.Name, t.ids.id(r), a.position, path, got)
	default:
		t.count.add(ofIndexes, "foundAtOnce", 1)
	}
}
