package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/http1"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
)

// keyRelayed marks a request that a node relayed. A node that gets one and does
// not lead redirects it, so that nodes that disagree on who leads cannot pass a
// request round between them. A client that sets it asks for the same.
const keyRelayed = "Annals-Relayed"

// Headers that the leader adds to its answer to a relayed request.
const (
	// HeaderNotDone says that nothing was done, for want of a leader: another
	// attempt does no harm.
	HeaderNotDone = "Annals-Not-Done"
	// keyLogEnd says where the leader's log ended when it answered. The node that
	// relayed a write shows the write when its own log reaches there.
	keyLogEnd = "Annals-Log-End"
)

// keyRepeatable is the header by which net/http may send a request again even if its outcome is not
// known. With an empty value it is not sent.
const keyRepeatable = "Idempotency-Key"

var once = []string{"1"}

// way is how requests get to the node that answers them.
type way struct {
	relayer     Relay // nil: clients are redirected
	relayWrites bool
	waiter      Waiter
	members     Membership // nil: there is no other node
}

// passOn takes a write that this node cannot do to the leader, before its body is read: a follower
// neither reads nor judges a write that it does not do. The request was relayed and answered when
// done is true; otherwise the error is *event.NotLeader, or event.ErrNotReady when the client
// insists on a leader and none is known. Whether this node can write at all is for the store to
// say.
func (l *way) passOn(x *exchange, insists, repeatable bool) (done bool, err error) {
	address, ok := x.node.cluster.Redirect()
	if ok && !insists && l.relayWrites {
		if x.r.ContentLength > maxBody {
			return false, problemTooLarge
		}
		if done, err := l.relay(x, repeatable); done || err != nil {
			return done, err
		}
		address, ok = x.node.cluster.Redirect() // Another node may lead by now, and this one may.
	}
	defer func() { noteNotDone(x, err) }()
	switch {
	case ok && !insists && x.node.cluster.Role() == roleReadOnly:
		return false, &event.NotLeader{Address: address, ReadOnly: true}
	case ok:
		return false, &event.NotLeader{Address: address}
	case insists && x.node.cluster.Role() != roleLeader:
		return false, event.ErrNotReady
	}
	return false, nil
}

// toLeader sends a request to the leader if only the leader can answer it. It does so before the
// body is read. Reads are relayed wherever that is possible, because a client that follows a
// redirect to another host does not send its credentials there. The request was relayed and
// answered when done is true; otherwise the error is *event.NotLeader, or event.ErrNotReady when no
// leader is known.
func (l *way) toLeader(x *exchange) (done bool, err error) {
	address, ok := x.node.cluster.Redirect()
	if ok && (x.isRead() && !x.op.redirected || l.relayWrites) {
		if done, err := l.relay(x, x.isRead() && !x.op.once); done || err != nil {
			return done, err
		}
		address, ok = x.node.cluster.Redirect()
	}
	defer func() { noteNotDone(x, err) }()
	switch {
	case ok:
		return false, &event.NotLeader{Address: address}
	case x.node.cluster.Role() != roleLeader:
		return false, event.ErrNotReady
	}
	return false, nil
}

// lead answers a request on the leader alone: another node passes it on before it
// looks at its body.
func (l *way) lead(x *exchange, answer func(context.Context) error) error {
	if done, err := l.toLeader(x); done || err != nil {
		return err
	}
	return answer(x.reads())
}

func (x *exchange) isRead() bool {
	return x.r.Method == http.MethodGet || x.r.Method == http.MethodHead
}

// noteNotDone tells a node that relayed the request that it was not begun.
func noteNotDone(x *exchange, err error) {
	if err == nil || x.r.Header[keyRelayed] == nil {
		return
	}
	if _, elsewhere := errors.AsType[*event.NotLeader](err); elsewhere || errors.Is(err, event.ErrNotReady) {
		x.w.Header()[HeaderNotDone] = once
	}
}

// noteLogEnd tells a node that relayed the request how far its log must reach to show the write.
func noteLogEnd(x *exchange) {
	if x.r.Header[keyRelayed] != nil && !x.isRead() {
		x.w.Header()[keyLogEnd] = []string{strconv.FormatInt(x.node.store.LogEnd(), 10)}
	}
}

// relay passes a request on to the leader. It is done when the leader's answer was
// passed back to the client; an error is one of reading the body. A request that is
// repeatable has the same outcome however often it is sent.
func (l *way) relay(x *exchange, repeatable bool) (done bool, err error) {
	if l.relayer == nil || x.r.Header[keyRelayed] != nil {
		return false, nil
	}
	if x.who.IsSystem() && !x.node.insecure {
		return false, nil // The leader would not see the certificate that says who it is.
	}
	r := marked(x)
	delete(r.Header, keyNode) // It was this node that the client meant.
	if repeatable {
		r.Header[keyRepeatable] = nil
	}
	if x.op.once {
		r.Body = onceBody{r.Body}
	}
	var body []byte
	taken := false
	if !x.isRead() {
		r.GetBody = func() (io.ReadCloser, error) {
			if !taken {
				if body, err = x.readBody(maxBody, problemTooLarge, problemInvalidBody); err != nil {
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
	if l.relayer.Relay(relayWriter{x.w, x, l.waiter, time.Now()}, r) {
		x.bodyState = bodyDone
		return true, nil
	}
	x.common()
	if taken { // This node may lead by now.
		x.r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return false, err
}

// marked returns the request as another node gets it. The copy shares the body and
// the context, by which phrases find the connection.
func marked(x *exchange) *http.Request {
	r := x.r.WithContext(x.r.Context())
	r.Header = x.r.Header.Clone()
	r.Header[keyRelayed] = once
	delete(r.Header, keyRepeatable)
	x.node.address.forward(r)
	return r
}

// clearHeader makes room for the header of another node's answer, which has all of its own.
func clearHeader(x *exchange) {
	clear(x.w.Header())
	http1.SetFields(x.r.Context(), nil, nil)
}

// onceBody is a body that cannot be read again. It keeps http.Transport from
// sending a read a second time, as it does on a connection that breaks.
type onceBody struct{ io.ReadCloser }

// relayWriter passes an answer on, and gives one that is not the leader's what every
// answer has. An answer to a write waits until this node shows the write, so that a
// client which knows this node alone reads what it wrote.
type relayWriter struct {
	http.ResponseWriter
	x      *exchange
	waiter Waiter
	begun  time.Time
}

func (w relayWriter) WriteHeader(status int) {
	h := w.Header()
	if h[keyAllowMethods] == nil {
		w.x.common()
	}
	if end := h[keyLogEnd]; end != nil {
		delete(h, keyLogEnd)
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
	if err != nil || end <= x.node.store.LogEnd() {
		return
	}
	ctx := clock.NewDeadline(x.r.Context(), time.Until(w.begun.Add(x.node.writeTimeout)))
	defer ctx.Release()
	if err := w.waiter.WaitLog(ctx, end-1); err != nil {
		x.node.log.Debug("a write was answered before this node could show it", "path", x.r.URL.Path, logkey.Error, err)
	}
}

// forward makes the leader give out the addresses that this node would: the
// client knows no other, and the leader cannot see whether it came by TLS.
func (h *names) forward(r *http.Request) {
	scheme, host, port := h.address(r)
	if port == "" { // Or the leader would think of its own.
		port = "80"
		if scheme == "https" {
			port = "443"
		}
	}
	r.Header[keyForwardedProto] = []string{scheme}
	r.Header[keyForwardedHost] = []string{host + ":" + port}
	delete(r.Header, keyForwardedPort)
}
