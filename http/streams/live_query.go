package streams

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/match"
)

const (
	keyLastEventID = "Last-Event-Id"

	maxLiveFilter = 200 // bytes of an expression, and of the text that is looked for
)

// place is where a tail begins or ends.
type place struct {
	kind   placeKind
	number int64 // event number, position, or nanoseconds since 1970
}

type placeKind uint8

const (
	placeNone   placeKind = iota // nothing was said
	placeStart                   // of the stream or the log
	placeEnd                     // of the stream or the log
	placeNumber                  // an event number, in $all a position
	placeTime
)

// liveQuery has the parameters of a live tail.
type liveQuery struct {
	all      bool         // the log is read: $all, or what query finds in it
	query    *event.Query // of an index stream; its numbers are positions
	from, to place
	resumed  bool // from is what the client has already
	limit    int64
	backward bool
	leader   bool
	resolve  bool
	level    atom.Level
	maxData  int // -1: no bound

	types, streams *match.Names       // nil: any
	chosen         *event.FilterNames // by one of both; nil: any
	contains       []byte             // nil: any
	id             event.ID           // zero: any
	categories     *event.Query       // nil: any; so with labels
	labels         *event.Query       // tags, and a correlation id
	reader         label.Reader
	noSystem       bool
}

// liveArguments reads the arguments of a live tail: of a stream, or of what a query finds. The
// parameters of the query are not filters of the tail.
func liveArguments(x *request.Request, found *queryRequest) (q liveQuery, err error) {
	query := x.R.URL.RawQuery
	q.all = x.Route.Stream == event.AllStream
	if found != nil {
		q.all, q.query = true, &found.Query
		found.places(&q)
	} else if event.IsIndexStream(x.Route.Stream) {
		q.all = true
		if q.query, err = indexQuery(x.Route.Stream); err != nil {
			return q, err
		}
	}
	q.limit, q.level = math.MaxInt64, atom.Body
	// Each step does nothing once one has failed.
	value := func(name string, read func(v string) bool) {
		if v, ok := args.Lookup(query, name); ok && err == nil && !read(v) {
			err = problem.Bad("'" + v + "' is not valid " + name)
		}
	}
	filter := func(name string, read func(v string) bool) {
		if found == nil {
			value(name, read)
		}
	}
	where := func(to *place) func(string) bool {
		return func(v string) (ok bool) {
			*to, ok = q.place(v)
			return ok
		}
	}
	number := func(to *int64, least int64) func(string) bool {
		return func(v string) (ok bool) {
			*to, ok = args.Number(v, math.MaxInt64)
			return ok && *to >= least
		}
	}
	flag := func(to *bool) func(string) bool {
		return func(v string) (ok bool) {
			*to, ok = args.Flag(v)
			return ok
		}
	}
	if q.resolve, err = args.HeaderResolveLinks.Flag(x.R.Header, !q.all); err != nil {
		return q, err
	}
	if q.leader, err = args.RequireLeader(x.R.Header); err != nil {
		return q, err
	}
	system := true
	filter("from", where(&q.from))
	filter("to", where(&q.to))
	value("limit", number(&q.limit, 1))
	value("backward", flag(&q.backward))
	filter("types", liveNames(&q.types))
	filter("streams", func(v string) bool { return q.all && liveNames(&q.streams)(v) })
	if q.types != nil {
		q.chosen = &event.FilterNames{NameFilter: q.types}
	} else if q.streams != nil {
		q.chosen = &event.FilterNames{NameFilter: q.streams, OfStream: true}
	}
	var wanted event.QueryItem
	filter("categories", liveExact(&q.categories, func(v string) event.QueryItem {
		return event.QueryItem{Categories: strings.Split(v, ",")}
	}))
	filter("tags", liveExact(&q.labels, func(v string) event.QueryItem {
		wanted.Tags = strings.Split(v, ",")
		return wanted
	}))
	filter("correlation", liveExact(&q.labels, func(v string) event.QueryItem {
		wanted.Correlation = v
		return wanted
	}))
	value("contains", func(v string) bool {
		q.contains = []byte(v)
		return v != "" && len(v) <= maxLiveFilter
	})
	value("id", func(v string) bool {
		id, err := event.ParseID(v)
		q.id = id
		return err == nil && !id.IsZero()
	})
	value("system", flag(&system))
	value("resolve", flag(&q.resolve))
	value("embed", func(v string) bool {
		switch {
		case strings.EqualFold(v, "none"):
			q.level = atom.None
		case strings.EqualFold(v, "rich"):
			q.level = atom.Rich
		default:
			return strings.EqualFold(v, "body")
		}
		return true
	})
	q.noSystem = !system
	if err == nil {
		q.maxData, err = args.MaxData(query)
	}
	if err == nil && q.backward && q.to.kind == placeEnd {
		err = problem.Bad("'end' is not valid to where backward is true")
	}
	if last := x.R.Header[keyLastEventID]; last != nil && err == nil {
		q.resumed = true
		var ok bool
		if q.from, ok = q.place(strings.TrimSpace(last[0])); !ok || q.from.kind != placeNumber {
			err = problem.Bad("Last-Event-ID header in wrong format.")
		}
	}
	return q, err
}

