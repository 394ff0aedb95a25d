package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/script"
)

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
