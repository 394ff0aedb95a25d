package bench

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/annalsdb/annals/client"
)

const (
	maxRedirects = 5
	// The deadline of a connection is renewed only this often, because that is cheaper than with
	// every request.
	rearmInterval = time.Second
)

// endpoint is where requests go.
type endpoint struct {
	secure  bool
	address string // host:port to connect to
	host    string // as the Host header says it
}

// parseBase reads a base URL into the endpoint and the prefix of all paths.
func parseBase(text string) (endpoint, string, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return endpoint{}, "", fmt.Errorf("--node: %w", err)
	}
	e, err := endpointOf(u)
	if err != nil {
		return endpoint{}, "", fmt.Errorf("--node %q: %w", text, err)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return endpoint{}, "", fmt.Errorf("--node %q: a query or fragment is not possible", text)
	}
	return e, strings.TrimRight(u.EscapedPath(), "/"), nil
}

func endpointOf(u *url.URL) (endpoint, error) {
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	switch {
	case port == "":
		return endpoint{}, fmt.Errorf("scheme %q is neither http nor https", u.Scheme)
	case u.Hostname() == "":
		return endpoint{}, errors.New("no host")
	}
	return endpoint{secure: u.Scheme == "https", address: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)), host: u.Host}, nil
}

// request is one request. Its slices are reused from call to call.
type request struct {
	method string
	path   []byte // path and query, encoded, without the prefix of the base
	head   []byte // further header lines with their ends, without Host and Content-Length
	fixed  []byte // header lines that all requests of an operation have
	body   []byte
	keep   bool // the body of the answer is wanted
}

// request returns one whose path is missing, with credentials and further header lines.
func (o *options) request(method string, lines ...string) request {
	if o.user != "" {
		lines = append(lines, "Authorization: "+credentialsOf(o.user, o.password))
	}
	r := request{method: method}
	for _, line := range lines {
		r.fixed = append(append(r.fixed, line...), "\r\n"...)
	}
	return r
}

// dialing is what all connections of a session share.
type dialing struct {
	timeout time.Duration
	tls     *tls.Config
	login   login // of calls over gRPC

	mu    sync.Mutex // guards conns: workers connect at the same time
	conns map[connection]*grpc.ClientConn
}

