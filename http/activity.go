package httpapi

import (
	"context"
	"net/http"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/admin/activity"
	"github.com/annalsdb/annals/event"
)

// Activity records who changed what.
type Activity interface {
	// Begin announces a change, and reports whether it may be made: not when the node ends
	// and nothing more is recorded. End follows.
	Begin() bool
	End()
	// Note has an operation recorded. If it was done it waits while too many wait to be
	// written.
	Note(o activity.Operation)
}

// recorded answers a request. One that is to be recorded is not done when that is no longer
// possible.
func recorded(ctx context.Context, x *exchange, serve handler) error {
	to := x.node.activity
	if to == nil || !x.isNoted(x.op) {
		return serve(ctx, x)
	}
	if !to.Begin() {
		return event.ErrNotReady
	}
	defer to.End()
	if err := serve(ctx, x); err != nil {
		x.fail(err) // What became of it may not be known, so that it is recorded.
	}
	return nil
}

// note has the request recorded if it asked for a change, with the status that is about
// to be answered. The node does so that decided: not one that relays the request, leads
// the client elsewhere, or says that another may try.
func (x *exchange) note(status int) {
	to := x.node.activity
	if to == nil || x.res == nil || status == http.StatusTemporaryRedirect || x.w.Header()[HeaderNotDone] != nil {
		return
	}
	// It has not been looked for when credentials are refused.
	if !x.isNoted(x.res.operation(x.r.Method)) {
		return
	}
	to.Note(activity.Operation{
		Who: x.who.Login, From: x.r.RemoteAddr, Method: x.r.Method, Path: x.r.URL.EscapedPath(), Query: x.r.URL.RawQuery, Status: status,
	})
}

// isNoted reports whether a request for an operation, which may be nil, asks for a change
// that is recorded.
func (x *exchange) isNoted(op *operation) bool {
	return op != nil && !x.isRead() && x.r.Method != http.MethodOptions && (!op.unnoted || changesRights(x, op))
}

// changesRights reports whether an append changes who may do what.
func changesRights(x *exchange, op *operation) bool {
	return op.may == mayStream(access.WriteRight) && (event.IsMetaStream(x.route.stream) || x.route.stream == event.SettingsStream)
}
