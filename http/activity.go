package httpapi

import (
	"net/http"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/admin/activity"
	"github.com/annalsdb/annals/event"
)

// Activity records who changed what.
type Activity interface {
	// Note has an operation recorded. It never waits.
	Note(o activity.Operation)
}

// note has the request recorded if it asked for a change, with the status that is about
// to be answered. The node does so that decided: not one that relays the request, leads
// the client elsewhere, or says that another may try.
func (x *exchange) note(status int) {
	to := x.s.opts.Activity
	if to == nil || x.res == nil || status == http.StatusTemporaryRedirect || x.isRead() || x.r.Method == http.MethodOptions {
		return
	}
	op := x.res.operation(x.r.Method) // It has not been looked for when credentials are refused.
	if op == nil || op.unnoted && !x.changesRights(op) || x.w.Header()[HeaderNotDone] != nil {
		return
	}
	to.Note(activity.Operation{
		Who: x.who.Login, From: x.r.RemoteAddr, Method: x.r.Method, Path: x.r.URL.EscapedPath(), Query: x.r.URL.RawQuery, Status: status,
	})
}

// changesRights reports whether an append changes who may do what.
func (x *exchange) changesRights(op *operation) bool {
	return op.may == mayStream(access.WriteRight) && (event.IsMetaStream(x.route.stream) || x.route.stream == event.SettingsStream)
}
