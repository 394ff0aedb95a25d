package streams

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/jsontext"
)

const (
	defaultFound = 100
	maxFound     = 4096
	linesPage    = 512 // events that are read at a time
	// bytes of data and metadata of a page
	maxFoundPayload = 4 << 20
	maxQueryBody    = 2 * event.MaxQueryBytes
)

var (
	largeQuery = problem.New(http.StatusRequestEntityTooLarge, fmt.Sprintf("Too large a query. Limit is %d bytes", maxQueryBody))
	notAQuery  = problem.Bad("The body must be a JSON object.")
)

// queryRequest asks for what a query finds in a part of the log.
type queryRequest struct {
	api.QueryRead
	limit  int // 0: the default of a page, all of several pages
	noData bool
	plan   *event.Plan // of the page, if it is to be explained
}

// Query answers with what the query in the body finds.
func (f *Finder) Query(_ context.Context, x *request.Request) error {
	body, err := x.Upload.Read(maxQueryBody, largeQuery, notAQuery)
	if err != nil {
		return err
	}
	m := args.Object(body, notAQuery, "query", "after", "until", "limit", "backward", "data", "explain")
	if m.Err == nil && len(m.Others) > 0 {
		m.Wrong(problem.Bad(fmt.Sprintf("unknown member %q", m.Others[0])))
	}
	var q queryRequest
	q.read(m, positionOf)
	if m.Values["query"].IsGiven() {
		if q.Query, err = label.ReadQuery(m.Values["query"].Raw); err != nil {
			m.Wrong(err)
		}
	} else {
		m.Wrong(problem.Bad("query is required."))
	}
	if m.Values["limit"].IsGiven() {
		n := m.Integer("limit", 1<<31-1, 0)
		if q.limit = int(n); n < 1 || n > maxFound {
			m.Wrong(errFoundLimit)
		}
	}
	if m.Err != nil {
		return m.Err
	}
	return f.answerQuery(x, &q)
}

// read reads what both forms of a request say besides the query.
func (q *queryRequest) read(m *args.Members, positionOf func(args.Member) (int64, bool)) {
	q.noData, q.Backward = !m.Flag("data", true), m.Flag("backward", false)
	if m.Flag("explain", false) {
		q.plan = new(event.Plan)
	}
	for _, at := range []struct {
		name string
		to   *int64
	}{{"after", &q.After}, {"until", &q.Until}} {
		var ok bool
		if *at.to, ok = positionOf(m.Values[at.name]); !ok {
			m.MustBe(at.name, "a position")
		}
	}
}

var errFoundLimit = problem.Bad(fmt.Sprintf("limit must be between 1 and %d inclusive", maxFound))

// positionOf reads a position, as a number or as a text of 32 digits; -1 when none is given.
func positionOf(v args.Member) (position int64, ok bool) {
	switch {
	case !v.IsGiven():
		return -1, true
	case v.Kind == jsontext.String:
		return atom.ParsePosition(v.Text())
	}
	position, err := strconv.ParseInt(string(v.Raw), 10, 64)
	return position, err == nil && position >= 0
}

// QueryItem answers with what the parameters of the request find, as one item of a query.
func (f *Finder) QueryItem(_ context.Context, x *request.Request) error {
	q, err := queryArguments(x.R.URL.RawQuery)
	if err != nil {
		return err
	}
	return f.answerQuery(x, &q)
}

// queryArguments reads the parameters of a query.
func queryArguments(raw string) (q queryRequest, err error) {
	names := func(name string) []string {
		if list, ok := args.Lookup(raw, name); ok {
			return strings.Split(list, ",")
		}
		return nil
	}
	q.Query.Items = []event.QueryItem{{
		Types: names("types"), Tags: names("tags"), Categories: names("categories"), Streams: names("streams"),
		Correlation: args.Value(raw, "correlation"),
	}}
	if err := q.Query.Check(); err != nil {
		return q, err
	}
	m := args.Parameters(raw, "after", "until", "backward", "explain", "data")
	q.read(m, func(v args.Member) (int64, bool) {
		p, ok := positionOf(v)
		if !ok {
			p, ok = args.Number(v.Text(), math.MaxInt64)
		}
		return p, ok
	})
	var ok bool
	if q.limit, ok = args.Int(raw, "limit", 0, 1, maxFound); !ok {
		m.Wrong(errFoundLimit)
	}
	return q, m.Err
}

