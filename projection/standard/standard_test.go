package standard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/standard"
)

const namespace = "native:EventStore.Projections.Core.Standard."

func TestAll(t *testing.T) {
	want := []standard.Projection{
		{Name: "$streams", Type: namespace + "IndexStreams"},
		{Name: "$stream_by_category", Type: namespace + "CategorizeStreamByPath", Source: "first\r\n-"},
		{Name: "$by_category", Type: namespace + "CategorizeEventsByStreamPath", Source: "first\r\n-"},
		{Name: "$by_event_type", Type: namespace + "IndexEventsByEventType"},
		{Name: "$by_correlation_id", Type: namespace + "ByCorrelationId", Source: `{"correlationIdProperty":"$correlationId"}`},
	}
	check.Deep(t, standard.All, want)
}

func TestDefinitions(t *testing.T) {
	for _, p := range standard.All {
		links := p.Name != "$by_event_type" && p.Name != "$by_correlation_id"
		want := handler.Definition{AllStreams: true, AllEvents: true, Options: handler.Options{DefinesFold: true, IncludeLinks: links}}
		got := *open(t, p.Name).Definition()
		if got.Mark = nil; !reflect.DeepEqual(got, want) { // TestMarks looks at that.
			t.Errorf("%s: got %+v", p.Name, got)
		}
	}
}

func TestHandlerTypes(t *testing.T) {
	for handlerType, known := range map[string]bool{
		namespace + "IndexStreams":    true,
		"native:IndexStreams":         true,
		"NATIVE:other.IndexStreams":   true,
		"native:x.y.z.IndexStreams":   true,
		"native:indexstreams":         false,
		"native:":                     false,
		"native:x.":                   false,
		"IndexStreams":                false,
		"other:IndexStreams":          false,
		"JS":                          false,
		"":                            false,
		"native:IndexStreams.Another": false,
	} {
		h, err := standard.New(handlerType, "", true)
		if known {
			if err != nil {
				t.Errorf("%q: %v", handlerType, err)
				continue
			}
			h.Close()
			continue
		}
		wantFault(t, err, "'"+handlerType+"' handler type is not supported")
	}
}

func TestConfigurationFaults(t *testing.T) {
	const (
		begin = "Cannot initialize categorization projection handler.  "
		end   = "Configuration format is: \r\nfirst|last\r\nseparator char"
		blank = begin + "One symbol separator or configuration must be supplied in the source.  " + end
		wrong = begin + "Invalid configuration  " + end
		way   = begin + "Invalid direction specifier.  Expected 'first' or 'last'. " + end
		one   = begin + "Single separator expected. " + end
		id    = "Could not parse projection source. Please make sure the source is a valid JSON string with a property: 'correlationIdProperty' having a string value"
	)
	for _, c := range []struct{ name, source, want string }{
		{"$by_category", "", blank},
		{"$by_category", "\r\n", blank},
		{"$stream_by_category", "  \r\n ", blank},
		{"$by_category", "first", wrong},
		{"$by_category", "first\n-\n-", wrong},
		{"$by_category", "middle\n-", way},
		{"$by_category", "\n-\n-", wrong},
		{"$by_category", "first\n--", one},
		{"$by_category", "first\r\n\r\n", wrong},
		{"$by_correlation_id", "", id},
		{"$by_correlation_id", "id", id},
		{"$by_correlation_id", `"id"`, id},
		{"$by_correlation_id", `["id"]`, id},
		{"$by_correlation_id", `{}`, id},
		{"$by_correlation_id", `{"correlationIdProperty":null}`, id},
		{"$by_correlation_id", `{"correlationIdProperty":7}`, id},
		{"$by_correlation_id", `{"CorrelationIdProperty":"id"}`, id},
		{"$by_correlation_id", `{"correlationIdProperty":"id"`, id},
	} {
		_, err := standard.New(typeOf(t, c.name), c.source, true)
		wantFault(t, err, c.want)
	}
}

