package admin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/annalsdb/annals/admin/redact"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
)

// RedactionHandlers answer requests for redactions of this node.
type RedactionHandlers struct{ Redactions Redactions }

// Redactions blanks the data of events in the files of this node.
type Redactions interface {
	// Redact redacts all events or none. Once it has begun it continues even if ctx ends.
	Redact(ctx context.Context, r redact.Request) ([]redact.Outcome, error)
	// Positions returns where an event lies, even if it is hidden.
	Positions(stream string, number int64) ([]redact.Position, error)
	// Session takes the lock of those that switch chunk files, for a user.
	Session(user string) (redact.Session, error)
}

const (
	RedactPath = "/admin/redact"

	// maxRedactBody bounds the body of a request: names of MaxEvents events of a usual length.
	maxRedactBody = 1 << 20
)

var problemLargeRedaction = problem.New(http.StatusRequestEntityTooLarge, "Too large a list of events. Limit is 1mb")

// Redact redacts events of this node, on a leader and a follower alike.
func (r *RedactionHandlers) Redact(_ context.Context, x *request.Request) error {
	body, err := x.Upload.Read(maxRedactBody, problemLargeRedaction, problem.InvalidBody)
	if err != nil {
		return err
	}
	// Without authentication everybody may.
	request, err := parseRedaction(body, cmp.Or(x.Caller.Who.Login, "anonymous"))
	if err != nil {
		return err
	}
	outcomes, err := r.Redactions.Redact(x.R.Context(), request)
	if err != nil {
		return err
	}
	if x.Out, err = appendRedaction(x.Out[:0], x.Media.Form, outcomes); err != nil {
		return err
	}
	x.SendBody()
	return nil
}

// parseRedaction understands the body. A member that is not known is refused: what a
// redaction does cannot be taken back, and a misspelt dryRun must not be the reason for it.
func parseRedaction(body []byte, user string) (r redact.Request, err error) {
	var fields struct {
		Events []string `json:"events"`
		Reason string   `json:"reason"`
		DryRun bool     `json:"dryRun"`

		Metadata bool `json:"metadata"`
	}
	in := json.NewDecoder(bytes.NewReader(body))
	in.DisallowUnknownFields()
	if err := in.Decode(&fields); err != nil {
		return r, problem.Bad(`The body must be an object like {"events":["0@stream"],"reason":"","dryRun":false}: ` + api.Printable(strings.TrimPrefix(err.Error(), "json: ")))
	}
	if _, err := in.Token(); err != io.EOF {
		return r, problem.Bad("The body must end after the JSON object.")
	}
	if len(fields.Events) > redact.MaxEvents {
		return r, redact.ErrTooMany
	}
	r = redact.Request{Reason: fields.Reason, User: user, DryRun: fields.DryRun, Metadata: fields.Metadata}
	for _, text := range fields.Events {
		e, err := redact.ParseEvent(text)
		if err != nil {
			return r, problem.Bad(err.Error())
		}
		r.Events = append(r.Events, e)
	}
	return r, nil
}

// redactionDocument is the answer. Its names are part of the wire: do not change.
type redactionDocument struct {
	XMLName xml.Name         `json:"-" xml:"RedactResultDto"`
	Events  []redact.Outcome `json:"events" xml:"Events>Event"`
}

func appendRedaction(b []byte, f media.Form, outcomes []redact.Outcome) ([]byte, error) {
	switch f {
	case media.FormJSON:
		text, err := json.MarshalIndent(redactionDocument{Events: outcomes}, "", "  ")
		return append(b, text...), err
	case media.FormTextXML, media.FormAppXML:
		text, err := xml.Marshal(redactionDocument{Events: outcomes})
		return append(append(b, atom.Prolog...), text...), err
	}
	for _, o := range outcomes {
		b = fmt.Appendf(b, "%s: %s, position %d, %s\n", o.Event, o.Status, o.Position, o.Chunk)
	}
	return bytes.TrimSuffix(b, []byte("\n")), nil
}

// Paths of the local socket. The latter two are nowhere else.
const (
	socketPositionsPath = "/redaction/positions"
	socketSwitchPath    = "/redaction/switch"

	maxSwitchLine = 4 << 10
)

