package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/client"
)

// wire answers requests without a network.
type wire func(r *http.Request) (status int, body string)

func (w wire) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := w(r)
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

const oneMessage = `{"entries":[{"eventId":"1","eventNumber":4,"streamId":"s","links":[
	{"relation":"ack","uri":"http://h/subscriptions/s/g/ack/the-id"}]}]}`

// TestGroupReadWaits: a reader asks a group that has no message seldom, and gets one soon.
func TestGroupReadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, asked := time.Now(), 0
		c := open(t, client.Options{Transport: wire(func(r *http.Request) (int, string) {
			asked++
			if r.URL.Path != "/subscriptions/s/g/10" || r.Header.Get("Accept") != client.MediaMessages {
				t.Errorf("asked for %s, %v", r.URL, r.Header)
			}
			if time.Since(begun) < time.Minute {
				return 200, `{"entries":[]}`
			}
			return 200, oneMessage
		})})
		m, err := c.Group("s", "g").Read(t.Context(), 10)
		if err != nil || len(m) != 1 || m[0].MessageID != "the-id" || m[0].Number != 4 {
			t.Errorf("%+v, %v", m, err)
		}
		if took := time.Since(begun); took > time.Minute+time.Second/4 || asked > 250 {
			t.Errorf("after %v, asked %d times", took, asked)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		begun = time.Now()
		if _, err := c.Group("s", "g").Read(ctx, 10); err != nil {
			t.Log("the first answer has a message:", err)
		}
		begun = time.Now().Add(time.Hour)
		if _, err := c.Group("s", "g").Read(ctx, 10); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// TestAckMany: more messages than one request takes are answered by several.
func TestAckMany(t *testing.T) {
	var sizes []int
	c := open(t, client.Options{Transport: wire(func(r *http.Request) (int, string) {
		sizes = append(sizes, 1+strings.Count(r.URL.Query().Get("ids"), ","))
		if r.URL.Path != "/subscriptions/s/g/nack" || r.URL.Query().Get("action") != "Park" {
			t.Errorf("%s", r.URL)
		}
		return 202, ""
	})})
	if err := c.Group("s", "g").Nack(t.Context(), client.Park, make([]client.Message, 230)...); err != nil || !reflect.DeepEqual(sizes, []int{100, 100, 30}) {
		t.Errorf("%v, %v", err, sizes)
	}
}

func TestGroupRequests(t *testing.T) {
	var asked []string
	c := open(t, client.Options{Transport: wire(func(r *http.Request) (int, string) {
		asked = append(asked, r.Method+" "+strings.TrimPrefix(r.URL.String(), "http://127.0.0.1:2113"))
		return 200, `{"status":"Paused","paused":{"by":"ann","at":"2026-11-28T12:00:00Z"},"delayedMessages":2}`
	})})
	g := c.Group("s", "g")
	if err := errors.Join(g.Pause(t.Context()), g.Resume(t.Context()), g.NackAfter(t.Context(), 90*time.Second, client.Message{MessageID: "i"})); err != nil {
		t.Fatal(err)
	}
	if i, err := g.Info(t.Context()); err != nil || i.Delayed != 2 || i.Paused.By != "ann" || i.Paused.At.Hour() != 12 {
		t.Errorf("%+v, %v", i, err)
	}
	want := []string{"POST /subscriptions/s/g/pause", "POST /subscriptions/s/g/resume", "POST /subscriptions/s/g/nack?ids=i&action=Retry&after=1m30s", "GET /subscriptions/s/g/info"}
	if !reflect.DeepEqual(asked, want) {
		t.Errorf("%q", asked)
	}
}

// TestGroupPlaces: resets, and what is done with parked messages.
func TestGroupPlaces(t *testing.T) {
	var asked []string
	c := open(t, client.Options{Transport: wire(func(r *http.Request) (int, string) {
		asked = append(asked, r.Method+" "+strings.TrimPrefix(r.URL.String(), "http://127.0.0.1:2113/subscriptions/s/g"))
		return 200, map[string]string{
			"/subscriptions/s/g/reset":          `{"from":"6","to":"2","again":4,"leftOut":1,"atLeast":true}`,
			"/subscriptions/s/g/parked":         `{"total":3,"messages":[{"number":1,"eventNumber":7,"streamId":"s","eventType":"t","added":"2026-01-02T03:04:05Z"}],"next":2}`,
			"/subscriptions/s/g/parked/forward": map[bool]string{true: `{"forwarded":2,"gone":1,"next":9}`, false: `{"forwarded":3}`}[r.URL.Query().Get("from") == "0" && !r.URL.Query().Has("numbers")],
			"/subscriptions/s/g/info":           `{"replaying":{"remaining":3,"messagesPerSecond":2},"stalled":"x"}`,
		}[r.URL.Path]
	})})
	g, ctx := c.Group("s", "g"), t.Context()
	is := func(got, want any, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	reset := client.GroupReset{From: "6", To: "2", Again: 4, LeftOut: 1, AtLeast: true}
	r, err := g.PreviewReset(ctx, client.ToTime(time.Unix(0, 0)))
	is(r, reset, err)
	r, err = g.Reset(ctx, client.ToEnd)
	is(r, reset, err)
	p, err := g.Parked(ctx, 1, 5)
	is([]any{p.Total, *p.Next, p.Messages[0].EventNumber}, []any{int64(3), int64(2), int64(7)}, err)
	is(nil, nil, errors.Join(g.ReplayParkedAtRate(ctx, 0), g.ReplayParkedAtRate(ctx, 5), g.ReplayParkedMessages(ctx, 1, 2), g.DropParked(ctx, 3)))
	f, err := g.ForwardParked(ctx, "d/x", 1)
	is(f, client.Forwarded{Count: 3}, err)
	f, err = g.ForwardParked(ctx, "d")
	is(f, client.Forwarded{Count: 5, Gone: 1}, err)
	i, err := g.Info(ctx)
	is([]any{i.Replaying.Remaining, i.Replaying.PerSecond, i.Stalled}, []any{int64(3), 2, "x"}, err)
	is(asked, []string{
		"GET /reset?to=1970-01-01T00%3A00%3A00Z", "POST /reset?to=end", "GET /parked?from=1&count=5", "POST /replayParked", "POST /replayParked?rate=5",
		"POST /parked/replay?numbers=1,2", "POST /parked/drop?numbers=3", "POST /parked/forward?to=d%2Fx&numbers=1&from=0", "POST /parked/forward?to=d&from=0", "POST /parked/forward?to=d&from=9", "GET /info",
	}, nil)
}

func TestGroupSettings(t *testing.T) {
	for _, c := range []struct {
		name string
		s    client.GroupSettings
		want string
	}{
		{"defaults", client.GroupSettings{}, `{}`},
		{"zero and others", client.GroupSettings{
			StartFrom: client.FromEnd, MaxRetryCount: -1, MessageTimeout: time.Minute, CheckpointAfter: -1, BufferSize: 9, Strategy: client.Pinned,
		}, `{"startFrom":-1,"messageTimeoutMilliseconds":60000,"maxRetryCount":0,` +
			`"bufferSize":9,"checkPointAfterMilliseconds":0,"namedConsumerStrategy":"Pinned"}`},
		{"delays", client.GroupSettings{RetryDelay: time.Second, RetryBackoff: client.Backoff{Factor: 1.5, AtMost: time.Minute}, CheckpointAtLeastEvery: time.Hour},
			`{"retryDelayMilliseconds":1000,"retryBackoff":{"factor":1.5,"atMostMilliseconds":60000},"checkpointAtLeastEveryMilliseconds":3600000}`},
		{"source and filter", client.GroupSettings{Source: "$all", Filter: &client.GroupFilter{Of: "stream", Prefixes: []string{"a"}}},
			`{"source":"$all","filter":{"of":"stream","prefixes":["a"]}}`},
		{"less than the unit", client.GroupSettings{MessageTimeout: time.Nanosecond},
			`{"messageTimeoutMilliseconds":1}`},
	} {
		b, err := json.Marshal(c.s)
		if err != nil || string(b) != c.want {
			t.Errorf("%s: %s, %v", c.name, b, err)
		}
		var again client.GroupSettings
		if err := json.Unmarshal(b, &again); err != nil {
			t.Error(err)
		}
		if b, err = json.Marshal(again); err != nil || string(b) != c.want {
			t.Errorf("%s, read and written: %s, %v", c.name, b, err)
		}
	}
}
