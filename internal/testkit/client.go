package testkit

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Media types and headers as the wire spells them.
const (
	MediaEvents   = "application/vnd.eventstore.events+json"
	MediaAtomJSON = "application/vnd.eventstore.atom+json"
	MediaJSON     = "application/json"

	HeaderExpectedVersion = "ES-ExpectedVersion"
	HeaderCurrentVersion  = "ES-CurrentVersion"
	HeaderLongPoll        = "ES-LongPoll"
	HeaderRequireLeader   = "ES-RequireLeader"
	HeaderEventID         = "ES-EventId"
	HeaderEventType       = "ES-EventType"
	HeaderHardDelete      = "ES-HardDelete"
)

// PageLimit is the largest page.
const PageLimit = 4096

const requestLimit = 60 * time.Second

// Client talks to one node. It follows no redirects: where they lead is for the test to see.
type Client struct {
	base string
	http *http.Client
}

// NewClient makes a client of the node at an address like http://127.0.0.1:2113.
// The configuration is for https, and may be nil.
func NewClient(base string, config *tls.Config) *Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true, TLSClientConfig: config}
	return &Client{base: base, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// URL is the address of the node, without a slash at the end.
func (c *Client) URL() string { return c.base }

// Host is host and port of the address.
func (c *Client) Host() string {
	_, host, _ := strings.Cut(c.base, "://")
	return host
}

// CloseIdle ends the connections that are kept for later requests.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// Event is one event to append. Data is JSON.
type Event struct {
	ID   string          `json:"eventId"`
	Type string          `json:"eventType"`
	Data json.RawMessage `json:"data"`
}

// Request is one HTTP request. Path begins with a slash or is a whole address.
type Request struct {
	Method   string // default GET, or POST when there is a body
	Path     string
	Body     []byte
	Header   map[string]string
	Admin    bool // log in as the built-in administrator
	User     string
	Password string // of User
}

// Response is a whole answer.
type Response struct {
	Status int
	Reason string
	Header http.Header
	Body   []byte
}

func (r Response) String() string {
	return fmt.Sprintf("%d %s %.500q", r.Status, r.Reason, r.Body)
}

// Do sends a request and reads the answer. An error means that no whole answer came.
func (c *Client) Do(ctx context.Context, r Request) (Response, error) {
	if r.Method == "" {
		r.Method = http.MethodGet
		if r.Body != nil {
			r.Method = http.MethodPost
		}
	}
	url := r.Path
	if strings.HasPrefix(url, "/") {
		url = c.base + url
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.Method, url, bytes.NewReader(r.Body))
	if err != nil {
		return Response{}, err
	}
	// The transport must not repeat anything by itself: who retries is the test.
	req.GetBody = nil
	for name, value := range r.Header {
		req.Header.Set(name, value)
	}
	switch {
	case r.Admin:
		req.SetBasicAuth("admin", "changeit")
	case r.User != "":
		req.SetBasicAuth(r.User, r.Password)
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return Response{}, err
	}
	body, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return Response{}, fmt.Errorf("read the answer to %s %s: %w", r.Method, r.Path, err)
	}
	_, reason, _ := strings.Cut(answer.Status, " ")
	return Response{Status: answer.StatusCode, Reason: reason, Header: answer.Header, Body: body}, nil
}

// Append sends events to a stream; a single one goes as raw data with its id in headers when single is set.
func (c *Client) Append(ctx context.Context, stream string, expected int64, single bool, events ...Event) (Response, error) {
	r := Request{Path: "/streams/" + stream, Header: map[string]string{HeaderExpectedVersion: strconv.FormatInt(expected, 10)}}
	if single {
		r.Body = events[0].Data
		r.Header["Content-Type"] = MediaJSON
		r.Header[HeaderEventID], r.Header[HeaderEventType] = events[0].ID, events[0].Type
		return c.Do(ctx, r)
	}
	body, err := json.Marshal(events)
	if err != nil {
		return Response{}, err
	}
	r.Body, r.Header["Content-Type"] = body, MediaEvents
	return c.Do(ctx, r)
}

