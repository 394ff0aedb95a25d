package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/http1"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
)

// Keys of headers as the header map holds them.
const (
	keyAccept         = "Accept"
	keyAllow          = "Allow"
	keyCacheControl   = "Cache-Control"
	keyContentLength  = "Content-Length"
	keyContentType    = "Content-Type"
	keyCurrentVersion = "Es-Currentversion"

	// The same number, under the header that clients of later versions read.
	kurrentCurrentVersion = "Kurrent-Currentversion"
	keyETag               = "Etag"
	keyExpect             = "Expect"
	keyIfNoneMatch        = "If-None-Match"
	keyLocation           = "Location"
	keyRetryAfter         = "Retry-After"
	keyVary               = "Vary"
	keyWWWAuthenticate    = "Www-Authenticate"

	keyAllowMethods = "Access-Control-Allow-Methods"
	keyAllowOrigin  = "Access-Control-Allow-Origin"
)

// Values of headers, assigned as they are and never changed.
var (
	noMethods  = []string{""}
	varyAccept = []string{keyAccept}
	varyCaller = []string{keyAccept + ", Authorization"}
	varyOrigin = []string{keyOrigin}

	varyForwarded = forwardedKeys[:]

	// What every answer carries. Events are written by others, on the origin of the web
	// interface: a browser that shows an answer as a page runs nothing of it.
	everyAnswer = http1.NewFields(append(answerFields("default-src 'none'; sandbox"), keyAllowOrigin, "*")...)
	// In a sandbox a page of our own could not lead on.
	everyPage = http1.NewFields(append(answerFields("default-src 'none'"), keyAllowOrigin, "*")...)
	// Where no one is asked who they are, pages of other sites are not to read.
	insecureAnswer = http1.NewFields(answerFields("default-src 'none'; sandbox")...)
	insecurePage   = http1.NewFields(answerFields("default-src 'none'")...)
)

// answerFields are those of an answer that a browser shows under the policy, names and values
// in turn.
func answerFields(policy string) []string {
	return []string{
		"Access-Control-Allow-Headers", allowedHeaders,
		"Access-Control-Expose-Headers", "Location, ES-Position, ES-CurrentVersion",
		"Content-Security-Policy", policy,
		"X-Content-Type-Options", "nosniff",
	}
}

const allowedHeaders = "Content-Type, X-Requested-With, X-Forwarded-Host, X-Forwarded-Prefix, X-PINGOTHER, Authorization, " +
	"ES-LongPoll, ES-ExpectedVersion, ES-EventId, ES-EventType, ES-RequireMaster, ES-RequireLeader, ES-HardDelete, " +
	"ES-ResolveLinkTos, ES-RequiresMaster"

const kurrentAllowed = allowedHeaders + ", Kurrent-LongPoll, Kurrent-ExpectedVersion, Kurrent-EventId, Kurrent-EventType, " +
	"Kurrent-RequireLeader, Kurrent-HardDelete, Kurrent-ResolveLinkTos"

// maxPooledBuffer and maxPooledEvents bound the memory that is kept for the next request.
const (
	maxPooledBuffer = 2 << 20
	maxPooledEvents = 2048
)

// handler answers a request.
type handler func(ctx context.Context, x *exchange) error

// exchange is one request on its way to its answer.
type exchange struct {
	node  *node
	w     http.ResponseWriter
	r     *http.Request
	res   *resource
	op    *operation
	route route
	media *mediaType // of the answer
	body  *mediaType // of the request's body
	who   access.Principal
	lease *api.Lease // of a request that takes long; nil: it has not yet
	// deadline of what it reads; nil: it has none
	deadline *clock.Deadline

	bodyState bodyState

	out        []byte // the answer's body
	isPartSent bool   // the answer goes out piece by piece
	isLive     bool   // the answer continues until the client leaves or the server ends it
	// headers beyond those that the operation names, on which the answer depends
	vary    []string
	scratch []byte
	prefix  []byte // base URI and forwarded prefix
	baseLen int    // how much of prefix is the base URI
	writer  atom.Writer
	room    event.Room // of the page that is answered

	claim api.Claim // of the memory of all requests
	page  pageClaim
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// serve takes a request through the checks in their order, which doc.go gives.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, res *resource, rt route) {
	statistics := s.opts.Statistics
	var began time.Time
	if statistics != nil {
		began = time.Now()
	}
	x := exchanges.Get().(*exchange)
	x.node, x.w, x.r, x.res, x.route = &s.node, w, r, res, rt
	x.claim.Use(s.opts.Memory)
	defer x.release()
	x.common()
	isOver := false
	defer func() { // A broken connection is a panic.
		if !isOver {
			x.end()
		}
	}()
	if err := s.run(x); err != nil {
		x.fail(err)
	}
	x.end()
	isOver = true
	if statistics != nil && !x.isLive {
		statistics.Answered(time.Since(began))
	}
	x.claim.Release() // Nothing of the body is kept while the rest of it is thrown away.
	linger(x)
}

