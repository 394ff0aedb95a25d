package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
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
	body, err := x.ReadBody(maxRedactBody, problemLargeRedaction, problem.InvalidBody)
	if err != nil {
		return err
	}
	// Without authentication everybody may.
	request, err := parseRedaction(body, cmp.Or(x.Who.Login, "anonymous"))
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
	r = redact.Request{Reason: fields.Reason, User: user, DryRun: fields.DryRun}
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
