package bench

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/client"
)

const (
	maxRedirects   = 5
	maxConnections = 16 // of one worker, to the different nodes that redirects named
	// The deadline of a connection is renewed only this often, because that is cheaper than with every request.
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
		return endpoint{}, "", fmt.Errorf("base: %w", err)
	}
	e, err := endpointOf(u)
	if err != nil {
		return endpoint{}, "", fmt.Errorf("base %q: %w", text, err)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return endpoint{}, "", fmt.Errorf("base %q: a query or fragment is not possible", text)
	}
	return e, strings.TrimRight(u.EscapedPath(), "/"), nil
}

func endpointOf(u *url.URL) (endpoint, error) {
	e := endpoint{host: u.Host}
	port := u.Port()
	switch u.Scheme {
	case "http":
		if port == "" {
			port = "80"
		}
	case "https":
		e.secure = true
		if port == "" {
			port = "443"
		}
	default:
		return e, fmt.Errorf("scheme %q is neither http nor https", u.Scheme)
	}
	if u.Hostname() == "" {
		return e, errors.New("no host")
	}
	e.address = net.JoinHostPort(u.Hostname(), port)
	return e, nil
}

// request is one request. Its slices are reused from call to call.
type request struct {
	method string
	path   []byte // path and query, encoded, with the prefix of the base
	head   []byte // header lines with their ends, without Host and Content-Length
	body   []byte
	keep   bool // the body of the answer is wanted
}

// dialing is what all connections of a session share.
type dialing struct {
	timeout time.Duration
	tls     *tls.Config
}

func newDialing(o *options) (*dialing, error) {
	d := &dialing{timeout: o.timeout, tls: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.tlsInsecure}}
	if o.tlsCA != "" {
		var err error
		if d.tls.RootCAs, err = client.Authorities(o.tlsCA); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// control returns a client for what is not measured.
func (o *options) control() (*client.Client, error) {
	how, err := newDialing(o)
	if err != nil {
		return nil, err
	}
	co := client.Options{Nodes: o.bases[:1], TLS: how.tls, Timeout: o.timeout, RetryFor: -1}
	if o.user != "" {
		co.Login = url.UserPassword(o.user, o.password)
	}
	return client.New(co)
}

// basicAuth returns the header line of the credentials, nothing without a user.
func basicAuth(user, password string) []byte {
	if user == "" {
		return nil
	}
	return []byte("Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password)) + "\r\n")
}

// conn is a connection to one endpoint, made when first needed and made again when lost.
type conn struct {
	to     endpoint
	how    *dialing
	reader *responseReader
	wire   []byte // the request as sent
	armed  time.Time

	// mu guards nc against interrupt, which another goroutine calls. Only the
	// worker that owns the connection changes nc, so it reads it without mu.
	mu  sync.Mutex
	nc  net.Conn
	cut bool
}

// sender is a worker's way to the servers: a connection of its own in place of the package client, because
// the driver shares the machine with what it measures.
type sender struct {
	how    *dialing
	prefix string
	home   *conn
	cur    *conn // home, or where the last redirect to another node led

	// mu guards conns against interrupt.
	mu    sync.Mutex
	conns map[endpoint]*conn

	redirects, reconnects int64
}

func newSender(to endpoint, prefix string, how *dialing) *sender {
	home := newConn(to, how)
	return &sender{how: how, prefix: prefix, home: home, cur: home, conns: map[endpoint]*conn{to: home}}
}

func newConn(to endpoint, how *dialing) *conn {
	return &conn{to: to, how: how, reader: newResponseReader(nil)}
}

// do sends the request and reads the answer. Redirects that keep the method are
// followed; one that leads to another node makes that node the place of the
// requests to come, as a client of a cluster finds its leader.
func (c *sender) do(ctx context.Context, req *request, resp *response) error {
	err := c.cur.roundTrip(ctx, c, req, req.path, resp)
	if err != nil {
		c.cur = c.home
		return err
	}
	if resp.status == 307 || resp.status == 308 {
		return c.follow(ctx, req, resp)
	}
	return nil
}

func (c *sender) follow(ctx context.Context, req *request, resp *response) error {
	at := c.cur
	for range maxRedirects {
		if len(resp.location) == 0 {
			return refused(resp)
		}
		from := url.URL{Scheme: "http", Host: at.to.host}
		if at.to.secure {
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
		path := []byte(to.RequestURI())
		at = c.connTo(where)
		c.redirects++
		if err := at.roundTrip(ctx, c, req, path, resp); err != nil {
			c.cur = c.home
			return err
		}
		if resp.status != 307 && resp.status != 308 {
			c.cur = at
			return nil
		}
	}
	c.cur = c.home
	return errTooManyRedirects
}

func (c *sender) connTo(to endpoint) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cn := c.conns[to]; cn != nil {
		return cn
	}
	if len(c.conns) >= maxConnections {
		for key, cn := range c.conns {
			if cn != c.home {
				cn.drop()
				delete(c.conns, key)
			}
		}
	}
	cn := newConn(to, c.how)
	c.conns[to] = cn
	return cn
}

// interrupt makes the request under way fail soon, and all later ones until resume.
// Any goroutine may call it.
func (c *sender) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cn := range c.conns {
		cn.mu.Lock()
		cn.cut = true
		if cn.nc != nil {
			// An error means that the connection is gone, which serves as well.
			_ = cn.nc.SetDeadline(time.Unix(1, 0))
		}
		cn.mu.Unlock()
	}
}

// resume undoes interrupt. No request may be under way.
func (c *sender) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cn := range c.conns {
		cn.mu.Lock()
		cn.cut = false
		cn.mu.Unlock()
		cn.armed = time.Time{}
	}
}

