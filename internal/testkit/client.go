package testkit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/annalsdb/annals/client"
)

// Media types and headers as the wire spells them.
const (
	MediaEvents   = client.MediaEvents
	MediaAtomJSON = client.MediaAtom
	MediaJSON     = client.MediaJSON

	HeaderExpectedVersion = client.HeaderExpectedVersion
	HeaderCurrentVersion  = client.HeaderCurrentVersion
	HeaderLongPoll        = client.HeaderLongPoll
	HeaderRequireLeader   = client.HeaderRequireLeader
	HeaderEventID         = client.HeaderEventID
	HeaderEventType       = client.HeaderEventType
	HeaderHardDelete      = client.HeaderHardDelete
)

// PageLimit is the largest page.
const PageLimit = client.PageLimit

const requestLimit = 60 * time.Second

var admin = url.UserPassword("admin", "changeit")

type (
	Event    = client.Event
	Response = client.Response
	Entry    = client.Recorded
	Feed     = client.Page
)

// Client talks to one node, once. Requests follow no redirects: where they lead is for the test to
// see.
type Client struct {
	base          string
	anybody, boss *client.Client // without credentials, and as the administrator
}

// NewClient makes a client of the node at an address like http://127.0.0.1:2113.
// The configuration is for https, and may be nil.
func NewClient(base string, config *tls.Config) *Client {
	o := client.Options{Nodes: []string{base}, Timeout: requestLimit, RetryFor: -1}
	network := client.NewTransport(config)
	network.Proxy, o.Transport = nil, network
	anybody, err := client.New(o)
	if err != nil {
		panic(err)
	}
	o.Login = admin
	boss, err := client.New(o)
	if err != nil {
		panic(err)
	}
	return &Client{base: base, anybody: anybody, boss: boss}
}

// URL is the address of the node, without a slash at the end.
func (c *Client) URL() string { return c.base }

// Host is host and port of the address.
func (c *Client) Host() string {
	_, host, _ := strings.Cut(c.base, "://")
	return host
}

// CloseIdle ends the connections that are kept for later requests.
func (c *Client) CloseIdle() { c.anybody.Close() }

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

// Do sends a request and reads the answer. An error means that no whole answer came.
func (c *Client) Do(ctx context.Context, r Request) (Response, error) {
	q := client.Request{Method: r.Method, Path: r.Path, Header: r.Header, Body: r.Body, Node: c.base, Stay: true}
	switch {
	case r.Admin:
		q.Login = admin
	case r.User != "":
		q.Login = url.UserPassword(r.User, r.Password)
	}
	return c.anybody.Do(ctx, q)
}

// Append sends events to a stream; a single one goes as raw data with its id in headers when single
// is set.
func (c *Client) Append(ctx context.Context, stream string, expected int64, single bool, events ...Event) (Response, error) {
	q, err := client.AppendRequest(stream, expected, events...)
	if err != nil {
		return Response{}, err
	}
	if single {
		q = events[0].Request(stream, expected)
	}
	return c.Do(ctx, Request{Path: q.Path, Header: q.Header, Body: q.Body})
}

// ReadFeed reads a page with its events as the administrator. ok is false when there is no such
// stream.
func (c *Client) ReadFeed(ctx context.Context, path string, header map[string]string) (feed *Feed, ok bool, err error) {
	h := map[string]string{"Accept": MediaAtomJSON}
	maps.Copy(h, header)
	if !strings.Contains(path, "?") {
		path += "?embed=body"
	}
	answer, err := c.Do(ctx, Request{Path: path, Header: h, Admin: true})
	if err == nil && answer.Status == http.StatusNotFound {
		return &Feed{}, false, nil
	}
	if err == nil {
		err = answer.Err()
	}
	if err == nil {
		feed, err = client.ParsePage(answer.Body)
	}
	if err != nil {
		return &Feed{}, false, fmt.Errorf("read %s: %w", path, err)
	}
	for i := range feed.Entries {
		feed.Entries[i].Links = nil // They name the node, and tests compare nodes.
	}
	return feed, true, nil
}

// ReadStream reads a whole stream from a number on, oldest first. One that is not there has no
// events.
func (c *Client) ReadStream(ctx context.Context, stream string, from int64) (all []Entry, err error) {
	for e, err := range c.boss.Events(ctx, stream, client.Reading{From: from, Count: PageLimit}) {
		if err != nil {
			if errors.Is(err, client.ErrNotFound) {
				err = nil
			}
			return all, err
		}
		e.Links = nil
		all = append(all, e)
	}
	return all, nil
}

// AllStart is the path of the first page of all events.
const AllStart = "/streams/%24all/00000000000000000000000000000000/forward/4096"

// ReadAll reads all events from a page on to the present end, oldest first, and
// returns the path of the page that follows.
func (c *Client) ReadAll(ctx context.Context, page string, each func(Entry) error) (next string, err error) {
	for p, err := range c.boss.Pages(ctx, client.AllStream, client.Reading{At: page}) {
		if err != nil {
			return page, err
		}
		for i := len(p.Entries) - 1; i >= 0; i-- {
			if err := each(p.Entries[i]); err != nil {
				return page, err
			}
		}
		page = p.Next
	}
	return page, nil
}