func TestCategories(t *testing.T) {
	for _, c := range []struct{ source, stream, want string }{
		{"first\r\n-", "a-b-c", "a"},
		{"first\n-", "a-b-c", "a"},
		{"first\r\n-\r\n", "a-b-c", "a"},
		{"First\n-", "a-b-c", "a"},
		{"last\r\n-", "a-b-c", "a-b"},
		{"LAST\n-\n", "a-b-c", "a-b"},
		{"-", "a-b-c", "a-b"},
		{"-\r\n", "a-b-c", "a-b"},
		{" ", "a b c", "a b"},
		{"first\n ", "a b c", "a"},
		{"first\n ", "a-b-c", ""},
		{"first\n€", "a€b€c", "a"},
		{"€", "a€b€c", "a€b"},
		{"first\n-", "a-", "a"},
		{"last\n-", "a--", "a-"},
		{"first\n-", "abc", ""},
		{"first\n-", "", ""},
		{"first\n-", "-", ""},
		{"first\n-", "-a-b", ""},
		{"last\n-", "-a-b", ""},
		{"first\n-", "$a-b", ""},
		{"last\n-", "$$a-b", ""},
		{"first\n$", "$a-b", ""},
		{"first\n$", "a$b", "a"},
		{"first\n/", "a/b-c", "a"},
	} {
		for _, kind := range []struct{ name, prefix string }{{"$stream_by_category", "$category-"}, {"$by_category", "$ce-"}} {
			h, err := standard.New(typeOf(t, kind.name), c.source, true)
			if err != nil {
				t.Errorf("%q: %v", c.source, err)
				continue
			}
			got := process(t, h, &event.Record{Stream: c.stream, Type: "t"})
			if c.want == "" && got != nil || c.want != "" && (got == nil || got.Stream != kind.prefix+c.want) {
				t.Errorf("%s with %q of %q: got %+v, want category %q", kind.name, c.source, c.stream, got, c.want)
			}
		}
	}
}

