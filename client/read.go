package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const (
	// PageLimit is the largest page.
	PageLimit   = 4096
	defaultPage = 500
)

// Recorded is an event as it is read. For a resolved link it is the event that the link names.
type Recorded struct {
	// Place is where the event stands in the stream that was subscribed to. A subscription that is
	// to continue later has it as TailOptions.After. Reads do not set it.
	Place Place `json:"-"`
	// Position is the place of the event in AllStream. Subscriptions alone set it.
	Position string `json:"position"`

	ID       string    `json:"eventId"`
	Type     string    `json:"eventType"`
	Number   int64     `json:"eventNumber"`
	Stream   string    `json:"streamId"`
	Data     string    `json:"data"` // empty if it is not JSON: Client.Data reads it
	Metadata string    `json:"metaData"`
	Time     time.Time `json:"updated"`
	JSON     bool      `json:"isJson"`
	Redacted bool      `json:"isRedacted"`
	Title    string    `json:"title"`
	// LinkMetadata is that of the link that was resolved.
	LinkMetadata string `json:"linkMetaData"`
	// The place in the stream that was read.
	ReadNumber int64  `json:"positionEventNumber"`
	ReadStream string `json:"positionStreamId"`

	DataBytes int64 `json:"dataBytes"`  // how long the data is, where TailOptions.MaxData cut it
	Retries   int   `json:"retryCount"` // of a message of a group
	Links     Links `json:"links"`
}

// Decode reads the data, which is JSON, into a value.
func (e *Recorded) Decode(value any) error {
	if err := json.Unmarshal([]byte(e.Data), value); err != nil {
		return fmt.Errorf("read the data of event %d of %s: %w", e.Number, e.Stream, err)
	}
	return nil
}

// Links are the addresses that a page or an event comes with.
type Links []struct {
	URI      string `json:"uri"`
	Relation string `json:"relation"`
}

// Of returns the address of a relation, empty if there is none.
func (l Links) Of(relation string) string {
	for i := range l {
		if l[i].Relation == relation {
			return l[i].URI
		}
	}
	return ""
}

// Page is a part of a stream.
type Page struct {
	HeadOfStream bool       `json:"headOfStream"` // nothing newer was there
	Entries      []Recorded `json:"entries"`      // the newest comes first, in both directions
	Links        Links      `json:"links"`
	// Next is the path of the page that follows in the direction of reading, empty if there is
	// none.
	Next string `json:"-"`
}

// ParsePage reads a page as a node writes it.
func ParsePage(body []byte) (*Page, error) {
	p := &Page{}
	if err := json.Unmarshal(body, p); err != nil {
		return nil, fmt.Errorf("decode a page: %w", err)
	}
	return p, nil
}

// events returns them in the direction of reading.
func (p *Page) events(backward bool) iter.Seq2[int, Recorded] {
	if backward {
		return slices.All(p.Entries)
	}
	return slices.Backward(p.Entries)
}

// Reading says which part of a stream is read. The zero value reads it forward from its beginning
// to its present end.
type Reading struct {
	From     int64  // number of the first event, in AllStream a position of the log
	At       string // Page.Next of an earlier reading, in place of From
	Backward bool   // to older events; from the end if From is 0
	Count    int    // events of a page: by default 500, PageLimit at most
	// Resolve says whether links show the events that they lead to: by default true, in AllStream
	// false.
	Resolve *bool
	Leader  bool // read on the leader what is acknowledged at this moment
}

// path is that of the first page.
func (r *Reading) path(stream string) string {
	if r.At != "" {
		return r.At
	}
	direction, from := "forward", strconv.FormatInt(r.From, 10)
	if stream == AllStream {
		from = fmt.Sprintf("%016X%016X", r.From, r.From)
	}
	if r.Backward {
		direction = "backward"
		if r.From == 0 || r.From == math.MaxInt64 {
			from = "head"
		}
	}
	return StreamPath(stream, from, direction, strconv.Itoa(cmp.Or(r.Count, defaultPage)))
}

// Read reads one page. It is ErrNotFound if there is no such stream.
func (c *Client) Read(ctx context.Context, stream string, r Reading) (*Page, error) {
	q := Request{Path: r.path(stream), Header: map[string]string{"Accept": MediaAtom}}
	path := q.Path
	q.Path += "?embed=body"
	if r.Leader {
		q.Header[HeaderRequireLeader] = "True"
	}
	if r.Resolve != nil {
		q.Header[HeaderResolveLinks] = strconv.FormatBool(*r.Resolve)
	}
	a, err := c.Repeat(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", stream, err)
	}
	p, err := ParsePage(a.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", path, a.Host(), err)
	}
	relation := "previous" // As Atom calls the newer page.
	if r.Backward {
		relation = "next"
	}
	if u, err := url.Parse(p.Links.Of(relation)); err == nil {
		p.Next = u.EscapedPath()
	}
	return p, nil
}

// Pages reads page by page.
func (c *Client) Pages(ctx context.Context, stream string, r Reading) iter.Seq2[*Page, error] {
	return func(yield func(*Page, error) bool) {
		for {
			p, err := c.Read(ctx, stream, r)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(p.Entries) > 0 && !yield(p, nil) {
				return
			}
			if p.Next == "" || len(p.Entries) == 0 && (r.Backward || stream == AllStream) || p.HeadOfStream && !r.Backward {
				return
			}
			r.At = p.Next
		}
	}
}

// Events reads event by event.
func (c *Client) Events(ctx context.Context, stream string, r Reading) iter.Seq2[Recorded, error] {
	return func(yield func(Recorded, error) bool) {
		for p, err := range c.Pages(ctx, stream, r) {
			if err != nil {
				yield(Recorded{}, err)
				return
			}
			for _, e := range p.events(r.Backward) {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// Event reads one event; number -1 is the last one.
func (c *Client) Event(ctx context.Context, stream string, number int64) (Recorded, error) {
	a, err := c.Repeat(ctx, Request{Path: eventPath(stream, number) + "?embed=body", Header: map[string]string{"Accept": MediaAtom}})
	var e Recorded
	if err == nil {
		err = a.Decode(&e)
	}
	if err != nil {
		return e, fmt.Errorf("read event %d of %s: %w", number, stream, err)
	}
	return e, nil
}

// Data reads the data of one event as they were appended, JSON or not; number -1 is the last one.
func (c *Client) Data(ctx context.Context, stream string, number int64) ([]byte, error) {
	a, err := c.Repeat(ctx, Request{Path: eventPath(stream, number), Header: map[string]string{"Accept": MediaBytes}})
	if err != nil {
		return nil, fmt.Errorf("read the data of event %d of %s: %w", number, stream, err)
	}
	return a.Body, nil
}

func eventPath(stream string, number int64) string {
	if number < 0 {
		return StreamPath(stream, "head")
	}
	return StreamPath(stream, strconv.FormatInt(number, 10))
}
