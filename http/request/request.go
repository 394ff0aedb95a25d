// Package request is a request on its way to its answer: what it may do, what it holds of the
// memory of all requests, its body, and the answers that all kinds of handlers send.
package request

import (
	"context"
	"net/http"
	"strconv"
	"sync"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/http/address"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/http1"
	"github.com/annalsdb/annals/internal/logkey"
)

// MaxBody bounds the body of a request.
const MaxBody = 30_000_000

// MaxSettings bounds the body of a request with settings.
const MaxSettings = 64 << 10

// LargeSettings is the answer to a larger one.
var LargeSettings = problem.New(http.StatusRequestEntityTooLarge, "Too large a description of a subscription. Limit is 64kb")

// Keys of headers as the header map holds them.
const (
	KeyAccept         = "Accept"
	KeyAllow          = "Allow"
	KeyContentLength  = "Content-Length"
	KeyContentType    = "Content-Type"
	keyCurrentVersion = "Es-Currentversion"
	KeyPosition       = "Es-Position" // of a write, or how far a projection has read

	// The same number, under the header that clients of later versions read.
	kurrentCurrentVersion = "Kurrent-Currentversion"
	keyExpect             = "Expect"
	KeyLocation           = "Location"
	keyRetryAfter         = "Retry-After"
	keyWWWAuthenticate    = "Www-Authenticate"

	KeyAllowMethods = "Access-Control-Allow-Methods"
	KeyAllowOrigin  = "Access-Control-Allow-Origin"
)

// Values of headers, assigned as they are and never changed.
var (
	noMethods = []string{""}

	// What every answer carries. Events are written by others, on the origin of the web
	// interface: a browser that shows an answer as a page runs nothing of it.
	EveryAnswer = http1.NewFields(append(AnswerFields("default-src 'none'; sandbox"), KeyAllowOrigin, "*")...)
	// In a sandbox a page of our own could not lead on.
	everyPage = http1.NewFields(append(AnswerFields("default-src 'none'"), KeyAllowOrigin, "*")...)
	// Where no one is asked who they are, pages of other sites are not to read.
	InsecureAnswer = http1.NewFields(AnswerFields("default-src 'none'; sandbox")...)
	insecurePage   = http1.NewFields(AnswerFields("default-src 'none'")...)
)

// AnswerFields are those of an answer that a browser shows under the policy, names and values
// in turn.
func AnswerFields(policy string) []string {
	return []string{
		"Access-Control-Allow-Headers", allowedHeaders,
		"Access-Control-Expose-Headers", "Location, ES-Position, ES-CurrentVersion",
		"Content-Security-Policy", policy,
		"X-Content-Type-Options", "nosniff",
	}
}

const allowedHeaders = "Content-Type, X-Requested-With, X-Forwarded-Host, X-Forwarded-Prefix, X-PINGOTHER, Authorization, " +
	"ES-LongPoll, ES-ExpectedVersion, ES-EventId, ES-EventType, ES-RequireMaster, ES-RequireLeader, ES-HardDelete, " +
	"ES-ResolveLinkTos, ES-RequiresMaster, ES-WaitFor, ES-WaitAtMost"

// KurrentAllowed are the headers that a browser may send which knows their later names.
const KurrentAllowed = allowedHeaders + ", Kurrent-LongPoll, Kurrent-ExpectedVersion, Kurrent-EventId, Kurrent-EventType, " +
	"Kurrent-RequireLeader, Kurrent-HardDelete, Kurrent-ResolveLinkTos, Kurrent-WaitFor, Kurrent-WaitAtMost"

// maxPooledBuffer and maxPooledEvents bound the memory that is kept for the next request.
const (
	maxPooledBuffer = 2 << 20
	maxPooledEvents = 2048
)

// Handler answers a request.
type Handler func(ctx context.Context, x *Request) error

// Request is one request on its way to its answer.
type Request struct {
	Node  *Node
	W     http.ResponseWriter
	R     *http.Request
	Res   *Resource
	Op    *Operation
	Route Route
	Media *media.Type // of the answer
	Body  *media.Type // of the request's body
	// address of the node that decides the write for this one; empty: this one does
	Decider string
	Records bool // the body asks for a change that is recorded

	// deadline of what it reads; nil: it has none
	deadline *clock.Deadline

	Upload Upload // the request's body

	Out        []byte         // the answer's body
	isPartSent bool           // the answer goes out piece by piece
	IsLive     bool           // the answer continues until the client leaves or the server ends it
	Origin     address.Origin // this node's, in the answer
	Scratch    []byte
	writer     atom.Writer

	Claim  api.Claim // of the memory of all requests
	Page   Page
	Caller Caller
}

var requests = sync.Pool{New: func() any { return new(Request) }}

// New begins to answer a request. res is nil where nothing has its path.
func New(n *Node, w http.ResponseWriter, r *http.Request, res *Resource, rt Route) *Request {
	x := requests.Get().(*Request)
	x.Node, x.W, x.R, x.Res, x.Route = n, w, r, res, rt
	x.Claim.Use(n.Memory)
	x.Caller.x = x
	x.Upload, x.Page.claim = Upload{r: r, claim: &x.Claim, from: &x.Caller}, &x.Claim
	x.Origin.Begin(n.Address, r)
	x.Common()
	return x
}

// Release keeps the buffers and nothing else.
func (x *Request) Release() {
	x.Claim.Release()
	out, scratch, origin, writer := x.Out, x.Scratch, x.Origin, x.writer
	if cap(out) > maxPooledBuffer {
		out = nil
	}
	if cap(scratch) > maxPooledBuffer {
		scratch = nil
	}
	origin.Release()
	writer.Reset()
	*x = Request{Out: out[:0], Scratch: scratch[:0], Origin: origin, writer: writer, Page: Page{Room: x.Page.emptied()}}
	requests.Put(x)
}

