// Package projections answers requests about projections.
package projections

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
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/projection"
)

// Handlers answer requests about projections.
type Handlers struct {
	Projections api.Projections
	Way         *leader.Way
}

const (
	projectionPrefix = "/projection/"

	segQuery  = "query"
	segResult = "result"
	segState  = "state"
)

// Leading makes of a handler of projections one that runs on the leader only.
func (p *Handlers) Leading(serve request.Handler) request.Handler {
	return func(_ context.Context, x *request.Request) error {
		return p.Way.Lead(x, func(ctx context.Context) error { return projectionFailed(serve(ctx, x)) })
	}
}

// Awaited is the projection that the path names.
func Awaited(x *request.Request) api.Awaited { return x.Node.OfProjection(x.Route.Argument) }

// problemLargeQuery is the answer to a script that no definition could hold.
var problemLargeQuery = problem.New(http.StatusRequestEntityTooLarge, "Too large a query. Limit is 2mb")

// maxQuery bounds the text of a projection: its definition, in which the text is
// quoted, is one event.
const maxQuery = event.MaxEventBytes / 2

// callerIdentity is the caller as projections see it.
func callerIdentity(x *request.Request) projection.Identity {
	return projection.Identity{Name: x.Caller.Who.Login, Roles: x.Caller.Who.Groups, Operator: access.CheckLevel(x.Caller.Who, access.Ops) == nil}
}

// projectionParameter returns the value of a parameter of the query. Names of parameters of
// projections match as they are written, and the first one counts.
func projectionParameter(x *request.Request, name string) (value string, ok bool) {
	for raw := x.R.URL.RawQuery; raw != ""; {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if key, value, _ := strings.Cut(pair, "="); args.Unescape(key) == name {
			return args.Unescape(value), true
		}
	}
	return "", false
}

