package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Event is one event to append.
type Event struct {
	ID       string          `json:"eventId"` // a UUID; a new one if empty
	Type     string          `json:"eventType"`
	Data     json.RawMessage `json:"data,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Tags     []string        `json:"tags,omitempty"` // for queries; kept in the metadata
	// Binary says that Data is not JSON. Append takes such an event alone, without metadata and
	// tags; AppendMany takes it like others.
	Binary bool `json:"-"`
}

// NewID returns a random UUID.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Append writes events to a stream, all or none, and returns the number of the first. The stream
// must have the expected version: the number of its last event, NoStream, AnyVersion or
// StreamExists; else the error is ErrWrongVersion. An append that gets no answer is repeated with
// the same ids, and written once. When that does not help, make the same call with the same ids
// later.
func (c *Client) Append(ctx context.Context, stream string, expected int64, events ...Event) (first int64, err error) {
	done, err := c.Write(ctx, stream, expected, events...)
	return done.First, err
}

// Written is what Write wrote.
type Written struct {
	First, Last int64 // numbers of the events
	// Position is that of the last event in the log, for After. -1: a repetition was taken for what
	// has been removed since.
	Position int64
}

// Write is Append with an answer that says more.
func (c *Client) Write(ctx context.Context, stream string, expected int64, events ...Event) (done Written, err error) {
	events = slices.Clone(events)
	for i := range events {
		if events[i].ID == "" {
			events[i].ID = NewID()
		}
	}
	q, err := AppendRequest(stream, expected, events...)
	var a Response
	if err == nil {
		a, err = c.Repeat(ctx, q)
	}
	if err == nil {
		done.First, err = a.FirstNumber(stream)
	}
	if err != nil {
		return Written{}, fmt.Errorf("append to %s: %w", stream, err)
	}
	done.Last, done.Position = done.First+int64(len(events))-1, a.Position()
	return done, nil
}

// AppendRequest is what Append sends. The events have their ids.
func AppendRequest(stream string, expected int64, events ...Event) (Request, error) {
	if len(events) == 1 && events[0].Binary {
		if len(events[0].Tags) > 0 {
			return Request{}, errors.New("an event that is not JSON gets tags by AppendMany alone")
		}
		return events[0].Request(stream, expected), nil
	}
	q := Request{Method: http.MethodPost, Path: StreamPath(stream), Header: map[string]string{
		"Content-Type": MediaEvents, HeaderExpectedVersion: strconv.FormatInt(expected, 10),
	}}
	b := []byte{'['}
	for i := range events {
		e := &events[i]
		if e.Binary {
			return q, errors.New("an event that is not JSON is appended alone")
		}
		var err error
		if b, err = e.appendTo(b, nil); err != nil {
			return q, fmt.Errorf("event %d of %d: %w", i+1, len(events), err)
		}
		b = append(b, ',')
	}
	q.Body = append(b[:max(1, len(b)-1)], ']')
	return q, nil
}

// appendTo appends the event as an element of a body, with its stream if the body is not for one.
func (e *Event) appendTo(b []byte, stream *string) ([]byte, error) {
	kind, err := encode(e.Type)
	if err != nil {
		return b, err
	}
	b = append(append(append(append(b, `{"eventId":"`...), e.ID...), `","eventType":`...), kind...)
	if stream != nil {
		name, err := encode(*stream)
		if err != nil {
			return b, err
		}
		b = append(append(b, `,"stream":`...), name...)
	}
	data := e.Data
	if e.Binary {
		data = nil
		b = append(base64.StdEncoding.AppendEncode(append(b, `,"dataBase64":"`...), e.Data), '"')
	}
	// As it stands: json.Marshal would reformat it.
	for _, member := range []struct {
		name  string
		value json.RawMessage
	}{{"data", data}, {"metadata", e.Metadata}} {
		switch {
		case member.value == nil:
		case !json.Valid(member.value):
			return b, fmt.Errorf("its %s is not JSON", member.name)
		default:
			b = append(append(append(append(b, ',', '"'), member.name...), '"', ':'), member.value...)
		}
	}
	if len(e.Tags) > 0 {
		tags, err := encode(e.Tags)
		if err != nil {
			return b, err
		}
		b = append(append(b, `,"tags":`...), tags...)
	}
	return append(b, '}'), nil
}

