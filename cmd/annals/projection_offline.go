package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/script"
)

const projectionTestHelp = `Run the script in a FILE over events, without a node, and print the result as JSON: the
states and results of all partitions, the events that it would emit, and the fault if
there is one. Use it to test a projection.

The events are lines of JSON, each an object in the form of an entry of a feed:

  {"streamId": "cart-1", "eventType": "ItemAdded", "data": {"sku": "A-1"}}

streamId and eventType are required. Without eventNumber, the event gets the next number
of its stream; without eventId, an id that follows from the line. With isJson, as in feeds,
data and metaData are texts; without it, they are values. metadata is metaData. An event
that was reached through a link has positionStreamId, positionEventNumber and
linkMetaData. The script gets the events that it selects, in the order of the lines.

With --golden the command compares the output with a file. --update writes that file.

Exit codes: 0 success, 1 the script faulted or its output differs from the golden file, 2
the test cannot be run.`

type projectionTestFlags struct {
	events, golden        string
	update, emit          bool
	execution, definition time.Duration
}

func projectionTestCommand(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	var f projectionTestFlags
	cmd := &cobra.Command{
		Use:   "test FILE --events FILE",
		Short: "Run a script over events from a file, without a node",
		Long:  projectionTestHelp,
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if f.update && f.golden == "" {
				return cannot(errors.New("--update needs --golden"))
			}
			source, err := os.ReadFile(args[0])
			if err != nil {
				return cannot(err)
			}
			events, err := readEventLines(stdin, f.events)
			if err != nil {
				return cannot(err)
			}
			return f.run(args[0], string(source), events, stdout, stderr)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.events, "events", "", "file with events, one JSON object a line; - reads standard input")
	flags.StringVar(&f.golden, "golden", "", "file with the output that is expected")
	flags.BoolVar(&f.update, "update", false, "write the golden file")
	flags.BoolVar(&f.emit, "emit", true, "let the script emit events")
	flags.DurationVar(&f.execution, "execution-timeout", 10*time.Second, "limit of each call of the script")
	flags.DurationVar(&f.definition, "compilation-timeout", 10*time.Second, "limit of its definition")
	if err := cmd.MarkFlagRequired("events"); err != nil {
		panic(err)
	}
	return cmd
}

// readEventLines reads the events of a file, and skips empty lines.
func readEventLines(stdin io.Reader, name string) ([]*handler.Event, error) {
	in := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxEventLine)
	var (
		events []*handler.Event
		n      int
		next   = map[string]int64{}
	)
	for lines.Scan() {
		if n++; len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		e, err := parseEventLine(lines.Bytes(), n, next)
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %w", name, n, err)
		}
		events = append(events, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s line %d: %w", name, n+1, err)
	}
	return events, nil
}

// maxEventLine bounds one line: an event of 16 MiB, as a text within a text.
const maxEventLine = 64 << 20

// run prints or compares what a script makes of events.
func (f *projectionTestFlags) run(name, source string, events []*handler.Event, stdout, stderr io.Writer) error {
	r := &offlineRun{}
	r.run(source, events, script.Options{
		CompileTimeout: f.definition, ExecutionTimeout: f.execution, MayEmit: f.emit, Name: name,
		Log: func(text string) { r.Log = append(r.Log, text) },
	})
	var text bytes.Buffer
	if err := printJSON(&text, r); err != nil {
		return cannot(err)
	}
	differs := false
	switch {
	case f.update:
		if err := os.WriteFile(f.golden, text.Bytes(), 0o644); err != nil {
			return cannot(err)
		}
	case f.golden != "":
		want, err := os.ReadFile(f.golden)
		if err != nil {
			return cannot(err)
		}
		if differs = !bytes.Equal(want, text.Bytes()); differs {
			if err := tellDifference(stdout, f.golden, want, text.Bytes()); err != nil {
				return cannot(err)
			}
		}
	default:
		if _, err := stdout.Write(text.Bytes()); err != nil {
			return cannot(err)
		}
	}
	if r.Fault != nil {
		return &codedError{code: exitProblems, err: fmt.Errorf("%s:%d:%d: %s", name, r.Fault.Line, r.Fault.Column, r.Fault.Message)}
	}
	if differs {
		return &codedError{code: exitProblems}
	}
	return nil
}

// tellDifference prints the first line in which two texts differ.
func tellDifference(w io.Writer, name string, want, got []byte) error {
	a, b := bytes.Split(want, []byte("\n")), bytes.Split(got, []byte("\n"))
	i := 0
	for i < len(a) && i < len(b) && bytes.Equal(a[i], b[i]) {
		i++
	}
	at := func(lines [][]byte) []byte {
		if i < len(lines) {
			return lines[i]
		}
		return nil
	}
	_, err := fmt.Fprintf(w, "%s line %d differs\n- %s\n+ %s\n", name, i+1, at(a), at(b))
	return err
}