// release keeps the buffers and nothing else.
func (x *exchange) release() {
	x.claim.Release()
	out, scratch, prefix, writer, room := x.out, x.scratch, x.prefix, x.writer, x.room
	if cap(out) > maxPooledBuffer {
		out = nil
	}
	if cap(scratch) > maxPooledBuffer {
		scratch = nil
	}
	if cap(room.Block) > maxPooledBuffer/2 || cap(room.Events) > maxPooledEvents {
		room = event.Room{}
	}
	clear(room.Events) // Each holds on to blocks that came before the last one.
	room.Events = room.Events[:0]
	writer.Reset()
	*x = exchange{out: out[:0], scratch: scratch[:0], prefix: prefix[:0], writer: writer, room: room}
	exchanges.Put(x)
}

// common sets what every answer carries, failures included.
func (x *exchange) common() {
	methods := noMethods
	if x.res != nil {
		methods = x.res.methods
	}
	h := x.w.Header()
	h[keyAllowMethods] = methods
	http1.SetFields(x.r.Context(), h, x.node.fields)
	if origin := x.r.Header[keyOrigin]; x.node.insecure && len(origin) == 1 && x.node.address.isOwnOrigin(origin[0], x.r) {
		h[keyAllowOrigin] = origin
		x.variesBy(varyOrigin)
	}
}

// run answers a request.
func (s *Server) run(x *exchange) error {
	res := x.res
	if isMisdirected(x) { // Before another node is asked, which cannot tell.
		return problemMisdirected
	}
	if x.r.Header[keyNode] != nil {
		if done, err := s.way.onNode(x); done || err != nil {
			return err
		}
	}
	if (res == nil || !res.open) && x.r.Method != http.MethodOptions {
		who, err := x.node.access.Authenticate(x.r)
		if err != nil {
			s.refusedLogin(x, err)
			return err
		}
		x.who = who
		if s.opts.LogRequests {
			logLogin(x)
		}
	}
	if res == nil {
		return problemNoRoute
	}
	if x.r.Method == http.MethodOptions {
		x.preflight()
		return nil
	}
	op := res.operation(x.r.Method)
	if op == nil {
		x.w.Header()[keyAllow] = res.methods
		return problemMethod
	}
	x.op = op
	if op.bodies != 0 {
		v := x.r.Header[keyContentType]
		if len(v) != 0 {
			x.body = requestType(v[0], op.bodies)
		}
		if x.body == nil {
			return problemContentType
		}
	}
	if op.typed && len(strings.Join(x.r.Header[keyContentType], "")) == 0 {
		return problemContentType
	}
	serve := op.serve
	if op.live != nil && wantsLive(x.r.Header) {
		serve = op.live
	} else if op.offer != nil {
		x.media = negotiate(op.offer, queryValue(x.r.URL.RawQuery, "format"), x.r.Header[keyAccept])
		if x.media == nil {
			return problemNotAcceptable
		}
	}
	if isForeign(x) {
		return event.ErrNotAuthorized
	}
	if err := x.permit(&op.may, &x.who); err != nil {
		return err
	}
	if op.method == http.MethodGet && op.may.wantsUser(x.node.open) {
		private(x) // Unless the operation says more.
	}
	return recorded(x.r.Context(), x, serve)
}

// preflight answers OPTIONS. A browser that asks for a header by its later name gets the later
// names as well.
func (x *exchange) preflight() {
	if h := x.w.Header(); strings.Contains(strings.ToLower(one(x.r.Header["Access-Control-Request-Headers"])), "kurrent-") {
		fields := answerFields("default-src 'none'; sandbox")
		fields[1] = kurrentAllowed
		if !x.node.insecure {
			fields = append(fields, keyAllowOrigin, "*")
		}
		http1.SetFields(x.r.Context(), h, http1.NewFields(fields...))
	}
	x.send(http.StatusOK, nil)
}

// refusedLogin logs that the caller's credentials were refused, if that was why
// it could not be authenticated.
func (s *Server) refusedLogin(x *exchange, err error) {
	if errors.Is(err, event.ErrNotAuthorized) {
		s.opts.RefusedLogins.Note(x.r)
	}
}

// logLogin tells the log of requests who the caller is.
func logLogin(x *exchange) {
	w := x.w
	if n, ok := w.(*nodeWriter); ok {
		w = n.ResponseWriter
	}
	if w, ok := w.(*loggedWriter); ok {
		w.login = x.who.Login
	}
}

