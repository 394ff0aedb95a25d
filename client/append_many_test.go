package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/annalsdb/annals/client"
)

// TestAppendMany: what is sent is the same each time, and what comes back is read.
func TestAppendMany(t *testing.T) {
	var bodies []string
	status, answer := 503, ""
	node := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/streams" || r.Header.Get("Content-Type") != client.MediaJSON {
			t.Errorf("%v, %s, %v", err, r.URL, r.Header)
		}
		bodies = append(bodies, string(body))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
		status, answer = 201, `{"position":77,"repeated":true,"streams":[{"stream":"a \"b\"","first":3,"last":4},{"stream":"c","first":0,"last":0}]}`
	})
	c := open(t, client.Options{Nodes: []string{node}})
	events := []client.StreamEvent{
		{Stream: `a "b"`, Event: client.Event{Type: "T", Data: []byte(`{"x": 1}`), Metadata: []byte(`{}`)}},
		{Stream: "c", Event: client.Event{ID: "c322e299-cb73-4b47-97c5-5054f920746e", Type: "U", Data: []byte("\x00\xff"), Binary: true}},
	}
	done, err := c.AppendMany(t.Context(), events, client.Check{Stream: "d", Expected: client.Tombstoned})
	if want := `{77 true [{a "b" 3 4} {c 0 0}]}`; err != nil || fmt.Sprint(done) != want {
		t.Errorf("got %v, %v", done, err)
	}
	var sent struct {
		Events []map[string]any
		Checks []client.Check
	}
	if len(bodies) != 2 || bodies[0] != bodies[1] {
		t.Fatalf("sent %q", bodies)
	}
	if err := json.Unmarshal([]byte(bodies[0]), &sent); err != nil {
		t.Fatal(err)
	}
	if id := sent.Events[0]["eventId"].(string); len(id) != 36 || events[0].ID != "" {
		t.Errorf("sent the id %q", id)
	}
	delete(sent.Events[0], "eventId")
	want := `[map[data:map[x:1] eventType:T metadata:map[] stream:a "b"] map[dataBase64:AP8= eventId:c322e299-cb73-4b47-97c5-5054f920746e eventType:U stream:c]] [{d -6}]`
	if got := fmt.Sprint(sent.Events, sent.Checks); got != want {
		t.Errorf("sent %s", got)
	}

	status = 409
	answer = `{"message":"Append failed.","checks":[{"index":0,"stream":"a","expected":7,"actual":"none"},{"index":null,"stream":"b","expected":"any","actual":"tombstoned"}],"conditions":[],"position":9}`
	_, err = c.AppendMany(t.Context(), events)
	refused, ok := errors.AsType[*client.ViolationError](err)
	if !ok || !errors.Is(err, client.ErrWrongVersion) || errors.Is(err, client.ErrExists) || !client.HasStatus(err, 409) {
		t.Fatalf("got %v", err)
	}
	if got := fmt.Sprint(refused.Violations, refused.Position); got != "[{0 a 7 -1} {-1 b -2 -6}] 9" {
		t.Errorf("got %s", got)
	}
	if want := `append 2 events: the checks do not hold: stream "a": expected 7, is none, stream "b": expected any, is tombstoned`; err.Error() != want {
		t.Errorf("says %s", err)
	}
	status, answer = 409, `{"checks":[{"actual":"asleep"}]}`
	if _, err = c.AppendMany(t.Context(), events); err == nil || !errors.Is(err, client.ErrWrongVersion) {
		t.Errorf("got %v", err)
	}
	events[0].Data = []byte("{")
	if _, err = c.AppendMany(t.Context(), events); err == nil || err.Error() != "append 2 events: event 1 of 2: its data is not JSON" {
		t.Errorf("got %v", err)
	}
}

// TestNamesThatJSONChanges: a name that would arrive as another one is not sent; one with the
// character that JSON puts in its place is.
func TestNamesThatJSONChanges(t *testing.T) {
	for name, isSent := range map[string]bool{"a": true, "\ufffd": true, `\ufffd`: true, `\\ufffd "`: true, "\xff": false, "a\\\xc3": false} {
		item := client.QueryItem{Types: []string{name}}
		for what, f := range map[string]func() error{
			"type":   func() error { _, err := client.AppendRequest("s", 0, client.Event{Type: name}); return err },
			"tag":    func() error { _, err := client.AppendRequest("s", 0, client.Event{Tags: []string{name}}); return err },
			"stream": func() error { _, err := client.ManyBody([]client.StreamEvent{{Stream: name}}); return err },
			"check":  func() error { _, err := client.ManyBody(nil, client.Check{Stream: name}); return err },
			"condition": func() error {
				_, err := client.ManyBody(nil, client.Condition{Query: client.Query{Items: []client.QueryItem{item}}})
				return err
			},
			"query": func() error {
				_, err := client.QueryRequest(client.Query{Items: []client.QueryItem{item}}, client.QueryOptions{})
				return err
			},
		} {
			if err := f(); (err == nil) != isSent {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
}
