package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/address"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/http1"
)

// serve takes a request through the checks in their order, which doc.go gives.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, res *request.Resource, rt request.Route) {
	statistics := s.opts.Statistics
	var began time.Time
	if statistics != nil {
		began = time.Now()
	}
	x := request.New(&s.node, w, r, res, rt)
	defer x.Release()
	isOver := false
	defer func() { // A broken connection is a panic.
		if !isOver {
			x.End()
		}
	}()
	if err := s.run(x); err != nil {
		x.Fail(err)
	}
	x.End()
	isOver = true
	if statistics != nil && !x.IsLive {
		statistics.Answered(time.Since(began))
	}
	x.Claim.Release() // Nothing of the body is kept while the rest of it is thrown away.
	x.Upload.Linger(x.W, x.Node.Logger)
}

// run answers a request.
func (s *Server) run(x *request.Request) error {
	res := x.Res
	if isMisdirected(x) { // Before another node is asked, which cannot tell.
		return problem.Misdirected
	}
	if x.R.Header[request.KeyNode] != nil {
		if done, err := s.way.OnNode(x); done || err != nil {
			return err
		}
	}
	if (res == nil || !res.Open) && x.R.Method != http.MethodOptions {
		who, err := x.Node.Authenticate(x.R)
		if err != nil {
			return err
		}
		x.Caller.Who = who
		if s.opts.LogRequests {
			logLogin(x)
		}
	}
	if res == nil {
		return problem.NoRoute
	}
	if x.R.Method == http.MethodOptions {
		preflight(x)
		return nil
	}
	op := res.Operation(x.R.Method)
	if op == nil {
		x.W.Header()[request.KeyAllow] = res.Methods
		return problem.Method
	}
	x.Op = op
	if op.Bodies != 0 {
		v := x.R.Header[request.KeyContentType]
		if len(v) != 0 {
			x.Body = media.OfBody(v[0], op.Bodies)
		}
		if x.Body == nil {
			return problem.ContentType
		}
	}
	if op.Typed && len(strings.Join(x.R.Header[request.KeyContentType], "")) == 0 {
		return problem.ContentType
	}
	serve := op.Serve
	if op.Live != nil && media.WantsLive(x.R.Header) {
		serve = op.Live
	} else if op.Offer != nil {
		x.Media = media.Negotiate(op.Offer, args.Value(x.R.URL.RawQuery, "format"), x.R.Header[request.KeyAccept])
		if x.Media == nil {
			return problem.NotAcceptable
		}
	}
	if isForeign(x) {
		return event.ErrNotAuthorized
	}
	if err := x.Caller.Permit(); err != nil {
		return err
	}
	if op.Method == http.MethodGet && op.May.WantsUser(x.Node.Open) {
		x.Copies().Last(caching.Private) // Unless the operation says more.
	}
	return x.Recorded(x.R.Context(), serve)
}

// preflight answers OPTIONS. A browser that asks for a header by its later name gets the later
// names as well.
func preflight(x *request.Request) {
	if h := x.W.Header(); strings.Contains(strings.ToLower(address.One(x.R.Header["Access-Control-Request-Headers"])), "kurrent-") {
		fields := request.AnswerFields("default-src 'none'; sandbox")
		fields[1] = request.KurrentAllowed
		if !x.Node.Insecure {
			fields = append(fields, request.KeyAllowOrigin, "*")
		}
		http1.SetFields(x.R.Context(), h, http1.NewFields(fields...))
	}
	x.Send(http.StatusOK, nil)
}

// logLogin tells the log of requests who the caller is.
func logLogin(x *request.Request) {
	if line, ok := request.Wrapped[*loggedWriter](x.W); ok {
		line.login = x.Caller.Who.Login
	}
}

// redirectSlash sends the client to the same address without its last slash. Caches keep
// that for ever, unless the client, and no one else, says what the node is called.
func redirectSlash(_ context.Context, x *request.Request) error {
	u := x.R.URL
	path := u.EscapedPath()
	b := append(x.Scratch[:0], x.Origin.URI()...)
	b = append(b, path[:len(path)-1]...)
	if u.RawQuery != "" {
		b = append(b, '?')
		b = append(b, u.RawQuery...)
	}
	x.Scratch = b
	h := x.W.Header()
	h[request.KeyLocation] = []string{string(b)}
	if h[caching.KeyControl] = caching.Nothing; x.Node.Address.Vouches(x.R) {
		h[caching.KeyControl] = []string{"max-age=31536000, public"}
	}
	x.Text(http.StatusTemporaryRedirect, "Moved Permanently")
	return nil
}

// isForeign reports whether a page of another site would have a browser change something.
func isForeign(x *request.Request) bool {
	return x.Node.Insecure && changes(x) && !address.WasJudged(x.R) && x.Node.Address.FromElsewhere(x.R)
}

// isMisdirected reports whether a client calls the node by a name that is not the node's.
func isMisdirected(x *request.Request) bool {
	return x.Node.Insecure && (x.Res == nil || !x.Res.Open) && x.R.Method != http.MethodOptions &&
		!x.Node.Address.MayCall(x.R) && !address.WasJudged(x.R)
}

// changes reports whether the operation may change anything.
func changes(x *request.Request) bool { return !x.IsRead() || x.Op.Once }
