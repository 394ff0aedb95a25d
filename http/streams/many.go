package streams

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/jsontext"
)

// AppendMany writes events to one stream or several, with checks on these and others, whole or not
// at all.
func (s *Handlers) AppendMany(ctx context.Context, x *request.Request) (err error) {
	var w write
	if w.leader, err = args.RequireLeader(x.R.Header); err != nil {
		return err
	}
	if w.anywhere, err = s.Way.Write(x, w.leader); err != nil {
		return err
	}
	body, err := x.Upload.Read(request.MaxBody, problem.LargeWrite, problem.InvalidBody)
	if err != nil {
		return err
	}
	// The events, and by what they and their streams are found again.
	if err := x.Claim.Grow(x.R.Context(), 2*int64(len(body))); err != nil {
		return err
	}
	g := x.Node.Gather()
	wrong, err := decodeMany(body, g)
	if err != nil {
		x.Node.Many.Count(api.DoorHTTP, nil, event.Written{}, err)
		return err
	}
	written, checked := g.Streams()
	x.Records = slices.ContainsFunc(written, api.RecordsAppend)
	return x.Recorded(ctx, func(ctx context.Context, x *request.Request) error {
		err := x.Node.PermitMany(ctx, &x.Caller.Who, written, checked)
		if err == nil {
			err = sized(x, wrong)
		}
		var done event.Written
		var many *event.Write
		if err == nil {
			if many, err = g.Write(); err == nil {
				w.Write = *many
				if log, ok := request.Wrapped[interface{ NoteWrite(streams, events int) }](x.W); ok {
					log.NoteWrite(len(written), len(w.Events))
				}
				done, err = s.commitWrite(x, &w)
			}
		}
		x.Node.Many.Count(api.DoorHTTP, many, done, err)
		if v, ok := errors.AsType[*event.Violations](err); ok {
			return &violations{v, len(many.Many.Checks), x.Node.Shown(ctx, &x.Caller.Who, v)}
		}
		if err == nil {
			sendMany(x, written, &done)
		}
		return err
	})
}

// sendMany answers with what each stream got.
func sendMany(x *request.Request, streams []string, done *event.Written) {
	b := jsontext.Int(x.Out[:0], `{"position":`, done.Position)
	b = jsontext.Bool(b, `,"repeated":`, done.Idempotent)
	b = append(b, `,"streams":[`...)
	for i, span := range done.Streams {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsontext.Text(b, `{"stream":`, streams[i])
		b = jsontext.Int(b, `,"first":`, span.First)
		b = jsontext.Int(b, `,"last":`, span.Last)
		b = append(b, '}')
	}
	x.Out = append(b, "]}"...)
	x.W.Header()[request.KeyContentType] = media.JSON.ContentType
	x.Send(http.StatusCreated, x.Out)
}

// violations answer with all checks that do not hold.
type violations struct {
	*event.Violations
	checks int // of the request
	// whether the caller may read the event of each conflict: of others it learns the position
	shown []bool
}

func (v *violations) Unwrap() error { return v.Violations }

// Answer sends them as JSON.
func (v *violations) Answer(x *request.Request, p *problem.Problem) bool {
	b := jsontext.Text(x.Out[:0], `{"message":`, p.Text)
	b = append(b, `,"checks":[`...)
	for i, c := range v.Checks {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"index":`...)
		if c.Index < v.checks {
			b = strconv.AppendInt(b, int64(c.Index), 10)
		} else {
			b = append(b, "null"...)
		}
		b = jsontext.Text(b, `,"stream":`, c.Stream)
		b = appendVersion(append(b, `,"expected":`...), c.Expected)
		b = appendVersion(append(b, `,"actual":`...), c.Actual)
		b = append(b, '}')
	}
	b = append(b, `],"conditions":[`...)
	for i, c := range v.Conditions {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsontext.Int(b, `{"index":`, int64(c.Index))
		b = jsontext.Int(b, `,"event":{"position":`, c.Event.Position)
		if v.shown[i] {
			b = jsontext.Text(b, `,"stream":`, c.Event.Stream)
			b = jsontext.Int(b, `,"number":`, c.Event.Number)
			b = c.Event.ID.AppendTo(append(b, `,"eventId":"`...))
			b = jsontext.Text(b, `","eventType":`, c.Event.Type)
		}
		b = append(b, "}}"...)
	}
	b = append(b, `],"position":`...)
	x.Out = append(strconv.AppendInt(b, v.Position, 10), '}')
	x.Phrase(p.Status, p.Text)
	x.W.Header()[request.KeyContentType] = media.JSON.ContentType
	x.Send(p.Status, x.Out)
	return true
}

// appendVersion appends a number, or the word that says it.
func appendVersion(b []byte, version int64) []byte {
	if version >= 0 {
		return strconv.AppendInt(b, version, 10)
	}
	return jsontext.AppendString(b, event.VersionText(version))
}
