package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

func TestMain(m *testing.M) {
	// After a body it did not read to its end, net/http lingers for half a second
	// before it closes the connection, even if the server is closed meanwhile.
	// The clock of slow expressions stops a while after the last one.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"),
		goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}

const (
	host       = "node.example:2113"
	base       = "http://" + host
	atomJSON   = "application/vnd.eventstore.atom+json"
	atomXML    = "application/atom+xml"
	appJSON    = "application/json"
	textXML    = "text/xml"
	eventJSON  = "application/vnd.eventstore.event+json"
	eventsJSON = "application/vnd.eventstore.events+json"
	eventsXML  = "application/vnd.eventstore.events+xml"
	octets     = "application/octet-stream"
	streamDesc = "application/vnd.eventstore.streamdesc+json"
)

// memCluster answers what a test sets.
type memCluster struct {
	mu      sync.Mutex
	role    string
	leader  string
	confirm error
	unready bool
	trouble string

	reads      bool // although it is not ready
	leaderless string
}

func (c *memCluster) Serves() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.unready || c.reads
}

func (c *memCluster) Leaderless() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaderless
}

func (c *memCluster) Role() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.role
}

func (c *memCluster) Redirect() (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader, c.role != "leader" && c.leader != ""
}

func (c *memCluster) Confirm(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.confirm
}

func (c *memCluster) Ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.unready
}

func (c *memCluster) Unhealthy() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trouble
}

// memAccess knows the users admin, ops and jane, whose password is changeit.
type memAccess struct {
	store    *memStore
	loading  bool
	insecure bool
}

func (a *memAccess) Authenticate(r *http.Request) (access.Principal, error) {
	login, password, ok := r.BasicAuth()
	switch {
	case a.insecure:
		return access.System, nil
	case !ok:
		return access.Anonymous, nil
	case a.loading:
		return access.Anonymous, event.ErrNotInitialized
	case password != "changeit":
		return access.Anonymous, event.ErrNotAuthorized
	case login == "admin":
		return access.Principal{Login: login, Groups: []string{"$admins"}}, nil
	case login == "ops":
		return access.Principal{Login: login, Groups: []string{"$ops"}}, nil
	case login == "jane":
		return access.Principal{Login: login}, nil
	case login == "certificate":
		return access.System, nil
	}
	return access.Anonymous, event.ErrNotAuthorized
}

func (a *memAccess) Renew(_ context.Context, p access.Principal) (access.Principal, error) {
	return p, nil
}

func (a *memAccess) MayRead(ctx context.Context, p *access.Principal, stream string, info *event.StreamInfo) (bool, error) {
	if event.IsMetaStream(stream) {
		return a.CheckStream(ctx, *p, stream, access.ReadRight) == nil, nil
	}
	return a.judge(*p, stream, &info.Metadata.ACL, access.ReadRight) == nil, nil
}

func (a *memAccess) CheckStream(_ context.Context, p access.Principal, stream string, right access.Right) error {
	if event.IsMetaStream(stream) {
		switch right {
		case access.ReadRight:
			right = access.MetaReadRight
		case access.WriteRight:
			right = access.MetaWriteRight
		case access.DeleteRight:
			return event.ErrNotAuthorized
		}
		stream = event.OriginalOf(stream)
	}
	info := a.store.Info(stream)
	return a.judge(p, stream, &info.Metadata.ACL, right)
}

func (a *memAccess) judge(p access.Principal, stream string, acl *event.ACL, right access.Right) error {
	if p.IsAdmin() {
		return nil
	}
	roles := map[access.Right]event.Roles{
		access.ReadRight: acl.Read, access.WriteRight: acl.Write, access.DeleteRight: acl.Delete,
		access.MetaReadRight: acl.MetaRead, access.MetaWriteRight: acl.MetaWrite,
	}[right]
	if roles == nil {
		roles = event.Roles{"$all"}
		if event.IsSystemStream(stream) && (stream != event.IndexStream || right != access.ReadRight) {
			roles = event.Roles{"$admins"}
		}
	}
	if slices.ContainsFunc(roles, p.HasRole) {
		return nil
	}
	return event.ErrNotAuthorized
}

