// Package leader gets requests to the node that is to answer them: the leader, or the one that the
// client names.
package leader

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/http1"
	"github.com/annalsdb/annals/internal/logkey"
)

// keyRepeatable is the header by which net/http may send a request again even if its outcome is not
// known. With an empty value it is not sent.
const keyRepeatable = "Idempotency-Key"

var once = []string{"1"}

// Way is how requests get to the node that answers them.
type Way struct {
	Relayer     Relay // nil: clients are redirected
	RelayWrites bool
}

// PassOn takes a write that this node cannot do to the leader, before its body is read: a follower
// neither reads nor judges a write that it does not do. The request was relayed and answered when
// done is true; otherwise the error is *event.NotLeader, or event.ErrNotReady when the client
// insists on a leader and none is known. Whether this node can write at all is for the store to
// say.
func (l *Way) PassOn(x *request.Request, insists, repeatable bool) (done bool, err error) {
	address, ok := x.Node.Cluster.Redirect()
	if ok && !insists && l.RelayWrites {
		if x.R.ContentLength > request.MaxBody {
			return false, problem.TooLarge
		}
		if done, err := l.relay(x, repeatable); done || err != nil {
			return done, err
		}
		address, ok = x.Node.Cluster.Redirect() // Another node may lead by now, and this one may.
	}
	defer func() { NoteNotDone(x, err) }()
	switch {
	case ok && !insists && x.Node.Cluster.Role() == api.RoleReadOnly:
		return false, &event.NotLeader{Address: address, ReadOnly: true}
	case ok:
		return false, &event.NotLeader{Address: address}
	case insists && x.Node.Cluster.Role() != api.RoleLeader:
		return false, event.ErrNotReady
	}
	return false, nil
}

// toLeader sends a request to the leader if only the leader can answer it. It does so before the
// body is read. Reads are relayed wherever that is possible, because a client that follows a
// redirect to another host does not send its credentials there. The request was relayed and
// answered when done is true; otherwise the error is *event.NotLeader, or event.ErrNotReady when no
// leader is known.
func (l *Way) toLeader(x *request.Request) (done bool, err error) {
	if _, ok := x.Node.Cluster.Redirect(); ok && (x.IsRead() && !x.Op.Redirected || l.RelayWrites) {
		if done, err := l.relay(x, x.IsRead() && !x.Op.Once); done || err != nil {
			return done, err
		}
	}
	err = x.Node.Lead() // Another node may lead by now, and this one may.
	NoteNotDone(x, err)
	return false, err
}

// Lead answers a request on the leader alone: another node passes it on before it
// looks at its body.
func (l *Way) Lead(x *request.Request, answer func(context.Context) error) error {
	if done, err := l.toLeader(x); done || err != nil {
		return err
	}
	return answer(x.Reads())
}

// Reads returns the context of a read that may have to be answered by the leader.
func Reads(x *request.Request, leader bool) (context.Context, error) {
	ctx := x.Reads()
	if !leader {
		return ctx, nil
	}
	return ctx, x.Node.LeadFreshly(ctx)
}

// ReadsAsked is Reads as the header of the request says.
func ReadsAsked(x *request.Request) (context.Context, error) {
	leader, err := args.RequireLeader(x.R.Header)
	if err != nil {
		return nil, err
	}
	return Reads(x, leader)
}

// NoteNotDone tells a node that relayed the request that it was not begun.
func NoteNotDone(x *request.Request, err error) {
	if err == nil || x.R.Header[request.KeyRelayed] == nil {
		return
	}
	if _, elsewhere := errors.AsType[*event.NotLeader](err); elsewhere || errors.Is(err, event.ErrNotReady) {
		x.W.Header()[request.HeaderNotDone] = once
	}
}

