package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Places for Reset besides numbers, positions and times.
const (
	ToStart = "start" // the first event that there is
	ToEnd   = "end"   // the next event to be appended
)

// GroupReset says what a reset of a group did or would do.
type GroupReset struct {
	From    string `json:"from"`    // first event that had no answer, a number or a position
	To      string `json:"to"`      // from where the group reads on
	Again   int64  `json:"again"`   // events that the group had passed and that come again
	LeftOut int64  `json:"leftOut"` // events without an answer that do not come
	AtLeast bool   `json:"atLeast"` // the counts are not complete
}

// ToTime is a place for Reset: the first event that was not written before a time.
func ToTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Reset moves the group to a place: ToStart, ToEnd, ToTime, the number of an event, or a position.
// Messages that were handed out are let go. When no answer comes it may have been done or not.
func (g *Group) Reset(ctx context.Context, to string) (r GroupReset, err error) {
	err = g.c.Call(ctx, http.MethodPost, g.path+"/reset?to="+url.QueryEscape(to), nil, &r)
	return r, err
}

// PreviewReset says what Reset would do.
func (g *Group) PreviewReset(ctx context.Context, to string) (r GroupReset, err error) {
	err = g.c.Call(ctx, http.MethodGet, g.path+"/reset?to="+url.QueryEscape(to), nil, &r)
	return r, err
}

// ParkedMessage is a message that a group gave up.
type ParkedMessage struct {
	Number      int64     `json:"number"` // among the parked ones
	Added       time.Time `json:"added"`
	Reason      string    `json:"reason"`
	RetryCount  *int64    `json:"retryCount"` // nil: not known
	Stream      string    `json:"streamId"`
	EventNumber int64     `json:"eventNumber"`
	Type        string    `json:"eventType"` // empty: the event is gone
	ID          string    `json:"eventId"`
	IsJSON      bool      `json:"isJson"`
	Data        *string   `json:"data"` // nil: the event is gone
	Metadata    *string   `json:"metadata"`
}

// ParkedMessages are some of them.
type ParkedMessages struct {
	Total    int64           `json:"total"` // of the group
	Messages []ParkedMessage `json:"messages"`
	Next     *int64          `json:"next"` // number to continue from; nil: there are no more
}

// Parked returns parked messages from a number on, up to count, 500 at most.
func (g *Group) Parked(ctx context.Context, from int64, count int) (p ParkedMessages, err error) {
	err = g.c.Call(ctx, http.MethodGet, g.path+"/parked?from="+strconv.FormatInt(from, 10)+"&count="+strconv.Itoa(count), nil, &p)
	return p, err
}

// ReplayParkedAtRate hands out all parked messages again, so many a second. It also changes the
// rate of a replay that is not done; 0 is as fast as the group can.
func (g *Group) ReplayParkedAtRate(ctx context.Context, messagesPerSecond int) error {
	if messagesPerSecond == 0 {
		return g.ReplayParked(ctx)
	}
	return g.do(ctx, "/replayParked?rate="+strconv.Itoa(messagesPerSecond))
}

// ReplayParkedMessages hands out parked messages again by their numbers, MessagesLimit at most.
func (g *Group) ReplayParkedMessages(ctx context.Context, numbers ...int64) error {
	return g.c.Call(ctx, http.MethodPost, g.path+"/parked/replay?numbers="+numberList(numbers), nil, nil)
}

// DropParked takes messages out of the parked ones for good, MessagesLimit at most. Their events
// stay in their streams.
func (g *Group) DropParked(ctx context.Context, numbers ...int64) error {
	return g.c.Call(ctx, http.MethodPost, g.path+"/parked/drop?numbers="+numberList(numbers), nil, nil)
}

// Forwarded says what became of messages to be forwarded.
type Forwarded struct {
	Count int64 `json:"forwarded"`
	Gone  int64 `json:"gone"` // messages that stay parked, because their events are gone
}

// ForwardParked appends copies of parked messages to a stream, and takes the messages out of the
// parked ones: those with the numbers, MessagesLimit at most, or all. Each is copied once, also if
// the call fails and is repeated. What is done by then is returned with an error too.
func (g *Group) ForwardParked(ctx context.Context, to string, numbers ...int64) (f Forwarded, err error) {
	query := "/parked/forward?to=" + url.QueryEscape(to)
	if len(numbers) > 0 {
		query += "&numbers=" + numberList(numbers)
	}
	for from := int64(0); ; {
		var page struct {
			Forwarded
			Next *int64 `json:"next"`
		}
		a, err := g.c.Repeat(ctx, Request{Method: http.MethodPost, Path: g.path + query + "&from=" + strconv.FormatInt(from, 10)})
		if err == nil {
			err = a.Decode(&page)
		}
		f.Count += page.Count
		f.Gone += page.Gone
		if err != nil || page.Next == nil {
			return f, err
		}
		from = *page.Next
	}
}

func numberList(numbers []int64) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(texts, ",")
}