// FirstNumber is the event number that the Location of an acknowledged append names.
func (r Response) FirstNumber(stream string) (int64, error) {
	location := r.Header.Get("Location")
	_, number, found := strings.Cut(location, "/streams/"+stream+"/")
	n, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil {
		return 0, fmt.Errorf("the Location %q is not that of an event of %s", location, stream)
	}
	return n, nil
}

// Entry is one event of a feed.
type Entry struct {
	ID     string `json:"eventId"`
	Type   string `json:"eventType"`
	Number int64  `json:"eventNumber"`
	Stream string `json:"streamId"`
	Data   string `json:"data"`
}

// Feed is a page of a stream as JSON. The newest entry comes first.
type Feed struct {
	HeadOfStream bool    `json:"headOfStream"`
	Entries      []Entry `json:"entries"`
	Links        []struct {
		URI      string `json:"uri"`
		Relation string `json:"relation"`
	} `json:"links"`
}

// Link returns the address of a relation, empty if the feed has none.
func (f *Feed) Link(relation string) string {
	for _, l := range f.Links {
		if l.Relation == relation {
			return l.URI
		}
	}
	return ""
}

// ReadFeed reads a page with its events as the administrator. ok is false when there is no such stream.
func (c *Client) ReadFeed(ctx context.Context, path string, header map[string]string) (feed Feed, ok bool, err error) {
	h := map[string]string{"Accept": MediaAtomJSON}
	for name, value := range header {
		h[name] = value
	}
	if !strings.Contains(path, "?") {
		path += "?embed=body"
	}
	answer, err := c.Do(ctx, Request{Path: path, Header: h, Admin: true})
	switch {
	case err != nil:
		return Feed{}, false, err
	case answer.Status == http.StatusNotFound:
		return Feed{}, false, nil
	case answer.Status != http.StatusOK:
		return Feed{}, false, fmt.Errorf("read %s: %s", path, answer)
	}
	if err := json.Unmarshal(answer.Body, &feed); err != nil {
		return Feed{}, false, fmt.Errorf("read %s: %w", path, err)
	}
	return feed, true, nil
}

// ReadStream reads a whole stream from a number on, oldest first.
func (c *Client) ReadStream(ctx context.Context, stream string, from int64) ([]Entry, error) {
	var all []Entry
	for {
		feed, ok, err := c.ReadFeed(ctx, fmt.Sprintf("/streams/%s/%d/forward/%d", stream, from, PageLimit), nil)
		if err != nil || !ok {
			return all, err
		}
		all = appendReversed(all, feed.Entries)
		from += int64(len(feed.Entries))
		if feed.HeadOfStream || len(feed.Entries) == 0 {
			return all, nil
		}
	}
}

// AllStart is the path of the first page of all events.
const AllStart = "/streams/%24all/00000000000000000000000000000000/forward/4096"

// ReadAll reads all events from a page on to the present end, oldest first, and
// returns the path of the page that follows.
func (c *Client) ReadAll(ctx context.Context, page string, each func(Entry) error) (next string, err error) {
	for {
		feed, ok, err := c.ReadFeed(ctx, page, nil)
		if err != nil {
			return page, err
		}
		if !ok {
			return page, fmt.Errorf("%s is not there", page)
		}
		for i := len(feed.Entries) - 1; i >= 0; i-- {
			if err := each(feed.Entries[i]); err != nil {
				return page, err
			}
		}
		if previous := feed.Link("previous"); previous != "" {
			page = strings.TrimPrefix(previous, c.base)
		}
		if len(feed.Entries) == 0 {
			return page, nil
		}
	}
}

func appendReversed(to, entries []Entry) []Entry {
	for i := len(entries) - 1; i >= 0; i-- {
		to = append(to, entries[i])
	}
	return to
}
