package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// tailStall is how long a node may send nothing of a tail: it sends a comment after 15 s.
	tailStall = 45 * time.Second
	// maxLine keeps a server of another kind from filling the memory. An event has 16 MiB at most.
	maxLine = 256 << 20
)

// The kinds of messages of a tail. The last three come last.
const (
	KindEvent    = ""
	KindProgress = "progress" // how far a filter has looked
	KindLive     = "live"     // all there is was given
	KindBehind   = "behind"   // the reader is slow: the node reads its log again
	KindDeleted  = "deleted"  // the stream was deleted. The next append makes it again
	KindGone     = "gone"     // the stream got a tombstone
	KindDenied   = "denied"   // the user may no longer read the stream
	KindEnd      = "end"      // the end that the options name was reached
)

// TailMessage is what a live tail sends.
type TailMessage struct {
	Kind string
	// ID is the place after which a tail resumes: the number of the event, in AllStream its
	// position. It is empty when the message has none.
	ID   Place
	Data json.RawMessage
}

// isLast reports whether nothing comes after the message.
func (m *TailMessage) isLast() bool {
	return m.Kind == KindEnd || m.Kind == KindGone || m.Kind == KindDenied
}

// errTailBroke says that a tail ended without saying why.
var errTailBroke = errors.New("the live tail broke off")

// Tail gives the messages of a live tail of a stream: its events as the node writes them, and what
// else the node says. Subscribe gives the events alone. A tail that breaks, or whose node stops,
// resumes on any node; nothing comes twice. The tail ends after a message that comes last, when the
// context ends, and when no node answers at first for Options.RetryFor.
func (c *Client) Tail(ctx context.Context, stream string, o TailOptions) iter.Seq2[TailMessage, error] {
	return func(yield func(TailMessage, error) bool) {
		t, err := newTail(c.sender, stream, o)
		if err != nil {
			yield(TailMessage{}, err)
			return
		}
		t.run(ctx, yield)
	}
}

// tail is a live tail over all its connections.
type tail struct {
	s     *sender
	path  string
	query string
	after Place // the place of the last message that had one
	lead  bool
	left  int  // events that are still wanted; below 0: all
	heard bool // a node has sent a message
}

func newTail(s *sender, stream string, o TailOptions) (*tail, error) {
	query, err := o.query()
	if err != nil {
		return nil, fmt.Errorf("tail %s: %w", stream, err)
	}
	t := &tail{s: s, path: StreamPath(stream), query: query, after: o.After, lead: o.Leader, left: -1}
	if o.Limit > 0 {
		t.left = o.Limit // It is not that of one connection.
	}
	return t, nil
}

// run gives the messages of all connections.
func (t *tail) run(ctx context.Context, yield func(TailMessage, error) bool) {
	end := time.Now().Add(t.s.o.RetryFor)
	for failed := 0; ; {
		node := t.s.nodes.next()
		isOver, err := t.follow(ctx, node, func(m TailMessage) bool {
			failed = 0
			return yield(m, nil)
		})
		switch {
		case isOver || ctx.Err() != nil:
			return
		case !errors.Is(err, errTailBroke) && !mayPass(err), !t.heard && time.Now().After(end):
			yield(TailMessage{}, err)
			return
		}
		// At once the first time: another node may serve.
		if t.s.nodes.leave(node); failed > 0 && wait(ctx, min(longestPause, shortestPause<<min(failed, 10))) != nil {
			return
		}
		failed++
	}
}

func (t *tail) request() Request {
	q := Request{Path: t.path, Header: map[string]string{"Accept": "text/event-stream"}}
	if t.query != "" {
		q.Path += "?" + t.query
	}
	if t.after != "" {
		q.Header["Last-Event-ID"] = string(t.after)
	}
	if t.lead {
		q.Header[HeaderRequireLeader] = "True"
	}
	return q
}

// follow reads from one node until the connection ends. The tail is over when the reader wants no
// more, or nothing will come.
func (t *tail) follow(ctx context.Context, node string, give func(TailMessage) bool) (isOver bool, err error) {
	a, body, err := t.s.open(ctx, t.request(), node, tailStall)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }() // It was read as far as it is wanted.
	switch a.Status {
	case http.StatusOK:
	case http.StatusNoContent:
		return true, nil
	default:
		if a.Body, err = io.ReadAll(io.LimitReader(body, maxText)); err != nil {
			return false, body.failed(err)
		}
		return false, a.refusal()
	}
	body.moving = true
	for r := (messages{r: bufio.NewReader(body)}); ; {
		m, err := r.next()
		if err != nil {
			return false, fmt.Errorf("%w: %w", errTailBroke, body.failed(err))
		}
		if m.Kind == KindEnd && strings.Contains(string(m.Data), `"shutdown"`) {
			return false, fmt.Errorf("%w: the node stops", errTailBroke)
		}
		t.take(&m)
		if !give(m) || m.isLast() || t.left == 0 {
			return true, nil
		}
	}
}

// take notes where the next connection resumes.
func (t *tail) take(m *TailMessage) {
	t.heard = true
	switch {
	case m.ID != "":
		t.after = m.ID
	case m.Kind == KindLive && t.after == "":
		// Nothing was written before the message, so a tail from the start misses nothing.
		if query, err := url.ParseQuery(t.query); err == nil {
			query.Set("from", string(Start))
			t.query = query.Encode()
		}
	}
	if m.Kind == KindEvent {
		t.left--
	}
}

// messages reads the text/event-stream of a tail.
type messages struct {
	r    *bufio.Reader
	line []byte
}

// next returns the message that comes next.
func (s *messages) next() (m TailMessage, err error) {
	var data []byte
	for hasData := false; ; {
		if err := s.readLine(); err != nil {
			return TailMessage{}, err
		}
		if len(s.line) == 0 {
			if hasData {
				m.Data = data
				return m, nil
			}
			m = TailMessage{} // A comment, or the pause before another connection.
			continue
		}
		field, value, _ := bytes.Cut(s.line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "id":
			m.ID = Place(value)
		case "event":
			m.Kind = string(value)
		case "data":
			if hasData {
				data = append(data, '\n')
			}
			data, hasData = append(data, value...), true
		}
	}
}

// readLine reads a line without its end.
func (s *messages) readLine() error {
	s.line = s.line[:0]
	for {
		part, err := s.r.ReadSlice('\n')
		s.line = append(s.line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(s.line) <= maxLine:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("a line is longer than %d bytes", maxLine)
		case err != nil:
			return err
		}
		s.line = s.line[:len(s.line)-1]
		if n := len(s.line); n > 0 && s.line[n-1] == '\r' {
			s.line = s.line[:n-1]
		}
		return nil
	}
}