func (c *sender) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cn := range c.conns {
		cn.drop()
	}
}

// roundTrip sends one request over the connection and reads the answer. A connection
// that proves to have been closed while idle is replaced once: nothing of an
// answer had come, and every request of the driver may be repeated.
func (cn *conn) roundTrip(ctx context.Context, c *sender, req *request, path []byte, resp *response) error {
	if cn.nc != nil && cn.reader.in.Buffered() > 0 {
		cn.drop() // Bytes nobody asked for: what follows could not be told apart.
	}
	for {
		reused := cn.nc != nil
		if !reused {
			if err := cn.dial(ctx); err != nil {
				return err
			}
		}
		err := cn.exchange(req, path, resp)
		if err == nil {
			if resp.closing {
				cn.drop()
			}
			return nil
		}
		stale := reused && !cn.reader.started && isLost(err)
		wasCut := cn.drop()
		if wasCut {
			return errCut
		}
		if !stale {
			return err
		}
		c.reconnects++
	}
}

func (cn *conn) exchange(req *request, path []byte, resp *response) error {
	if now := time.Now(); now.Sub(cn.armed) > rearmInterval {
		if err := cn.arm(now); err != nil {
			return err
		}
	}
	w := append(cn.wire[:0], req.method...)
	w = append(w, ' ')
	w = append(w, path...)
	w = append(w, " HTTP/1.1\r\nHost: "...)
	w = append(w, cn.to.host...)
	w = append(w, "\r\n"...)
	w = append(w, req.head...)
	if req.body != nil {
		w = append(w, "Content-Length: "...)
		w = strconv.AppendInt(w, int64(len(req.body)), 10)
		w = append(w, "\r\n"...)
	}
	w = append(w, "\r\n"...)
	w = append(w, req.body...)
	cn.wire = w
	if _, err := cn.nc.Write(w); err != nil {
		// A server may refuse a body, answer and close before it took all of it.
		if !isLost(err) || cn.reader.read(resp, req.keep) != nil {
			return err
		}
		resp.closing = true
		return nil
	}
	return cn.reader.read(resp, req.keep)
}

// arm gives the present request and those of the next second their deadline.
func (cn *conn) arm(now time.Time) error {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.cut {
		return errCut
	}
	cn.armed = now
	return cn.nc.SetDeadline(now.Add(cn.how.timeout + rearmInterval))
}

func (cn *conn) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cn.how.timeout)
	defer cancel()
	var dialer net.Dialer
	nc, err := dialer.DialContext(ctx, "tcp", cn.to.address)
	if err != nil {
		return &dialError{err}
	}
	if cn.to.secure {
		config := cn.how.tls.Clone()
		config.ServerName, _, err = net.SplitHostPort(cn.to.address)
		if err == nil {
			secured := tls.Client(nc, config)
			err = secured.HandshakeContext(ctx)
			if err == nil {
				nc = secured
			}
		}
		if err != nil {
			return &dialError{errors.Join(err, nc.Close())}
		}
	}
	cn.mu.Lock()
	cut := cn.cut
	if !cut {
		cn.nc = nc
	}
	cn.mu.Unlock()
	if cut {
		return errors.Join(errCut, nc.Close())
	}
	cn.reader.in.Reset(nc)
	cn.armed = time.Time{}
	return nil
}

// drop gives up the connection and reports whether it had been interrupted.
func (cn *conn) drop() bool {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.nc != nil {
		// Nothing is lost with an error here: the connection is not used again.
		_ = cn.nc.Close()
		cn.nc = nil
	}
	return cn.cut
}
