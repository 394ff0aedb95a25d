package httpapi

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/internal/match"
)

// allRequest has the parameters of a request for a page of the log.
type allRequest struct {
	event.AllRead
	fromHead bool
	filtered bool
	filter   *filter // nil: none
	leader   bool
	poll     time.Duration
}

func (s *streamHandlers) allBackward(_ context.Context, x *exchange) error {
	return s.servePageOfAll(x, true, false)
}
func (s *streamHandlers) allForward(_ context.Context, x *exchange) error {
	return s.servePageOfAll(x, false, false)
}
func (s *streamHandlers) filteredBackward(_ context.Context, x *exchange) error {
	return s.servePageOfAll(x, true, true)
}
func (s *streamHandlers) filteredForward(_ context.Context, x *exchange) error {
	return s.servePageOfAll(x, false, true)
}

// isShown is a filter that leaves out only what $all never shows.
func isShown(stream, _ string) bool { return event.ShownInAll(stream) }

// maxFilteredScan bounds the records that one filtered page looks at, so that a
// filter nothing matches cannot keep a request busy for long.
const maxFilteredScan = 50_000

// maxMatching bounds the time that a filter which backtracks may take for all names that a page
// looks at.
const maxMatching = 2 * time.Second

// allArguments reads the arguments of a page of the log.
func allArguments(x *exchange, backward, filtered bool) (a allRequest, err error) {
	a.Backward, a.filtered = backward, filtered
	a.From, a.Room = event.End, &x.room
	if from := x.route.from; from == "" || from == segHead {
		a.fromHead = true
	} else {
		p, ok := atom.ParsePosition(from)
		if !ok {
			return a, invalidPosition(from)
		}
		a.From = p
	}
	a.Count = defaultCount
	if c := x.route.count; c != "" {
		n, ok := parseNumber(c, math.MaxInt32)
		switch {
		case !ok || n == 0:
			return a, badRequest("Invalid count argument: " + c)
		case n > maxCount:
			return a, errPageTooBig
		}
		a.Count = int(n)
	}
	a.Filter = isShown
	if filtered {
		f, err := parseFilter(x.r.URL.RawQuery)
		if err != nil {
			return a, err
		}
		a.filter = f
		a.Filter = func(stream, eventType string) bool { return isShown(stream, "") && f.takes(stream, eventType) }
		a.Links, a.MaxScan = (*callerLinks)(x), maxFilteredScan
	} else if a.Links, err = linksOf(x, false); err != nil {
		return a, err
	}
	if a.leader, err = requireLeader(x.r.Header); err != nil {
		return a, err
	}
	if !backward {
		a.poll, err = longPoll(x.r.Header)
	}
	return a, err
}

func invalidPosition(p string) error { return badRequest("Invalid position argument: " + p) }

// servePageOfAll answers with a page of the log.
func (s *streamHandlers) servePageOfAll(x *exchange, backward, filtered bool) error {
	a, err := allArguments(x, backward, filtered)
	if err != nil {
		return err
	}
	ctx, err := x.readsFrom(a.leader)
	if err != nil {
		return err
	}
	if x.media.form == formDescription {
		x.media = x.media.feedInstead()
	}
	end := s.store.LogEnd()
	if a.fromHead && !backward {
		a.From = end
	}
	match := x.r.Header[keyIfNoneMatch]
	if match != nil && (a.poll == 0 || a.From < end) {
		if tag := x.matched(match, end); tag != nil {
			x.notModified(tag, nil)
			return nil
		}
	}
	page, err := s.searchLog(ctx, x, &a)
	if err != nil {
		return err
	}
	if len(page.Events) == 0 && !page.More && a.poll > 0 {
		if page, err = s.awaitLog(x, &a, page); err != nil {
			return err
		}
		if match != nil && len(page.Events) == 0 {
			if tag := x.matched(match, page.LogEnd); tag != nil {
				x.notModified(tag, nil)
				return nil
			}
		}
	}
	logFreshness(x, &page, &a)
	ofCaller(x, page.Events...)
	doc := x.atom().All(&page, &a.AllRead, a.filtered)
	return x.write(&doc)
}

// searchLog is readLog for a page that may have to be looked for: such looks are bounded.
func (s *streamHandlers) searchLog(ctx context.Context, x *exchange, a *allRequest) (event.AllPage, error) {
	if a.filtered {
		release, err := share(x, api.Search)
		if err != nil {
			return event.AllPage{}, err
		}
		defer release()
	}
	return s.readLog(ctx, x, a)
}

