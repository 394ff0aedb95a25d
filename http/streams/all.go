package streams

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/page"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/match"
)

// allRequest has the parameters of a request for a page of the log.
type allRequest struct {
	event.AllRead
	fromHead bool
	filtered bool
	leader   bool
	poll     time.Duration
}

// keyLooked is the header that says how many records a filtered page looked at: with it a client
// can tell how many the page does not show.
const keyLooked = "Annals-Looked"

// maxFilteredScan bounds the records that one filtered page looks at, so that a
// filter nothing matches cannot keep a request busy for long.
const maxFilteredScan = 50_000

// maxMatching bounds the time that a filter which backtracks may take for all names that a page
// looks at.
const maxMatching = 2 * time.Second

// allArguments reads the arguments of a page of the log.
func allArguments(x *request.Request, backward, filtered bool) (a allRequest, err error) {
	a.Backward, a.filtered = backward, filtered
	a.From, a.Room = event.End, &x.Page.Room
	if from := x.Route.From; from == "" || from == page.SegHead {
		a.fromHead = true
	} else {
		p, ok := atom.ParsePosition(from)
		if !ok {
			return a, invalidPosition(from)
		}
		a.From = p
	}
	a.Count = page.DefaultCount
	if c := x.Route.Count; c != "" {
		n, ok := args.Number(c, math.MaxInt32)
		switch {
		case !ok || n == 0:
			return a, problem.Bad("Invalid count argument: " + c)
		case n > page.MaxCount:
			return a, page.ErrPageTooBig
		}
		a.Count = int(n)
	}
	if filtered {
		f, err := parseFilter(x.R.URL.RawQuery)
		if err != nil {
			return a, err
		}
		a.Filter, a.Names = f.Takes, &event.FilterNames{NameFilter: f.Names, OfStream: f.OfStream}
		a.Links, a.MaxScan = &x.Caller, maxFilteredScan
	} else if a.Links, err = x.Caller.LinksOf(false); err != nil {
		return a, err
	}
	a.leader, a.poll, err = args.Reading(x.R.Header, backward)
	return a, err
}

func invalidPosition(p string) error { return problem.Bad("Invalid position argument: " + p) }

// All makes the handler of pages of the log.
func (s *Handlers) All(backward, filtered bool) request.Handler {
	return func(_ context.Context, x *request.Request) error { return s.serveAll(x, backward, filtered) }
}

func (s *Handlers) serveAll(x *request.Request, backward, filtered bool) error {
	a, err := allArguments(x, backward, filtered)
	if err != nil {
		return err
	}
	ctx, err := leader.Reads(x, a.leader)
	if err != nil {
		return err
	}
	if x.Media.Form == media.FormDescription {
		x.Media = x.Media.FeedInstead()
	}
	end := s.Store.LogEnd()
	if a.fromHead && !backward {
		a.From = end
	}
	match := x.R.Header[caching.KeyIfNoneMatch]
	if match != nil && (a.poll == 0 || a.From < end) && x.Copies().Holds(match, end, nil) {
		x.Send(http.StatusNotModified, nil)
		return nil
	}
	page, err := s.searchLog(ctx, x, &a)
	if err != nil {
		return err
	}
	if len(page.Events) == 0 && !page.More && a.poll > 0 {
		if page, err = s.awaitLog(x, &a, page); err != nil {
			return err
		}
		if match != nil && len(page.Events) == 0 && x.Copies().Holds(match, page.LogEnd, nil) {
			x.Send(http.StatusNotModified, nil)
			return nil
		}
	}
	logFreshness(x, &page, &a)
	if filtered {
		x.W.Header()[keyLooked] = []string{strconv.Itoa(page.Looked)}
	}
	x.Copies().OfCaller(page.Events...)
	doc := x.Atom().All(&page, &a.AllRead, a.filtered)
	return x.Write(&doc)
}

