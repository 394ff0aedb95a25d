package httpapi

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/atom"
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
func groupFailed(x *exchange, err error, reason string) error {
	p, _ := problemOf(err, x.action())
	settings, isSettings := errors.AsType[*subscription.SettingsError](err)
	switch {
	case errors.Is(err, subscription.ErrNotFound):
	case errors.Is(err, subscription.ErrExists):
		reason = "Group '" + x.route.group + "' already exists."
	case errors.Is(err, errAll), isSettings && !settings.Plain:
		reason = p.text
	default:
		return err
	}
	commandResult(x, p.status, commandFailures[p.status], reason)
	return nil
}

// commandResult answers with the outcome of a command. If a group was or should be
// defined, the answer has its address too.
func commandResult(x *exchange, status int, word, reason string) {
	if x.op.bodies != 0 && status != http.StatusBadRequest {
		x.w.Header()[keyLocation] = []string{string(x.origin()) + string(atom.AppendGroupURI(nil, groupKey(x)))}
	}
	o := groupOutline(x)
	o.root("subscriptionResult", func() {
		o.leaves(textField("correlationId", event.ID(uuid.New()).String()), textField("reason", reason), textField("result", word))
	})
	sendOutline(x, status, &o)
}

// sendWord answers with a text as a document.
func sendWord(x *exchange, status int, text string) {
	o := groupOutline(x)
	if o.isXML {
		o.b = append(o.b, "<string>"...)
	}
	o.value(textField("", text))
	if o.isXML {
		o.b = append(o.b, "</string>"...)
	}
	sendOutline(x, status, &o)
}

// groupOutline is an outline as clients of groups know it.
func groupOutline(x *exchange) outline {
	o := newOutline(x)
	o.isLong = true
	return o
}

// sendOutline answers with a document in the plain type of the answer's format.
func sendOutline(x *exchange, status int, o *outline) {
	x.out = o.b
	t := typeJSON
	if o.isXML {
		t = typeTextXML
	}
	h := x.w.Header()
	h[keyContentType] = t.contentType
	h[keyVary] = varyAccept
	h[keyCacheControl] = cacheNever
	x.send(status, x.out)
}
