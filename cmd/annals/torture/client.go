package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/event"
)

// Headers and media types as the wire spells them.
const (
	headerExpectedVersion = "ES-ExpectedVersion"
	headerCurrentVersion  = "ES-CurrentVersion"
	headerEventID         = "ES-EventId"
	headerEventType       = "ES-EventType"
	headerRequireLeader   = "ES-RequireLeader"
	headerLongPoll        = "ES-LongPoll"
	headerHardDelete      = "ES-HardDelete"
	headerResolveLinks    = "ES-ResolveLinkTos"

	mediaEvents = "application/vnd.eventstore.events+json"
	mediaAtom   = "application/vnd.eventstore.atom+json"
	mediaJSON   = "application/json"
)

const (
	// maxAnswer bounds the body of an answer: pages ask for few enough events to stay below.
	maxAnswer    = 64 << 20
	maxRedirects = 4
	dialTimeout  = 2 * time.Second
)

// target is one node as clients know it.
type target struct {
	name  string
	base  string // URL without a slash at the end
	index int    // of the node in its cluster, -1 for an address that is not known
	login *url.Userinfo
}

// targets is the list of nodes, which changes while clients run.
type targets struct {
	list atomic.Pointer[[]target]
	// wire carries requests in place of the network, if it is not nil.
	wire http.RoundTripper
}

func (t *targets) set(list []target) { t.list.Store(&list) }

func (t *targets) all() []target {
	if l := t.list.Load(); l != nil {
		return *l
	}
	return nil
}

// at finds the node of an address.
func (t *targets) at(base string) (target, bool) {
	for _, one := range t.all() {
		if one.base == base {
			return one, true
		}
	}
	return target{name: base, base: base, index: -1}, false
}

// request is one HTTP request.
type request struct {
	method string
	path   string // with the query
	header [][2]string
	body   []byte
}

// answer is a whole answer.
type answer struct {
	status int
	header http.Header
	body   []byte
	from   target   // the node that gave it
	hops   []target // nodes that redirected on the way
}

func (a *answer) String() string {
	return fmt.Sprintf("%d %.200q from %s", a.status, a.body, a.from.name)
}

// sendError is an exchange without a whole answer.
type sendError struct {
	to target
	// sent says that the request may have reached the node.
	sent bool
	err  error
}

func (e *sendError) Error() string { return fmt.Sprintf("%s: %v", e.to.name, e.err) }
func (e *sendError) Unwrap() error { return e.err }

var errTooManyRedirects = errors.New("redirects go round in circles")

// client sends requests for one worker and remembers which node it likes. It
// repeats nothing by itself.
type client struct {
	http    *http.Client
	targets *targets
	rng     *rand.Rand
	timeout time.Duration
	current string // base of the node to ask first, empty at the beginning

	redirects *atomic.Int64
}

func newClient(t *targets, rng *rand.Rand, timeout time.Duration, redirects *atomic.Int64) *client {
	c := &client{http: newHTTP(), targets: t, rng: rng, timeout: timeout, redirects: redirects}
	if t.wire != nil {
		c.http.Transport = t.wire
	}
	return c
}

func newHTTP() *http.Client {
	transport := &http.Transport{
		MaxIdleConnsPerHost: 4, DisableCompression: true, IdleConnTimeout: 30 * time.Second,
		DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// choose returns the node to ask: the one that served before, else any.
func (c *client) choose() target {
	if t, ok := c.targets.at(c.current); ok {
		return t
	}
	return c.wander()
}

// wander moves to another node by chance and returns it.
func (c *client) wander() target {
	all := c.targets.all()
	if len(all) == 0 {
		return target{index: -1}
	}
	i := c.rng.IntN(len(all))
	if all[i].base == c.current && len(all) > 1 {
		i = (i + 1 + c.rng.IntN(len(all)-1)) % len(all)
	}
	c.current = all[i].base
	return all[i]
}

// do sends a request and follows redirects. An error is a *sendError.
func (c *client) do(ctx context.Context, to target, r request) (*answer, error) {
	return c.follow(ctx, to, r, c.timeout)
}

// poll is do with more time, for an answer that the node may keep back.
func (c *client) poll(ctx context.Context, to target, r request, wait time.Duration) (*answer, error) {
	return c.follow(ctx, to, r, c.timeout+wait)
}

func (c *client) follow(ctx context.Context, to target, r request, limit time.Duration) (*answer, error) {
	var hops []target
	for range maxRedirects + 1 {
		a, err := exchange(ctx, c.http, to, r, limit)
		if err != nil {
			return nil, err
		}
		a.hops = hops
		location := a.header.Get("Location")
		if a.status != http.StatusTemporaryRedirect || location == "" {
			if len(hops) > 0 {
				c.current = to.base // Where redirects led is where the leader is.
			}
			return a, nil
		}
		base, path, err := splitURL(location)
		if err != nil {
			return nil, &sendError{to: to, err: err}
		}
		c.redirects.Add(1)
		hops = append(hops, to)
		to, _ = c.targets.at(base)
		r.path = path
	}
	return nil, &sendError{to: to, err: errTooManyRedirects}
}

// exchange sends one request to one node.
func exchange(ctx context.Context, h *http.Client, to target, r request, limit time.Duration) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// From here on bytes may have been sent. Before, none can have been.
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	fail := func(err error) (*answer, error) { return nil, &sendError{to: to, sent: connected.Load(), err: err} }
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, to.base+r.path, body)
	if err != nil {
		return fail(err)
	}
	// Without this the transport repeats requests by itself on connections that proved to be closed.
	req.GetBody = nil
	for _, h := range r.header {
		req.Header.Set(h[0], h[1])
	}
	if to.login != nil {
		password, _ := to.login.Password()
		req.SetBasicAuth(to.login.Username(), password)
	}
	resp, err := h.Do(req)
	if err != nil {
		return fail(err)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(text) > maxAnswer {
		err = fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return fail(err)
	}
	return &answer{status: resp.StatusCode, header: resp.Header, body: text, from: to}, nil
}

func splitURL(text string) (base, path string, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", "", fmt.Errorf("location: %w", err)
	}
	if u.Host == "" {
		return "", "", fmt.Errorf("location %q names no host", text)
	}
	return u.Scheme + "://" + u.Host, u.RequestURI(), nil
}

