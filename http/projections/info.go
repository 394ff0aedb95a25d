package projections

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/projection"
)

// commandMessage is the text that clients look for in the answer to a command. It means nothing.
const commandMessage = 293

// kurrentPosition is request.KeyPosition as clients of later versions read it.
const kurrentPosition = "Kurrent-Position"

// Page sends a browser to the page of projections.
func Page(_ context.Context, x *request.Request) error {
	return x.Moved(string(x.Origin.URI()) + "/web/projections.htm")
}

// shownProjection is a projection as it is shown. Its names are part of the wire: do not change.
type shownProjection struct {
	projection.Statistics
	StatusURL       string  `json:"statusUrl"`
	StateURL        string  `json:"stateUrl"`
	ResultURL       string  `json:"resultUrl"`
	QueryURL        string  `json:"queryUrl"`
	EnableURL       string  `json:"enableCommandUrl"`
	DisableURL      string  `json:"disableCommandUrl"`
	ResultStreamURL *string `json:"resultStreamUrl"`
}

func showProjection(x *request.Request, s *projection.Statistics) shownProjection {
	status := projectionURI(x, s.Name)
	f := shownProjection{
		Statistics: *s,
		StatusURL:  status, StateURL: status + "/" + segState, ResultURL: status + "/" + segResult,
		QueryURL:  status + "/" + segQuery + "?config=yes",
		EnableURL: status + "/command/enable", DisableURL: status + "/command/disable",
	}
	if s.ResultStream != "" {
		address := string(x.Origin.URI()) + atom.StreamsPath + readable(s.ResultStream)
		f.ResultStreamURL = &address
	}
	return f
}

// List makes the handler that answers with the projections of some kinds.
func (p *Handlers) List(kinds projection.Kinds) request.Handler {
	return func(_ context.Context, x *request.Request) error {
		list, err := p.Projections.List(kinds)
		if err != nil {
			return err
		}
		return listOf(x, list)
	}
}

// Statistics answers with a list of the one projection that the path names.
func (p *Handlers) Statistics(_ context.Context, x *request.Request) error {
	s, err := p.Projections.Statistics(x.Route.Argument)
	if err != nil {
		return err
	}
	return listOf(x, []projection.Statistics{s})
}

func listOf(x *request.Request, list []projection.Statistics) error {
	shown := make([]shownProjection, len(list))
	for i := range list {
		shown[i] = showProjection(x, &list[i])
	}
	return sendJSON(x, map[string]any{"projections": shown})
}

// One answers with the details of the projection that the path names.
func (p *Handlers) One(_ context.Context, x *request.Request) error {
	s, err := p.Projections.Statistics(x.Route.Argument)
	if err != nil {
		return err
	}
	return sendJSON(x, showProjection(x, &s))
}

// Content makes the handler that answers with the state or the result of a
// partition, which is sent as it is. There may be none.
func (p *Handlers) Content(read func(p api.Projections, ctx context.Context, name, partition string, by projection.Identity) (projection.Content, error)) request.Handler {
	return func(ctx context.Context, x *request.Request) error {
		partition, _ := projectionParameter(x, "partition")
		c, err := read(p.Projections, ctx, x.Route.Argument, partition, callerIdentity(x))
		if err != nil {
			return err
		}
		if c.Position != nil {
			h := x.W.Header()
			h[request.KeyPosition] = []string{string(c.Position.AppendJSON(nil, nil))}
			h[kurrentPosition] = h[request.KeyPosition]
		}
		return x.SendFresh(c.Text)
	}
}

const (
	defaultPartitions = 100
	maxPartitions     = 1000
)

var errPartitionCount = problem.Bad(fmt.Sprintf("count must be between 1 and %d inclusive", maxPartitions))

// Partitions answers with a page of the partitions that are in memory. next is the name that the
// next page begins after.
func (p *Handlers) Partitions(ctx context.Context, x *request.Request) error {
	raw := x.R.URL.RawQuery
	count, ok := args.Int(raw, "count", defaultPartitions, 1, maxPartitions)
	if !ok {
		return errPartitionCount
	}
	list, more, err := p.Projections.Partitions(ctx, x.Route.Argument, args.Value(raw, "contains"), args.Value(raw, "after"), count, callerIdentity(x))
	if err != nil {
		return err
	}
	var answer struct {
		Partitions []projection.Partition `json:"partitions"`
		Next       string                 `json:"next,omitempty"`
	}
	answer.Partitions = append([]projection.Partition{}, list...)
	if more {
		answer.Next = list[len(list)-1].Name
	}
	return sendJSON(x, answer)
}

