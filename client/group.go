package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Group is a persistent subscription group: the cluster hands each event of a stream to one of
// its readers, and again to another one until it is acknowledged.
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

// Create makes the group. Settings may be nil, or a map or struct with settings by their
// names on the wire, such as maxRetryCount; the others have their defaults.
func (g *Group) Create(ctx context.Context, settings any) error {
	return g.call(ctx, http.MethodPut, "", settings)
}

// Update replaces all settings, those that are not named by their defaults.
func (g *Group) Update(ctx context.Context, settings any) error {
	return g.call(ctx, http.MethodPost, "", settings)
}

// Delete removes the group. Its stream stays.
func (g *Group) Delete(ctx context.Context) error {
	return g.call(ctx, http.MethodDelete, "", nil)
}

func (g *Group) call(ctx context.Context, method, below string, settings any) error {
	if settings == nil {
		settings = struct{}{}
	}
	return g.c.Call(ctx, method, g.path+below, settings, nil)
}

// Info reads settings and state of the group into a value.
func (g *Group) Info(ctx context.Context, value any) error {
	return g.c.Call(ctx, http.MethodGet, g.path+"/info", nil, value)
}

// Read takes up to count messages, 100 at most, the one to process first at the front. It does not
// wait.
func (g *Group) Read(ctx context.Context, count int) ([]Message, error) {
	a, err := g.c.repeat(ctx, Request{Path: g.path + "/" + strconv.Itoa(count) + "?embed=body", Header: map[string]string{"Accept": MediaMessages}})
	if err != nil {
		return nil, err
	}
	p, err := ParsePage(a.Body)
	if err != nil {
		return nil, err
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

// Nack says that messages could not be processed, and what becomes of them: Park, Retry, Skip or
// Stop.
func (g *Group) Nack(ctx context.Context, action string, messages ...Message) error {
	return g.answer(ctx, "/nack", "&action="+url.QueryEscape(action), messages)
}

func (g *Group) answer(ctx context.Context, how, action string, messages []Message) error {
	if len(messages) == 0 {
		return nil
	}
	ids := make([]string, len(messages))
	for i := range messages {
		ids[i] = messages[i].MessageID
	}
	_, err := g.c.repeat(ctx, Request{Method: http.MethodPost, Path: g.path + how + "?ids=" + strings.Join(ids, ",") + action})
	return err
}

// ReplayParked hands out the parked messages again.
func (g *Group) ReplayParked(ctx context.Context) error {
	return g.call(ctx, http.MethodPost, "/replayParked", nil)
}
