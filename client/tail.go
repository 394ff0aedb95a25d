package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// tailStall is how long a node may send nothing of a tail: it sends a comment after 15 s.
const tailStall = stall

// TailMessage is what a live tail sends.
type TailMessage struct {
	// Kind is empty for an event. Other kinds, such as progress and live, carry no event;
	// docs/tail.md lists them. gone, denied and end come last.
	Kind string
	// ID is where a tail resumes after the message: the number of the event, of AllStream the
	// position. It is empty if a tail cannot resume there.
	ID   string
	Data json.RawMessage
}

// errTailBroke says that a tail ended without saying why.
var errTailBroke = errors.New("the live tail broke off")

// Tail gives the messages of a live tail of a stream. The query is that of the endpoint: from, to,
// types and so on. A tail that breaks, or whose node stops, resumes where it was, on any
// node; nothing comes twice. The tail ends after a message that comes last, except when that is
// the end of a node. It also ends when no node answers at first for Options.RetryFor.
func (c *Client) Tail(ctx context.Context, stream, query string) iter.Seq2[TailMessage, error] {
	return func(yield func(TailMessage, error) bool) {
		q := Request{Path: StreamPath(stream), Header: map[string]string{"Accept": "text/event-stream"}}
		if query != "" {
			q.Path += "?" + query
		}
		left := -1 // events, where there is a limit: it is not that of one connection
		if values, err := url.ParseQuery(query); err == nil && values.Has("limit") {
			if n, err := strconv.Atoi(values.Get("limit")); err == nil && n > 0 {
				left = n
			}
		}
		end, heard := time.Now().Add(c.o.RetryFor), false
		for failed := 0; ; {
			node := c.Node()
			isOver, err := c.tail(ctx, &q, node, fromStart(query), func(m TailMessage) bool {
				failed, heard = 0, true
				if m.Kind == "" {
					left--
				}
				return yield(m, nil) && left != 0
			})
			switch {
			case isOver || ctx.Err() != nil:
				return
			case err != nil && !heard && time.Now().After(end), err != nil && !mayPass(err) && !errors.Is(err, errTailBroke):
				yield(TailMessage{}, err)
				return
			}
			// At once the first time: another node may serve.
			if c.leave(node); failed > 0 && wait(ctx, min(longestPause, shortestPause<<min(failed, 10))) != nil {
				return
			}
			failed++
		}
	}
}

// fromStart is the query of a tail that begins at the start.
func fromStart(query string) string {
	values, err := url.ParseQuery(query)
	if err != nil {
		return query // The node says what is wrong.
	}
	values.Set("from", "start")
	return values.Encode()
}

// tail reads a tail until it ends. It is over when the reader wants no more, or nothing will come.
// The query again is for a tail that resumes before its first event.
func (c *Client) tail(ctx context.Context, q *Request, node, again string, give func(TailMessage) bool) (isOver bool, err error) {
	a, body, err := c.open(ctx, *q, node, tailStall)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }() // It was read as far as needed.
	switch a.Status {
	case http.StatusOK:
	case http.StatusNoContent:
		return true, nil
	default:
		if a.Body, err = io.ReadAll(io.LimitReader(body, maxText)); err != nil {
			return false, body.failed(err)
		}
		return false, &Error{Node: a.Host(), Method: a.Method, Path: a.Path, Status: a.Status, Text: a.Text(), Header: a.Header}
	}
	body.moving = true
	r := bufio.NewReader(body)
	var m TailMessage
	for {
		text, err := r.ReadString('\n')
		if err != nil {
			return false, fmt.Errorf("%w: %w", errTailBroke, err)
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(text, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			m.ID = value
		case "event":
			m.Kind = value
		case "data":
			m.Data = json.RawMessage(value)
		}
		if text != "\n" || m.Data == nil {
			continue
		}
		if m.ID != "" {
			q.Header = maps.Clone(q.Header)
			q.Header["Last-Event-ID"] = m.ID
		}
		if m.Kind == "live" && m.ID == "" && q.Header["Last-Event-ID"] == "" {
			// Nothing was written before it, so no event is missed.
			q.Path, _, _ = strings.Cut(q.Path, "?")
			q.Path += "?" + again
		}
		switch {
		case m.Kind == "end" && strings.Contains(string(m.Data), `"shutdown"`):
			return false, fmt.Errorf("%w: the node stops", errTailBroke)
		case !give(m):
			return true, nil
		case m.Kind == "end" || m.Kind == "gone" || m.Kind == "denied":
			return true, nil
		}
		m = TailMessage{}
	}
}
