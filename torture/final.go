package torture

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

const (
	// finalPage is how many events are asked for at once in the end. It is the same
	// for all nodes, so that their pages have the same borders.
	finalPage = 1000
	// finalPatience bounds how long one page of a healed cluster may take.
	finalPatience = 30 * time.Second
)

// finalReader reads everything from one node.
type finalReader struct {
	*load
	node Target
}

// page reads one page, again and again while the node does not answer. It returns nil when there is
// no such stream.
func (r *finalReader) page(ctx context.Context, path string) (*page, error) {
	a, err := r.answer(ctx, read(path, false, 0))
	if err != nil || a.Status != http.StatusOK {
		return nil, err
	}
	return client.ParsePage(a.Body)
}

// answer reads until there is a page or none.
func (r *finalReader) answer(ctx context.Context, q client.Request) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, finalPatience)
	defer cancel()
	for {
		a, err := exchange(ctx, r.http, r.node, q, finalPatience)
		switch {
		case err != nil:
		case a.Status == http.StatusOK, a.Status == http.StatusNotFound, a.Status == http.StatusGone:
			return a, nil
		default:
			err = errors.New(a.String())
		}
		if clock.Sleep(ctx, 100*time.Millisecond) != nil {
			return nil, err
		}
	}
}

// log reads the log to its end, or to an event if that is not nil. It returns the shown events, and
// how many of them cannot be removed.
func (r *finalReader) log(ctx context.Context, last *entry) (all []seen, _ int, _ error) {
	at := r.book.start()
	for ended := false; !ended; {
		p, err := r.page(ctx, allForward(at.position, finalPage))
		switch {
		case err != nil:
			return nil, at.ordinal, err
		case p == nil || len(p.Entries) == 0 && last != nil:
			return nil, at.ordinal, errors.New("it ends here")
		case len(p.Entries) == 0:
			return all, at.ordinal, nil
		}
		if last != nil {
			i := slices.IndexFunc(p.Entries, func(e entry) bool { return e.Stream == last.Stream && e.Number == last.Number })
			p.Entries, ended = p.Entries[max(0, i):], i >= 0
		}
		events, next := r.book.logPage(r.place(r.node), at, p, finalPage)
		if next == at {
			break // The page was not in order, which has been reported.
		}
		all = append(all, events...)
		at = next
	}
	return all, at.ordinal, nil
}

// stream reads a stream to its end. It passes the pages to take, oldest first, with the number at
// which each begins. take returns the number after the page; stream returns that of the last page.
func (r *finalReader) stream(ctx context.Context, name string, take func(at int64, entries []entry) (int64, error)) (next int64, _ error) {
	for {
		p, err := r.page(ctx, streamForward(url.PathEscape(name), next, finalPage))
		if err == nil && p != nil {
			next, err = take(next, oldestFirst(p))
		}
		switch {
		case err != nil:
			return next, fmt.Errorf("%s: %w", name, err)
		case p == nil || p.HeadOfStream || len(p.Entries) == 0:
			return next, nil
		}
	}
}

// streams reads every stream by itself: the index must tell what the log told.
func (r *finalReader) streams(ctx context.Context) error {
	for _, s := range r.plainStreams() {
		number, err := r.stream(ctx, s.name, func(at int64, entries []entry) (int64, error) {
			r.book.streamPage(r.place(r.node), s, at, entries)
			return at + int64(len(entries)), nil
		})
		if err != nil {
			return err
		}
		if inLog := r.book.logged(s); number != inLog {
			r.find.add(kindIndex, "%s: %s has %d events when it is read, and %d in the log", r.place(r.node), s.name, number, inLog)
		}
	}
	return nil
}

// logged counts the events of an own stream that are in the log.
func (b *book) logged(of *stream) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := int64(0)
	for _, o := range of.ordinals {
		if o >= 0 {
			n++
		}
	}
	return n
}

// readBack reads everything from every node, and returns the logs of those that can be
// read. All nodes must show the same log to the same end.
func readBack(ctx context.Context, l *load, nodes []Target) (logs []nodeLog) {
	ends := make([]int, len(nodes))
	whole := make([]bool, len(nodes))
	for i, t := range nodes {
		r := finalReader{l, t}
		var err error
		var events []seen
		if events, ends[i], err = r.log(ctx, nil); err != nil {
			l.find.add(kindHeal, "%s cannot be read to its end, from event %d of the log on: %v", t.Name, ends[i], err)
			continue
		}
		whole[i] = true
		logs = append(logs, nodeLog{t, events})
	}
	known := l.book.len()
	for i, t := range nodes {
		if whole[i] && ends[i] < known {
			l.book.missing(t, ends[i], known)
		}
	}
	for i, t := range nodes {
		if !whole[i] {
			continue
		}
		r := finalReader{l, t}
		if err := r.streams(ctx); err != nil {
			l.find.add(kindHeal, "%s cannot be read: %v", t.Name, err)
		}
	}
	return logs
}

// missing reports a node whose log ends before that of others.
func (b *book) missing(t Target, end, known int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var some []string
	for o := end; o < min(known, end+5); o++ {
		some = append(some, fmt.Sprintf("event %d, %s, shown by %s", o, b.say(b.facts[o]), b.definer(o)))
	}
	b.find.add(kindLost, "the log of %s ends after %d events, %d are known; missing are %s", t.Name, end, known, strings.Join(some, "; "))
}