// An eventLine is an event in a file, as an entry of a feed shows it.
type eventLine struct {
	StreamID       string          `json:"streamId"`
	EventType      string          `json:"eventType"`
	EventNumber    *int64          `json:"eventNumber"`
	EventID        *event.ID       `json:"eventId"`
	IsJSON         *bool           `json:"isJson"`
	Data           json.RawMessage `json:"data"`
	Metadata       json.RawMessage `json:"metadata"` // and metaData, as case does not matter
	LinkMetadata   json.RawMessage `json:"linkMetadata"`
	PositionStream string          `json:"positionStreamId"`
	PositionNumber int64           `json:"positionEventNumber"`
}

// parseEventLine makes an event of line n. next counts the events of streams.
func parseEventLine(line []byte, n int, next map[string]int64) (*handler.Event, error) {
	var l eventLine
	if err := json.Unmarshal(line, &l); err != nil {
		return nil, err
	}
	if l.StreamID == "" || l.EventType == "" {
		return nil, errors.New("an event needs streamId and eventType")
	}
	r := &event.Record{Stream: l.StreamID, Type: l.EventType, Number: next[l.StreamID], Position: int64(n)}
	if l.EventNumber != nil {
		r.Number = *l.EventNumber
	}
	if l.PositionStream == "" || l.PositionStream == l.StreamID {
		next[l.StreamID] = r.Number + 1
	}
	if l.EventID != nil {
		r.ID = *l.EventID
	} else {
		binary.BigEndian.PutUint64(r.ID[8:], uint64(n))
	}
	if l.IsJSON == nil || *l.IsJSON {
		r.Flags = event.FlagJSON
	}
	asTexts := l.IsJSON != nil
	r.Data, r.Metadata = valueOrText(l.Data, asTexts), valueOrText(l.Metadata, asTexts)
	e := &handler.Event{Record: r}
	if l.PositionStream != "" && (l.PositionStream != l.StreamID || l.PositionNumber != r.Number) {
		e.Link = &event.Record{Stream: l.PositionStream, Number: l.PositionNumber, Type: event.TypeLink, Metadata: valueOrText(l.LinkMetadata, asTexts)}
	}
	return e, nil
}

// valueOrText is a JSON value, or the text that it is if texts stand for values.
func valueOrText(raw json.RawMessage, asText bool) []byte {
	var text string
	if asText && json.Unmarshal(raw, &text) == nil {
		return []byte(text)
	}
	return raw
}

// offlineRun is the result of a script, in the form in which it is printed.
type offlineRun struct {
	Partitions []offlinePartition `json:"partitions"`
	Shared     json.RawMessage    `json:"shared,omitempty"`
	Emitted    []offlineEmission  `json:"emitted"`
	Log        []string           `json:"log,omitempty"`
	Handled    int                `json:"handled"`
	Fault      *offlineFault      `json:"fault,omitempty"`
}

type offlinePartition struct {
	Partition string          `json:"partition"`
	State     json.RawMessage `json:"state"`
	Result    json.RawMessage `json:"result"`
}

