package request

import (
	"context"
	"net/http"
	"strings"

	"github.com/annalsdb/annals/admin/activity"
	"github.com/annalsdb/annals/api"
)

// note has the request recorded if it asked for a change, with the status that is about
// to be answered. The node does so that decided: not one that relays the request, leads
// the client elsewhere, or says that another may try.
func (x *Request) note(status int) {
	to := x.Node.Activity
	if to == nil || x.Res == nil || status == http.StatusTemporaryRedirect || x.W.Header()[HeaderNotDone] != nil {
		return
	}
	// It has not been looked for when credentials are refused.
	if !x.IsNoted(x.Res.Operation(x.R.Method)) {
		return
	}
	_, decider, _ := strings.Cut(x.Decider, "://")
	to.Note(activity.Operation{
		Node: decider, Who: x.Caller.Who.Login, From: x.R.RemoteAddr, Method: x.R.Method, Path: x.R.URL.EscapedPath(), Query: x.R.URL.RawQuery, Status: status,
	})
}

// IsNoted reports whether a request for an operation, which may be nil, asks for a change
// that is recorded. An append may change who may do what.
func (x *Request) IsNoted(op *Operation) bool {
	if op == nil || x.IsRead() || x.R.Method == http.MethodOptions {
		return false
	}
	return op.Recorded || x.Records || op.Operation == api.Append && api.RecordsAppend(x.Route.Stream)
}

// Recorded answers a request. One that is to be recorded is not done when that is no longer
// possible.
func (x *Request) Recorded(ctx context.Context, serve Handler) error {
	if x.Node.Activity == nil || !x.IsNoted(x.Op) {
		return serve(ctx, x)
	}
	end, err := x.Node.Begin(true)
	if err != nil {
		return err
	}
	defer end()
	if err := serve(ctx, x); err != nil {
		x.Fail(err) // What became of it may not be known, so that it is recorded.
	}
	return nil
}