// node is a server over a store in memory.
type node struct {
	t       testing.TB
	store   *memStore
	cluster *memCluster
	access  *memAccess
	server  *httpapi.Server
	handler http.Handler
	ids     int
}

// opening is what callers without credentials may do.
func opening(endpoints, gossip bool) (o api.Opening) {
	if endpoints {
		o |= api.OpenEndpoints
	}
	if gossip {
		o |= api.OpenGossip
	}
	return o
}

func newNode(t testing.TB, change ...func(*httpapi.Options)) *node {
	n := &node{t: t, store: newStore(t), cluster: &memCluster{role: "leader"}}
	n.access = &memAccess{store: n.store}
	o := httpapi.Options{Node: api.Node{Store: n.store, Cluster: n.cluster, Access: n.access}, Health: n.cluster, Version: "1.2.3", HostNames: []string{"node.example"}}
	for _, f := range change {
		f(&o)
	}
	n.server = httpapi.New(o)
	n.handler = n.server.Handler()
	return n
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
	isHead bool // it answers HEAD
}

// bareTexts are those of failures that say nothing else.
var bareTexts = map[int]string{
	401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed", 406: "Requested URI is not available in requested format",
	415: "Invalid or missing Content-Type",
}

// bare expects the text of a failure, which HTTP/2 has nowhere else, and nothing of a success.
func (a answer) bare(t testing.TB) {
	t.Helper()
	want := bareTexts[a.status]
	if a.isHead {
		want = ""
	}
	check.Equal(t, a.body, want, "body")
}

// admin are the credentials that most cases use; headers follow as key, value.
func admin(headers ...string) http.Header {
	h := with(headers...)
	h.Set("Authorization", "Basic YWRtaW46Y2hhbmdlaXQ=")
	return h
}

func with(headers ...string) http.Header {
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	return h
}

func (n *node) do(method, path, body string, h http.Header) answer {
	n.t.Helper()
	return n.doContext(context.Background(), method, path, body, h)
}

func (n *node) doContext(ctx context.Context, method, path, body string, h http.Header) answer {
	n.t.Helper()
	r := httptest.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
	if h != nil {
		r.Header = h
	}
	w := httptest.NewRecorder()
	n.handler.ServeHTTP(w, r)
	got := w.Result()
	return answer{got.StatusCode, got.Header, w.Body.String(), method == http.MethodHead}
}

// get reads as administrator.
func (n *node) get(path, accept string, headers ...string) answer {
	n.t.Helper()
	h := admin(headers...)
	if accept != "" {
		h.Set("Accept", accept)
	}
	return n.do("GET", path, "", h)
}

// id returns an id that was not used before.
func (n *node) id() string {
	n.ids++
	return fmt.Sprintf("00000000-0000-4000-8000-%012x", n.ids)
}

