package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// MessagesLimit is how many messages of a group one request takes or answers at most.
	MessagesLimit = 100

	// A reader that finds no message asks again after a pause, the longer the more often.
	shortestIdle = 5 * time.Millisecond
	longestIdle  = 250 * time.Millisecond
)

// Action says what becomes of a message that could not be processed.
type Action string

// What Nack can ask for.
const (
	Retry Action = "Retry" // hand it out again
	Park  Action = "Park"  // set it aside, until ReplayParked
	Skip  Action = "Skip"  // forget it
	Stop  Action = "Stop"  // forget it, as Skip
)

// Group is a persistent subscription group: the cluster hands each event of a stream to one of
// its readers, and again to another one until a reader acknowledges it.
type Group struct {
	c    *Client
	path string
}

// Group returns a group of a stream, which need not exist yet.
func (c *Client) Group(stream, name string) *Group {
	return &Group{c, "/subscriptions/" + url.PathEscape(stream) + "/" + url.PathEscape(name)}
}

// Message is an event that a group has handed out.
type Message struct {
	Recorded
	MessageID string // by which it is answered
}

// Create makes the group. It is ErrExists if there is one.
func (g *Group) Create(ctx context.Context, s GroupSettings) error {
	q, err := jsonRequest(http.MethodPut, g.path, s)
	if err != nil {
		return err
	}
	return g.c.sender.finish(ctx, q, http.StatusConflict)
}

// Update replaces all settings. Messages that were handed out and not acknowledged come again.
func (g *Group) Update(ctx context.Context, s GroupSettings) error {
	q, err := jsonRequest(http.MethodPost, g.path, s)
	if err != nil {
		return err
	}
	return g.c.sender.finish(ctx, q)
}

// Delete removes the group, with its parked messages. Its stream stays.
func (g *Group) Delete(ctx context.Context) error {
	return g.c.sender.finish(ctx, Request{Method: http.MethodDelete, Path: g.path}, http.StatusNotFound)
}

// Info returns the settings and the state of the group.
func (g *Group) Info(ctx context.Context) (GroupInfo, error) {
	var i GroupInfo
	err := g.c.Call(ctx, http.MethodGet, g.path+"/info", nil, &i)
	return i, err
}

// Groups returns the groups of a stream, or of all streams if it is empty, without their settings.
func (c *Client) Groups(ctx context.Context, stream string) ([]GroupInfo, error) {
	path := "/subscriptions"
	if stream != "" {
		path += "/" + url.PathEscape(stream)
	}
	var list []GroupInfo
	if err := c.Call(ctx, http.MethodGet, path, nil, &list); err != nil && !HasStatus(err, http.StatusNotFound) {
		return nil, err
	}
	return list, nil
}

// Read takes up to count messages, MessagesLimit at most, the one to process first at the front. It
// waits until there is one. Messages are handed out again when they are not answered within the
// time that the settings of the group say.
func (g *Group) Read(ctx context.Context, count int) ([]Message, error) {
	for pause := shortestIdle; ; pause = min(2*pause, longestIdle) {
		messages, err := g.take(ctx, count)
		if err != nil || len(messages) > 0 {
			return messages, err
		}
		if err := wait(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// take takes the messages that there are.
func (g *Group) take(ctx context.Context, count int) ([]Message, error) {
	a, err := g.c.Repeat(ctx, Request{Path: g.path + "/" + strconv.Itoa(count) + "?embed=body", Header: map[string]string{"Accept": MediaMessages}})
	if err != nil {
		return nil, err
	}
	p, err := ParsePage(a.Body)
	if err != nil {
		return nil, fmt.Errorf("read messages of %s: %w", g.path, err)
	}
	messages := make([]Message, 0, len(p.Entries))
	for _, e := range p.events(false) {
		ack := e.Links.Of("ack")
		messages = append(messages, Message{e, ack[strings.LastIndexByte(ack, '/')+1:]})
	}
	return messages, nil
}

// Ack says that messages are processed.
func (g *Group) Ack(ctx context.Context, messages ...Message) error {
	return g.answer(ctx, "/ack", "", messages)
}

// Nack says that messages could not be processed, and what becomes of them.
func (g *Group) Nack(ctx context.Context, do Action, messages ...Message) error {
	return g.answer(ctx, "/nack", "&action="+url.QueryEscape(string(do)), messages)
}

// NackAfter says that messages could not be processed, and has them handed out again after a time,
// a day at most, whatever delay the settings of the group say.
func (g *Group) NackAfter(ctx context.Context, after time.Duration, messages ...Message) error {
	return g.answer(ctx, "/nack", "&action=Retry&after="+url.QueryEscape(after.String()), messages)
}

// Pause has the group hand out nothing until Resume. Messages that are out can be answered.
func (g *Group) Pause(ctx context.Context) error { return g.do(ctx, "/pause") }

// Resume ends a pause.
func (g *Group) Resume(ctx context.Context) error { return g.do(ctx, "/resume") }

func (g *Group) do(ctx context.Context, what string) error {
	return g.c.sender.finish(ctx, Request{Method: http.MethodPost, Path: g.path + what})
}

func (g *Group) answer(ctx context.Context, how, action string, messages []Message) error {
	for some := range slices.Chunk(messages, MessagesLimit) {
		ids := make([]string, len(some))
		for i := range some {
			ids[i] = some[i].MessageID
		}
		q := Request{Method: http.MethodPost, Path: g.path + how + "?ids=" + strings.Join(ids, ",") + action}
		if err := g.c.sender.finish(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// ReplayParked hands out all parked messages again.
func (g *Group) ReplayParked(ctx context.Context) error { return g.do(ctx, "/replayParked") }

// ReplayParkedBefore hands out the parked messages again whose numbers in the stream of parked
// messages are below one.
func (g *Group) ReplayParkedBefore(ctx context.Context, number int64) error {
	return g.do(ctx, "/replayParked?stopAt="+strconv.FormatInt(number, 10))
}