func newDialing(o *options) (*dialing, error) {
	d := &dialing{timeout: o.timeout, tls: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.tlsInsecure}}
	d.login = login(credentialsOf(o.user, o.password))
	if o.tlsCA != "" {
		var err error
		if d.tls.RootCAs, err = client.Authorities(o.tlsCA); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// control does something that is not measured, with a client of its own.
func (o *options) control(do func(*client.Client) error) error {
	how, err := newDialing(o)
	if err != nil {
		return err
	}
	co := client.Options{Nodes: o.bases[:1], TLS: how.tls, Timeout: o.timeout, RetryFor: -1}
	if o.user != "" {
		co.Login = url.UserPassword(o.user, o.password)
	}
	c, err := client.New(co)
	if err != nil {
		return err
	}
	defer c.Close()
	return do(c)
}

// credentialsOf returns the value of the header, nothing without a user.
func credentialsOf(user, password string) string {
	if user == "" {
		return ""
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// sender is a worker's way to the servers: a connection of its own in place of the package client,
// because the driver shares the machine with what it measures. The connection is made when first
// needed and made again when lost.
type sender struct {
	how    *dialing
	prefix string // of all paths
	home   endpoint
	to     endpoint // home, or where the last redirect to another node led
	slot   int      // of its connection for gRPC
	reader *responseReader
	wire   []byte // the request as sent
	armed  time.Time

	redirects, reconnects int64

	// mu guards nc against interrupt, which another goroutine calls. Only the worker that
	// owns the connection changes nc, so it reads it without mu.
	mu sync.Mutex
	nc net.Conn // nil: none
}

func newSender(to endpoint, prefix string, how *dialing) *sender {
	return &sender{how: how, prefix: prefix, home: to, to: to, reader: newResponseReader(nil)}
}

// do sends the request and reads the answer. Redirects that keep the method are
// followed; one that leads to another node makes that node the place of the
// requests to come, as a client of a cluster finds its leader.
func (c *sender) do(ctx context.Context, req *request, resp *response) error {
	err := c.roundTrip(ctx, req, c.prefix, req.path, resp)
	for n := 0; err == nil && (resp.status == 307 || resp.status == 308); n++ {
		if n == maxRedirects {
			err = errTooManyRedirects
			break
		}
		if len(resp.location) == 0 {
			return refused(resp)
		}
		err = c.follow(ctx, req, resp)
	}
	if err != nil {
		c.turn(c.home)
	}
	return err
}

// expect is do, and an error when the answer has none of the statuses.
func (c *sender) expect(ctx context.Context, req *request, resp *response, statuses ...int) error {
	if err := c.do(ctx, req, resp); err != nil {
		return err
	}
	if !slices.Contains(statuses, resp.status) {
		return refused(resp)
	}
	return nil
}

// follow sends the request where the answer says.
func (c *sender) follow(ctx context.Context, req *request, resp *response) error {
	from := url.URL{Scheme: "http", Host: c.to.host}
	if c.to.secure {
		from.Scheme = "https"
	}
	to, err := from.Parse(string(resp.location))
	if err != nil {
		return fmt.Errorf("%w: location %.80q", errMalformed, resp.location)
	}
	where, err := endpointOf(to)
	if err != nil {
		return fmt.Errorf("%w: location %.80q: %w", errMalformed, resp.location, err)
	}
	c.turn(where)
	c.redirects++
	return c.roundTrip(ctx, req, "", []byte(to.RequestURI()), resp)
}

// turn makes a node the place of the requests to come.
func (c *sender) turn(to endpoint) {
	if c.to != to {
		c.drop()
		c.to = to
	}
}

// interrupt makes the request in flight fail, after the end of its context. Any goroutine may
// call it.
func (c *sender) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nc != nil {
		_ = c.nc.Close() // An error means that the connection is gone, which serves as well.
	}
}

// roundTrip sends one request over the connection and reads the answer. A connection
// that proves to have been closed while idle is replaced once: nothing of an
// answer had come, and every request of the driver may be repeated.
func (c *sender) roundTrip(ctx context.Context, req *request, prefix string, path []byte, resp *response) error {
	if c.nc != nil && c.reader.in.Buffered() > 0 {
		c.drop() // Bytes without a request: later answers could not be matched to their requests.
	}
	for {
		reused := c.nc != nil
		if !reused {
			if err := c.dial(ctx); err != nil {
				return err
			}
			if ctx.Err() != nil { // interrupt may have come before there was a connection.
				c.drop()
				return errCut
			}
		}
		err := c.exchange(req, prefix, path, resp)
		if err == nil {
			if resp.closing {
				c.drop()
			}
			return nil
		}
		stale := reused && !c.reader.started && isLost(err)
		c.drop()
		if ctx.Err() != nil {
			return errCut
		}
		if !stale {
			return err
		}
		c.reconnects++
	}
}

func (c *sender) exchange(req *request, prefix string, path []byte, resp *response) error {
	if now := time.Now(); now.Sub(c.armed) > rearmInterval {
		c.armed = now
		if err := c.nc.SetDeadline(now.Add(c.how.timeout + rearmInterval)); err != nil {
			return err
		}
	}
	w := append(c.wire[:0], req.method...)
	w = append(append(w, ' '), prefix...)
	w = append(w, path...)
	w = append(w, " HTTP/1.1\r\nHost: "...)
	w = append(w, c.to.host...)
	w = append(w, "\r\n"...)
	w = append(append(w, req.fixed...), req.head...)
	if req.body != nil {
		w = append(w, "Content-Length: "...)
		w = strconv.AppendInt(w, int64(len(req.body)), 10)
		w = append(w, "\r\n"...)
	}
	w = append(w, "\r\n"...)
	w = append(w, req.body...)
	c.wire = w
	if _, err := c.nc.Write(w); err != nil {
		// A server may refuse a body, answer and close before it took all of it.
		if !isLost(err) || c.reader.read(resp, req.keep) != nil {
			return err
		}
		resp.closing = true
		return nil
	}
	return c.reader.read(resp, req.keep)
}

func (c *sender) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.how.timeout)
	defer cancel()
	dial := new(net.Dialer).DialContext
	if c.to.secure {
		dial = (&tls.Dialer{Config: c.how.tls}).DialContext
	}
	nc, err := dial(ctx, "tcp", c.to.address)
	if err != nil {
		return &failure{"connect", err}
	}
	c.mu.Lock()
	c.nc = nc
	c.mu.Unlock()
	c.reader.in.Reset(nc)
	c.armed = time.Time{}
	return nil
}

// drop gives up the connection.
func (c *sender) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nc != nil {
		_ = c.nc.Close() // Nothing is lost with an error: the connection is not used again.
		c.nc = nil
	}
}