// send writes the answer in one Write. The header map holds all but the length.
func (x *exchange) send(status int, body []byte) {
	if err := claimAnswer(x, body); err != nil && status != http.StatusServiceUnavailable {
		clear(x.w.Header())
		x.common()
		x.fail(err)
		return
	}
	x.varies()
	x.note(status)
	noteLogEnd(x)
	hasBody := status != http.StatusNoContent && status != http.StatusNotModified
	// The connection counts short bodies itself, without two allocations, unless they go out early.
	if len(body) > 2000 || x.r.Method == http.MethodHead && len(body) > 0 || hasBody && isLeft(x) {
		x.w.Header()[keyContentLength] = []string{strconv.Itoa(len(body))}
	}
	x.w.WriteHeader(status)
	if len(body) == 0 || x.r.Method == http.MethodHead || !hasBody {
		return
	}
	_, err := x.w.Write(body)
	if err == nil {
		err = flushLarge(x, body)
	}
	x.notTaken(err)
}

// notTaken tells of an answer that the client did not take.
func (x *exchange) notTaken(err error) {
	if err != nil {
		x.node.log.Debug("the client did not take the answer", "path", x.r.URL.Path, logkey.Error, err)
	}
}

// origin returns the base URI with a proxy's prefix: what every address in an
// answer begins with.
func (x *exchange) origin() []byte {
	if len(x.prefix) == 0 {
		x.prefix = x.node.address.base(x.prefix, x.r)
		x.baseLen = len(x.prefix)
		x.prefix = appendPrefix(x.prefix, x.r)
		if isForwarded(x.r.Header) {
			x.variesBy(varyForwarded)
		}
	}
	return x.prefix
}

// variesBy notes headers of the request on which the answer depends.
func (x *exchange) variesBy(headers []string) { x.vary = append(x.vary, headers...) }

// varies tells caches of those headers, so that no client gets what another one's headers
// made of the answer.
func (x *exchange) varies() {
	if x.vary == nil {
		return
	}
	h := x.w.Header()
	h[keyVary] = []string{strings.Join(append(slices.Clone(h[keyVary]), x.vary...), ", ")}
	x.vary = nil
}

// pathPrefix returns a proxy's prefix alone, for addresses without a host.
func (x *exchange) pathPrefix() []byte {
	o := x.origin()
	return o[x.baseLen:]
}

// redirectSlash sends the client to the same address without its last slash. Caches keep
// that for ever, unless the client, and no one else, says what the node is called.
func redirectSlash(_ context.Context, x *exchange) error {
	u := x.r.URL
	path := u.EscapedPath()
	b := append(x.scratch[:0], x.origin()...)
	b = append(b, path[:len(path)-1]...)
	if u.RawQuery != "" {
		b = append(b, '?')
		b = append(b, u.RawQuery...)
	}
	x.scratch = b
	h := x.w.Header()
	h[keyLocation] = []string{string(b)}
	if h[keyCacheControl] = cacheNothing; x.node.address.vouches(x.r) {
		h[keyCacheControl] = []string{"max-age=31536000, public"}
	}
	x.text(http.StatusTemporaryRedirect, "Moved Permanently")
	return nil
}

// text answers with a text/plain body.
func (x *exchange) text(status int, text string) {
	x.w.Header()[keyContentType] = typeText.contentType
	x.out = append(x.out[:0], text...)
	x.send(status, x.out)
}

// reads returns the context of a read: it ends when the client goes or the time
// for a request is over. It takes the place of the one before.
func (x *exchange) reads() context.Context {
	x.endReads()
	x.deadline = clock.NewDeadline(x.r.Context(), x.node.requestTimeout)
	return x.deadline
}

func (x *exchange) endReads() {
	if x.deadline != nil {
		x.deadline.Release()
		x.deadline = nil
	}
}

// share gives the caller one of a kind, until it is released.
func share(x *exchange, k api.Kind) (release func(), err error) {
	return x.node.shares.Take(k, x.who, x.r.RemoteAddr)
}

// readsFrom is reads for a request that may want the leader.
func (x *exchange) readsFrom(leader bool) (context.Context, error) {
	ctx := x.reads()
	if !leader {
		return ctx, nil
	}
	return ctx, onLeader(ctx, x)
}

// readsAsked is readsFrom as the header of the request says.
func (x *exchange) readsAsked() (context.Context, error) {
	leader, err := requireLeader(x.r.Header)
	if err != nil {
		return nil, err
	}
	return x.readsFrom(leader)
}

// onLeader takes a request that must not be answered by a follower: it sends the
// client to the leader, or makes sure that this node is it.
func onLeader(ctx context.Context, x *exchange) error {
	if address, ok := x.node.cluster.Redirect(); ok {
		return &event.NotLeader{Address: address}
	}
	if x.node.cluster.Role() != roleLeader {
		return event.ErrNotReady
	}
	return x.node.cluster.Confirm(ctx)
}

const (
	roleLeader   = "leader"
	roleReadOnly = "readonlyreplica"
)
