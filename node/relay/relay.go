// Package relay passes requests that need the leader on to it, and others to the node that the
// client names, over the port between nodes, and answers there the requests that other nodes pass
// on.
package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/http1"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/wire"
)

// Relay passes requests on to other nodes.
type Relay struct {
	cluster *replication.Cluster
	// over the port between nodes, which is there once another node is known
	client   func() *http.Transport
	patient  func() *http.Transport // the same, for answers that may take as long as they like
	logger   hclog.Logger
	patience time.Duration
	failed   atomic.Int64 // when a failure was logged last, Unix seconds
}

var _ leader.Relay = (*Relay)(nil)

// answerTimeout bounds the wait for the leader's answer. The leader bounds its own
// work, and well before.
const answerTimeout = 30 * time.Second

// headerClient tells the other node whose request it is: the address of the client.
const headerClient = "Annals-Client"

// New returns the relay of a node. A request waits for another leader no longer than patience,
// which is how long a write may take.
func New(c *replication.Cluster, patience time.Duration, logger hclog.Logger) *Relay {
	transport := func(timeout time.Duration) func() *http.Transport {
		return sync.OnceValue(func() *http.Transport {
			client := c.Port().HTTPTransport(wire.KindRelay)
			client.MaxIdleConnsPerHost, client.ResponseHeaderTimeout = 64, timeout
			return client
		})
	}
	return &Relay{cluster: c, patience: patience, logger: logger, client: transport(answerTimeout), patient: transport(0)}
}

// complain logs that a request was not relayed, once a second at most: after the death of a leader
// there are many.
func (p *Relay) complain(address string, err error) {
	now := time.Now().Unix()
	if last := p.failed.Load(); last != now && p.failed.CompareAndSwap(last, now) {
		p.logger.Warn("requests could not be relayed", logkey.Node, address, logkey.Error, err)
	}
}

// retryPace is how long a relay waits for another leader before it looks again.
const retryPace = 20 * time.Millisecond

// Relay sends the request to the leader and its answer to the client. For as long as a write may
// take, it tries the next leader when the one before did nothing, or when the request may be
// repeated. Any other that may have reached a leader is never sent again.
func (p *Relay) Relay(w http.ResponseWriter, r *http.Request, repeatable bool) bool {
	until := time.Now().Add(p.patience)
	maybe := false // a leader may have got it
	for attempt := 0; ; attempt++ {
		leader, ok := p.cluster.LeaderAddress()
		if l, _ := p.cluster.Leadership(); !ok && (attempt == 0 || l.Leading) {
			return false
		}
		var answer *http.Response
		end, sent, err := func() {}, false, errNoLeader
		if ok {
			answer, end, sent, err = p.ask(r, leader)
		}
		maybe = maybe || sent
		again := repeatable || !sent
		if err == nil {
			again = answer.Header[request.HeaderNotDone] != nil
		}
		again = again && time.Now().Before(until) && r.Context().Err() == nil
		switch {
		case again && err == nil:
			_ = answer.Body.Close() // Whatever it says is not passed on.
		case err == nil:
			defer end()
			p.pass(w, r, answer)
			return true
		case !again:
			p.fail(w, r, maybe)
		}
		end()
		if !again {
			return true
		}
		_ = clock.Sleep(r.Context(), retryPace) // The next attempt sees the end of the context.
	}
}

var errNoLeader = errors.New("no leader is known")

// ask sends the request to the leader. It may have got there if sent is true. The
// caller calls end when it is done with the answer.
func (p *Relay) ask(r *http.Request, leader string) (answer *http.Response, end func(), sent bool, err error) {
	body := r.Body
	if r.GetBody != nil {
		body, _ = r.GetBody() // It never fails.
	}
	ctx, end := replication.While(r.Context(), replication.LeaderPace, func() bool {
		now, ok := p.cluster.LeaderAddress()
		return ok && now == leader
	})
	client := p.client
	if _, _, waits := args.WaitFor(r); waits {
		client = p.patient // The leader bounds that, too.
	}
	answer, sent, err = p.send(ctx, client(), r, leader, body)
	return answer, end, sent, err
}

// send sends the request to a node, which may have got it if sent is true.
func (p *Relay) send(ctx context.Context, client *http.Transport, r *http.Request, address string, body io.ReadCloser) (answer *http.Response, sent bool, err error) {
	var connected atomic.Bool
	out := r.Clone(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}))
	out.Body = body
	out.URL.Scheme, out.URL.Host = "http", address
	out.RequestURI = ""
	out.Header.Set(headerClient, r.RemoteAddr)
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Upgrade"} {
		out.Header.Del(name)
	}
	if answer, err = client.RoundTrip(out); err != nil {
		p.complain(address, err)
	}
	return answer, connected.Load(), err
}

// pass passes a node's answer on. One that breaks off breaks the client's connection:
// nothing else tells the client that it is not whole.
func (p *Relay) pass(w http.ResponseWriter, r *http.Request, answer *http.Response) {
	defer func() { _ = answer.Body.Close() }()
	header := w.Header()
	for name, values := range answer.Header {
		if name != "Connection" && name != "Keep-Alive" && name != "Transfer-Encoding" && name != request.HeaderNotDone {
			header[name] = values
		}
	}
	if _, phrase, ok := strings.Cut(answer.Status, " "); ok {
		http1.SetReason(r.Context(), answer.StatusCode, phrase)
	}
	w.WriteHeader(answer.StatusCode)
	to := io.Writer(w)
	if answer.ContentLength < 0 {
		to = flushing{w, http.NewResponseController(w)}
	}
	if _, err := io.Copy(to, answer.Body); err != nil {
		p.logger.Debug("only part of an answer could be passed on", logkey.Error, err)
		panic(http.ErrAbortHandler)
	}
}

// flushing sends on at once what it is given: an answer without a length may be one
// whose next part comes much later.
type flushing struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func (f flushing) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	if err == nil {
		err = f.c.Flush()
	}
	return n, err
}

// fail answers in the place of a leader, which may have got the request.
func (p *Relay) fail(w http.ResponseWriter, r *http.Request, maybe bool) {
	answer := problem.NoLeader
	if maybe {
		answer = problem.Unanswered
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	http1.SetReason(r.Context(), answer.Status, answer.Text)
	w.WriteHeader(answer.Status)
	_, _ = io.WriteString(w, answer.Text) // The client may have gone.
}

// memberPace is how often a relay looks whether the node that answers lives.
const memberPace = time.Second

// RelayTo sends the request to a member and its answer to the client, both as they come: an answer
// may last for days. A member that falls silent keeps its connections, so the relay ends once
// gossip has taken it for dead for a while.
func (p *Relay) RelayTo(w http.ResponseWriter, r *http.Request, to *event.Member) bool {
	if p.cluster.Port() == nil {
		return false
	}
	node := to.Node
	ctx, end := replication.While(r.Context(), memberPace, func() bool {
		for _, m := range p.cluster.View().Members {
			if m.Node == node {
				return m.Alive
			}
		}
		return false
	})
	defer end()
	address := net.JoinHostPort(to.ReplicationHost, strconv.Itoa(to.ReplicationPort))
	answer, sent, err := p.send(ctx, p.patient(), r, address, r.Body)
	switch {
	case err == nil:
		p.pass(w, r, answer)
	case !sent:
		return false
	default:
		p.fail(w, r, true)
	}
	return true
}
