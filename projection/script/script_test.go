package script_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/script"
)

func TestMain(m *testing.M) {
	// The clock of the regular expressions' time limit ends by itself seconds after its last use.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("time.Sleep"))
}

// options for tests: limits that a loaded machine does not reach by accident.
func options() script.Options {
	return script.Options{CompileTimeout: time.Minute, ExecutionTimeout: time.Minute, MayEmit: true, Name: "p"}
}

func compile(t testing.TB, source string) *script.Handler {
	t.Helper()
	return compileWith(t, source, options())
}

func compileWith(t testing.TB, source string, o script.Options) *script.Handler {
	t.Helper()
	h := check.Value(script.Compile(source, o)).Must(t, "compile", source)
	t.Cleanup(h.Close)
	return h
}

// jsonEvent is event 7 of stream s-1, of type T.
func jsonEvent(data string) *handler.Event {
	return &handler.Event{Record: &event.Record{
		Stream: "s-1", Number: 7, Type: "T", Flags: event.FlagJSON, Data: []byte(data),
		ID: event.ID{0x0f, 0x9f, 0xad, 0x5b, 0xd9, 0xcb, 0x46, 0x9f, 0xa1, 0x65, 0x70, 0x86, 0x77, 0x28, 0x95, 0x0e},
	}}
}

func typed(eventType, data string) *handler.Event {
	e := jsonEvent(data)
	e.Type = eventType
	return e
}

// fault is the fault that an error must be.
func fault(t testing.TB, err error) *handler.Fault {
	t.Helper()
	var f *handler.Fault
	if !errors.As(err, &f) {
		t.Fatalf("error %v is no fault", err)
	}
	return f
}

// show is the text of states and results.
func show(text []byte) string {
	if text == nil {
		return "none"
	}
	return string(text)
}

// process hands events to a script, one after the other, in the root partition, and
// returns what became of the last that was not skipped.
func process(t testing.TB, h *script.Handler, events ...*handler.Event) handler.Outcome {
	t.Helper()
	var last handler.Outcome
	for _, e := range events {
		check.Must(t, h.Load("", last.State))
		out, err := h.Process(e)
		if err != nil {
			t.Fatalf("process: %v\n%s", err, fault(t, err).Stack)
		}
		if !out.Skipped {
			last = out
		}
	}
	return last
}