// answerQuery answers with one page, or with all pages as lines.
func (f *Finder) answerQuery(x *request.Request, q *queryRequest) error {
	ctx, err := leader.ReadsAsked(x)
	if err != nil {
		return err
	}
	if err := x.Node.Cover(ctx, &q.QueryRead); err != nil {
		return err
	}
	position := q.Until
	x.Copies().Own()
	if x.Media.Form == media.FormLines {
		if q.plan != nil {
			return problem.Bad("explain is not possible for all pages at once.")
		}
		return f.sendLines(x, q, position)
	}
	events, more, err := f.queryPage(ctx, x, q, cmp.Or(q.limit, defaultFound))
	if err != nil {
		return err
	}
	payload := int64(0)
	for i := range events {
		payload += int64(events[i].PayloadBytes())
	}
	if err := x.Claim.Grow(ctx, 2*payload); err != nil { // It is written as well.
		return err
	}
	b := appendCovered(x.Out[:0], position)
	b = append(b, `,"events":[`...)
	isFirst := true
	for i := range events {
		e, err := f.found(ctx, &events[i])
		if err != nil {
			return err
		} else if e == nil {
			continue
		}
		if !isFirst {
			b = append(b, ',')
		}
		isFirst = false
		b = q.append(b, e)
	}
	b = append(b, `],"next":`...)
	switch {
	case !more:
		b = append(b, "null"...)
	case q.Backward:
		b = strconv.AppendInt(b, q.Until, 10)
	default:
		b = strconv.AppendInt(b, q.After, 10)
	}
	if q.plan != nil {
		text, err := json.Marshal(q.plan)
		if err != nil {
			return fmt.Errorf("explain a query: %w", err)
		}
		b = append(append(b, `,"explain":`...), text...)
	}
	x.Out = append(b, '}')
	x.SendBody()
	return nil
}

// appendCovered begins an answer with the position that it covers up to: null, when the log is
// empty. As the after of a condition that is the whole log; a number would leave out an event that
// is written there.
func appendCovered(b []byte, position int64) []byte {
	b = append(b, `{"position":`...)
	if position < 0 {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, position, 10)
}

// queryPage reads at most so many events. There may be more when it says so.
func (f *Finder) queryPage(ctx context.Context, x *request.Request, q *queryRequest, count int) (events []event.Resolved, more bool, err error) {
	if q.Until < 0 { // The log was empty.
		return nil, false, nil
	}
	page, err := f.readFound(ctx, x, event.AllRead{Query: &q.Query, From: q.From(), Count: count + 1, Backward: q.Backward, Plan: q.plan, Room: &x.Page.Room})
	if err != nil {
		return nil, false, err
	}
	events, more = q.Take(page.Events, page.Next, page.More, count, maxFoundPayload)
	return events, more, nil
}

// places sets where a live tail of the query begins and ends.
func (q *queryRequest) places(of *liveQuery) {
	last := place{placeNumber, q.Until}
	if q.Until < 0 {
		last.kind = placeNone
	}
	if q.Backward {
		if of.from = last; q.After >= 0 {
			of.to = place{placeNumber, q.After + 1}
		}
		return
	}
	of.from, of.to = place{kind: placeStart}, last
	if q.After >= 0 {
		of.from, of.resumed = place{placeNumber, q.After}, true
	}
}

