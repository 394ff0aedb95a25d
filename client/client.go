package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	defaultNode     = "http://127.0.0.1:2113"
	defaultTimeout  = 30 * time.Second
	defaultRetryFor = 30 * time.Second
	dialTimeout     = 10 * time.Second
)

// Options say which nodes a client asks, and how. The zero value asks a node of this machine.
type Options struct {
	// Nodes are addresses such as https://node1.example.com:2113.
	Nodes []string
	// Login is sent with each request: url.UserPassword(user, password).
	Login *url.Userinfo
	// TLS is for nodes with https. Authorities reads certificates into its RootCAs.
	TLS *tls.Config
	// Timeout is how long one node may take for one answer: by default 30 s, for ever if negative.
	Timeout time.Duration
	// RetryFor is how long a request is repeated that gets no answer, or that a node cannot serve
	// now: by default 30 s, never if negative.
	RetryFor time.Duration
	// Transport carries requests in place of one of NewTransport.
	Transport http.RoundTripper
}

// Client asks the nodes of one cluster. Any number of goroutines may use it.
type Client struct {
	sender *sender
}

// New returns a client. It does not connect to a node yet.
func New(o Options) (*Client, error) {
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.RetryFor = cmp.Or(o.RetryFor, defaultRetryFor)
	if o.Transport == nil {
		o.Transport = NewTransport(o.TLS)
	}
	if len(o.Nodes) == 0 {
		o.Nodes = []string{defaultNode}
	}
	nodes := &known{}
	for _, text := range o.Nodes {
		address, err := Address(text)
		if err != nil {
			return nil, err
		}
		nodes.addresses = append(nodes.addresses, address)
	}
	return &Client{newSender(nodes, o)}, nil
}

// NewTransport returns the transport of a client that is given none.
func NewTransport(config *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableCompression: true,
		MaxIdleConnsPerHost: 256, IdleConnTimeout: 30 * time.Second, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
	}
}

// After returns a client whose reads wait until the node that they ask has reached a position:
// that of a Written or an Appended, so that they see what was written. State, Result and Statistics
// of a projection wait until it has handled the events up to there, and Info of a group until all
// its messages up to there are answered. A node that does not come so far within WaitAtMost, or
// whose projection does not run, refuses with the status 504, and another one is asked. All else is
// as with the client itself, with which it shares nodes and connections.
func (c *Client) After(position int64) *Client {
	after := *c.sender
	after.after = strconv.FormatInt(position, 10)
	return &Client{&after}
}

// WaitAtMost is how long one node may take to reach the position of After.
const WaitAtMost = 5 * time.Second

// Close ends the connections that are kept for later requests.
func (c *Client) Close() { c.sender.http.CloseIdleConnections() }

// defaultPort is where a node serves clients unless NodePort says otherwise.
const defaultPort = "2113"

// Address returns the address of a node in the form that Options.Nodes has. An address without a
// scheme is one of http, and if it has no port either, the port is 2113.
func Address(text string) (string, error) {
	bare := !strings.Contains(text, "://")
	if bare {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("address of the node: %w", err)
	}
	if bare && u.Port() == "" && u.Hostname() != "" {
		u.Host = strings.TrimSuffix(u.Host, ":") + ":" + defaultPort
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", fmt.Errorf("address of the node %q is not of the form http://host:port or https://host:port", u.Redacted())
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// Node is the address of the node that is asked next.
func (c *Client) Node() string {
	return c.sender.nodes.next()
}

// Do sends a request. It goes to the next node as long as it gets no connection, and repeats
// nothing that a node may have got. An error means that no whole answer came.
func (c *Client) Do(ctx context.Context, q Request) (Response, error) { return c.sender.do(ctx, q) }

// Repeat sends a request that may be done twice, such as an append with the ids of its events,
// until a node answers or refuses, or the time for it is over. It returns the last answer also
// when that is a refusal.
func (c *Client) Repeat(ctx context.Context, q Request) (Response, error) {
	a, _, err := c.sender.insist(ctx, q, mayPass)
	return a, err
}

// Call does something whose arguments and result are JSON. Both may be nil. A GET is repeated as
// Options.RetryFor says, other methods only as long as no node has done anything.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	q, err := jsonRequest(method, path, in)
	if err != nil {
		return err
	}
	again := undone
	if method == http.MethodGet {
		again = mayPass
	}
	a, _, err := c.sender.insist(ctx, q, again)
	if err != nil || out == nil {
		return err
	}
	return a.Decode(out)
}
