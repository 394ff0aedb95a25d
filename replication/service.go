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

	"github.com/annalsdb/annals/replication/bootstrap"
)

// Bounds of what nodes send each other as JSON.
const (
	maxAnswer  = 1 << 20
	maxRequest = 48 << 20 // a write of 16 MiB with its bytes as base64
)

// errRequestSize says that no node takes a request of that size. It was not sent.
var errRequestSize = errors.New("the request is larger than allowed")

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
	mux.HandleFunc("GET /chunk-files", c.serveChunkFiles)
	mux.HandleFunc("GET /chunk-file", c.serveChunkFile)
	return c.fenced(mux)
}

// fenced refuses what comes from a twin, and from nodes that follow another history: of them
// only the question what this node is, and the request to join, which has its own answer.
func (c *Cluster) fenced(services http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.checkTwin(r); err != nil {
			http.Error(w, err.Error(), statusTwin)
			return
		}
		if r.URL.Path != "/status" && r.URL.Path != "/join" {
			if err := c.sameLineage(r); err != nil {
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
		}
		services.ServeHTTP(w, r)
	})
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
		status := http.StatusBadRequest
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, "request: "+err.Error(), status)
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
		if len(data) > maxRequest {
			return nil, fmt.Errorf("ask node at %s: %w", address, errRequestSize)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set(headerAddress, c.self.opts.Advertise)
	if l := c.self.lineage.Load(); l != nil {
		req.Header.Set(headerLineage, l.id.String())
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
	if resp.StatusCode == statusTwin {
		c.endTwin(string(bytes.TrimSpace(text)))
	}
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
		if m.Node != c.self.node {
			list = append(list, bootstrap.Peer{
				Node: m.Node, Cluster: m.Cluster, Address: m.ReplicationAddress, ReadOnly: m.ReadOnly,
				Alive: m.Alive, ClusterSize: m.ClusterSize, Since: m.Since,
			})
		}
	}
	return list
}

func (c *bootstrapView) Changed() <-chan struct{} { return c.gossip.Changed() }

// LeaderAddress is where the leader is reached by other nodes; ok is false when
// this node leads or does not know who does.
func (c *Cluster) LeaderAddress() (string, bool) {
	node := c.leader()
	if node == "" || node == c.self.name {
		return "", false
	}
	m, ok := c.member(node)
	return m.ReplicationAddress, ok
}