// yesParameter reads a parameter that is yes or no. Other values mean no.
func yesParameter(x *request.Request, name string, absent bool) bool {
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
func choiceParameter(x *request.Request, name string) *bool {
	text, _ := projectionParameter(x, name)
	yes := isYes(text)
	if yes || strings.EqualFold(text, "no") || strings.EqualFold(text, "false") || text == "0" {
		return &yes
	}
	return nil
}

// queryText reads the text of a projection.
func queryText(x *request.Request) (string, error) {
	body, err := x.Upload.Read(maxQuery, problemLargeQuery, problem.InvalidBody)
	if err != nil {
		return "", err
	}
	return string(bytes.TrimPrefix(body, args.ByteOrderMark)), nil
}

// Create makes the handler that makes a projection of a kind.
func (p *Handlers) Create(m projection.Mode) request.Handler {
	return func(ctx context.Context, x *request.Request) error {
		c := projection.Creation{
			Mode: m, Enabled: yesParameter(x, "enabled", true), Checkpoints: yesParameter(x, "checkpoints", false),
			Emit: yesParameter(x, "emit", false), TrackEmittedStreams: yesParameter(x, "trackemittedstreams", false), By: callerIdentity(x),
		}
		c.Name, _ = projectionParameter(x, "name")
		c.Type, _ = projectionParameter(x, "type")
		c.EngineVersion, _ = projectionParameter(x, "engineversion")
		var err error
		if c.Query, err = queryText(x); err != nil {
			return err
		}
		if m == projection.Transient {
			if c.Gone, err = x.Caller.Share(api.Query); err != nil {
				return err
			}
			if c.Gone, err = x.Node.Memory.KeepQuery(ctx, c.Query, c.Gone); err != nil {
				return err
			}
		}
		if c.Name, err = p.Projections.Create(ctx, c); err != nil {
			return err
		}
		x.W.Header()[request.KeyLocation] = []string{projectionURI(x, c.Name)}
		return projectionDone(x, http.StatusCreated, c.Name)
	}
}

// Text makes the handler of what is done with a text: it takes the place of that of a projection,
// or is that of a second version.
func (p *Handlers) Text(do func(p api.Projections, ctx context.Context, name string, u projection.Update, by projection.Identity) error) request.Handler {
	return func(ctx context.Context, x *request.Request) error {
		text, err := queryText(x)
		if err != nil {
			return err
		}
		return projectionChange(x, http.StatusOK, func(name string) error {
			return do(p.Projections, ctx, name, projection.Update{Query: text, Emit: choiceParameter(x, "emit")}, callerIdentity(x))
		})
	}
}

// ChangeRebuild makes the handler that ends the second version of a projection, or swaps.
func (p *Handlers) ChangeRebuild(do func(p api.Projections, ctx context.Context, name string, by projection.Identity) error) request.Handler {
	return func(ctx context.Context, x *request.Request) error {
		return projectionChange(x, http.StatusOK, func(name string) error { return do(p.Projections, ctx, name, callerIdentity(x)) })
	}
}

// RebuildStatus answers with the second version of a projection.
func (p *Handlers) RebuildStatus(ctx context.Context, x *request.Request) error {
	withStates := yesParameter(x, "states", false)
	r, err := p.Projections.RebuildStatus(ctx, x.Route.Argument, withStates || yesParameter(x, "compare", false), withStates, callerIdentity(x))
	if err != nil {
		return err
	}
	return sendJSON(x, r)
}

// Configure replaces the settings of a projection.
func (p *Handlers) Configure(ctx context.Context, x *request.Request) error {
	body, err := x.Upload.Read(request.MaxSettings, request.LargeSettings, problem.InvalidBody)
	if err != nil {
		return err
	}
	config, err := projection.ParseConfig(bytes.TrimPrefix(body, args.ByteOrderMark))
	if err != nil {
		return err
	}
	return projectionChange(x, http.StatusOK, func(name string) error {
		return p.Projections.SetConfig(ctx, name, config, callerIdentity(x))
	})
}

func (p *Handlers) Delete(ctx context.Context, x *request.Request) error {
	status := http.StatusNoContent
	if x.Node.ReferenceStatusCodes {
		status = http.StatusOK
	}
	o := projection.DeleteOptions{
		StateStream: yesParameter(x, "deleteStateStream", false), CheckpointStream: yesParameter(x, "deleteCheckpointStream", false),
		EmittedStreams: yesParameter(x, "deleteEmittedStreams", false),
	}
	return projectionChange(x, status, func(name string) error {
		return p.Projections.Delete(ctx, name, o, callerIdentity(x))
	})
}

// Command makes the handler of a command.
func (p *Handlers) Command(c projection.Command) request.Handler {
	return func(ctx context.Context, x *request.Request) error {
		return projectionChange(x, http.StatusOK, func(name string) error {
			return p.Projections.Command(ctx, name, c, callerIdentity(x))
		})
	}
}

// Restart loads all projections again.
func (p *Handlers) Restart(ctx context.Context, x *request.Request) error {
	if err := p.Projections.Restart(ctx); err != nil {
		return err
	}
	x.Media = media.JSON
	x.Out = strconv.AppendQuote(x.Out[:0], "Restarting")
	x.SendBody()
	return nil
}

// projectionChange does something to the projection that the path names and says so.
func projectionChange(x *request.Request, status int, do func(name string) error) error {
	if err := do(x.Route.Argument); err != nil {
		return err
	}
	return projectionDone(x, status, x.Route.Argument)
}

// projectionURI is the address of a projection.
func projectionURI(x *request.Request, name string) string {
	return string(x.Origin.URI()) + projectionPrefix + readable(name)
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
		return &problem.Problem{Status: http.StatusInternalServerError, Phrase: "Failed", Text: refused.Text}
	}
	if taken, ok := errors.AsType[*projection.Exists](err); ok {
		return &problem.Problem{Status: http.StatusConflict, Phrase: "Conflict", Text: taken.Error()}
	}
	switch {
	case errors.Is(err, projection.ErrAborted):
		return &problem.Problem{Status: http.StatusInternalServerError, Phrase: "Failed", Text: projection.ErrAborted.Error()}
	case errors.Is(err, event.ErrNotAuthorized):
		return &problem.Problem{Status: http.StatusUnauthorized, Phrase: "Not Authorized", Text: "Not authorized"}
	}
	return err
}