// Common sets what every answer carries, failures included.
func (x *Request) Common() {
	methods := noMethods
	if x.Res != nil {
		methods = x.Res.Methods
	}
	h := x.W.Header()
	h[KeyAllowMethods] = methods
	http1.SetFields(x.R.Context(), h, x.Node.Fields)
	if x.Node.Insecure {
		if origin := x.Origin.Own(); origin != nil {
			h[KeyAllowOrigin] = origin
		}
	}
}

// Send writes the answer in one Write. The header map holds all but the length.
func (x *Request) Send(status int, body []byte) {
	// An answer that nothing was claimed for as it was made is claimed now.
	err := x.Claim.Grow(x.R.Context(), int64(len(body))-max(x.Claim.Held(), api.SmallRequest))
	if err != nil && status != http.StatusServiceUnavailable {
		clear(x.W.Header())
		x.Common()
		x.Fail(err)
		return
	}
	x.Origin.Vary(x.W.Header())
	x.note(status)
	x.noteLogEnd()
	hasBody := status != http.StatusNoContent && status != http.StatusNotModified
	// The connection counts short bodies itself, without two allocations, unless they go out early.
	if len(body) > 2000 || x.R.Method == http.MethodHead && len(body) > 0 || hasBody && x.Upload.isLeft() {
		x.W.Header()[KeyContentLength] = []string{strconv.Itoa(len(body))}
	}
	x.W.WriteHeader(status)
	if len(body) == 0 || x.R.Method == http.MethodHead || !hasBody {
		return
	}
	if _, err = x.W.Write(body); err == nil && len(body) >= api.SmallRequest {
		err = flush(x.W) // Before the claim is given back.
	}
	x.NotTaken(err)
}

// NotTaken tells of an answer that the client did not take.
func (x *Request) NotTaken(err error) {
	if err != nil {
		x.Node.Logger.Debug("the client did not take the answer", "path", x.R.URL.Path, logkey.Error, err)
	}
}

// Text answers with a text/plain body.
func (x *Request) Text(status int, text string) {
	x.W.Header()[KeyContentType] = media.Text.ContentType
	x.Out = append(x.Out[:0], text...)
	x.Send(status, x.Out)
}

// Reads returns the context of a read: it ends when the client goes or the time
// for a request is over. It takes the place of the one before.
func (x *Request) Reads() context.Context {
	x.endReads()
	x.deadline = clock.NewDeadline(x.R.Context(), x.Node.ReadTimeout)
	return x.deadline
}

// End ends what Reads and the caller's Hold began.
func (x *Request) End() {
	x.endReads()
	x.Caller.letGo()
}

func (x *Request) endReads() {
	if x.deadline != nil {
		x.deadline.Release()
		x.deadline = nil
	}
}

// keyNode is where a client says which node is to answer: the leader, or the one with
// an id. It reaches all nodes that way though it may talk to one alone, as a page of
// the web interface may. Answers to such requests say by it who gave them.
const (
	KeyNode    = "Annals-Node"
	NodeLeader = "leader"
)

// Route has the parts of a request's path. Placeholders are decoded, and not yet checked.
type Route struct {
	Stream   string // {stream}
	Group    string // {subscription}
	From     string // {number}, {position} or {time}; empty: the head
	Count    string // {count}; empty: the default
	ID       string // {id}
	Argument string // any other placeholder
}

// KeyRelayed marks a request that a node relayed. A node that gets one and does
// not lead redirects it, so that nodes that disagree on who leads cannot pass a
// request round between them. A client that sets it asks for the same.
const KeyRelayed = "Annals-Relayed"

// Headers that the leader adds to its answer to a relayed request.
const (
	// HeaderNotDone says that nothing was done, for want of a leader: another
	// attempt does no harm.
	HeaderNotDone = "Annals-Not-Done"
	// KeyLogEnd says where the leader's log ended when it answered. The node that
	// relayed a write shows the write when its own log reaches there.
	KeyLogEnd = "Annals-Log-End"
)

// IsRead reports whether the method changes nothing.
func (x *Request) IsRead() bool {
	return x.R.Method == http.MethodGet || x.R.Method == http.MethodHead
}

// noteLogEnd tells a node that relayed the request how far its log must reach to show the write.
func (x *Request) noteLogEnd() {
	if x.R.Header[KeyRelayed] != nil && !x.IsRead() {
		x.W.Header()[KeyLogEnd] = []string{strconv.FormatInt(x.Node.Store.LogEnd(), 10)}
	}
}

// AwaitShown waits until this node's log holds the record at a position, which another node wrote
// for the request, but no longer than ctx: the write is done, and better answered early than with
// an error.
func (x *Request) AwaitShown(ctx context.Context, position int64) {
	if position < x.Node.Store.LogEnd() {
		return
	}
	if err := x.Node.Store.WaitLog(ctx, position); err != nil {
		x.Node.Logger.Debug("a write was answered before this node could show it", "path", x.R.URL.Path, logkey.Error, err)
	}
}

// SendBody sends Out as the negotiated type.
func (x *Request) SendBody() {
	x.Typed()
	x.Send(http.StatusOK, x.Out)
}

// Copies are those that are kept of the answer.
func (x *Request) Copies() caching.Copies {
	return caching.Copies{Header: x.W.Header(), Type: x.Media, Disabled: x.Node.DisableCaching, Parked: x.Route.Group != ""}
}

// Typed sets the headers of a document of the negotiated type.
func (x *Request) Typed() {
	h := x.W.Header()
	h[KeyContentType] = x.Media.ContentType
	if h[caching.KeyVary] == nil {
		h[caching.KeyVary] = caching.VaryAccept
	}
}
