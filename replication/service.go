package replication

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/julienschmidt/httprouter"
)

// services are what this node does for others, on the port between nodes. What
// gets here has proved to be a node, and is not of another cluster.
func (c *Cluster) services() http.Handler {
	send := &sender{self: c.self, metrics: c.metrics, own: c.status, confirm: c.Writes.Confirm}
	// Paths are those of other nodes: none is corrected.
	routes := &httprouter.Router{HandleMethodNotAllowed: true}
	for _, r := range []struct {
		method, path string
		serve        http.HandlerFunc
	}{
		{http.MethodGet, "/status", send.status},
		{http.MethodPost, "/bootstrap", c.lifecycle.serveBootstrap},
		{http.MethodPost, "/join", c.membership.serve},
		{http.MethodPost, "/write", c.Writes.own.serve},
		{http.MethodPost, pathPacked, c.Writes.own.serve},
		{http.MethodPost, pathMany, c.Writes.own.serve},
		{http.MethodPost, "/ask", c.Jobs.serve},
		{http.MethodGet, "/frames", send.frames},
		{http.MethodGet, "/chunk", send.chunk},
		{http.MethodGet, "/chunk-files", send.chunkFiles},
		{http.MethodPost, "/chunk-items", send.chunkItems},
		{http.MethodGet, "/chunk-file", send.chunkFile},
	} {
		routes.Handler(r.method, r.path, r.serve)
	}
	return fenced(c.duplicates, c.incarnations, routes)
}

// fenced refuses requests of a duplicate node id, and of nodes of another history. The latter may
// only ask for this node's status, and to join, which has its own answer.
func fenced(duplicates *duplicates, incarnations *incarnations, services http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := duplicates.check(r); err != nil {
			http.Error(w, err.Error(), statusTwin)
			return
		}
		if r.URL.Path != "/status" && r.URL.Path != "/join" {
			if err := incarnations.sameIncarnation(r); err != nil {
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
		unreadable(w, err)
		return false
	}
	return true
}

// unreadable answers a request whose body cannot be read.
func unreadable(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		status = http.StatusRequestEntityTooLarge
	}
	http.Error(w, "request: "+err.Error(), status)
}