// TestOutputs has the row of each projection for each kind of record: what is written, or nothing.
func TestOutputs(t *testing.T) {
	when := time.Date(2024, 2, 3, 4, 5, 6, 789_012_999, time.UTC).UnixNano()
	const softly = `{"$tb":9223372036854775807}`
	records := []struct {
		name string
		of   event.Record
		want map[string]string
	}{
		{
			"the first event of a stream",
			event.Record{Stream: "a-1", Type: "t"},
			map[string]string{
				"$streams":            `$streams $> 0@a-1 {}`,
				"$stream_by_category": `$category-a $@ a-1 {}`,
				"$by_category":        `$ce-a $> 0@a-1 {"$o":"a-1"}`,
				"$by_event_type":      `$et-t $> 0@a-1 {}`,
			},
		},
		{
			"a later event",
			event.Record{Stream: "a-1", Type: "t", Number: 5},
			map[string]string{
				"$by_category":   `$ce-a $> 5@a-1 {"$o":"a-1"}`,
				"$by_event_type": `$et-t $> 5@a-1 {}`,
			},
		},
		{
			"no category",
			event.Record{Stream: "plain", Type: "u"},
			map[string]string{
				"$streams":       `$streams $> 0@plain {}`,
				"$by_event_type": `$et-u $> 0@plain {}`,
			},
		},
		{
			"a name that JSON escapes",
			event.Record{Stream: "a-\"\\\n<é>", Type: "t", Number: 1},
			map[string]string{
				"$by_category":   "$ce-a $> 1@a-\"\\\n<é> " + `{"$o":"a-\"\\\n<é>"}`,
				"$by_event_type": "$et-t $> 1@a-\"\\\n<é> {}",
			},
		},
		{
			"a link",
			event.Record{Stream: "b-7", Type: "$>", Data: []byte("0@a-1"), Metadata: []byte(`{"$correlationId":"x"}`)},
			map[string]string{
				"$streams":            `$streams $> 0@b-7 {}`,
				"$stream_by_category": `$category-b $@ b-7 {}`,
				"$by_category":        `$ce-b $> 0@a-1 {"$o":"b-7"}`,
			},
		},
		{
			"a later link",
			event.Record{Stream: "b-7", Type: "$>", Number: 3, Data: []byte("12@a-1")},
			map[string]string{"$by_category": `$ce-b $> 12@a-1 {"$o":"b-7"}`},
		},
		{
			"a link that names nothing",
			event.Record{Stream: "b-7", Type: "$>", Number: 3, Data: []byte("nothing")},
			map[string]string{"$by_category": `$ce-b $> nothing {"$o":"b-7"}`},
		},
		{
			"a stream reference",
			event.Record{Stream: "b-7", Type: "$@", Number: 3, Data: []byte("a-1")},
			map[string]string{
				"$by_category":   `$ce-b $> 3@b-7 {"$o":"b-7"}`,
				"$by_event_type": `$et-$@ $> 3@b-7 {}`,
			},
		},
		{
			"a hard deletion",
			event.Record{Stream: "a-1", Type: "$streamDeleted", Number: event.TombstoneNumber, Flags: event.FlagDeleted},
			map[string]string{
				"$by_category":   `$ce-a $> 9223372036854775807@a-1 {"$o":"a-1","$deleted":-1}`,
				"$by_event_type": `$et-$deleted $> 9223372036854775807@a-1 {"$deleted":-1}`,
			},
		},
		{
			"a hard deletion without category",
			event.Record{Stream: "plain", Type: "$streamDeleted", Number: event.TombstoneNumber, Flags: event.FlagDeleted},
			map[string]string{"$by_event_type": `$et-$deleted $> 9223372036854775807@plain {"$deleted":-1}`},
		},
		{
			"a soft deletion",
			event.Record{Stream: "$$a-1", Type: "$metadata", Number: 4, Flags: event.FlagJSON, Data: []byte(softly)},
			map[string]string{
				"$by_category":   `$ce-a $> 4@$$a-1 {"$o":"a-1","$deleted":-1}`,
				"$by_event_type": `$et-$deleted $> 4@a-1 {"$deleted":-1}`,
			},
		},
		{
			"a soft deletion that is the first of its stream",
			event.Record{Stream: "$$a-1", Type: "$metadata", Flags: event.FlagJSON, Data: []byte(softly)},
			map[string]string{
				"$streams":       `$streams $> 0@$$a-1 {}`,
				"$by_category":   `$ce-a $> 0@$$a-1 {"$o":"a-1","$deleted":-1}`,
				"$by_event_type": `$et-$deleted $> 0@a-1 {"$deleted":-1}`,
			},
		},
		{
			"metadata",
			event.Record{Stream: "$$a-1", Type: "$metadata", Flags: event.FlagJSON, Data: []byte(`{"$tb":12}`)},
			map[string]string{
				"$streams":       `$streams $> 0@$$a-1 {}`,
				"$by_event_type": `$et-$metadata $> 0@$$a-1 {}`,
			},
		},
		{
			"later metadata",
			event.Record{Stream: "$$a-1", Type: "$metadata", Number: 2, Data: []byte(`no JSON`)},
			map[string]string{"$by_event_type": `$et-$metadata $> 2@$$a-1 {}`},
		},
		{
			"what looks like a deletion in an ordinary stream",
			event.Record{Stream: "a-1", Type: "$metadata", Number: 2, Data: []byte(softly)},
			map[string]string{
				"$by_category":   `$ce-a $> 2@a-1 {"$o":"a-1"}`,
				"$by_event_type": `$et-$metadata $> 2@a-1 {}`,
			},
		},
		{
			"an event of the type of a tombstone",
			event.Record{Stream: "a-1", Type: "$streamDeleted", Number: 2},
			map[string]string{
				"$by_category":   `$ce-a $> 2@a-1 {"$o":"a-1"}`,
				"$by_event_type": `$et-$streamDeleted $> 2@a-1 {}`,
			},
		},
		{
			"a correlation id",
			event.Record{Stream: "plain", Type: "t", Number: 9, Time: when, Metadata: []byte(`{"$correlationId":"id 1"}`)},
			map[string]string{
				"$by_event_type":     `$et-t $> 9@plain {}`,
				"$by_correlation_id": `$bc-id 1 $> 9@plain {"$eventTimestamp":"2024-02-03T04:05:06.789012Z"}`,
			},
		},
	}
	for _, r := range records {
		for _, p := range standard.All {
			got := ""
			if e := process(t, open(t, p.Name), &r.of); e != nil {
				got = text(e)
			}
			check.Equal(t, got, r.want[p.Name], p.Name, r.name)
		}
	}
}

