package request

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/outline"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/internal/http1"
	"github.com/annalsdb/annals/internal/logkey"
)

// AppendJSON appends a value as JSON for people.
func AppendJSON(b []byte, value any) ([]byte, error) {
	w := bytes.NewBuffer(b)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		return b, fmt.Errorf("write JSON: %w", err)
	}
	return bytes.TrimSuffix(w.Bytes(), []byte("\n")), nil
}

// SendPlainJSON answers with a document that is JSON, whichever types are accepted.
func (x *Request) SendPlainJSON(document any) (err error) {
	if x.Out, err = AppendJSON(x.Out[:0], document); err != nil {
		return err
	}
	x.Media = media.JSON
	x.SendBody()
	return nil
}

// SendFreshJSON is SendPlainJSON for what may be another at the next moment.
func (x *Request) SendFreshJSON(document any) error {
	x.W.Header()[caching.KeyControl] = caching.Never
	return x.SendPlainJSON(document)
}

// SendFresh answers with a text that may be another at the next moment.
func (x *Request) SendFresh(body []byte) error {
	x.Typed()
	x.W.Header()[caching.KeyControl] = caching.Never
	x.Send(http.StatusOK, body)
	return nil
}

// SendOut is SendFresh for what was written into the memory of the request.
func (x *Request) SendOut(b []byte) error {
	x.Out = b
	return x.SendFresh(b)
}

// Moved sends a browser elsewhere.
func (x *Request) Moved(address string) error {
	x.W.Header()[KeyLocation] = []string{address}
	x.Text(http.StatusFound, "Moved")
	return nil
}

// NewOutline begins a document in the negotiated type.
func (x *Request) NewOutline() outline.Writer {
	o := outline.Writer{B: x.Out[:0], IsXML: !x.Media.Form.IsJSON()}
	if o.IsXML {
		o.B = append(o.B, atom.Prolog...)
	}
	return o
}

// SendFields answers with the members of one object, each on a line of its own in text.
func (x *Request) SendFields(root string, fields ...outline.Field) error {
	if x.Media.Form == media.FormText {
		x.Out = x.Out[:0]
		for i, f := range fields {
			if i > 0 {
				x.Out = append(x.Out, '\n')
			}
			x.Out = outline.AppendText(x.Out, f)
		}
	} else {
		o := x.NewOutline()
		o.Root(root, func() { o.Leaves(fields...) })
		x.Out = o.B
	}
	x.SendBody()
	return nil
}

var (
	retryAfter = []string{"5"}
	retrySoon  = []string{"2"}
	challenge  = []string{`X-Basic realm="ESDB"`}
)

// Fail answers with what err means.
func (x *Request) Fail(err error) {
	p, known := problem.Of(err, x.Action())
	if !known {
		x.Node.Logger.Error("request could not be answered", "method", x.R.Method, "path", x.R.URL.Path, logkey.Error, err)
	}
	h := x.W.Header()
	if h[caching.KeyControl] == nil && p.Status >= http.StatusBadRequest {
		// Headers that caches do not look at may have led to it.
		h[caching.KeyControl] = caching.Nothing
	}
	var version *event.WrongExpectedVersion
	var leader *event.NotLeader
	var names *event.NamesNotListed
	own, isOwn := errors.AsType[ownAnswer](err)
	_, noShare := errors.AsType[*api.NoShare](err)
	_, noIndex := errors.AsType[*event.IndexBuilding](err)
	switch {
	case errors.As(err, &names):
		h[keyRetryAfter] = retrySoon
	case p.Status == http.StatusUnauthorized:
		h[keyWWWAuthenticate] = challenge
	case p == problem.Version && errors.As(err, &version):
		h[keyCurrentVersion] = []string{strconv.FormatInt(version.Current, 10)}
		h[kurrentCurrentVersion] = h[keyCurrentVersion]
	case (p == problem.LeaderAt || p == problem.ReadOnly) && errors.As(err, &leader):
		h[KeyLocation] = []string{strings.TrimSuffix(leader.Address, "/") + x.R.URL.RequestURI()}
	case p == problem.NotReady && errors.Is(err, event.ErrNotInitialized), p == problem.BackupLater, noShare, noIndex,
		p == problem.Busy && (isOwn || x.Op == nil):
		// The other kind of busy is that too many passwords are to be hashed.
		h[keyRetryAfter] = retryAfter
	case p == problem.NoRoom:
		h[keyRetryAfter] = retrySoon
		if x.R.ProtoMajor == 1 { // A client that is refused need not keep a connection, too.
			h["Connection"] = []string{"close"}
		}
	case p == problem.NodeAway:
		h[keyRetryAfter] = retrySoon
	case p == problem.NotFound && x.Op != nil && x.Op.Single:
		x.missing(p)
		return
	}
	if !isOwn || !own.Answer(x, p) {
		x.refuse(p)
	}
}

// ownAnswer is an error that may have its own way to answer with a problem.
type ownAnswer interface {
	error
	// Answer returns false when it leaves the answer to others.
	Answer(x *Request, p *problem.Problem) bool
}

// missing answers for a single event that is not there: JSON clients parse the
// body at any status, so they get an empty object.
func (x *Request) missing(p *problem.Problem) {
	if x.Media == nil || !x.Media.Form.IsJSON() {
		x.refuse(p)
		return
	}
	x.W.Header()[KeyContentType] = x.Media.ContentType
	x.Send(p.Status, EmptyObject)
}

// refuse writes a problem.
func (x *Request) refuse(p *problem.Problem) {
	x.Phrase(p.Status, cmp.Or(p.Phrase, p.Text))
	x.W.Header()[KeyContentType] = media.Text.ContentType
	if p.Silent {
		x.Send(p.Status, nil)
		return
	}
	x.Out = append(x.Out[:0], p.Text...)
	x.Send(p.Status, x.Out)
}

// Action is the kind of the operation; that of a read as long as none is known.
func (x *Request) Action() problem.Action {
	if x.Op == nil {
		return problem.Reading
	}
	return x.Op.Action
}

// Phrase puts a text into the status line, where the connection has one.
func (x *Request) Phrase(status int, text string) {
	if text == http.StatusText(status) || x.R.ProtoMajor != 1 {
		return
	}
	http1.SetReason(x.R.Context(), status, text)
}

var EmptyObject = []byte("{}")
