package streams

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

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
	"github.com/annalsdb/annals/internal/logkey"
)

const (
	defaultFound = 100
	maxFound     = 4096
	linesPage    = 512 // events that are read at a time
	// bytes of data and metadata of a page
	maxFoundPayload = 4 << 20
	// A position that another node gave is waited for so long.
	awaitPosition = 2 * time.Second
	maxQueryBody  = 2 * event.MaxQueryBytes
)

var (
	largeQuery = problem.New(http.StatusRequestEntityTooLarge, fmt.Sprintf("Too large a query. Limit is %d bytes", maxQueryBody))
	notAQuery  = problem.Bad("The body must be a JSON object.")
)

// queryRequest asks for what a query finds in a part of the log.
type queryRequest struct {
	query    event.Query
	after    int64 // only what lies at higher positions; -1: all
	until    int64 // the last position; -1: the end of the log
	limit    int   // 0: the default of a page, all of several pages
	backward bool
	noData   bool
}

// Query answers with what the query in the body finds.
func (s *Handlers) Query(_ context.Context, x *request.Request) error {
	body, err := x.ReadBody(maxQueryBody, largeQuery, notAQuery)
	if err != nil {
		return err
	}
	m := args.Object(body, notAQuery, "query", "after", "until", "limit", "backward", "data")
	if m.Err == nil && len(m.Others) > 0 {
		m.Wrong(problem.Bad(fmt.Sprintf("unknown member %q", m.Others[0])))
	}
	q := queryRequest{backward: m.Flag("backward", false), noData: !m.Flag("data", true)}
	if m.Values["query"].IsGiven() {
		if err := q.query.UnmarshalJSON(m.Values["query"].Raw); err != nil {
			m.Wrong(err)
		}
	} else {
		m.Wrong(problem.Bad("query is required."))
	}
	position := func(name string) int64 {
		v := m.Values[name]
		n, ok := positionOf(v)
		if !ok {
			m.MustBe(name, "a position")
		}
		return n
	}
	q.after, q.until = position("after"), position("until")
	if m.Values["limit"].IsGiven() {
		n := m.Integer("limit", 1<<31-1, 0)
		if q.limit = int(n); n < 1 || n > maxFound {
			m.Wrong(errFoundLimit)
		}
	}
	if m.Err != nil {
		return m.Err
	}
	return s.answerQuery(x, &q)
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
func (s *Handlers) QueryItem(_ context.Context, x *request.Request) error {
	q, err := queryArguments(x.R.URL.RawQuery)
	if err != nil {
		return err
	}
	return s.answerQuery(x, &q)
}

// queryArguments reads the parameters of a query.
func queryArguments(raw string) (q queryRequest, err error) {
	names := func(name string) []string {
		if list, ok := args.Lookup(raw, name); ok {
			return strings.Split(list, ",")
		}
		return nil
	}
	q.query.Items = []event.QueryItem{{
		Types: names("types"), Tags: names("tags"), Categories: names("categories"), Streams: names("streams"),
		Correlation: args.Value(raw, "correlation"),
	}}
	if err := q.query.Check(); err != nil {
		return q, err
	}
	for name, to := range map[string]*int64{"after": &q.after, "until": &q.until} {
		*to = -1
		if text, ok := args.Lookup(raw, name); ok {
			if *to, err = positionArgument(text); err != nil {
				return q, problem.Bad(name + " must be a position.")
			}
		}
	}
	var ok bool
	if q.limit, ok = args.Int(raw, "limit", 0, 1, maxFound); !ok {
		return q, errFoundLimit
	}
	if q.backward, ok = args.Bool(raw, "backward"); !ok {
		return q, problem.Bad("backward must be true or false.")
	}
	data := true
	if text, given := args.Lookup(raw, "data"); given {
		if data, ok = args.Flag(text); !ok {
			return q, problem.Bad("data must be true or false.")
		}
	}
	q.noData = !data
	return q, nil
}

// positionArgument reads a position in either of its forms.
func positionArgument(text string) (int64, error) {
	if p, ok := atom.ParsePosition(text); ok {
		return p, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	return int64(n), err
}

// answerQuery answers with one page, or with all pages as lines.
func (s *Handlers) answerQuery(x *request.Request, q *queryRequest) error {
	ctx, err := leader.ReadsAsked(x)
	if err != nil {
		return err
	}
	if err := s.cover(ctx, x, q); err != nil {
		return err
	}
	position := q.until
	x.Own()
	if x.Media.Form == media.FormLines {
		return s.sendLines(x, q, position)
	}
	events, next, err := s.queryPage(ctx, x, q, cmp.Or(q.limit, defaultFound))
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
		e, err := s.found(ctx, &events[i])
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
	if next < 0 {
		b = append(b, "null}"...)
	} else {
		b = append(strconv.AppendInt(b, next, 10), '}')
	}
	x.Out = b
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

// cover makes until the position that the answer covers up to, -1 of an empty log. It waits for a
// position that this node has not reached yet.
func (s *Handlers) cover(ctx context.Context, x *request.Request, q *queryRequest) error {
	if q.until >= s.Store.LogEnd() {
		wait, cancel := context.WithTimeout(ctx, awaitPosition)
		defer cancel()
		switch err := s.Store.WaitLog(wait, q.until); {
		case err != nil && wait.Err() != nil && ctx.Err() == nil:
			return problem.New(http.StatusServiceUnavailable, fmt.Sprintf("This node has not reached %d yet", q.until))
		case err != nil:
			return err
		}
	}
	end := s.Store.LogEnd()
	if q.after > max(end-1, 0) && x.Node.Cluster.Role() == api.RoleLeader {
		return problem.Bad(fmt.Sprintf("Position %d lies beyond the end of the log.", q.after))
	}
	if q.until < 0 {
		page, err := s.Store.ReadAll(ctx, event.AllRead{From: end, Backward: true, Count: 1, MaxScan: 1, MaxPayload: 1})
		if err != nil {
			return err
		}
		q.until = page.Last
	}
	return nil
}

// queryPage reads at most so many events, and returns how to continue: the next after, backward the
// next until, -1 at the end.
func (s *Handlers) queryPage(ctx context.Context, x *request.Request, q *queryRequest, count int) (events []event.Resolved, next int64, err error) {
	if q.until < 0 { // The log was empty.
		return nil, -1, nil
	}
	r := event.AllRead{Query: &q.query, From: q.after + 1, Count: count + 1, Backward: q.backward, Room: &x.Room}
	if q.backward {
		r.From = below(q.until)
	}
	page, err := s.readFound(ctx, x, r)
	if err != nil {
		return nil, -1, err
	}
	payload := 0
	for i := range page.Events {
		e := &page.Events[i]
		if q.isOutside(e.Position) {
			return page.Events[:i], -1, nil
		}
		payload += e.PayloadBytes()
		if i == count || i > 0 && payload > maxFoundPayload {
			if next = page.Events[i-1].Position; q.backward {
				next--
			}
			return page.Events[:i], next, nil
		}
	}
	if next = page.Next - 1; !page.More || q.backward && next <= q.after || !q.backward && next >= q.until {
		next = -1
	}
	return page.Events, next, nil
}

// places sets where a live tail of the query begins and ends.
func (q *queryRequest) places(of *liveQuery) {
	last := place{placeNumber, q.until}
	if q.until < 0 {
		last.kind = placeNone
	}
	if q.backward {
		if of.from = last; q.after >= 0 {
			of.to = place{placeNumber, q.after + 1}
		}
		return
	}
	of.from, of.to = place{kind: placeStart}, last
	if q.after >= 0 {
		of.from, of.resumed = place{placeNumber, q.after}, true
	}
}

// isOutside reports whether a position is beyond the last one that is asked for.
func (q *queryRequest) isOutside(position int64) bool {
	if q.backward {
		return position <= q.after
	}
	return position > q.until
}

// found returns an event with its payload; nil: a scavenge was here.
func (s *Handlers) found(ctx context.Context, e *event.Resolved) (*event.Record, error) {
	whole, err := e.Complete(func(r *event.Record) error { return s.Store.ReadPayload(ctx, r) })
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
	b = strconv.AppendInt(append(b, `{"position":`...), r.Position, 10)
	b = jsontext.AppendString(append(b, `,"stream":`...), r.Stream)
	b = strconv.AppendInt(append(b, `,"number":`...), r.Number, 10)
	b = r.ID.AppendTo(append(b, `,"eventId":"`...))
	b = jsontext.AppendString(append(b, `","eventType":`...), r.Type)
	b = atom.AppendTime(append(b, `,"created":"`...), r.Time)
	b = strconv.AppendBool(append(b, `","isJson":`...), r.IsJSON())
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
func (s *Handlers) sendLines(x *request.Request, q *queryRequest, position int64) error {
	release, err := x.Share(api.Search)
	if err != nil {
		return err
	}
	defer release()
	l := lines{x: x}
	x.Out = append(appendCovered(x.Out[:0], position), "}\n"...)
	if err = s.appendLines(q, &l); err == nil {
		x.Out = append(x.Out, "{\"end\":true}\n"...)
		err = l.send()
	}
	switch {
	case err == nil, errors.Is(err, errLiveGone):
		return nil
	case l.begun: // Only a broken connection says that this is not the end.
		x.Node.Logger.Warn("only part of a page could be sent", "path", x.R.URL.Path, logkey.Error, err)
		panic(http.ErrAbortHandler)
	}
	return err
}

// appendLines writes the events of all pages.
func (s *Handlers) appendLines(q *queryRequest, l *lines) error {
	x, left := l.x, q.limit
	for {
		count := linesPage
		if q.limit > 0 {
			count = min(count, left)
		}
		events, next, err := s.queryPage(x.Reads(), x, q, count)
		if err != nil {
			return err
		}
		for i := range events {
			if err := s.appendLine(q, l, &events[i]); err != nil {
				return err
			}
		}
		if left -= len(events); next < 0 || q.limit > 0 && left == 0 {
			return nil
		}
		if q.backward {
			q.until = next
		} else {
			q.after = next
		}
	}
}

// appendLine writes an event. The memory of a large one is claimed until it is sent.
func (s *Handlers) appendLine(q *queryRequest, l *lines, e *event.Resolved) error {
	x, ctx := l.x, l.x.R.Context()
	if e.IsBare() {
		alone := 2 * int64(e.PayloadBytes())
		if err := x.Claim.Grow(ctx, alone); err != nil {
			return err
		}
		defer x.Claim.Shrink(alone)
	}
	r, err := s.found(ctx, e)
	if r == nil || err != nil {
		return err
	}
	if x.Out = append(q.append(x.Out, r), '\n'); len(x.Out) < livePart {
		return nil
	}
	return l.send()
}

// lines is an answer that goes out in parts.
type lines struct {
	x     *request.Request
	begun bool
}

// send sends what there is, if the caller may still see it.
func (l *lines) send() error {
	x := l.x
	if err := x.Check(); err != nil {
		return err
	}
	if !l.begun {
		l.begun = true
		x.Typed()
		x.Varies()
		x.W.WriteHeader(http.StatusOK)
	}
	if x.R.Method == http.MethodHead {
		return errLiveGone
	}
	if _, err := x.W.Write(x.Out); err != nil {
		x.NotTaken(err)
		return errLiveGone
	}
	x.Out = x.Out[:0]
	return nil
}