// readLog reads a page. A position above this node's end, which another node may
// have given the client, is a page without events when reading forward. Reading
// backward the store begins at its end then, of which it alone knows where it is.
func (s *streamHandlers) readLog(ctx context.Context, x *exchange, a *allRequest) (event.AllPage, error) {
	end := s.store.LogEnd()
	read := a.AllRead
	if read.From >= end && !read.Backward {
		return event.AllPage{From: read.From, Next: read.From, LogEnd: end}, nil
	}
	maxPayload, err := readingPage(ctx, x, read.Count)
	if err != nil {
		return event.AllPage{}, err
	}
	read.MaxPayload = maxPayload
	defer pageRead(x)
	page, err := s.store.ReadAll(ctx, read)
	switch {
	case errors.Is(err, event.ErrBadPosition):
		return page, invalidPosition(x.route.from)
	case err != nil:
		return page, err
	}
	return page, a.filter.failed()
}

// awaitLog waits until the log has an event that belongs to the page, at most
// for the time the client gave. What did not pass the filter is not read again.
func (s *streamHandlers) awaitLog(x *exchange, a *allRequest, page event.AllPage) (event.AllPage, error) {
	from := *a
	err := longWait(x, a.poll, func(ctx context.Context) error {
		for len(page.Events) == 0 && !page.More {
			from.From = page.Next
			if err := s.waiter.WaitLog(ctx, page.Next); err != nil {
				return err
			}
			if err := judge(x); err != nil {
				return err
			}
			next, err := s.readLog(ctx, x, &from)
			if err != nil {
				return err
			}
			page = next
		}
		return nil
	})
	return page, err
}

// logFreshness sets the caching headers of a page of the log.
func logFreshness(x *exchange, page *event.AllPage, a *allRequest) {
	isClosed := !a.fromHead && a.From < page.LogEnd
	if !a.Backward {
		isClosed = len(page.Events) >= a.Count
	}
	if isClosed {
		x.closed()
		return
	}
	x.open(page.LogEnd, nil)
}

// filter chooses events by the name of their stream or of their type.
type filter struct {
	sieve    *match.Sieve // nil: no system events
	ofStream bool
}

func (f *filter) takes(stream, eventType string) bool {
	switch {
	case f.sieve == nil:
		return !strings.HasPrefix(eventType, "$")
	case f.ofStream:
		return f.sieve.Takes(stream)
	}
	return f.sieve.Takes(eventType)
}

// failed returns why the result is not to be used, or nil.
func (f *filter) failed() error {
	if f == nil {
		return nil
	}
	return failedSieves(f.sieve)
}

// failedSieves is the answer to names that took too long.
func failedSieves(sieves ...*match.Sieve) error {
	for _, s := range sieves {
		if s != nil && s.Err != nil {
			return badRequest("The regular expression takes too long.")
		}
	}
	return nil
}

// parseFilter reads the filter parameters.
func parseFilter(query string) (*filter, error) {
	if v := queryValue(query, "exclude-system-events"); v != "" {
		if !strings.EqualFold(v, "true") {
			return nil, badRequest("exclude-sytem-events should have a value of true.")
		}
		return &filter{}, nil
	}
	var f filter
	switch v := queryValue(query, "context"); {
	case strings.EqualFold(v, "streamid"):
		f.ofStream = true
	case strings.EqualFold(v, "eventtype"):
	default:
		return nil, badRequest("Invalid context please provide one of the following: StreamId, EventType.")
	}
	how := queryValue(query, "type")
	isRegex := strings.EqualFold(how, "regex")
	if !isRegex && !strings.EqualFold(how, "prefix") {
		return nil, badRequest("Invalid type please provide one of the following: Regex, Prefix.")
	}
	data := queryValue(query, "data")
	var names *match.Names
	var err error
	if isRegex && data != "" {
		if names, err = match.Expression(data); err != nil {
			return nil, badRequest("Invalid regular expression: " + data)
		}
	} else if names, err = anyPrefix(data); err != nil {
		return nil, badRequest("Please provide a comma delimited list of data with at least one item.")
	}
	f.sieve = &match.Sieve{Names: names, Budget: maxMatching}
	return &f, nil
}

// anyPrefix reads a list of prefixes; match.ErrNothing when there is none.
func anyPrefix(list string) (*match.Names, error) {
	prefixes := strings.Split(list, ",")
	for i := range prefixes {
		prefixes[i] = strings.TrimSpace(prefixes[i])
	}
	return match.Prefixes(prefixes)
}