// searchLog is readLog for a page that may have to be looked for: such looks are bounded.
func (s *Handlers) searchLog(ctx context.Context, x *request.Request, a *allRequest) (event.AllPage, error) {
	if a.filtered {
		release, err := x.Caller.Share(api.Search)
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
func (s *Handlers) readLog(ctx context.Context, x *request.Request, a *allRequest) (event.AllPage, error) {
	end := s.Store.LogEnd()
	read := a.AllRead
	if read.From >= end && !read.Backward {
		return event.AllPage{From: read.From, Next: read.From, LogEnd: end}, nil
	}
	maxPayload, err := x.Page.Reading(ctx, read.Count)
	if err != nil {
		return event.AllPage{}, err
	}
	read.MaxPayload = maxPayload
	defer x.Page.Read()
	page, err := s.Store.ReadAll(ctx, read)
	switch {
	case errors.Is(err, event.ErrBadPosition):
		return page, invalidPosition(x.Route.From)
	case err != nil:
		return page, err
	}
	return page, filterFailed(page.Failed)
}

// awaitLog waits until the log has an event that belongs to the page, at most
// for the time the client gave. What did not pass the filter is not read again.
func (s *Handlers) awaitLog(x *request.Request, a *allRequest, found event.AllPage) (event.AllPage, error) {
	from := *a
	err := page.Await(x, a.poll, func(ctx context.Context) error {
		for len(found.Events) == 0 && !found.More {
			from.From = found.Next
			if err := s.Store.WaitLog(ctx, found.Next); err != nil {
				return err
			}
			if err := x.Caller.Judge(); err != nil {
				return err
			}
			next, err := s.readLog(ctx, x, &from)
			if err != nil {
				return err
			}
			found = next
		}
		return nil
	})
	return found, err
}

// logFreshness sets the caching headers of a page of the log.
func logFreshness(x *request.Request, page *event.AllPage, a *allRequest) {
	isClosed := !a.fromHead && a.From < page.LogEnd
	if !a.Backward {
		isClosed = len(page.Events) >= a.Count
	}
	if isClosed {
		x.Copies().Last(caching.Forever)
		return
	}
	x.Copies().Open(page.LogEnd, nil)
}

// filterFailed is the answer to a name that took too long.
func filterFailed(err error) error {
	if err == nil {
		return nil
	}
	return problem.Bad("The regular expression takes too long.")
}

// parseFilter reads the filter parameters.
func parseFilter(query string) (*match.Filter, error) {
	if v := args.Value(query, "exclude-system-events"); v != "" {
		if !strings.EqualFold(v, "true") {
			return nil, problem.Bad("exclude-sytem-events should have a value of true.")
		}
		return &match.Filter{Names: match.Ordinary}, nil
	}
	f := &match.Filter{Budget: maxMatching}
	switch v := args.Value(query, "context"); {
	case strings.EqualFold(v, "streamid"):
		f.OfStream = true
	case strings.EqualFold(v, "eventtype"):
	default:
		return nil, problem.Bad("Invalid context please provide one of the following: StreamId, EventType.")
	}
	how := args.Value(query, "type")
	isRegex := strings.EqualFold(how, "regex")
	if !isRegex && !strings.EqualFold(how, "prefix") {
		return nil, problem.Bad("Invalid type please provide one of the following: Regex, Prefix.")
	}
	data := args.Value(query, "data")
	var err error
	if isRegex && data != "" {
		if f.Names, err = match.Expression(data); err != nil {
			return nil, problem.Bad("Invalid regular expression: " + data)
		}
	} else if f.Names, err = anyPrefix(data); err != nil {
		return nil, problem.Bad("Please provide a comma delimited list of data with at least one item.")
	}
	return f, nil
}

// anyPrefix reads a list of prefixes; match.ErrNothing when there is none.
func anyPrefix(list string) (*match.Names, error) {
	prefixes := strings.Split(list, ",")
	for i := range prefixes {
		prefixes[i] = strings.TrimSpace(prefixes[i])
	}
	return match.Prefixes(prefixes)
}
