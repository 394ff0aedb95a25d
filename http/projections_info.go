package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/projection"
)

// commandMessage is the text that clients look for in the answer to a command. It means nothing.
const commandMessage = 293

// keyPosition is the header that says how far a projection has read.
const (
	keyPosition     = "Es-Position"
	kurrentPosition = "Kurrent-Position"
)

// projectionsPage sends a browser to the page of projections.
func projectionsPage(_ context.Context, x *exchange) error {
	return moved(x, string(x.origin())+"/web/projections.htm")
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

func showProjection(x *exchange, s *projection.Statistics) shownProjection {
	status := projectionURI(x, s.Name)
	f := shownProjection{
		Statistics: *s,
		StatusURL:  status, StateURL: status + "/" + segState, ResultURL: status + "/" + segResult,
		QueryURL:  status + "/" + segQuery + "?config=yes",
		EnableURL: status + commandPath + "enable", DisableURL: status + commandPath + "disable",
	}
	if s.ResultStream != "" {
		address := string(x.origin()) + streamsPrefix + readable(s.ResultStream)
		f.ResultStreamURL = &address
	}
	return f
}

// listProjections makes the handler that answers with the projections of some kinds.
func (p *projectionHandlers) listProjections(kinds projection.Kinds) handler {
	return func(_ context.Context, x *exchange) error {
		list, err := p.projections.List(kinds)
		if err != nil {
			return err
		}
		return listOf(x, list)
	}
}

// projectionStatistics answers with a list of the one projection that the path names.
func (p *projectionHandlers) projectionStatistics(_ context.Context, x *exchange) error {
	s, err := p.projections.Statistics(x.route.argument)
	if err != nil {
		return err
	}
	return listOf(x, []projection.Statistics{s})
}

func listOf(x *exchange, list []projection.Statistics) error {
	shown := make([]shownProjection, len(list))
	for i := range list {
		shown[i] = showProjection(x, &list[i])
	}
	return sendJSON(x, map[string]any{"projections": shown})
}

// oneProjection answers with the details of the projection that the path names.
func (p *projectionHandlers) oneProjection(_ context.Context, x *exchange) error {
	s, err := p.projections.Statistics(x.route.argument)
	if err != nil {
		return err
	}
	return sendJSON(x, showProjection(x, &s))
}

// projectionContent makes the handler that answers with the state or the result of a
// partition, which is sent as it is. There may be none.
func (p *projectionHandlers) projectionContent(read func(p Projections, ctx context.Context, name, partition string, by projection.Identity) (projection.Content, error)) handler {
	return func(ctx context.Context, x *exchange) error {
		partition, _ := projectionParameter(x, "partition")
		c, err := read(p.projections, ctx, x.route.argument, partition, callerIdentity(x))
		if err != nil {
			return err
		}
		if c.Position != nil {
			h := x.w.Header()
			h[keyPosition] = []string{string(c.Position.AppendJSON(nil, nil))}
			h[kurrentPosition] = h[keyPosition]
		}
		return sendFresh(x, c.Text)
	}
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

// projectionQuery answers with the text of a projection, or with its outputs.
func (p *projectionHandlers) projectionQuery(_ context.Context, x *exchange) error {
	q, err := p.projections.Query(x.route.argument)
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
	x.media = typeJavaScript
	return sendFresh(x, []byte(q.Text))
}

// projectionConfig answers with the settings of a projection.
func (p *projectionHandlers) projectionConfig(_ context.Context, x *exchange) error {
	c, err := p.projections.Config(x.route.argument)
	if err != nil {
		return err
	}
	return sendJSON(x, struct {
		projection.Config
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

// readEvents answers with events that a definition selects.
func (p *projectionHandlers) readEvents(ctx context.Context, x *exchange) error {
	body, err := x.readBody(maxQuery, problemTooLarge, problemInvalidBody)
	if err != nil {
		return err
	}
	page, err := p.projections.ReadEvents(ctx, bytes.TrimPrefix(body, byteOrderMark), callerIdentity(x))
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
func sendJSON(x *exchange, document any) error {
	b, err := appendJSON(x.out[:0], document)
	if err != nil {
		return err
	}
	x.media = typeJSON
	return sendOut(x, append(b, '\n'))
}

// projectionDone answers that a command was done.
func projectionDone(x *exchange, status int, name string) error {
	if status == http.StatusNoContent {
		x.send(status, nil)
		return nil
	}
	b, err := json.Marshal(struct {
		Name      string `json:"name"`
		MsgTypeID int    `json:"msgTypeId"`
	}{name, commandMessage})
	if err != nil {
		return err
	}
	x.w.Header()[keyContentType] = typeJSON.contentType
	x.send(status, b)
	return nil
}