// put appends one event per datum, each of which is JSON.
func (n *node) put(stream string, data ...string) answer {
	n.t.Helper()
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range data {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"eventId":%q,"eventType":"event-type","data":%s}`, n.id(), d)
	}
	b.WriteByte(']')
	return n.batch(stream, b.String()).is(n.t, 201)
}

func (n *node) batch(stream, body string, headers ...string) answer {
	n.t.Helper()
	return n.do("POST", "/streams/"+stream, body, admin(append(headers, "Content-Type", eventsJSON)...))
}

// one appends in the single form; an id and a type are added unless the headers have them.
func (n *node) one(path, contentType, body string, headers ...string) answer {
	n.t.Helper()
	h := admin(headers...)
	h.Set("Content-Type", contentType)
	if _, ok := h["Es-Eventid"]; !ok {
		h.Set("ES-EventId", n.id())
	}
	if _, ok := h["Es-Eventtype"]; !ok {
		h.Set("ES-EventType", "event-type")
	}
	for _, k := range []string{"Es-Eventid", "Es-Eventtype"} {
		if h.Get(k) == "-" {
			delete(h, k)
		}
	}
	return n.do("POST", path, body, h)
}

// filled writes count events {"n":0}, {"n":1} and so on.
func (n *node) filled(stream string, count int) {
	n.t.Helper()
	data := make([]string, count)
	for i := range data {
		data[i] = fmt.Sprintf(`{"n":%d}`, i)
	}
	n.put(stream, data...)
}

func (n *node) meta(stream, document string) {
	n.t.Helper()
	n.one("/streams/"+stream+"/metadata", appJSON, document, "ES-EventType", "-").is(n.t, 201)
}

func (n *node) delete(stream string, headers ...string) answer {
	n.t.Helper()
	return n.do("DELETE", "/streams/"+stream, "", admin(headers...))
}

func (a answer) is(t testing.TB, status ...int) answer {
	t.Helper()
	if slices.Contains(status, a.status) {
		return a
	}
	t.Fatalf("status %d, want %v; header %v, body %q", a.status, status, a.header, a.body)
	return a
}

// says checks the text of an error.
func (a answer) says(t testing.TB, text string) answer {
	t.Helper()
	if !strings.HasPrefix(a.body, text) {
		t.Errorf("body %q, want text %q", a.body, text)
	}
	check.Equal(t, a.header.Get("Content-Type"), "text/plain; charset=utf-8", "text has type")
	return a
}

func (a answer) has(t testing.TB, header, want string) answer {
	t.Helper()
	check.Equal(t, a.header.Get(header), want, header)
	return a
}

// feed is the JSON feed as a client reads it.
type feed struct {
	Title, ID, Updated, StreamID string
	Author                       struct{ Name string }
	HeadOfStream                 bool
	SelfURL                      *string
	ETag                         *string
	Links                        []feedLink
	Entries                      []entry
}

type feedLink struct{ URI, Relation string }

type entry struct {
	Title, ID, Updated, Summary        string
	EventID, EventType, StreamID       *string
	EventNumber, PositionEventNumber   *int64
	PositionStreamID                   *string
	IsJSON, IsMetaData, IsLinkMetaData *bool
	IsRedacted                         *bool
	Data, MetaData, LinkMetaData       *string
	Content                            *content
	Links                              []feedLink
}

type content struct {
	EventStreamID, EventType, EventID string
	EventNumber                       int64
	Data, Metadata                    json.RawMessage
}

// decode reads a JSON body, each of whose members must be known.
func decode[T any](t testing.TB, a answer) (v T) {
	t.Helper()
	a.is(t, 200)
	d := json.NewDecoder(strings.NewReader(a.body))
	check.Must(t, d.Decode(&v), "body", a.body)
	return v
}

func (n *node) feed(path string, headers ...string) feed {
	n.t.Helper()
	return decode[feed](n.t, n.get(path, appJSON, headers...))
}

// numbers are the event numbers in the titles of the entries.
func (f *feed) numbers() string {
	var b bytes.Buffer
	for i, e := range f.Entries {
		if i > 0 {
			b.WriteByte(' ')
		}
		number, _, _ := strings.Cut(e.Title, "@")
		b.WriteString(number)
	}
	return b.String()
}

// links are the links without what they have in common.
func (f *feed) links() string {
	var b strings.Builder
	for i, l := range f.Links {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(l.Relation + "=" + strings.TrimPrefix(l.URI, f.Links[0].URI))
	}
	return b.String()
}

func (n *node) serve(r *http.Request) answer {
	w := httptest.NewRecorder()
	n.handler.ServeHTTP(w, r)
	return answer{w.Code, w.Result().Header, w.Body.String(), false}
}