// encode is json.Marshal of names. It refuses bytes that JSON would change: another stream, type
// or tag would be meant.
func encode(names any) ([]byte, error) {
	b, err := json.Marshal(names)
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		if bytes.HasPrefix(b[i:], []byte(`\ufffd`)) { // That character itself stays as it is.
			return nil, errors.New("a name is not UTF-8")
		}
		i++ // It may be a backslash.
	}
	return b, err
}

// Request appends one event with its data as the body, as they are.
func (e *Event) Request(stream string, expected int64) Request {
	media := MediaJSON
	if e.Binary {
		media = MediaBytes
	}
	return Request{Method: http.MethodPost, Path: StreamPath(stream), Body: e.Data, Header: map[string]string{
		"Content-Type": media, HeaderExpectedVersion: strconv.FormatInt(expected, 10), HeaderEventID: e.ID, HeaderEventType: e.Type,
	}}
}

// Position is where the last event of an acknowledged write lies in the log, -1 if the answer does
// not say so.
func (a Response) Position() int64 {
	p, err := strconv.ParseInt(a.Header.Get(HeaderPosition), 10, 64)
	if err != nil {
		return -1
	}
	return p
}

// FirstNumber is the event number that the Location of an acknowledged append names.
func (a Response) FirstNumber(stream string) (int64, error) {
	location := a.Header.Get("Location")
	u, err := url.Parse(location)
	if err == nil {
		if _, number, ok := strings.Cut(u.Path, "/streams/"+stream+"/"); ok {
			if n, err := strconv.ParseInt(number, 10, 64); err == nil && n >= 0 {
				return n, nil
			}
		}
	}
	return 0, fmt.Errorf("the Location %q is not that of an event of %s", location, stream)
}

// Delete deletes a stream that has the expected version. Reads no longer find it. The next append
// makes it again, and the numbers of its events continue. Tombstone deletes a stream for ever.
func (c *Client) Delete(ctx context.Context, stream string, expected int64) error {
	if err := c.sender.finish(ctx, deletion(stream, expected, false), http.StatusNotFound); err != nil {
		return fmt.Errorf("delete %s: %w", stream, err)
	}
	return nil
}

// Tombstone deletes a stream that has the expected version, for ever: what reads it or appends to
// it later is ErrDeleted.
func (c *Client) Tombstone(ctx context.Context, stream string, expected int64) error {
	if err := c.sender.finish(ctx, deletion(stream, expected, true), http.StatusGone); err != nil {
		return fmt.Errorf("delete %s for ever: %w", stream, err)
	}
	return nil
}

func deletion(stream string, expected int64, forEver bool) Request {
	return Request{Method: http.MethodDelete, Path: StreamPath(stream), Header: map[string]string{
		HeaderExpectedVersion: strconv.FormatInt(expected, 10), HeaderHardDelete: strconv.FormatBool(forEver),
	}}
}

// Metadata reads the metadata of a stream into a value. It is ErrNotFound if there is no such
// stream.
func (c *Client) Metadata(ctx context.Context, stream string, metadata any) error {
	if err := c.Call(ctx, http.MethodGet, StreamPath(stream, "metadata"), nil, metadata); err != nil {
		return fmt.Errorf("read the metadata of %s: %w", stream, err)
	}
	return nil
}

// SetMetadata replaces the metadata of a stream by a value with the members $maxCount, $maxAge,
// $tb, $cacheControl, $acl, or ones of your own.
func (c *Client) SetMetadata(ctx context.Context, stream string, expected int64, metadata any) error {
	data, err := json.Marshal(metadata)
	if err == nil {
		e := Event{ID: NewID(), Type: "$metadata", Data: data}
		q := e.Request(stream, expected)
		q.Path = StreamPath(stream, "metadata")
		_, err = c.Repeat(ctx, q)
	}
	if err != nil {
		return fmt.Errorf("set the metadata of %s: %w", stream, err)
	}
	return nil
}

// StreamPath is the path of a stream, or of a resource below it.
func StreamPath(stream string, below ...string) string {
	return strings.Join(append([]string{"/streams", url.PathEscape(stream)}, below...), "/")
}