func TestDefinitions(t *testing.T) {
	cases := []struct {
		name, source string
		want         handler.Definition
	}{
		{"all", `fromAll()`, handler.Definition{AllStreams: true, AllEvents: true}},
		{"any", `fromAll().when({$any: function() {}})`, handler.Definition{AllStreams: true, AllEvents: true, Options: handler.Options{DefinesFold: true}}},
		{"types", `fromAll().when({$init: function() {}, a: function() {}, B: () => 1, c: 5})`,
			handler.Definition{AllStreams: true, Events: []string{"a", "B"}, Options: handler.Options{DefinesFold: true}}},
		{"any before a type", `fromAll().when({$any: function() {}, a: function() {}})`,
			handler.Definition{AllStreams: true, Events: []string{"a"}, Options: handler.Options{DefinesFold: true}}},
		{"outside of a chain", `fromStream('s'); on_event('a', () => 1); on_event('a', () => 2)`, handler.Definition{Streams: []string{"s"}, Events: []string{"a"}}},
		{"on_any", `fromStream('s'); on_any(() => 1)`, handler.Definition{Streams: []string{"s"}, AllEvents: true}},
		{"streams", `fromStreams(['a', 'b', 'a'])`, handler.Definition{Streams: []string{"a", "b"}, AllEvents: true}},
		{"streams listed", `fromStreams('a', 'b')`, handler.Definition{Streams: []string{"a", "b"}, AllEvents: true}},
		{"category", `fromCategory('c').foreachStream().when({})`,
			handler.Definition{Categories: []string{"c"}, ByStreams: true, AllEvents: true, Options: handler.Options{DefinesFold: true}}},
		{"categories", `fromCategories(['c', 'd'])`, handler.Definition{Streams: []string{"$ce-c", "$ce-d"}, AllEvents: true}},
		{"categories by another name", `fromCategory('c', 'd')`, handler.Definition{Streams: []string{"$ce-c", "$ce-d"}, AllEvents: true}},
		{"partitions", `fromAll().partitionBy(e => e.streamId).when({a() {}})`,
			handler.Definition{AllStreams: true, ByCustomPartitions: true, Events: []string{"a"}, Options: handler.Options{DefinesFold: true}}},
		{"outputs", `fromAll().when({}).outputState().transformBy(s => s).filterBy(s => true).outputTo('r', 'r-{0}')`,
			handler.Definition{AllStreams: true, AllEvents: true, Options: handler.Options{DefinesFold: true, ProducesResults: true,
				DefinesStateTransform: true, ResultStream: "r", PartitionResultPattern: "r-{0}"}}},
		{"outputTo alone", `fromAll().when({}).outputTo('r')`,
			handler.Definition{AllStreams: true, AllEvents: true, Options: handler.Options{DefinesFold: true, ResultStream: "r"}}},
		{"a transform that is only said", `fromAll().when({}).$defines_state_transform()`,
			handler.Definition{AllStreams: true, AllEvents: true, Options: handler.Options{DefinesFold: true, ProducesResults: true, DefinesStateTransform: true}}},
		{"options", `options({resultStreamName: 'r', $includeLinks: true}); options({REORDEREVENTS: true, processinglag: 50, biState: true}); fromStreams('a', 'b')`,
			handler.Definition{Streams: []string{"a", "b"}, AllEvents: true, Options: handler.Options{ResultStream: "r", IncludeLinks: true,
				ReorderEvents: true, ProcessingLagMs: 50, IsBiState: true}}},
		{"shared state", `fromAll().foreachStream().when({$initShared: () => ({}), a() {}})`,
			handler.Definition{AllStreams: true, ByStreams: true, Events: []string{"a"}, Options: handler.Options{DefinesFold: true, IsBiState: true}}},
		{"deleted", `fromAll().foreachStream().when({$deleted() {}, $any() {}})`,
			handler.Definition{AllStreams: true, ByStreams: true, AllEvents: true, Options: handler.Options{DefinesFold: true, HandlesDeleted: true}}},
		{"the script's own names stay", `var emit = 1; options({}); var options = {a: 1}; fromAll()`, handler.Definition{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "the script's own names stay" {
				c.source, c.want = `fromAll().when({$any(s) { return [typeof fromAll, typeof emit, typeof log] }}); function emit() {}`,
					handler.Definition{AllStreams: true, AllEvents: true, Options: handler.Options{DefinesFold: true}}
			}
			if got := compile(t, c.source).Definition(); fmt.Sprint(*got) != fmt.Sprint(c.want) {
				t.Errorf("definition %+v, want %+v", *got, c.want)
			}
		})
	}
}

