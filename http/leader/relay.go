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
)

// keyRepeatable is the header by which net/http may send a request again even if its outcome is not
// known. No request that is relayed has it.
const keyRepeatable = "Idempotency-Key"

var once = []string{"1"}

// Way is how requests get to the node that answers them.
type Way struct {
	Relayer     Relay // nil: clients are redirected
	RelayWrites bool  // what changes something goes to the leader as well
}

// Write says how a write is done, before its body is read: a follower neither reads nor judges a
// write that it does not take. If anywhere is true this node takes it, and has the leader do it
// when it does not lead itself. Otherwise only this node can do it, or the error is
// *event.NotLeader, or event.ErrNotReady when the client insists on a leader and none is known.
// Whether this node can write at all is for the store to say.
func (l *Way) Write(x *request.Request, insists bool) (anywhere bool, err error) {
	defer func() { NoteNotDone(x, err) }()
	address, ok := x.Node.Cluster.Redirect()
	anywhere = l.RelayWrites && !insists && x.R.Header[request.KeyRelayed] == nil
	switch {
	case ok && !insists && x.Node.Cluster.Role() == api.RoleReadOnly:
		return false, &event.NotLeader{Address: address, ReadOnly: true}
	case ok && !anywhere:
		return false, &event.NotLeader{Address: address}
	case insists && x.Node.Cluster.Role() != api.RoleLeader:
		return false, event.ErrNotReady
	}
	return anywhere, nil
}

// toLeader sends a request to the leader if only the leader can answer it. It does so before the
// body is read. Reads are relayed wherever that is possible, because a client that follows a
// redirect to another host does not send its credentials there. The request was relayed and
// answered when done is true; otherwise the error is *event.NotLeader, or event.ErrNotReady when no
// leader is known.
func (l *Way) toLeader(x *request.Request) (done bool, err error) {
	if _, ok := x.Node.Cluster.Redirect(); ok && (x.IsRead() && !x.Op.Redirected || l.RelayWrites) {
		if done, err := l.relay(x); done || err != nil {
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
	if x.Op.Awaits != nil {
		if err := await(x, x.Op.Awaits(x)); err != nil {
			return err
		}
	}
	return answer(x.Reads())
}

// Reads returns the context of a read that may have to be answered by the leader, once this node
// has reached the position that the request names.
func Reads(x *request.Request, leader bool) (context.Context, error) {
	if leader {
		if err := x.Node.Lead(); err != nil { // Before a wait.
			return nil, err
		}
	}
	if err := await(x, x.Node.OwnLog()); err != nil {
		return nil, err
	}
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
// passed back to the client; an error is one of reading the body.
func (l *Way) relay(x *request.Request) (done bool, err error) {
	if l.Relayer == nil || x.R.Header[request.KeyRelayed] != nil {
		return false, nil
	}
	if x.Caller.Who.IsSystem() && !x.Node.Insecure {
		return false, nil // The leader would not see the certificate that says who it is.
	}
	r := marked(x)
	delete(r.Header, request.KeyNode) // It was this node that the client meant.
	if x.Op.Once {
		r.Body = onceBody{r.Body}
	}
	if !x.IsRead() {
		body, err := x.Upload.Read(request.MaxBody, problem.TooLarge, problem.InvalidBody)
		if err != nil {
			return false, err
		}
		r.GetBody = func() (io.ReadCloser, error) {
			if len(body) == 0 {
				return http.NoBody, nil
			}
			return io.NopCloser(bytes.NewReader(body)), nil
		}
		x.R.Body, _ = r.GetBody() // This node may lead by the time that the relay ends.
	}
	clearHeader(x)
	if l.Relayer.Relay(relayWriter{x.W, x, time.Now()}, r, x.IsRead() && !x.Op.Once) {
		x.Upload.Taken(true)
		return true, nil
	}
	x.Common()
	return false, nil
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

// catchUp waits until this node's log reaches the leader's, but no longer than a write may take.
func (w relayWriter) catchUp(leader string) {
	x := w.x
	end, err := strconv.ParseInt(leader, 10, 64)
	if err != nil {
		return
	}
	ctx := clock.NewDeadline(x.R.Context(), time.Until(w.begun.Add(x.Node.WriteTimeout)))
	defer ctx.Release()
	x.AwaitShown(ctx, end-1)
}

// Relay passes requests on to the leader and its answers back.
type Relay interface {
	// Relay answers r with the answer of the leader. It returns false when it sent nothing to the
	// client, and what it sent to a leader may be done again, for example because no other node
	// leads: the caller then answers itself.
	//
	// GetBody of r, for requests that change something, returns the body from its beginning for
	// each attempt, and never fails; Body is then not to be used. A request that may have reached
	// the leader is sent again only if it is repeatable, that is, has the same outcome however
	// often it is sent, or if the answer has HeaderNotDone.
	//
	// The header map of w is empty when it is called. Method, path, query, Host, all
	// headers and the body of r reach the leader as they are; its status, headers
	// and body come back as they are, a redirect included, and the phrase of its
	// status line goes to SetReason. The caller's rights are those of the
	// credentials in r alone: the leader must not take the request for one of the
	// relaying node's own.
	Relay(w http.ResponseWriter, r *http.Request, repeatable bool) (done bool)

	// RelayTo answers r with the answer of a member of the cluster, and passes body and answer on
	// as they come. All else is as with Relay, but there is one attempt: it returns false when the
	// member got nothing, and nothing was sent to the client.
	RelayTo(w http.ResponseWriter, r *http.Request, to *event.Member) (done bool)
}
