package torture

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/client"
)

const dialTimeout = 2 * time.Second

// Target is one node as clients know it.
type Target struct {
	Name  string
	Base  string // URL without a slash at the end
	Peer  string // host:port at which other nodes reach it; empty: it is not known
	Index int    // of the node in its cluster, -1 for an address that is not known
	Login *url.Userinfo
}

// targets is the list of nodes, which changes while clients run.
type targets struct{ list atomic.Pointer[[]Target] }

func (t *targets) set(list []Target) { t.list.Store(&list) }

func (t *targets) all() []Target {
	if l := t.list.Load(); l != nil {
		return *l
	}
	return nil
}

// at finds the node of an address.
func (t *targets) at(base string) (Target, bool) {
	for _, one := range t.all() {
		if one.Base == base {
			return one, true
		}
	}
	return Target{Name: base, Base: base, Index: -1}, false
}

// answer is a whole answer.
type answer struct {
	client.Response
	from Target // the node that gave it
}

func (a *answer) String() string {
	return fmt.Sprintf("%d %.200q from %s", a.Status, a.Body, a.from.Name)
}

// dialer connects to an address. Nil is that of the system.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func (d dialer) orSystem() dialer {
	if d == nil {
		return (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return d
}

// wire returns what sends requests over connections of a dialer, to nodes with TLS by a
// configuration.
func (d dialer) wire(config *tls.Config) http.RoundTripper {
	network := client.NewTransport(config)
	network.Proxy, network.DialContext = nil, d.orSystem()
	return network
}

// newHTTP returns a client that asks whom each request names, over a wire in place of the network
// if it is not nil.
func newHTTP(wire http.RoundTripper) *client.Client {
	if wire == nil {
		wire = dialer(nil).wire(nil)
	}
	return made(client.New(client.Options{Transport: wire}))
}

// made is what is made here, in which nothing can be wrong.
func made[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// exchange sends one request to one node.
func exchange(ctx context.Context, h *client.Client, to Target, r client.Request, limit time.Duration) (*answer, error) {
	r.Node, r.Login, r.Timeout, r.Stay = to.Base, to.Login, limit, true
	resp, err := h.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	return &answer{Response: resp, from: to}, nil
}

// judge says what is known of an exchange: done; refused, when it certainly did nothing; pending,
// when it may have done something or may yet do it; conflict for an answer that no fault explains.
func judge(a *answer, err error) outcome {
	if _, ok := errors.AsType[*client.RedirectError](err); ok {
		return refused
	}
	failed, ok := errors.AsType[*client.UnreachableError](err)
	switch {
	case ok && !failed.Sent:
		return refused
	case err != nil:
		return pending
	case a.Status >= 200 && a.Status < 300:
		return done
	case a.Status == http.StatusServiceUnavailable, a.Status == http.StatusTemporaryRedirect:
		return refused
	case a.Status >= 500, a.Status == http.StatusRequestTimeout:
		return pending
	}
	return conflict
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
	return made(client.AppendRequest(stream, expected, events...))
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
	v := verdict{outcome: judge(a, err)}
	switch {
	case v.outcome == done && a.Status != success, v.outcome == conflict && a.Status < 400:
		v.outcome, v.odd = pending, a.String()
	case v.outcome == done && success == http.StatusCreated:
		if v.number, err = a.FirstNumber(stream); err != nil {
			v.outcome, v.odd = pending, err.Error()
		}
	case v.outcome == conflict && a.Status == http.StatusBadRequest && a.Header.Get(client.HeaderCurrentVersion) != "":
		if v.number, err = strconv.ParseInt(a.Header.Get(client.HeaderCurrentVersion), 10, 64); err != nil {
			v.outcome, v.odd = refused, err.Error()
		}
	case v.outcome == conflict:
		v.outcome, v.odd = refused, a.String()
	}
	return v
}

// judgeMany is judgeWrite for a write to several streams, with what the answer says.
func judgeMany(a *answer, err error) (said client.Appended, broken client.ViolationError, v verdict) {
	if v.outcome = judge(a, err); v.outcome != done && v.outcome != conflict {
		return said, broken, v
	}
	said, err = a.Appended()
	violated, isViolated := errors.AsType[*client.ViolationError](err)
	switch {
	case isViolated:
		broken = *violated
	case v.outcome == conflict:
		v.outcome, v.odd = refused, a.String()
	case err != nil || a.Status != http.StatusCreated || len(said.Streams) == 0:
		v.outcome, v.odd = pending, a.String()
	default:
		v.number = said.Streams[0].First
	}
	return said, broken, v
}