// read asks for a page.
func read(path string, leader bool, longPoll int) request {
	r := request{method: http.MethodGet, path: path, header: [][2]string{{"Accept", mediaAtom}}}
	if leader {
		r.header = append(r.header, [2]string{headerRequireLeader, "True"})
	}
	if longPoll > 0 {
		r.header = append(r.header, [2]string{headerLongPoll, strconv.Itoa(longPoll)})
	}
	return r
}

// write asks for an append of count events from a ref on. A single one may travel
// with its id in a header and its data as it is.
func write(ids identity, stream string, expected int64, first ref, count int, single bool) request {
	r := request{method: http.MethodPost, path: "/streams/" + stream, header: [][2]string{{headerExpectedVersion, strconv.FormatInt(expected, 10)}}}
	if single && count == 1 {
		r.header = append(r.header, [2]string{"Content-Type", mediaJSON},
			[2]string{headerEventID, ids.id(first).String()}, [2]string{headerEventType, eventType})
		r.body = []byte(ids.data(first))
		return r
	}
	r.header = append(r.header, [2]string{"Content-Type", mediaEvents})
	b := []byte{'['}
	for i := range count {
		if i > 0 {
			b = append(b, ',')
		}
		one := first + ref(i)
		b = append(b, `{"eventId":"`...)
		b = event.ID.AppendTo(ids.id(one), b)
		b = append(b, `","eventType":"`+ids.eventType(one)+`","data":`...)
		if data := ids.data(one); ids.isLink(one) {
			b = strconv.AppendQuote(b, data)
		} else {
			b = append(b, data...)
		}
		b = append(b, '}')
	}
	r.body = append(b, ']')
	return r
}

// firstNumber is the event number that the Location of an answer names.
func firstNumber(a *answer, stream string) (int64, error) {
	location := a.header.Get("Location")
	plain, err := url.PathUnescape(location)
	if err != nil {
		return 0, fmt.Errorf("the Location %q: %w", location, err)
	}
	_, number, found := strings.Cut(plain, "/streams/"+stream+"/")
	n, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil || n < 0 {
		return 0, fmt.Errorf("the Location %q is not that of an event of %s", location, stream)
	}
	return n, nil
}

// verdict sorts the result of one attempt to write.
type verdict struct {
	outcome outcome // pending stands for: it may have happened or may yet happen
	number  int64   // as in op
	odd     string  // why the answer should not have been given, empty if it is in order
}

// judgeWrite says what one attempt to write is known to have done. success is the status that
// acknowledges it.
func judgeWrite(a *answer, err error, success int, stream string) verdict {
	if err != nil {
		var failed *sendError
		if errors.As(err, &failed) && !failed.sent || errors.Is(err, errTooManyRedirects) {
			return verdict{outcome: refused}
		}
		return verdict{outcome: pending}
	}
	switch {
	case a.status == success && success == http.StatusCreated:
		n, err := firstNumber(a, stream)
		if err != nil {
			return verdict{outcome: pending, odd: err.Error()}
		}
		return verdict{outcome: done, number: n}
	case a.status == success:
		return verdict{outcome: done}
	case a.status == http.StatusBadRequest && a.header.Get(headerCurrentVersion) != "":
		n, err := strconv.ParseInt(a.header.Get(headerCurrentVersion), 10, 64)
		if err != nil {
			return verdict{outcome: refused, odd: err.Error()}
		}
		return verdict{outcome: conflict, number: n}
	case a.status == http.StatusServiceUnavailable, a.status == http.StatusTemporaryRedirect:
		return verdict{outcome: refused}
	case a.status == http.StatusRequestTimeout, a.status >= 500:
		return verdict{outcome: pending}
	case a.status >= 400:
		return verdict{outcome: refused, odd: a.String()}
	}
	return verdict{outcome: pending, odd: a.String()}
}
