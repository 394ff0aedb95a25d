package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/client"
)

const dialTimeout = 2 * time.Second

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

// answer is a whole answer.
type answer struct {
	client.Response
	from target   // the node that gave it
	hops []target // nodes that redirected on the way
}

func (a *answer) String() string {
	return fmt.Sprintf("%d %.200q from %s", a.Status, a.Body, a.from.name)
}

// caller sends requests for one worker and remembers which node it likes. It
// repeats nothing by itself.
type caller struct {
	http    *client.Client
	targets *targets
	rng     *rand.Rand
	timeout time.Duration
	current string // base of the node to ask first, empty at the beginning

	redirects *atomic.Int64
}

func newCaller(t *targets, rng *rand.Rand, timeout time.Duration, redirects *atomic.Int64) *caller {
	return &caller{http: newHTTP(t.wire), targets: t, rng: rng, timeout: timeout, redirects: redirects}
}

// newHTTP returns a client that asks whom each request names, over a wire in place of the network if it is not nil.
func newHTTP(wire http.RoundTripper) *client.Client {
	if wire == nil {
		network := client.NewTransport(nil)
		network.Proxy, network.DialContext = nil, (&net.Dialer{Timeout: dialTimeout}).DialContext
		wire = network
	}
	c, err := client.New(client.Options{Transport: wire})
	if err != nil {
		panic(err) // No option of a user is in it.
	}
	return c
}

func (c *caller) close() { c.http.Close() }

// choose returns the node to ask: the one that served before, else any.
func (c *caller) choose() target {
	if t, ok := c.targets.at(c.current); ok {
		return t
	}
	return c.wander()
}

// wander moves to another node by chance and returns it.
func (c *caller) wander() target {
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

// do sends a request and follows redirects.
func (c *caller) do(ctx context.Context, to target, r client.Request) (*answer, error) {
	return c.follow(ctx, to, r, c.timeout)
}

// poll is do with more time, for an answer that the node may keep back.
func (c *caller) poll(ctx context.Context, to target, r client.Request, wait time.Duration) (*answer, error) {
	return c.follow(ctx, to, r, c.timeout+wait)
}

func (c *caller) follow(ctx context.Context, to target, r client.Request, limit time.Duration) (*answer, error) {
	r.Node, r.Login, r.Timeout = to.base, to.login, limit
	resp, err := c.http.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	a := &answer{Response: resp}
	a.from, _ = c.targets.at(resp.Node)
	for _, base := range resp.Via {
		hop, _ := c.targets.at(base)
		a.hops = append(a.hops, hop)
	}
	if len(a.hops) > 0 {
		c.redirects.Add(int64(len(a.hops)))
		c.current = a.from.base // Where redirects led is where the leader is.
	}
	return a, nil
}

// exchange sends one request to one node.
func exchange(ctx context.Context, h *client.Client, to target, r client.Request, limit time.Duration) (*answer, error) {
	r.Node, r.Login, r.Timeout, r.Stay = to.base, to.login, limit, true
	resp, err := h.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	return &answer{Response: resp, from: to}, nil
}

// neverSent says that no node can have acted on a request.
func neverSent(err error) bool {
	if _, ok := errors.AsType[*client.RedirectError](err); ok {
		return true
	}
	failed, ok := errors.AsType[*client.UnreachableError](err)
	return ok && !failed.Sent
}

// read asks for a page.
func read(path string, leader bool, longPoll int) client.Request {
	r := client.Request{Method: http.MethodGet, Path: path, Header: map[string]string{"Accept": client.MediaAtom}}
	if leader {
		r.Header[client.HeaderRequireLeader] = "True"
	}
	if longPoll > 0 {
		r.Header[client.HeaderLongPoll] = strconv.Itoa(longPoll)
	}
	return r
}

// write asks for an append of count events from a ref on. A single one may travel
// with its id in a header and its data as it is.
func write(ids identity, stream string, expected int64, first ref, count int, single bool) client.Request {
	events := make([]client.Event, count)
	for i := range events {
		one := first + ref(i)
		data := ids.data(one)
		if ids.isLink(one) {
			data = strconv.Quote(data)
		}
		events[i] = client.Event{ID: ids.id(one).String(), Type: ids.eventType(one), Data: []byte(data)}
	}
	if single && count == 1 {
		events[0].Data, events[0].Type = []byte(ids.data(first)), eventType
		return events[0].Request(stream, expected)
	}
	r, err := client.AppendRequest(stream, expected, events...)
	if err != nil {
		panic(err) // The data are made here, as JSON.
	}
	return r
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
		if neverSent(err) {
			return verdict{outcome: refused}
		}
		return verdict{outcome: pending}
	}
	switch {
	case a.Status == success && success == http.StatusCreated:
		n, err := a.FirstNumber(stream)
		if err != nil {
			return verdict{outcome: pending, odd: err.Error()}
		}
		return verdict{outcome: done, number: n}
	case a.Status == success:
		return verdict{outcome: done}
	case a.Status == http.StatusBadRequest && a.Header.Get(client.HeaderCurrentVersion) != "":
		n, err := strconv.ParseInt(a.Header.Get(client.HeaderCurrentVersion), 10, 64)
		if err != nil {
			return verdict{outcome: refused, odd: err.Error()}
		}
		return verdict{outcome: conflict, number: n}
	case a.Status == http.StatusServiceUnavailable, a.Status == http.StatusTemporaryRedirect:
		return verdict{outcome: refused}
	case a.Status == http.StatusRequestTimeout, a.Status >= 500:
		return verdict{outcome: pending}
	case a.Status >= 400:
		return verdict{outcome: refused, odd: a.String()}
	}
	return verdict{outcome: pending, odd: a.String()}
}