// relay passes a request on to the leader. It is done when the leader's answer was
// passed back to the client; an error is one of reading the body. A request that is
// repeatable has the same outcome however often it is sent.
func (l *Way) relay(x *request.Request, repeatable bool) (done bool, err error) {
	if l.Relayer == nil || x.R.Header[request.KeyRelayed] != nil {
		return false, nil
	}
	if x.Who.IsSystem() && !x.Node.Insecure {
		return false, nil // The leader would not see the certificate that says who it is.
	}
	r := marked(x)
	delete(r.Header, request.KeyNode) // It was this node that the client meant.
	if repeatable {
		r.Header[keyRepeatable] = nil
	}
	if x.Op.Once {
		r.Body = onceBody{r.Body}
	}
	var body []byte
	taken := false
	if !x.IsRead() {
		r.GetBody = func() (io.ReadCloser, error) {
			if !taken {
				if body, err = x.ReadBody(request.MaxBody, problem.TooLarge, problem.InvalidBody); err != nil {
					return nil, err
				}
				taken = true
			}
			if len(body) == 0 {
				return http.NoBody, nil
			}
			return io.NopCloser(bytes.NewReader(body)), nil
		}
	}
	clearHeader(x)
	if l.Relayer.Relay(relayWriter{x.W, x, time.Now()}, r) {
		x.BodyState = request.BodyDone
		return true, nil
	}
	x.Common()
	if taken { // This node may lead by now.
		x.R.Body = io.NopCloser(bytes.NewReader(body))
	}
	return false, err
}

// marked returns the request as another node gets it. The copy shares the body and
// the context, by which phrases find the connection.
func marked(x *request.Request) *http.Request {
	r := x.R.WithContext(x.R.Context())
	r.Header = x.R.Header.Clone()
	r.Header[request.KeyRelayed] = once
	delete(r.Header, keyRepeatable)
	x.Node.Address.Forward(r)
	return r
}

// clearHeader makes room for the header of another node's answer, which has all of its own.
func clearHeader(x *request.Request) {
	clear(x.W.Header())
	http1.SetFields(x.R.Context(), nil, nil)
}

// onceBody is a body that cannot be read again. It keeps http.Transport from
// sending a read a second time, as it does on a connection that breaks.
type onceBody struct{ io.ReadCloser }

// relayWriter passes an answer on, and gives one that is not the leader's what every
// answer has. An answer to a write waits until this node shows the write, so that a
// client which knows this node alone reads what it wrote.
type relayWriter struct {
	http.ResponseWriter
	x     *request.Request
	begun time.Time
}

func (w relayWriter) WriteHeader(status int) {
	h := w.Header()
	if h[request.KeyAllowMethods] == nil {
		w.x.Common()
	}
	if end := h[request.KeyLogEnd]; end != nil {
		delete(h, request.KeyLogEnd)
		w.catchUp(end[0])
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets an http.ResponseController find the connection's own writer.
func (w relayWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// catchUp waits until this node's log reaches the leader's, but no longer than a
// write may take: it is done, and better answered early than with an error.
func (w relayWriter) catchUp(leader string) {
	x := w.x
	end, err := strconv.ParseInt(leader, 10, 64)
	if err != nil || end <= x.Node.Store.LogEnd() {
		return
	}
	ctx := clock.NewDeadline(x.R.Context(), time.Until(w.begun.Add(x.Node.WriteTimeout)))
	defer ctx.Release()
	if err := x.Node.Store.WaitLog(ctx, end-1); err != nil {
		x.Node.Logger.Debug("a write was answered before this node could show it", "path", x.R.URL.Path, logkey.Error, err)
	}
}

// Relay passes requests on to the leader and its answers back.
type Relay interface {
	// Relay answers r with the answer of the leader. It returns false when it sent nothing to the
	// client, and what it sent to a leader may be done again, for example because no other node
	// leads: the caller then answers itself.
	//
	// GetBody of r, for requests that change something, returns the body from its
	// beginning for each attempt, and is called by one goroutine at a time; Body is then
	// not to be used. When it fails Relay returns false. A request that may have
	// reached the leader is sent again only if r has the header Idempotency-Key (which
	// no client sets here), or the answer has HeaderNotDone.
	//
	// The header map of w is empty when it is called. Method, path, query, Host, all
	// headers and the body of r reach the leader as they are; its status, headers
	// and body come back as they are, a redirect included, and the phrase of its
	// status line goes to SetReason. The caller's rights are those of the
	// credentials in r alone: the leader must not take the request for one of the
	// relaying node's own.
	Relay(w http.ResponseWriter, r *http.Request) (done bool)

	// RelayTo answers r with the answer of a member of the cluster, and passes body and answer on
	// as they come. All else is as with Relay, but there is one attempt: it returns false when the
	// member got nothing, and nothing was sent to the client.
	RelayTo(w http.ResponseWriter, r *http.Request, to *event.Member) (done bool)
}