func TestLinksTellTheirTarget(t *testing.T) {
	h := open(t, "$by_category")
	for data, want := range map[string]*handler.Target{
		"12@a@1":  {Stream: "a@1", Number: 12},
		"nothing": nil,
		"":        nil,
	} {
		got := process(t, h, &event.Record{Stream: "b-7", Type: "$>", Data: []byte(data)})
		check.Deep(t, got.To, want, "link to", data, "target")
	}
	got := process(t, h, &event.Record{Stream: "b-7", Type: "t", Number: 2})
	check.Deep(t, got.To, &handler.Target{Stream: "b-7", Number: 2}, "event: target")
	if got := process(t, open(t, "$stream_by_category"), &event.Record{Stream: "b-7"}); got.To != nil {
		t.Errorf("stream reference: target %+v", got.To)
	}
}

// TestEmissionsOutliveTheirEvents changes the bytes of a page after it was handled.
func TestEmissionsOutliveTheirEvents(t *testing.T) {
	data := []byte("0@a-1")
	got := process(t, open(t, "$by_category"), &event.Record{Stream: "b-7", Type: "$>", Data: data})
	copy(data, "xxxxx")
	check.Equal(t, string(got.Data), "0@a-1")
}

func TestCorrelationIDs(t *testing.T) {
	for _, c := range []struct {
		property, metadata string
		want               string // of the stream; empty: none
	}{
		{"$correlationId", `{"$correlationId":"x"}`, "$bc-x"},
		{"$correlationId", `{"a":{"$correlationId":"y"},"$correlationId":"x","b":[1]}`, "$bc-x"},
		{"$correlationId", `{"a":{"$correlationId":"y"}}`, ""},
		{"$correlationId", `{"$correlationId":""}`, "$bc-"},
		{"$correlationId", `{"$correlationId":null}`, ""},
		{"$correlationId", `{"$correlationId":42}`, "$bc-42"},
		{"$correlationId", `{"$correlationId":true}`, "$bc-true"},
		{"$correlationId", `{"\u0024correlationId":"\u00e9"}`, "$bc-é"},
		{"$correlationId", `{"$CorrelationId":"x"}`, ""},
		{"$correlationId", `{"$correlationId":"x"`, ""},
		{"$correlationId", `["$correlationId"]`, ""},
		{"$correlationId", `"$correlationId"`, ""},
		{"$correlationId", ``, ""},
		{"$correlationId", `{"$correlationId":"` + strings.Repeat("x", event.MaxNameBytes) + `"}`, ""},
		{"trace", `{"$correlationId":"x","trace":"z"}`, "$bc-z"},
		{"", `{"":"x"}`, "$bc-x"},
	} {
		source, err := json.Marshal(map[string]string{"correlationIdProperty": c.property, "more": "is ignored"})
		check.Must(t, err)
		h, err := standard.New(typeOf(t, "$by_correlation_id"), string(source), true)
		check.Must(t, err)
		got := ""
		if e := process(t, h, &event.Record{Stream: "s", Metadata: []byte(c.metadata)}); e != nil {
			got = e.Stream
		}
		check.Equal(t, got, c.want, c.property, "of", c.metadata)
	}
}

