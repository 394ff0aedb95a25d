package replication

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/bootstrap"
	"github.com/annalsdb/annals/replication/wire"
)

// Bounds of what nodes send each other as JSON.
const (
	maxAnswer  = 1 << 20
	maxRequest = 48 << 20 // a write of 16 MiB with its bytes as base64
)

// services are what this node does for others, on the port between nodes. Whoever
// gets here has proved to be a node, and is not of another cluster.
func (c *Cluster) services() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", c.serveStatus)
	mux.HandleFunc("POST /bootstrap", c.serveBootstrap)
	mux.HandleFunc("POST /join", c.serveJoin)
	mux.HandleFunc("POST /write", c.serveWrite)
	mux.HandleFunc("GET /frames", c.serveFrames)
	mux.HandleFunc("GET /chunk", c.serveChunk)
	return mux
}

func reply(w http.ResponseWriter, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(data); err != nil {
		return // The caller has gone.
	}
}

// question reads the body of a request.
func question(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(into); err != nil {
		http.Error(w, "request: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

// callError is the answer of a node that did not do what it was asked.
type callError struct {
	Address string
	Status  int
	Text    string
}

func (e *callError) Error() string { return fmt.Sprintf("node at %s: %s", e.Address, e.Text) }

// request asks another node. An answer other than 200 becomes a *callError.
func (c *Cluster) request(ctx context.Context, address, method, path string, ask any) (*http.Response, error) {
	var body io.Reader
	if ask != nil {
		data, err := json.Marshal(ask)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the method and address once more
		}
		return nil, fmt.Errorf("ask node at %s: %w", address, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	return nil, errors.Join(&callError{Address: address, Status: resp.StatusCode, Text: string(bytes.TrimSpace(text))}, err, resp.Body.Close())
}

func joinHostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// serveBootstrap answers a node that wants to form a cluster.
func (c *Cluster) serveBootstrap(w http.ResponseWriter, r *http.Request) {
	var q bootstrap.Request
	r.Body = http.MaxBytesReader(w, r.Body, bootstrap.MaxMessageBytes)
	if !question(w, r, &q) {
		return
	}
	reply(w, c.engine.Handle(q))
}

// bootstrapCaller carries calls of the bootstrap.
type bootstrapCaller Cluster

func (c *bootstrapCaller) Call(ctx context.Context, address string, q bootstrap.Request) (a bootstrap.Answer, err error) {
	err = (*Cluster)(c).call(ctx, address, http.MethodPost, "/bootstrap", q, &a)
	return a, err
}

// bootstrapView is gossip as the bootstrap sees it.
type bootstrapView Cluster

func (c *bootstrapView) Peers() []bootstrap.Peer {
	var list []bootstrap.Peer
	for _, m := range c.gossip.Members() {
		if m.Node != c.node {
			list = append(list, bootstrap.Peer{
				Node: m.Node, Cluster: m.Cluster, Address: m.ReplicationAddress, ReadOnly: m.ReadOnly,
				Alive: m.Alive, ClusterSize: m.ClusterSize, Since: m.Since,
			})
		}
	}
	return list
}

func (c *bootstrapView) Changed() <-chan struct{} { return c.gossip.Changed() }

// writeRequest is a write of a node's own that travels to the leader.
type writeRequest struct {
	Write event.Write `json:"write"`
}

type writeAnswer struct {
	Written event.Written `json:"written"`
	Error   string        `json:"error"`
	Current int64         `json:"current"`
}

// writeErrors are the errors of a write that keep their meaning on the way.
var writeErrors = map[string]error{
	"not-ready": event.ErrNotReady, "busy": event.ErrBusy, "too-large": event.ErrTooLarge, "unknown": event.ErrOutcomeUnknown,
	"timeout": event.ErrWriteTimeout, "full": event.ErrDiskFull, "deleted": event.ErrStreamDeleted,
}

const errVersion = "version"

// serveWrite does a write for a node that does not lead.
func (c *Cluster) serveWrite(w http.ResponseWriter, r *http.Request) {
	var q writeRequest
	if !question(w, r, &q) {
		return
	}
	if l, _ := c.Leadership(); !l.Leading {
		http.Error(w, "this node does not lead", http.StatusMisdirectedRequest)
		return
	}
	written, err := c.Submit(r.Context(), &q.Write)
	a := writeAnswer{Written: written}
	var version *event.WrongExpectedVersion
	switch {
	case err == nil:
	case errors.As(err, &version):
		a.Error, a.Current = errVersion, version.Current
	default:
		for name, known := range writeErrors {
			if errors.Is(err, known) {
				a.Error = name
			}
		}
		if a.Error == "" {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	reply(w, a)
}

// Write does a write of the node's own, wherever the leader is: here, or over the
// port between nodes. A connection that breaks leaves the outcome unknown.
func (c *Cluster) Write(ctx context.Context, write *event.Write) (event.Written, error) {
	written, err := c.Submit(ctx, write)
	var elsewhere *event.NotLeader
	if !errors.As(err, &elsewhere) {
		return written, err
	}
	address, ok := c.LeaderAddress()
	if !ok {
		return event.Written{}, event.ErrNotReady
	}
	var a writeAnswer
	var refused *callError
	var notConnected *wire.RefusedError
	switch err := c.call(ctx, address, http.MethodPost, "/write", writeRequest{Write: *write}, &a); {
	case errors.As(err, &refused) && refused.Status == http.StatusMisdirectedRequest, errors.As(err, &notConnected):
		return event.Written{}, event.ErrNotReady
	case err != nil:
		return event.Written{}, fmt.Errorf("%w: %w", event.ErrOutcomeUnknown, err)
	}
	switch {
	case a.Error == "":
		return a.Written, nil
	case a.Error == errVersion:
		return event.Written{}, &event.WrongExpectedVersion{Stream: write.Stream, Expected: write.ExpectedVersion, Current: a.Current}
	}
	if known, ok := writeErrors[a.Error]; ok {
		return event.Written{}, known
	}
	return event.Written{}, fmt.Errorf("%w: the leader says %q", event.ErrOutcomeUnknown, a.Error)
}

// LeaderAddress is where the leader is reached by other nodes; ok is false when
// this node leads or does not know who does.
func (c *Cluster) LeaderAddress() (string, bool) {
	node := c.leader()
	if node == "" || node == c.name {
		return "", false
	}
	m, ok := c.member(node)
	return m.ReplicationAddress, ok
}