// RedactionSocket serves the local socket in the data folder: /admin/redact, and for tools that
// copy chunk files themselves
//
//	POST /redaction/positions  {"event":"0@stream"}
//	POST /redaction/switch     {"target":"chunk-000000.000000","new":"x.tmp"} …, a line each
//
// The second is a session: it has the lock of those that switch chunk files from its first answer
// line on until its request ends, also because the tool is gone. Each request line is answered by
// {"result":"Success"}, or the reason, with a detail. user names the peer of a request.
func RedactionSocket(r Redactions, user func(*http.Request) string) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("POST "+RedactPath, socketServed(func(w http.ResponseWriter, q *http.Request) (any, error) {
		body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxRedactBody))
		if err != nil {
			return nil, problemLargeRedaction
		}
		request, err := parseRedaction(body, user(q))
		if err != nil {
			return nil, err
		}
		outcomes, err := r.Redact(q.Context(), request)
		return redactionDocument{Events: outcomes}, err
	}))
	m.HandleFunc("POST "+socketPositionsPath, socketServed(func(w http.ResponseWriter, q *http.Request) (any, error) {
		var fields struct {
			Event string `json:"event"`
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, q.Body, maxRedactBody)).Decode(&fields); err != nil {
			return nil, problem.Bad(`The body must be an object like {"event":"0@stream"}.`)
		}
		e, err := redact.ParseEvent(fields.Event)
		if err != nil {
			return nil, problem.Bad(err.Error())
		}
		found, err := r.Positions(e.Stream, e.Number)
		return positionsDocument(found), err
	}))
	m.HandleFunc("POST "+socketSwitchPath, func(w http.ResponseWriter, q *http.Request) { switchSession(w, q, r, user(q)) })
	return m
}

type positionDocument struct {
	Position int64  `json:"logPosition"`
	Chunk    string `json:"fileName"`
	Format   int    `json:"chunkVersion"`
	Complete bool   `json:"isComplete"`
	Offset   int64  `json:"rawPosition"`
}

func positionsDocument(found []redact.Position) any {
	all := make([]positionDocument, 0, len(found))
	for _, p := range found {
		all = append(all, positionDocument{p.Position, p.File, p.Format, p.Complete, p.Offset})
	}
	return struct {
		Positions []positionDocument `json:"positions"`
	}{all}
}

// switchSession serves one session.
func switchSession(w http.ResponseWriter, q *http.Request, r Redactions, user string) {
	type result struct {
		Result string `json:"result"`
		Detail string `json:"detail,omitempty"`
	}
	session, err := r.Session(user)
	if err != nil {
		socketFailed(w, err)
		return
	}
	defer session.Close()
	control := http.NewResponseController(w)
	out := json.NewEncoder(w)
	say := func(a result) bool { return out.Encode(a) == nil && control.Flush() == nil }
	w.Header().Set(request.KeyContentType, "application/json")
	if control.EnableFullDuplex() != nil || !say(result{Result: "Locked"}) {
		return
	}
	lines := bufio.NewScanner(q.Body)
	lines.Buffer(nil, maxSwitchLine)
	for lines.Scan() {
		var fields struct{ Target, New string }
		a := result{Result: "Success"}
		if err := json.Unmarshal(lines.Bytes(), &fields); err != nil {
			a = result{"UnexpectedError", "a line must be an object like {\"target\":\"chunk-000000.000000\",\"new\":\"x.tmp\"}"}
		} else if err := session.Switch(q.Context(), fields.Target, fields.New); err != nil {
			a = result{"UnexpectedError", err.Error()}
			if reason, ok := redact.SwitchReason(err); ok {
				a.Result = reason
			}
		}
		if !say(a) {
			return
		}
	}
}

// socketServed answers with the document that a request asks for.
func socketServed(serve func(http.ResponseWriter, *http.Request) (document any, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		document, err := serve(w, q)
		var text []byte
		if err == nil {
			text, err = json.MarshalIndent(document, "", "  ")
		}
		if err != nil {
			socketFailed(w, err)
			return
		}
		w.Header().Set(request.KeyContentType, "application/json; charset=utf-8")
		_, _ = w.Write(text) // The peer may be gone.
	}
}

func socketFailed(w http.ResponseWriter, err error) {
	p, known := problem.Of(err, problem.Reading)
	if !known && !errors.Is(err, io.EOF) {
		// A caller that may open the socket may read it.
		p = problem.New(http.StatusInternalServerError, err.Error())
	}
	http.Error(w, p.Text, p.Status)
}
