package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Query chooses events of all streams by what they say of themselves: those that match one of its
// items. It finds no links, and nothing whose stream or type begins with "$".
type Query struct {
	Items []QueryItem `json:"items,omitempty"` // 1 to 32
	All   bool        `json:"all,omitempty"`   // every event, without items
}

// QueryItem matches an event when each member that it has does. Names are exact. An item has at
// least one member.
type QueryItem struct {
	Types       []string `json:"types,omitempty"`       // the type is one of them
	Tags        []string `json:"tags,omitempty"`        // the event has all of them
	Categories  []string `json:"categories,omitempty"`  // the category of the stream is one of them
	Streams     []string `json:"streams,omitempty"`     // the stream is one of them
	Correlation string   `json:"correlation,omitempty"` // the correlation id
}

// QueryOptions say which part of the log is looked at. The zero value is all of it, the oldest
// event first.
type QueryOptions struct {
	After    *int64 `json:"after,omitempty"`    // only events at higher positions
	Until    *int64 `json:"until,omitempty"`    // up to this position; a node waits until it has it
	Count    int    `json:"limit,omitempty"`    // of a page: by default 100, PageLimit at most
	Backward bool   `json:"backward,omitempty"` // the newest event first
	Explain  bool   `json:"explain,omitempty"`  // with how the events were found
	NoData   bool   `json:"-"`                  // without data and metadata
	Leader   bool   `json:"-"`                  // what is acknowledged at this moment
}

// QueryPage is a part of what a query finds.
type QueryPage struct {
	// Position is how far the log was looked at: a condition After it counts what came since. It is
	// nil when the log is empty.
	Position *int64  `json:"position"`
	Events   []Found `json:"events"`
	// Next is where the next page begins, nil at the end. Forward it is its After, with Position as
	// its Until. Backward it is its Until.
	Next    *int64     `json:"next"`
	Explain *QueryPlan `json:"explain"` // if it was asked for
}

// QueryPlan tells how the events of a page were found.
type QueryPlan struct {
	Lists  []QueryList `json:"lists,omitempty"` // none for a query of all events
	Looked int         `json:"looked"`          // events that were looked at
}

// QueryList is what the index has of one name.
type QueryList struct {
	Item     int    `json:"item"` // of the query
	Kind     string `json:"kind"` // type, category, correlation or tag
	Name     string `json:"name"`
	Postings int    `json:"postings"` // that were read
}

