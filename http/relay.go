package httpapi

import (
	"context"
	"io"
	"net/http"

	"github.com/annalsdb/annals/event"
)

// keyRelayed marks a request that a node relayed. Whoever gets one and does not
// lead redirects it, so that nodes that disagree on who leads cannot pass a
// request round between them. A client that sets it asks for the same.
const keyRelayed = "Annals-Relayed"

var relayedOnce = []string{"1"}

// passOn takes a write that this node cannot do to the leader, before its body
// is read: a follower neither reads nor judges what it does not write. The
// request was relayed and answered when done is true; otherwise the error is
// *event.NotLeader, or event.ErrNotReady when the client insists on a leader and
// none is known. Whether this node can write at all is for the store to say.
func (x *exchange) passOn(w *write) (done bool, err error) {
	address, ok := x.s.cluster.Redirect()
	relays := ok && !w.leader && x.s.opts.RelayWrites
	switch {
	case relays && x.r.ContentLength > maxBody:
		// The leader would refuse it while it is sent, and the client would not hear of it.
		return false, problemTooLarge
	case relays && x.relay():
		return true, nil
	case ok && !w.leader && x.s.cluster.Role() == roleReadOnly:
		return false, &event.NotLeader{Address: address, ReadOnly: true}
	case ok:
		return false, &event.NotLeader{Address: address}
	case w.leader && x.s.cluster.Role() != roleLeader:
		return false, event.ErrNotReady
	}
	return false, nil
}

// toLeader takes a request that nobody but the leader can answer to it, before its
// body is read. Reads are relayed wherever that is possible: a client that
// follows a redirect to another host leaves its credentials behind. The request
// was relayed and answered when done is true; otherwise the error is
// *event.NotLeader, or event.ErrNotReady when no leader is known.
func (x *exchange) toLeader() (done bool, err error) {
	address, ok := x.s.cluster.Redirect()
	switch {
	case ok && (x.isRead() || x.s.opts.RelayWrites) && x.relay():
		return true, nil
	case ok:
		return false, &event.NotLeader{Address: address}
	case x.s.cluster.Role() != roleLeader:
		return false, event.ErrNotReady
	}
	return false, nil
}

// lead answers a request on the leader alone: another node passes it on before it
// looks at its body.
func (x *exchange) lead(answer func(context.Context) error) error {
	if done, err := x.toLeader(); done || err != nil {
		return err
	}
	ctx := x.reads()
	defer ctx.release()
	return answer(ctx)
}

func (x *exchange) isRead() bool {
	return x.r.Method == http.MethodGet || x.r.Method == http.MethodHead
}

// relay reports whether the leader's answer was passed back to the client.
func (x *exchange) relay() bool {
	if x.s.opts.Relay == nil || x.r.Header[keyRelayed] != nil {
		return false
	}
	if x.who.IsSystem() && !x.s.opts.Insecure {
		return false // The leader would not see the certificate that says who it is.
	}
	// The copy shares the body and the context, by which phrases find the connection.
	r := x.r.WithContext(x.r.Context())
	r.Header = x.r.Header.Clone()
	r.Header[keyRelayed] = relayedOnce
	if x.op.once {
		r.Body = onceBody{r.Body}
	}
	x.s.forward(r)
	clear(x.w.Header()) // The leader sends all of its own.
	if x.s.opts.Relay.Relay(relayWriter{x.w, x}, r) {
		x.bodyState = bodyDone
		return true
	}
	x.cors()
	return false
}

// onceBody is a body that cannot be read again. It keeps http.Transport from
// sending a read a second time, as it does on a connection that breaks.
type onceBody struct{ io.ReadCloser }

// relayWriter passes an answer on, and gives one that is not the leader's what every answer has.
type relayWriter struct {
	http.ResponseWriter
	x *exchange
}

func (w relayWriter) WriteHeader(status int) {
	if w.Header()[keyAllowOrigin] == nil {
		w.x.cors()
	}
	w.ResponseWriter.WriteHeader(status)
}

// forward makes the leader give out the addresses that this node would: the
// client knows no other, and the leader cannot see whether it came by TLS.
func (s *Server) forward(r *http.Request) {
	scheme, host, port := s.address(r)
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
