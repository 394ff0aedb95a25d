package replication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication/pipeline"
)

// What the leader says arrives as the error that it was there.
func TestAnswersOfOwnWrites(t *testing.T) {
	write := &event.Write{Stream: "s", ExpectedVersion: 4}
	version := &event.WrongExpectedVersion{Stream: "s", Expected: 4, Current: 9}
	for _, c := range []struct {
		name    string
		written event.Written
		err     error
		want    error // errors.Is, or as equal
	}{
		{"done", event.Written{First: 1, Last: 2, Position: 77}, nil, nil},
		{"done before", event.Written{First: 1, Last: 2, Idempotent: true, Position: 77}, nil, nil},
		{"nothing to do", event.Written{First: 3, Last: 2, Idempotent: true, Position: -1}, nil, nil},
		{"version", event.Written{}, version, version},
		{"version, wrapped", event.Written{}, fmt.Errorf("x: %w", version), version},
		{"deleted", event.Written{}, event.ErrStreamDeleted, event.ErrStreamDeleted},
		{"too large", event.Written{}, event.ErrTooLarge, event.ErrTooLarge},
		{"not authorized", event.Written{}, fmt.Errorf("stream $all: %w", event.ErrNotAuthorized), event.ErrNotAuthorized},
		{"disk", event.Written{}, fmt.Errorf("%w: /data", event.ErrDiskFull), event.ErrDiskFull},
		{"busy", event.Written{}, event.ErrBusy, event.ErrBusy},
		{"unknown", event.Written{}, fmt.Errorf("%w: %w", event.ErrOutcomeUnknown, event.ErrClosed), event.ErrOutcomeUnknown},
		{"timeout", event.Written{}, event.ErrWriteTimeout, event.ErrWriteTimeout},
		{"not ready", event.Written{}, fmt.Errorf("%w: applied state", event.ErrNotReady), event.ErrNotReady},
		{"deposed", event.Written{}, &event.NotLeader{Address: "http://x"}, event.ErrNotReady},
		{"closed", event.Written{}, event.ErrClosed, event.ErrNotReady},
		{"refused", event.Written{}, event.ErrEntryRefused, event.ErrNotReady},
		{"damaged", event.Written{}, &event.CannotDecide{Err: fmt.Errorf("x: %w", &event.Corruption{File: "chunk-1", Offset: 7, Detail: "sum"})},
			&event.CannotDecide{Err: &event.Corruption{File: "chunk-1", Offset: 7}}},
		{"bad", event.Written{}, &event.BadRequest{Text: "$tags: x"}, &event.BadRequest{Text: "$tags: x"}},
		{"other", event.Written{}, errors.New("strange"), errors.New("write at the leader: strange")},
	} {
		data, err := json.Marshal(answerOf(c.written, c.err))
		check.Must(t, err)
		var a writeAnswer
		check.Must(t, json.Unmarshal(data, &a))
		written, err := a.result(write)
		if !reflect.DeepEqual(written, c.written) || !errors.Is(err, c.want) && !reflect.DeepEqual(err, c.want) && fmt.Sprint(err) != fmt.Sprint(c.want) {
			t.Errorf("%s: %+v, %v; expected %+v, %v", c.name, written, err, c.written, c.want)
		}
	}
	check.Is(t, check.Err((&writeAnswer{Error: "of a later version"}).result(write)), event.ErrOutcomeUnknown)
}

