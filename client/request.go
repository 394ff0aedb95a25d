package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Request is one request.
type Request struct {
	Method string // by default GET, or POST with a body
	Path   string // with the query; or a whole address
	Header map[string]string
	Body   []byte

	Node    string        // the node to ask, and no other one; by default any
	Login   *url.Userinfo // in place of that of the client
	Timeout time.Duration // in place of that of the client
	Stay    bool          // a redirect is an answer like others
}

// Response is what a node answers, with any status.
type Response struct {
	Node   string   // address of the node that answered
	Via    []string // addresses of the nodes that redirected to it
	Method string
	Path   string
	Status int
	Reason string // follows the status
	Header http.Header
	Body   []byte

	user   string // who asked
	prefix string // of the paths of the node
}

func (a Response) String() string { return fmt.Sprintf("%d %s %.500q", a.Status, a.Reason, a.Body) }

// Text is the body as one line, for people.
func (a Response) Text() string { return line(a.Body) }

// Host is host and port of the node.
func (a Response) Host() string {
	_, host, _ := strings.Cut(a.Node, "://")
	host, _, _ = strings.Cut(host, "/")
	return host
}

// Err is an *Error unless the answer is a success.
func (a Response) Err() error {
	if a.Status/100 == 2 {
		return nil
	}
	return a.refusal()
}

func (a Response) refusal() *Error {
	return &Error{
		Node: a.Host(), Method: a.Method, Path: a.Path, Status: a.Status, Reason: a.Reason, Text: sentence(a.Body), Header: a.Header,
		User: a.user, below: strings.TrimPrefix(a.Path, a.prefix),
	}
}

// Decode reads the body, which is JSON.
func (a Response) Decode(value any) error {
	if err := json.Unmarshal(a.Body, value); err != nil {
		return fmt.Errorf("read the answer of %s to %s %s: %w", a.Host(), a.Method, a.Path, err)
	}
	return nil
}

// jsonRequest is a request with a value as its body, which may be nil.
func jsonRequest(method, path string, in any) (Request, error) {
	q := Request{Method: method, Path: path, Header: map[string]string{"Accept": MediaJSON}}
	if in == nil {
		return q, nil
	}
	var err error
	if q.Body, err = json.Marshal(in); err != nil {
		return q, fmt.Errorf("%s %s: %w", method, path, err)
	}
	q.Header["Content-Type"] = MediaJSON
	return q, nil
}