// queryOf is a query as it is shown. Its names are part of the wire: do not change.
type queryOf struct {
	Name                string          `json:"name"`
	Query               string          `json:"query"`
	EmitEnabled         bool            `json:"emitEnabled"`
	TrackEmittedStreams bool            `json:"trackEmittedStreams"`
	CheckpointsEnabled  bool            `json:"checkpointsEnabled"`
	Type                projection.Mode `json:"type"`
	Definition          any             `json:"definition"`
	OutputConfig        outputOf        `json:"outputConfig"`
	MsgTypeID           int             `json:"msgTypeId"`
}

type outputOf struct {
	ResultStreamName string `json:"resultStreamName"`
}

// Query answers with the text of a projection, or with its outputs.
func (p *Handlers) Query(_ context.Context, x *request.Request) error {
	q, err := p.Projections.Query(x.Route.Argument)
	if err != nil {
		return err
	}
	if yesParameter(x, "config", false) {
		return sendJSON(x, queryOf{
			Name: q.Name, Query: q.Text, EmitEnabled: q.EmitEnabled, TrackEmittedStreams: q.TrackEmittedStreams,
			CheckpointsEnabled: q.CheckpointsEnabled, Type: q.Mode, Definition: q.Definition,
			OutputConfig: outputOf{q.ResultStream}, MsgTypeID: commandMessage,
		})
	}
	x.Media = media.JavaScript
	return x.SendFresh([]byte(q.Text))
}

// Config answers with the settings of a projection.
func (p *Handlers) Config(_ context.Context, x *request.Request) error {
	c, err := p.Projections.Config(x.Route.Argument)
	if err != nil {
		return err
	}
	return sendJSON(x, struct {
		projection.Settings
		MsgTypeID int `json:"msgTypeId"`
	}{c, commandMessage})
}

// eventOf is an event as the debugger gets it. Its names are part of the wire: do not change.
type eventOf struct {
	Stream         string          `json:"eventStreamId"`
	Number         int64           `json:"eventNumber"`
	Type           string          `json:"eventType"`
	Data           json.RawMessage `json:"data"`
	Metadata       json.RawMessage `json:"metadata"`
	LinkMetadata   json.RawMessage `json:"linkMetadata"`
	IsJSON         bool            `json:"isJson"`
	ReaderPosition json.RawMessage `json:"readerPosition"`
}

// ReadEvents answers with events that a definition selects.
func (p *Handlers) ReadEvents(ctx context.Context, x *request.Request) error {
	body, err := x.Upload.Read(maxQuery, problem.TooLarge, problem.InvalidBody)
	if err != nil {
		return err
	}
	page, err := p.Projections.ReadEvents(ctx, bytes.TrimPrefix(body, args.ByteOrderMark), callerIdentity(x))
	if err != nil {
		return err
	}
	events := make([]eventOf, len(page.Events))
	for i := range page.Events {
		events[i] = shownEvent(&page.Events[i])
	}
	return sendJSON(x, struct {
		CorrelationID  string          `json:"correlationId"`
		ReaderPosition json.RawMessage `json:"readerPosition"`
		Events         []eventOf       `json:"events"`
	}{event.ID(uuid.New()).String(), page.Position.AppendJSON(nil, nil), events})
}

func shownEvent(e *projection.SourceEvent) eventOf {
	r := e.Event()
	shown := eventOf{
		Stream: r.Stream, Number: r.Number, Type: r.Type, IsJSON: r.IsJSON(),
		Data: payloadOf(r.Data, r.IsJSON()), Metadata: payloadOf(r.Metadata, r.IsJSON()),
		ReaderPosition: e.Position.AppendJSON(nil, nil),
	}
	if r != &e.Record {
		shown.LinkMetadata = payloadOf(e.Record.Metadata, r.IsJSON())
	}
	return shown
}

// payloadOf is a part of an event: as it is where that is JSON, else as a text. An
// event of JSON may be without it.
func payloadOf(data []byte, isJSON bool) json.RawMessage {
	switch {
	case !isJSON:
	case len(data) == 0:
		return nil
	case jsontext.ValidUTF8(data):
		return data
	}
	text, err := json.Marshal(string(data))
	if err != nil { // No text fails.
		panic(err)
	}
	return text
}

// sendJSON answers with a document that may be another at the next moment.
func sendJSON(x *request.Request, document any) error {
	b, err := request.AppendJSON(x.Out[:0], document)
	if err != nil {
		return err
	}
	x.Media = media.JSON
	return x.SendOut(append(b, '\n'))
}

// projectionDone answers that a command was done.
func projectionDone(x *request.Request, status int, name string) error {
	if status == http.StatusNoContent {
		x.Send(status, nil)
		return nil
	}
	b, err := json.Marshal(struct {
		Name      string `json:"name"`
		MsgTypeID int    `json:"msgTypeId"`
	}{name, commandMessage})
	if err != nil {
		return err
	}
	x.W.Header()[request.KeyContentType] = media.JSON.ContentType
	x.Send(status, b)
	return nil
}