// place reads where a tail begins or ends.
func (q *liveQuery) place(v string) (place, bool) {
	switch v {
	case "start":
		return place{kind: placeStart}, true
	case "end":
		return place{kind: placeEnd}, true
	}
	if q.all && q.query == nil {
		if p, ok := atom.ParsePosition(v); ok {
			return place{placeNumber, p}, true
		}
	} else if n, ok := args.Number(v, math.MaxInt64-1); ok {
		return place{placeNumber, n}, true
	}
	ns, ok := args.Moment(v)
	return place{placeTime, ns}, ok
}

// liveNames reads a list of prefixes, or one expression between slashes.
func liveNames(to **match.Names) func(string) bool {
	return func(v string) bool {
		var err error
		if len(v) > 2 && v[0] == '/' && v[len(v)-1] == '/' {
			if len(v)-2 > maxLiveFilter {
				return false
			}
			*to, err = match.Expression(v[1 : len(v)-1])
		} else {
			*to, err = anyPrefix(v)
		}
		return err == nil
	}
}

// liveExact reads what events are to say of themselves.
func liveExact(to **event.Query, read func(v string) event.QueryItem) func(string) bool {
	return func(v string) bool {
		item := read(v)
		*to = &event.Query{Items: []event.QueryItem{item}}
		return v != "" && (*to).Check() == nil
	}
}

// isSlow reports whether an expression backtracks.
func (q *liveQuery) isSlow() bool {
	return q.types != nil && q.types.IsSlow() || q.streams != nil && q.streams.IsSlow()
}

// isFiltered reports whether events may be left out.
func (q *liveQuery) isFiltered() bool {
	return q.types != nil || q.streams != nil || q.contains != nil || !q.id.IsZero() || q.noSystem || q.categories != nil || q.labels != nil
}

// wantsNames reports whether an event of a stream and a type may be sent.
func (q *liveQuery) wantsNames(stream, eventType string) (ok bool, err error) {
	ok = !(q.noSystem && (strings.HasPrefix(eventType, "$") || strings.HasPrefix(stream, "$")))
	if ok && q.types != nil {
		ok, err = q.types.Match(eventType)
	}
	if ok && q.streams != nil {
		ok, err = q.streams.Match(stream)
	}
	if ok && q.categories != nil {
		ok = q.categories.Matches(&event.Facts{Stream: stream, Type: eventType})
	}
	return ok, filterFailed(err)
}

// wantsContent reports whether the event of a record, which is not bare unless nothing is looked
// for in it, is to be sent.
func (q *liveQuery) wantsContent(r *event.Record) bool {
	if q.labels != nil {
		facts, _ := q.reader.Read(r.Stream, r.Type, r.Metadata) // Malformed tags are none.
		if !q.labels.Matches(&facts) {
			return false
		}
	}
	return (q.id.IsZero() || q.id == r.ID) &&
		(q.contains == nil || bytes.Contains(r.Data, q.contains) || bytes.Contains(r.Metadata, q.contains))
}

// appendPlace appends a number as the tail's ids have it.
func (q *liveQuery) appendPlace(b []byte, n int64) []byte {
	if q.all && q.query == nil {
		return atom.AppendPosition(b, n)
	}
	return strconv.AppendInt(b, n, 10)
}