func TestNamesWithoutRoomForThePrefix(t *testing.T) {
	long := strings.Repeat("x", event.MaxNameBytes-1)
	for _, name := range []string{"$stream_by_category", "$by_category", "$by_event_type"} {
		if got := process(t, open(t, name), &event.Record{Stream: long + "-", Type: long}); got != nil {
			t.Errorf("%s writes to a name of %d bytes", name, len(got.Stream))
		}
	}
}

func TestMarks(t *testing.T) {
	for _, p := range standard.All {
		mark := open(t, p.Name).Definition().Mark
		check.Equal(t, mark != nil, p.Name == "$by_event_type", p.Name, "marks")
		if mark == nil {
			continue
		}
		want := handler.Emission{Stream: "$et", Type: "$Checkpoint", JSON: true, Data: []byte(`{"$c":9007199254740993,"$p":-1}`), Mark: true}
		if got := mark(9007199254740993, -1); !reflect.DeepEqual(got, want) {
			t.Errorf("got %s %+v", got.Data, got)
		}
	}
}

func TestEmittingIsNotAllowed(t *testing.T) {
	for _, p := range standard.All {
		h, err := standard.New(p.Type, p.Source, false)
		check.Must(t, err)
		if h.Definition().Mark != nil {
			t.Errorf("%s marks", p.Name)
		}
		if out, err := h.Process(&handler.Event{Record: &event.Record{Stream: "$a", Type: "$>", Number: 1}}); err != nil || !out.Skipped {
			t.Errorf("%s: %+v, %v", p.Name, out, err)
		}
		_, err = h.Process(&handler.Event{Record: &event.Record{Stream: "a-1", Type: "t", Metadata: []byte(`{"$correlationId":"x"}`)}})
		f, ok := errors.AsType[*handler.Fault](err)
		if !ok || f.Message != "'emit' is not allowed by the projection/configuration/mode" || f.Handler != "t" || f.Definition {
			t.Errorf("%s: %#v", p.Name, err)
		}
	}
}

func TestNoState(t *testing.T) {
	for _, p := range standard.All {
		h := open(t, p.Name)
		check.NoError(t, errors.Join(h.Load("", nil), h.Load("", []byte("{}")), h.LoadShared(nil)))
		if result, err := h.Result(); result != nil || err != nil {
			t.Errorf("%s: result %s, %v", p.Name, result, err)
		}
	}
}

func typeOf(t *testing.T, name string) string {
	t.Helper()
	for _, p := range standard.All {
		if p.Name == name {
			return p.Type
		}
	}
	t.Fatalf("no projection %s", name)
	return ""
}

func open(t *testing.T, name string) handler.Handler {
	t.Helper()
	for _, p := range standard.All {
		if p.Name == name {
			h := check.Value(standard.New(p.Type, p.Source, true)).Must(t)
			return h
		}
	}
	t.Fatalf("no projection %s", name)
	return nil
}

// process returns what follows from a record, nil for nothing.
func process(t *testing.T, h handler.Handler, r *event.Record) *handler.Emission {
	t.Helper()
	out := check.Value(h.Process(&handler.Event{Record: r})).Must(t)
	if out.State != nil || out.Shared != nil {
		t.Error("a state")
	}
	if out.Skipped != (len(out.Emitted) == 0) || len(out.Emitted) > 1 {
		t.Fatalf("got %+v", out)
	}
	if out.Skipped {
		return nil
	}
	if out.Emitted[0].JSON || out.Emitted[0].Mark {
		t.Errorf("got %+v", out.Emitted[0])
	}
	return &out.Emitted[0]
}

func text(e *handler.Emission) string {
	fields := make([]string, 0, len(e.Metadata))
	for _, f := range e.Metadata {
		fields = append(fields, fmt.Sprintf("%q:%s", f.Name, f.Value))
	}
	return fmt.Sprintf("%s %s %s {%s}", e.Stream, e.Type, e.Data, strings.Join(fields, ","))
}

func wantFault(t *testing.T, err error, message string) {
	t.Helper()
	f, ok := errors.AsType[*handler.Fault](err)
	if !ok || f.Message != message || !f.Definition {
		t.Errorf("got %#v, want %q", err, message)
	}
}
