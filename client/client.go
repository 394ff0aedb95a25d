package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	defaultNode     = "http://127.0.0.1:2113"
	defaultTimeout  = 30 * time.Second
	defaultRetryFor = 30 * time.Second
	dialTimeout     = 10 * time.Second

	// Pauses between repetitions.
	shortestPause = 50 * time.Millisecond
	longestPause  = 2 * time.Second
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
	*known
	o     Options
	http  *http.Client
	after string // the position that reads wait for; empty: none
}

// known are the nodes that a client knows, and all that After made of it.
type known struct {
	mu    sync.Mutex
	nodes []string
	at    int // the node that is asked first
}

// New returns a client. It does not connect to a node yet.
func New(o Options) (*Client, error) {
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.RetryFor = cmp.Or(o.RetryFor, defaultRetryFor)
	if o.Transport == nil {
		o.Transport = NewTransport(o.TLS)
	}
	c := &Client{known: &known{}, o: o, http: &http.Client{
		Transport: o.Transport,
		// Followed by hand: the standard client would not send the password to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if len(o.Nodes) == 0 {
		o.Nodes = []string{defaultNode}
	}
	for _, text := range o.Nodes {
		address, err := Address(text)
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, address)
	}
	return c, nil
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
	after := *c
	after.after = strconv.FormatInt(position, 10)
	return &after
}

// WaitAtMost is how long one node may take to reach the position of After.
const WaitAtMost = 5 * time.Second

// Close ends the connections that are kept for later requests.
func (c *Client) Close() { c.http.CloseIdleConnections() }

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
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[c.at]
}

// prefer makes a node the one that is asked next.
func (c *Client) prefer(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at = slices.Index(c.nodes, node); c.at < 0 {
		c.nodes = append(c.nodes, node)
		c.at = len(c.nodes) - 1
	}
}

// leave goes to the next node after one that did not serve, and returns how many there are.
func (c *Client) leave(node string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[c.at] == node {
		c.at = (c.at + 1) % len(c.nodes)
	}
	return len(c.nodes)
}

// Repeat sends a request that may be done twice, such as an append with the ids of its events,
// until a node answers or refuses, or the time for it is over. It returns the last answer also
// when that is a refusal.
func (c *Client) Repeat(ctx context.Context, q Request) (Response, error) {
	a, _, err := c.insist(ctx, q, mayPass)
	return a, err
}

// finish sends a request that may be done twice, and that is refused with one of some statuses when
// an earlier try has done it.
func (c *Client) finish(ctx context.Context, q Request, done ...int) error {
	return c.finishWhile(ctx, q, mayPass, done...)
}

func (c *Client) finishWhile(ctx context.Context, q Request, again func(error) bool, done ...int) error {
	_, unsure, err := c.insist(ctx, q, again)
	if unsure && HasStatus(err, done...) {
		return nil
	}
	return err
}

// insist sends a request as long as its error is one to try again after, and the time for it is not
// over. It is unsure whether an earlier try was done when one of them may have been.
func (c *Client) insist(ctx context.Context, q Request, again func(error) bool) (a Response, unsure bool, err error) {
	end := time.Now().Add(c.o.RetryFor)
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		node := c.Node()
		if a, err = c.Do(ctx, q); err == nil {
			err = a.Err()
		}
		if err == nil || !again(err) || time.Now().Add(pause).After(end) {
			return a, unsure, err
		}
		unsure = unsure || !undone(err)
		c.leave(node)
		if wait(ctx, pause) != nil {
			return a, unsure, err
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
