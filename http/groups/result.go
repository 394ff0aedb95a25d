package groups

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/outline"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/subscription"
)

// The words of results. They are part of the wire: do not change.
const commandSuccess = "Success"

var commandFailures = map[int]string{
	http.StatusBadRequest: "Fail",
	http.StatusNotFound:   "DoesNotExist",
	http.StatusConflict:   "AlreadyExists",
}

// groupFailed answers for an operation that failed, if the error has a text of its own. Otherwise
// it returns the error. The reason is that of a group that does not exist.
func groupFailed(x *request.Request, err error, reason string) error {
	p, _ := problem.Of(err, x.Action())
	settings, isSettings := errors.AsType[*subscription.SettingsError](err)
	switch {
	case errors.Is(err, subscription.ErrNotFound):
	case errors.Is(err, subscription.ErrExists):
		reason = "Group '" + x.Route.Group + "' already exists."
	case errors.Is(err, errAll), isSettings && !settings.Plain:
		reason = p.Text
	default:
		return err
	}
	commandResult(x, p.Status, commandFailures[p.Status], reason)
	return nil
}

// commandResult answers with the outcome of a command. If a group was or should be
// defined, the answer has its address too.
func commandResult(x *request.Request, status int, word, reason string) {
	if x.Op.Bodies != 0 && status != http.StatusBadRequest {
		x.W.Header()[request.KeyLocation] = []string{string(x.Origin.URI()) + string(atom.AppendGroupURI(nil, groupKey(x)))}
	}
	o := groupOutline(x)
	o.Root("subscriptionResult", func() {
		o.Leaves(outline.Text("correlationId", event.ID(uuid.New()).String()), outline.Text("reason", reason), outline.Text("result", word))
	})
	sendOutline(x, status, &o)
}

// sendWord answers with a text as a document.
func sendWord(x *request.Request, status int, text string) {
	o := groupOutline(x)
	if o.IsXML {
		o.B = append(o.B, "<string>"...)
	}
	o.Value(outline.Text("", text))
	if o.IsXML {
		o.B = append(o.B, "</string>"...)
	}
	sendOutline(x, status, &o)
}

// groupOutline is an outline as clients of groups know it.
func groupOutline(x *request.Request) outline.Writer {
	o := x.NewOutline()
	o.IsLong = true
	return o
}

// sendOutline answers with a document in the plain type of the answer's format.
func sendOutline(x *request.Request, status int, o *outline.Writer) {
	x.Out = o.B
	t := media.JSON
	if o.IsXML {
		t = media.TextXML
	}
	h := x.W.Header()
	h[request.KeyContentType] = t.ContentType
	h[caching.KeyVary] = caching.VaryAccept
	h[caching.KeyControl] = caching.Never
	x.Send(status, x.Out)
}