// found returns an event with its payload; nil: a scavenge was here.
func (f *Finder) found(ctx context.Context, e *event.Resolved) (*event.Record, error) {
	whole, err := e.Complete(func(r *event.Record) error { return f.Store.ReadPayload(ctx, r) })
	switch {
	case errors.Is(err, event.ErrEventNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &whole.Record, nil
}

// append appends an event as a JSON object on one line.
func (q *queryRequest) append(b []byte, r *event.Record) []byte {
	b = jsontext.Int(b, `{"position":`, r.Position)
	b = jsontext.Text(b, `,"stream":`, r.Stream)
	b = jsontext.Int(b, `,"number":`, r.Number)
	b = r.ID.AppendTo(append(b, `,"eventId":"`...))
	b = jsontext.Text(b, `","eventType":`, r.Type)
	b = atom.AppendTime(append(b, `,"created":"`...), r.Time)
	b = jsontext.Bool(b, `","isJson":`, r.IsJSON())
	switch {
	case r.IsRedacted():
		b = append(b, `,"isRedacted":true`...)
	case !q.noData:
		b = appendPayload(b, "data", r.Data, r.IsJSON())
	}
	if !q.noData {
		if len(r.Metadata) == 0 {
			b = append(b, `,"metadata":null`...)
		} else {
			b = appendPayload(b, "metadata", r.Metadata, true)
		}
	}
	var labels label.Reader
	facts, _ := labels.Read(r.Stream, r.Type, r.Metadata) // Malformed tags are none.
	b = append(b, `,"tags":[`...)
	for i, tag := range facts.Tags {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsontext.AppendString(b, tag)
	}
	return append(b, "]}"...)
}

// appendPayload appends a member with stored bytes: as JSON, or in base 64 under another name.
func appendPayload(b []byte, name string, data []byte, isJSON bool) []byte {
	b = append(append(b, `,"`...), name...)
	if isJSON && jsontext.ValidUTF8(data) {
		w := bytes.NewBuffer(append(b, `":`...))
		if json.Compact(w, data) == nil {
			return w.Bytes()
		}
	}
	b = append(b, `Base64":"`...)
	return append(base64.StdEncoding.AppendEncode(b, data), '"')
}

// sendLines answers with all pages, an event on a line. An answer without the last line broke off.
func (f *Finder) sendLines(x *request.Request, q *queryRequest, position int64) error {
	release, err := x.Caller.Share(api.Search)
	if err != nil {
		return err
	}
	defer release()
	x.Out = append(appendCovered(x.Out[:0], position), "}\n"...)
	if err = f.appendLines(q, x); err == nil {
		x.Out = append(x.Out, "{\"end\":true}\n"...)
	}
	return (*request.Parts)(x).End(err)
}

// appendLines writes the events of all pages.
func (f *Finder) appendLines(q *queryRequest, x *request.Request) error {
	left := q.limit
	for {
		count := linesPage
		if q.limit > 0 {
			count = min(count, left)
		}
		events, more, err := f.queryPage(x.Reads(), x, q, count)
		if err != nil {
			return err
		}
		for i := range events {
			if err := f.appendLine(q, x, &events[i]); err != nil {
				return err
			}
		}
		if left -= len(events); !more || q.limit > 0 && left == 0 {
			return nil
		}
	}
}

// appendLine writes an event. The memory of a large one is claimed until it is sent.
func (f *Finder) appendLine(q *queryRequest, x *request.Request, e *event.Resolved) error {
	ctx := x.R.Context()
	if e.IsBare() {
		alone := 2 * int64(e.PayloadBytes())
		if err := x.Claim.Grow(ctx, alone); err != nil {
			return err
		}
		defer x.Claim.Shrink(alone)
	}
	r, err := f.found(ctx, e)
	if r == nil || err != nil {
		return err
	}
	if x.Out = append(q.append(x.Out, r), '\n'); len(x.Out) < livePart {
		return nil
	}
	return (*request.Parts)(x).Send()
}
