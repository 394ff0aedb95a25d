package httpapi

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/projection"
)

const (
	projectionPrefix = "/projection/"

	segQuery  = "query"
	segResult = "result"
	segState  = "state"
)

// projecting makes of a handler of projections one that runs on the leader only.
func (p *projectionHandlers) projecting(serve handler) handler {
	return func(_ context.Context, x *exchange) error {
		return p.way.lead(x, func(ctx context.Context) error { return projectionFailed(serve(ctx, x)) })
	}
}

// problemLargeQuery is the answer to a script that no definition could hold.
var problemLargeQuery = refusal(http.StatusRequestEntityTooLarge, "Too large a query. Limit is 2mb")

// maxQuery bounds the text of a projection: its definition, in which the text is
// quoted, is one event.
const maxQuery = event.MaxEventBytes / 2

// callerIdentity is the caller as projections see it.
func callerIdentity(x *exchange) projection.Identity {
	return projection.Identity{Name: x.who.Login, Roles: x.who.Groups, Operator: access.CheckLevel(x.who, access.Ops) == nil}
}

// projectionParameter returns the value of a parameter of the query. Names of parameters of
// projections match as they are written, and the first one counts.
func projectionParameter(x *exchange, name string) (value string, ok bool) {
	for raw := x.r.URL.RawQuery; raw != ""; {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if key, value, _ := strings.Cut(pair, "="); unescapeQuery(key) == name {
			return unescapeQuery(value), true
		}
	}
	return "", false
}

// yesParameter reads a parameter that is yes or no. Other values mean no.
func yesParameter(x *exchange, name string, absent bool) bool {
	text, ok := projectionParameter(x, name)
	if !ok {
		return absent
	}
	return isYes(text)
}

func isYes(text string) bool {
	return strings.EqualFold(text, "yes") || strings.EqualFold(text, "true") || text == "1"
}

// choiceParameter reads a parameter that may leave things as they are: nil.
func choiceParameter(x *exchange, name string) *bool {
	text, _ := projectionParameter(x, name)
	yes := isYes(text)
	if yes || strings.EqualFold(text, "no") || strings.EqualFold(text, "false") || text == "0" {
		return &yes
	}
	return nil
}

// queryText reads the text of a projection.
func queryText(x *exchange) (string, error) {
	body, err := x.readBody(maxQuery, problemLargeQuery, problemInvalidBody)
	if err != nil {
		return "", err
	}
	return string(bytes.TrimPrefix(body, byteOrderMark)), nil
}

// createProjection makes the handler that makes a projection of a kind.
func (p *projectionHandlers) createProjection(m projection.Mode) handler {
	return func(ctx context.Context, x *exchange) error {
		c := projection.Creation{
			Mode: m, Enabled: yesParameter(x, "enabled", true), Checkpoints: yesParameter(x, "checkpoints", false),
			Emit: yesParameter(x, "emit", false), TrackEmittedStreams: yesParameter(x, "trackemittedstreams", false), By: callerIdentity(x),
		}
		c.Name, _ = projectionParameter(x, "name")
		c.Type, _ = projectionParameter(x, "type")
		var err error
		if c.Query, err = queryText(x); err != nil {
			return err
		}
		if m == projection.Transient {
			if c.Gone, err = share(x, api.Query); err != nil {
				return err
			}
			if c.Gone, err = x.node.memory.KeepQuery(ctx, c.Query, c.Gone); err != nil {
				return err
			}
		}
		if c.Name, err = p.projections.Create(ctx, c); err != nil {
			return err
		}
		x.w.Header()[keyLocation] = []string{projectionURI(x, c.Name)}
		return projectionDone(x, http.StatusCreated, c.Name)
	}
}

// updateProjection replaces the text of a projection.
func (p *projectionHandlers) updateProjection(ctx context.Context, x *exchange) error {
	text, err := queryText(x)
	if err != nil {
		return err
	}
	return projectionChange(x, http.StatusOK, func(name string) error {
		return p.projections.UpdateQuery(ctx, name, text, choiceParameter(x, "emit"), callerIdentity(x))
	})
}

// configureProjection replaces the settings of a projection.
func (p *projectionHandlers) configureProjection(ctx context.Context, x *exchange) error {
	body, err := x.readBody(maxSettings, problemLargeSettings, problemInvalidBody)
	if err != nil {
		return err
	}
	config, err := projection.ParseConfig(bytes.TrimPrefix(body, byteOrderMark))
	if err != nil {
		return err
	}
	return projectionChange(x, http.StatusOK, func(name string) error {
		return p.projections.SetConfig(ctx, name, config, callerIdentity(x))
	})
}

func (p *projectionHandlers) deleteProjection(ctx context.Context, x *exchange) error {
	status := http.StatusNoContent
	if x.node.referenceStatusCodes {
		status = http.StatusOK
	}
	o := projection.DeleteOptions{
		StateStream: yesParameter(x, "deleteStateStream", false), CheckpointStream: yesParameter(x, "deleteCheckpointStream", false),
		EmittedStreams: yesParameter(x, "deleteEmittedStreams", false),
	}
	return projectionChange(x, status, func(name string) error {
		return p.projections.Delete(ctx, name, o, callerIdentity(x))
	})
}

// projectionCommand makes the handler of a command.
func (p *projectionHandlers) projectionCommand(c projection.Command) handler {
	return func(ctx context.Context, x *exchange) error {
		return projectionChange(x, http.StatusOK, func(name string) error {
			return p.projections.Command(ctx, name, c, callerIdentity(x))
		})
	}
}

// restartProjections loads all projections again.
func (p *projectionHandlers) restartProjections(ctx context.Context, x *exchange) error {
	if err := p.projections.Restart(ctx); err != nil {
		return err
	}
	x.media = typeJSON
	x.out = strconv.AppendQuote(x.out[:0], "Restarting")
	x.ok()
	return nil
}

// projectionChange does something to the projection that the path names and says so.
func projectionChange(x *exchange, status int, do func(name string) error) error {
	if err := do(x.route.argument); err != nil {
		return err
	}
	return projectionDone(x, status, x.route.argument)
}

// projectionURI is the address of a projection.
func projectionURI(x *exchange, name string) string {
	return string(x.origin()) + projectionPrefix + readable(name)
}

// readable escapes a name as addresses do, but leaves $ as clients know it from the
// addresses of projections.
func readable(name string) string {
	return strings.ReplaceAll(string(atom.AppendEscaped(nil, name)), "%24", "$")
}

// projectionFailed finds the answer to an error of the projections whose status line
// says less than its body; the one table of problems has the others.
func projectionFailed(err error) error {
	if refused, ok := errors.AsType[*projection.Refused](err); ok {
		return &problem{status: http.StatusInternalServerError, phrase: "Failed", text: refused.Text}
	}
	if taken, ok := errors.AsType[*projection.Exists](err); ok {
		return &problem{status: http.StatusConflict, phrase: "Conflict", text: taken.Error()}
	}
	switch {
	case errors.Is(err, projection.ErrAborted):
		return &problem{status: http.StatusInternalServerError, phrase: "Failed", text: projection.ErrAborted.Error()}
	case errors.Is(err, event.ErrNotAuthorized):
		return &problem{status: http.StatusUnauthorized, phrase: "Not Authorized", text: "Not authorized"}
	}
	return err
}
