package streams

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/internal/jsontext"
)

func FuzzJSONBatch(f *testing.F) {
	for _, seed := range []string{
		`[{"eventId":"` + testID + `","eventType":"T","data":{"a":1},"metadata":"[1]"}]`,
		`{"eventId":"` + bareID + `","eventType":"\u0041","data":"{\"a\":1}"}`,
		`{"eventId":"x","data":{"maxAge":1,"acl":{"r":[]},"cacheControl":"07"}}`,
		`[{}, {"EVENTID":null}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		checkBatch(t, body, decodeJSONBatch)
		if events, err := decodeJSONBatch(body); err == nil && len(events) > 0 && !json.Valid(body) && body[0] != args.ByteOrderMark[0] {
			t.Fatal("a body that is no JSON was taken")
		}
		if data, id, hasID, isItem := translateMetadataItem(body); isItem {
			if !json.Valid(data) || hasID && id.IsZero() {
				t.Fatalf("item became %q, %v", data, id)
			}
			event.ParseMetadata(data)
		}
		if jsontext.ValidUTF8(body) != (json.Valid(body) && utf8.Valid(body)) {
			t.Fatal("jsontext.ValidUTF8 differs from encoding/json")
		}
	})
}

func FuzzXMLBatch(f *testing.F) {
	for _, seed := range []string{
		`<Events><Event><EventId>` + testID + `</EventId><EventType>T</EventType><Data><a>1</a><a/></Data><Metadata x="1">y</Metadata></Event></Events>`,
		`<a><b><eventid>` + bareID + `</eventid><eventtype>x</eventtype><data>{"a":1}</data></b></a>`,
		`<a><b/></a>`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) { checkBatch(t, body, decodeXMLBatch) })
}

// checkBatch checks what holds for every batch: refused with an error that has an
// answer, or made of events that may be written.
func checkBatch(t *testing.T, body []byte, decode func([]byte) ([]event.Proposed, error)) {
	events, err := decode(body)
	if err != nil {
		var be *problem.Problem
		if events != nil || !errors.As(err, &be) && !errors.Is(err, event.ErrTooLarge) {
			t.Fatalf("got %v, %v", events, err)
		}
		return
	}
	if len(events) == 0 {
		t.Fatal("an empty batch was taken")
	}
	for _, e := range events {
		switch {
		case e.ID.IsZero(), e.Type == "", len(e.Type) > event.MaxNameBytes, len(e.Data)+len(e.Metadata) > event.MaxEventBytes:
			t.Fatalf("event that may not be written: %+v", e)
		case e.Flags&^event.FlagJSON != 0:
			t.Fatalf("flags %x", e.Flags)
		case e.Flags == 0 && (isObjectOrArray(e.Data) || isObjectOrArray(e.Metadata)):
			t.Fatalf("JSON without its flag: %q, %q", e.Data, e.Metadata)
		case e.Flags == event.FlagJSON && !json.Valid(e.Data) && !json.Valid(e.Metadata):
			t.Fatalf("flag without JSON: %q, %q", e.Data, e.Metadata)
		}
	}
}

func isObjectOrArray(b []byte) bool {
	return len(b) > 0 && (b[0] == '{' || b[0] == '[') && json.Valid(b)
}

func FuzzManyBody(f *testing.F) {
	for _, seed := range []string{
		`{"events":[{"stream":"s","eventId":"` + testID + `","eventType":"T","data":{"a":1},"metadata":"[1]"}]}`,
		`{"stream":"s","checks":[{"stream":"a","expectedVersion":"none"}],"events":[{"EVENTID":"` + bareID + `","eventType":"\u0041","dataBase64":"AA=="}]}`,
		`{"checks":[{"stream":"a","expectedVersion":9223372036854775808},{"stream":"a","expectedVersion":-6}],"events":[]}`,
		`{"events":[{}],"Events":null}`,
		`{"events":`,
	} {
		f.Add([]byte(seed))
	}
	n := &api.Node{MaxEventBytes: 1000, MaxAppendBytes: 4000}
	f.Fuzz(func(t *testing.T, body []byte) {
		g := n.Gather()
		wrong, err := decodeMany(body, g)
		if err == nil {
			err = wrong
		}
		if err != nil {
			if _, known := problem.Of(err, problem.Writing); !known {
				t.Fatalf("no answer to %v", err)
			}
			return
		}
		if !json.Valid(body) && body[0] != args.ByteOrderMark[0] {
			t.Fatal("a body that is no JSON was taken")
		}
		w, err := g.Write()
		if err != nil || len(w.Events) == 0 || len(w.Many.Of) != len(w.Events) {
			t.Fatalf("got %+v, %v", w, err)
		}
		for i, e := range w.Events {
			if e.ID.IsZero() || e.Type == "" || len(e.Data)+len(e.Metadata) > n.MaxEventBytes || w.Many.Streams[w.Many.Of[i]] == "" {
				t.Fatalf("event that may not be written: %+v", e)
			}
		}
		seen := map[string]bool{}
		for _, c := range w.Many.Checks {
			if c.Expected == event.AnyVersion || c.Expected < event.Tombstoned || seen[c.Stream] {
				t.Fatalf("check that may not be made: %+v", c)
			}
			seen[c.Stream] = true
		}
	})
}