type offlineEmission struct {
	Stream   string          `json:"streamId"`
	Type     string          `json:"eventType"`
	Data     any             `json:"data"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	By       string          `json:"by"` // number and stream of the event that was handled
}

type offlineFault struct {
	Message string   `json:"message"`
	Handler string   `json:"handler,omitempty"`
	Event   string   `json:"event,omitempty"`
	Line    int      `json:"line,omitempty"`
	Column  int      `json:"column,omitempty"`
	Stack   []string `json:"stack,omitempty"`
}

func (r *offlineRun) run(source string, events []*handler.Event, o script.Options) {
	r.Partitions, r.Emitted = []offlinePartition{}, []offlineEmission{}
	h, err := script.Compile(source, o)
	if err != nil {
		r.fault(err, "")
		return
	}
	defer h.Close()
	states := map[string]int{} // of a partition: its place
	for _, e := range events {
		d := h.Definition()
		if !selects(d, e) {
			continue
		}
		if err := r.handle(h, d, e, states); err != nil {
			r.fault(err, fmt.Sprintf("%d@%s", e.Number, e.Stream))
			break
		}
	}
	slices.SortFunc(r.Partitions, func(a, b offlinePartition) int { return strings.Compare(a.Partition, b.Partition) })
}

// handle hands an event to the script, as the runner of a node does.
func (r *offlineRun) handle(h *script.Handler, d *handler.Definition, e *handler.Event, states map[string]int) error {
	name, ok := "", true
	switch {
	case e.Gone != "":
		name = e.Gone
	case d.ByCustomPartitions:
		var err error
		if name, ok, err = h.PartitionOf(e); err != nil || !ok {
			return err
		}
	case d.ByStreams:
		name = event.OriginalOf(e.Stream)
		if e.Link != nil {
			if text, ok := jsontext.MemberText(e.Link.Metadata, "$o"); ok {
				name = event.OriginalOf(text)
			}
		}
	}
	var p offlinePartition
	at, known := states[name]
	if known {
		p = r.Partitions[at]
	}
	if err := h.Load(name, p.State); err != nil {
		return err
	}
	e.Partition = name
	outcome := handler.Outcome{Skipped: true}
	if !e.GoneOnly {
		var err error
		if outcome, err = h.Process(e); err != nil {
			return err
		}
	}
	if e.Gone != "" {
		gone, err := h.Deleted(e)
		if err != nil {
			return err
		}
		if !gone.Skipped {
			gone.Emitted = append(outcome.Emitted, gone.Emitted...)
			outcome = gone
		}
	}
	if outcome.Skipped {
		return nil
	}
	result, err := h.Result()
	if err != nil {
		return err
	}
	if !known {
		at = len(r.Partitions)
		states[name] = at
		r.Partitions = append(r.Partitions, offlinePartition{Partition: name})
	}
	r.Partitions[at].State, r.Partitions[at].Result, r.Shared = outcome.State, result, outcome.Shared
	r.Handled++
	for _, m := range outcome.Emitted {
		r.Emitted = append(r.Emitted, shown(m, fmt.Sprintf("%d@%s", e.Number, e.Stream)))
	}
	return nil
}

// shown is an emission as it is printed. Data that are not JSON are texts.
func shown(m handler.Emission, by string) offlineEmission {
	o := offlineEmission{Stream: m.Stream, Type: m.Type, Data: string(m.Data), By: by}
	if m.JSON {
		o.Data = json.RawMessage(m.Data)
	}
	if len(m.Metadata) > 0 {
		text := []byte{'{'}
		for i, f := range m.Metadata {
			if i > 0 {
				text = append(text, ',')
			}
			text = append(jsontext.AppendString(text, f.Name), ':')
			text = append(text, f.Value...)
		}
		o.Metadata = append(text, '}')
	}
	return o
}

func (r *offlineRun) fault(err error, at string) {
	r.Fault = &offlineFault{Message: err.Error(), Event: at}
	if f, ok := errors.AsType[*handler.Fault](err); ok {
		r.Fault = &offlineFault{Message: f.Message, Handler: f.Handler, Event: at, Line: f.Line, Column: f.Column}
		for line := range strings.SplitSeq(f.Stack, "\n") {
			if line = strings.TrimSpace(line); line != "" {
				r.Fault.Stack = append(r.Fault.Stack, line)
			}
		}
	}
}

// selects says whether a definition reads an event. Categories need no links here: a
// stream belongs to the one before its first dash.
func selects(d *handler.Definition, e *handler.Event) bool {
	e.Category = ""
	if d.HandlesDeleted {
		switch {
		case e.Type == event.TypeStreamDeleted:
			e.Gone, e.GoneOnly = e.Stream, !slices.Contains(d.Events, e.Type)
		case event.IsMetaStream(e.Stream) && e.Type == event.TypeMetadata:
			if m := event.ParseMetadata(e.Data); m.SoftDeleted() {
				e.Gone, e.GoneOnly = event.OriginalOf(e.Stream), !d.AllEvents
			}
		}
	}
	if !d.AllEvents && !slices.Contains(d.Events, e.Type) && e.Gone == "" {
		return false
	}
	category, _, dashed := strings.Cut(e.Stream, "-")
	if e.Gone != "" {
		category, _, dashed = strings.Cut(e.Gone, "-")
	}
	dashed = dashed && category != ""
	switch {
	case d.AllStreams:
		return !event.IsSystemStream(e.Stream) || d.AllEvents && event.IsMetaStream(e.Stream) && !event.IsSystemStream(event.OriginalOf(e.Stream)) || e.Gone != ""
	case len(d.Categories) > 0:
		if dashed && slices.Contains(d.Categories, category) {
			e.Category = category
			return true
		}
		return false
	}
	in := e.Stream
	if e.Link != nil {
		in = e.Link.Stream
	}
	return slices.Contains(d.Streams, in) || dashed && slices.Contains(d.Streams, "$ce-"+category)
}