func TestDefinitionFaults(t *testing.T) {
	cases := []struct{ source, want string }{
		{``, "None of streams and categories are included"},
		{`fromAll().when({a() {}, $any() {}})`, "Both AllEvents and specific event filters cannot be set"},
		{`fromAll(); fromStream('a')`, "Both FromAll and specific categories/streams cannot be set"},
		{`fromAll(); fromCategory('a')`, "Both FromAll and specific categories/streams cannot be set"},
		{`fromStream('a'); fromCategory('a')`, "Streams and categories cannot be included in a filter at the same time"},
		{`fromCategories('a', 'b').foreachStream()`, "foreachStream projections are not supported on stream based sources"},
		{`fromAll().when({$deleted() {}})`, "Deleted stream notifications are only supported with foreachStream()"},
		{`options({biState: true}); fromAll().foreachStream().when({$deleted() {}})`, "Cannot handle deletes in bi-state projections"},
		{`options({reorderEvents: true}); fromAll()`, "Event reordering cannot be used with fromAll()"},
		{`options({reorderEvents: true}); fromStream('a')`, "Event reordering is only available in fromStreams([]) projections"},
		{`options({reorderEvents: true}); fromCategory('a')`, "Event reordering is only available in fromStreams([]) projections"},
		{`options({reorderEvents: true, processingLag: 49}); fromStreams('a', 'b')`, "Event reordering requires processing lag at least of 50ms"},
		{`options({nope: 1}); fromAll()`, "Unrecognized option: nope"},
		{`options({biState: 1}); fromAll()`, "Invalid value"},
		{`options({processingLag: '50'}); fromAll()`, "Invalid value"},
		{`options({resultStreamName: 1}); fromAll()`, "Invalid value"},
		{`options(1)`, "object expected"},
		{`fromStream(1)`, "string expected"},
		{`fromStreams()`, "string expected"},
		{`fromStreams(['a', 1])`, "string expected"},
		{`fromAll().when()`, "object expected"},
		{`fromAll().partitionBy('a')`, "function expected"},
		{`fromAll().when({}).transformBy()`, "function expected"},
		{`on_event('a')`, "function expected"},
		{`emit('a', 'b', {}); fromAll()`, "emit is not defined"},
		{`throw 'thrown'`, "thrown"},
		{`throw new Error('made')`, "made"},
		{`throw {toString() { throw 1 }}`, "an exception whose text cannot be read"},
		{`fromAll().when({}).when({})`, "Object has no member 'when'"},
		{`fromStream('a').foreachStream()`, "Object has no member 'foreachStream'"},
		{`fromAll().foreachStream().partitionBy(e => 1)`, "Object has no member 'partitionBy'"},
		{`fromAll().transformBy(e => 1)`, "Object has no member 'transformBy'"},
		{`fromAll().when({}).outputTo('a').outputState()`, "Object has no member 'outputState'"},
		{`fromAll().outputState().when({})`, "Object has no member 'when'"},
	}
	for _, c := range cases {
		t.Run(c.source, func(t *testing.T) {
			_, err := script.Compile(c.source, options())
			if f := fault(t, err); f.Message != c.want || !f.Definition {
				t.Errorf("fault %+v, want the message %q", f, c.want)
			}
		})
	}
}

func TestFaultPlaces(t *testing.T) {
	_, err := script.Compile("fromAll()\n  .when({,})", options())
	if f := fault(t, err); f.Line != 2 || f.Column == 0 || !strings.HasPrefix(f.Message, "SyntaxError: ") || !f.Definition {
		t.Errorf("syntax: %+v", f)
	}
	_, err = script.Compile("fromAll();\nlet a; let a;", options())
	if f := fault(t, err); f.Line != 2 {
		t.Errorf("compiler: %+v", f)
	}
	h := compile(t, "function deep(s) {\n  throw new Error('no ' + s);\n}\nfromAll().when({\n  T: function(s, e) {\n    [1].forEach(function() { deep('way') });\n  }\n})")
	_, err = h.Process(jsonEvent(`{}`))
	f := fault(t, err)
	if f.Handler != "T" || f.Message != "no way" || f.Line != 2 || f.Column == 0 || f.Definition {
		t.Errorf("fault %+v", f)
	}
	if !strings.Contains(f.Stack, "at deep (2:") || !strings.Contains(f.Stack, "at T (6:") || strings.Contains(f.Stack, "native") || strings.Contains(f.Stack, ".go") {
		t.Errorf("stack\n%s", f.Stack)
	}
	_, err = compile(t, `fromAll().when({T() { throw 'as it is' }})`).Process(jsonEvent(`{}`))
	if f := fault(t, err); f.Message != "as it is" {
		t.Errorf("thrown text: %+v", f)
	}
}