// Found is an event that a query found.
type Found struct {
	Position int64           `json:"position"`
	Stream   string          `json:"stream"`
	Number   int64           `json:"number"`
	ID       string          `json:"eventId"`
	Type     string          `json:"eventType"`
	Created  time.Time       `json:"created"`
	JSON     bool            `json:"isJson"`
	Redacted bool            `json:"isRedacted,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Data and metadata in another form than JSON.
	DataBytes     []byte `json:"dataBase64,omitempty"`
	MetadataBytes []byte `json:"metadataBase64,omitempty"`

	Tags []string `json:"tags"`
}

// Decode reads the data, which is JSON, into a value.
func (e *Found) Decode(value any) error {
	if err := json.Unmarshal(e.Data, value); err != nil {
		return fmt.Errorf("read the data of event %d of %s: %w", e.Number, e.Stream, err)
	}
	return nil
}

const queryPath = "/query"

// QueryRequest is what Query sends.
func QueryRequest(query Query, o QueryOptions) (Request, error) {
	if _, err := encode(query); err != nil {
		return Request{}, err
	}
	q, err := jsonRequest(http.MethodPost, queryPath, struct {
		Query Query `json:"query"`
		QueryOptions
		Data bool `json:"data"`
	}{query, o, !o.NoData})
	if o.Leader {
		q.Header[HeaderRequireLeader] = "True"
	}
	return q, err
}

// Query reads one page of what a query finds.
func (c *Client) Query(ctx context.Context, query Query, o QueryOptions) (*QueryPage, error) {
	q, err := QueryRequest(query, o)
	var a Response
	if err == nil {
		a, err = c.Repeat(ctx, q)
	}
	p := &QueryPage{}
	if err == nil {
		err = a.Decode(p)
	}
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	return p, nil
}

// QueryPages reads page by page. There is at least one, and all have the Position of the first.
func (c *Client) QueryPages(ctx context.Context, query Query, o QueryOptions) iter.Seq2[*QueryPage, error] {
	return func(yield func(*QueryPage, error) bool) {
		var first *QueryPage
		for {
			p, err := c.Query(ctx, query, o)
			if err != nil {
				yield(nil, err)
				return
			}
			if first == nil {
				first = p
			}
			p.Position = first.Position
			if !yield(p, nil) || p.Next == nil {
				return
			}
			if o.Backward {
				o.Until = p.Next
			} else {
				o.After, o.Until = p.Next, first.Position
			}
		}
	}
}

// TailQuery gives what matches an item, and then each event that matches as it is written, like
// Tail. After is the position of the last event that the reader has; nil: all.
// TailMessage.ID is the position of the event.
func (c *Client) TailQuery(ctx context.Context, item QueryItem, after *int64) iter.Seq2[TailMessage, error] {
	return func(yield func(TailMessage, error) bool) {
		query, err := item.parameters()
		if err != nil {
			yield(TailMessage{}, fmt.Errorf("tail a query: %w", err))
			return
		}
		t := &tail{s: c.sender, path: queryPath, query: query, left: -1}
		if after != nil {
			t.after = AtNumber(*after)
		}
		t.run(ctx, yield)
	}
}

// parameters are those of a request without a body.
func (i *QueryItem) parameters() (string, error) {
	q := url.Values{}
	for name, names := range map[string][]string{"types": i.Types, "tags": i.Tags, "categories": i.Categories, "streams": i.Streams} {
		for _, one := range names {
			if strings.Contains(one, ",") {
				return "", fmt.Errorf("%s: %q has a comma", name, one)
			}
		}
		if len(names) > 0 {
			q.Set(name, strings.Join(names, ","))
		}
	}
	if i.Correlation != "" {
		q.Set("correlation", i.Correlation)
	}
	return q.Encode(), nil
}

// calmTries is how often Decide tries before it pauses.
const calmTries = 2

// Decide reads the events that a query finds, oldest first, and appends what is decided on them,
// unless another event that matches the query came in between. It then reads what came and decides
// again, until the append succeeds or the context ends. Decide may be called several times, each
// time with all events. Its error ends Decide, and so does a decision to append nothing.
//
// The events may be those of a follower that lags: what is appended is still decided on all of
// them, but a decision to append nothing may be based on less.
//
// An append that gets no answer is repeated with the same ids, like one of AppendMany.
// After ErrUnavailable it may have been written: a later Decide finds it.
func (c *Client) Decide(ctx context.Context, query Query, decide func(events []Found) ([]StreamEvent, error)) (Appended, error) {
	var found []Found
	condition := Condition{Query: query}
	o := QueryOptions{Count: PageLimit}
	for try := 1; ; try++ {
		if try > calmTries {
			longest := min(longestPause, shortestPause<<min(try-calmTries-1, 10))
			if err := wait(ctx, rand.N(longest)); err != nil {
				return Appended{}, fmt.Errorf("decide, at try %d: %w", try, err)
			}
		}
		for p, err := range c.QueryPages(ctx, query, o) {
			if err != nil {
				return Appended{}, err
			}
			found = append(found, p.Events...)
			condition.After = p.Position
		}
		events, err := decide(found)
		if err != nil || len(events) == 0 {
			return Appended{}, err
		}
		done, err := c.AppendMany(ctx, events, condition)
		refused, ok := errors.AsType[*ViolationError](err)
		if !ok || len(refused.Conflicts) == 0 || len(refused.Violations) > 0 {
			return done, err
		}
		o.After, o.Until = condition.After, new(refused.Position)
	}
}
