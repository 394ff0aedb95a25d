package httpapi

import (
	"context"
	"net/http"
	"net/url"

	"github.com/julienschmidt/httprouter"
)

const (
	usersPath   = "/users"
	usersPrefix = usersPath + "/"
	// currentLogin stands for the caller where a login is read.
	currentLogin = "$current"
	segCommand   = "command"
	// commandPath leads from a user to its commands.
	commandPath = "/" + segCommand + "/"
	// maxUserSegments is that of the longest path: {login}/command/{command}.
	maxUserSegments = 3
)

var usersOffer = newOffer(typeJSON, typeJSON)

const usersForms = 1 << formJSON

// manage is an operation on users whose body is not looked at.
func manage(method string, may requirement, serve func(*exchange, context.Context) error) operation {
	return operation{method: method, offer: usersOffer, may: may, serve: leading(serve)}
}

// describe is an operation on users whose body says more.
func describe(method string, may requirement, serve func(*exchange, context.Context) error) operation {
	op := manage(method, may, serve)
	op.bodies = usersForms
	return op
}

// The paths of users.
var (
	usersResource = newResource(
		manage(http.MethodGet, mayAdmin, (*exchange).listUsers),
		describe(http.MethodPost, mayAdmin, (*exchange).createUser),
	)
	currentResource = newResource(manage(http.MethodGet, mayUser, (*exchange).currentUser))
	userResource    = newResource(
		manage(http.MethodGet, mayAdminOrSelf, (*exchange).getUser),
		describe(http.MethodPut, mayAdmin, (*exchange).updateUser),
		manage(http.MethodDelete, mayAdmin, (*exchange).deleteUser),
	)
	enableResource = newResource(
		manage(http.MethodPost, mayAdmin, (*exchange).enableUser),
		manage(http.MethodPut, mayAdmin, (*exchange).enableUser),
	)
	disableResource = newResource(
		manage(http.MethodPost, mayAdmin, (*exchange).disableUser),
		manage(http.MethodPut, mayAdmin, (*exchange).disableUser),
	)
	resetResource  = newResource(describe(http.MethodPost, mayAdmin, (*exchange).resetPassword))
	changeResource = newResource(describe(http.MethodPost, maySelf, (*exchange).changePassword))
)

// userPatterns are the forms of path of users.
var userPatterns = []struct {
	path string
	res  *resource
}{
	{usersPath, &usersResource},
	{usersPrefix, &usersResource},
	{usersPrefix + currentLogin, &currentResource},
	{usersPrefix + "{login}", &userResource},
	{usersPrefix + "{login}" + commandPath + "enable", &enableResource},
	{usersPrefix + "{login}" + commandPath + "disable", &disableResource},
	{usersPrefix + "{login}" + commandPath + "reset-password", &resetResource},
	{usersPrefix + "{login}" + commandPath + "change-password", &changeResource},
}

func (s *Server) serveUsers(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
	res, login := resolveUser(r.URL)
	s.serve(w, r, res, route{argument: login})
}

// resolveUser reads the path of a URL of users. The resource is nil when there
// is none. The login is decoded once, and may hold any character.
func resolveUser(u *url.URL) (res *resource, login string) {
	var seg [maxUserSegments]string
	switch n := segments(u, usersPrefix, seg[:]); {
	case n == 0, n == 1 && seg[0] == "":
		return &usersResource, ""
	case n < 0, seg[0] == "":
		return nil, ""
	case n == 1 && seg[0] == currentLogin:
		return &currentResource, ""
	case n == 1:
		return &userResource, seg[0]
	case n == 3 && seg[1] == segCommand:
		if res = userCommand(seg[2]); res != nil {
			return res, seg[0]
		}
	}
	return nil, ""
}

func userCommand(name string) *resource {
	switch name {
	case "enable":
		return &enableResource
	case "disable":
		return &disableResource
	case "reset-password":
		return &resetResource
	case "change-password":
		return &changeResource
	}
	return nil
}