// What may be sent again is, until it is known what became of it; anything else is sent once. A
// refusal of what was sent again is the answer only if it says that nothing was written before.
func TestWritesAreSentAgain(t *testing.T) {
	id := event.ID{1}
	version := &event.WrongExpectedVersion{Stream: "s", Current: 3}
	append1 := func(expected int64, ids ...event.ID) *event.Write {
		w := &event.Write{Stream: "s", ExpectedVersion: expected}
		for _, id := range ids {
			w.Events = append(w.Events, event.Proposed{ID: id, Type: "t"})
		}
		return w
	}
	earlier := fmt.Errorf("%w: %w", event.ErrNotReady, event.ErrEarlierLeader)
	done := errors.New("done") // stands for a write that is done
	for _, c := range []struct {
		name    string
		write   *event.Write
		answers []error // of the attempts, all of them
		want    error
	}{
		{"done", append1(0, id), []error{done}, nil},
		{"unknown, then done", append1(0, id), []error{event.ErrOutcomeUnknown, done}, nil},
		{"timeout, not ready, then done", append1(0, id), []error{event.ErrWriteTimeout, event.ErrNotReady, done}, nil},
		{"another one leads, then done", append1(0, id), []error{&event.NotLeader{Address: "http://x"}, done}, nil},
		{"no events", append1(0), []error{event.ErrOutcomeUnknown, done}, nil},
		{"no ids", append1(0, id, event.ID{}), []error{event.ErrOutcomeUnknown}, event.ErrOutcomeUnknown},
		{"no ids, not ready", append1(0, event.ID{}), []error{event.ErrNotReady, done}, nil},
		{"deletion", &event.Write{Kind: event.SoftDelete, Stream: "s"}, []error{event.ErrWriteTimeout}, event.ErrWriteTimeout},
		{"hard deletion", &event.Write{Kind: event.HardDelete, Stream: "s"}, []error{event.ErrOutcomeUnknown}, event.ErrOutcomeUnknown},
		{"deletion, not ready", &event.Write{Kind: event.HardDelete, Stream: "s"}, []error{event.ErrNotReady, done}, nil},
		{"busy", append1(0, id), []error{event.ErrBusy}, event.ErrBusy},
		{"full", append1(0, id), []error{event.ErrDiskFull}, event.ErrDiskFull},
		{"unknown, busy", append1(0, id), []error{event.ErrOutcomeUnknown, event.ErrBusy}, event.ErrOutcomeUnknown},
		{"earlier leader", append1(0, id), []error{event.ErrNotReady, earlier}, earlier},
		{"unknown, earlier leader, then done", append1(0, id), []error{event.ErrOutcomeUnknown, earlier, done}, nil},
		{"version", append1(-1, id), []error{version}, version},
		{"deleted", append1(-2, id), []error{event.ErrStreamDeleted}, event.ErrStreamDeleted},
		{"unknown, version", append1(5, id), []error{event.ErrOutcomeUnknown, version}, version},
		{"unknown, version of what should be none", append1(-1, id), []error{event.ErrOutcomeUnknown, version}, event.ErrOutcomeUnknown},
		{"unknown, deleted since", append1(-2, id), []error{event.ErrWriteTimeout, event.ErrStreamDeleted}, event.ErrWriteTimeout},
		{"unknown, too large", append1(-2, id), []error{event.ErrWriteTimeout, event.ErrTooLarge}, event.ErrTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &ownWrites{self: &self{}, incarnations: &incarnations{}, lead: &leadership{}}
				o.lead.Publish(pipeline.Leadership{Leading: true, Term: 1})
				sent := 0
				o.submit = func(_ context.Context, w *event.Write) (event.Written, error) {
					if w != c.write || sent == len(c.answers) {
						t.Fatalf("attempt %d", sent)
					}
					err := c.answers[sent]
					if sent++; err == done {
						return event.Written{Position: 7}, nil
					}
					return event.Written{}, err
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				written, err := o.write(ctx, c.write)
				if err != c.want || sent != len(c.answers) || reflect.DeepEqual(written, event.Written{}) == (err == nil) {
					t.Errorf("%+v, %v after %d attempts; expected %v after %d", written, err, sent, c.want, len(c.answers))
				}
			})
		})
	}
}

// A name that would change on its way as JSON does not go that way.
func TestNamesOfOwnWrites(t *testing.T) {
	for name, want := range map[string]bool{"": true, "ströme/\u2028": true, "\xff": false, "a\xc3": false} {
		for _, w := range []*event.Write{{Stream: name}, {Stream: "s", Events: []event.Proposed{{Type: "t"}, {Type: name}}}} {
			if travels(w) != want {
				t.Errorf("%+v: %v", w, !want)
			}
		}
	}
}

// A write is the same at the leader as it was given, also at one of an earlier version, which takes
// JSON alone. There a name that is not UTF-8 goes nowhere.
func TestOwnWriteAsRequest(t *testing.T) {
	given := event.Write{
		Kind: event.HardDelete, Stream: "ströme/<&>\u2028", ExpectedVersion: -2, Late: true,
		Events: []event.Proposed{{ID: event.ID{1, 15: 255}, Type: "t\x01", Flags: event.FlagJSON, Data: []byte{0, 255, '"'}, Metadata: []byte("{}")}, {}},
	}
	strange := given
	strange.Stream = "\xff"
	for _, earlier := range []bool{false, true} {
		var got []event.Write
		o := &ownWrites{submit: func(_ context.Context, w *event.Write) (event.Written, error) {
			got = append(got, *w)
			return event.Written{Position: 7}, nil
		}}
		mux := http.NewServeMux()
		take := func(w http.ResponseWriter, r *http.Request) {
			if write, ok := readWrite(w, r); ok {
				reply(w, answerOf(o.submit(r.Context(), write)))
			}
		}
		mux.HandleFunc("POST /write", take)
		if !earlier {
			mux.HandleFunc("POST "+pathPacked, take)
		}
		server := httptest.NewServer(mux)
		o.caller = &caller{self: &self{}, client: server.Client()}
		want := []event.Write{given}
		if !earlier {
			want = append(want, strange)
		}
		for _, w := range []*event.Write{&given, &strange} {
			var a writeAnswer
			if err := o.send(t.Context(), server.Listener.Addr().String(), w, &a); (err == nil) != (a.Written.Position == 7) || err != nil && w == &given {
				t.Errorf("%+v: %+v, %v", w, a, err)
			}
		}
		// None of these leaders knows a write to several streams.
		var a writeAnswer
		several := &event.Write{Kind: event.AppendMany}
		_, err := a.outcome(t.Context(), several, o.send(t.Context(), server.Listener.Addr().String(), several, &a))
		check.Is(t, err, event.ErrEarlierLeader)
		check.Is(t, err, event.ErrNotReady)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("earlier version %v: %+v; expected %+v", earlier, got, want)
		}
		server.Close()
	}
}
