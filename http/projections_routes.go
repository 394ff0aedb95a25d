package httpapi

import (
	"context"
	"net/http"
	"net/url"

	"github.com/annalsdb/annals/projection"
	"github.com/julienschmidt/httprouter"
)

const (
	projectionsPath   = "/projections"
	projectionsPrefix = projectionsPath + "/"
	projectionPrefix  = "/projection/"

	segAny          = "any"
	segNonTransient = "all-non-transient"
	segReadEvents   = "read-events"
	segTransient    = "transient"
	segOneTime      = "onetime"
	segContinuous   = "continuous"
	segConfig       = "config"
	segQuery        = "query"
	segResult       = "result"
	segState        = "state"
	segStatistics   = "statistics"

	// maxProjectionSegments is that of the longest path: {name}/command/{command}.
	maxProjectionSegments = 3
)

// What projections answer with. A query is a script, whatever the client accepts.
var projectionsOffer = newOffer(typeJSON, typeJSON)

// projecting makes of a handler of projections one that runs on the leader only.
func projecting(serve func(*exchange, context.Context) error) func(*exchange) error {
	return func(x *exchange) error {
		return x.lead(func(ctx context.Context) error { return serve(x, ctx) })
	}
}

// watch is an operation that tells about projections.
func watch(serve func(*exchange, context.Context) error) operation {
	return operation{method: http.MethodGet, offer: projectionsOffer, may: mayUser, redirected: true, serve: projecting(serve)}
}

// instruct is an operation on projections whose body is not looked at.
func instruct(method string, may requirement, serve func(*exchange, context.Context) error) operation {
	a := writing
	if method == http.MethodDelete {
		a = deleting
	}
	return operation{method: method, action: a, offer: projectionsOffer, may: may, redirected: true, serve: projecting(serve)}
}

// script is an operation whose body is a text of any type, which must be named.
func script(method string, may requirement, serve func(*exchange, context.Context) error) operation {
	op := instruct(method, may, serve)
	op.typed = true
	return op
}

// document is an operation whose body is a JSON document.
func document(method string, may requirement, serve func(*exchange, context.Context) error) operation {
	op := instruct(method, may, serve)
	op.bodies = 1 << formJSON
	return op
}

// fetchQuery hands out a query, which is a script or a document.
func fetchQuery() operation {
	op := watch((*exchange).projectionQuery)
	op.offer = nil
	return op
}

// The paths of projections.
var (
	projectionsResource = newResource(operation{
		method: http.MethodGet, may: mayUser, redirected: true, serve: projecting((*exchange).projectionsPage),
	})
	anyResource          = newResource(watch((*exchange).listProjections))
	nonTransientResource = newResource(watch((*exchange).listProjections))
	transientResource    = newResource(watch((*exchange).listProjections), script(http.MethodPost, mayUser, (*exchange).createProjection))
	oneTimeResource      = newResource(watch((*exchange).listProjections), script(http.MethodPost, mayUser, (*exchange).createProjection))
	continuousResource   = newResource(watch((*exchange).listProjections), script(http.MethodPost, mayUser, (*exchange).createProjection))
	readEventsResource   = newResource(document(http.MethodPost, mayUser, (*exchange).readEvents))
	// restartProjectionsResource differs from that of subscriptions by its path.
	restartProjectionsResource = newResource(script(http.MethodPost, mayOps, (*exchange).restartProjections))

	projectionResource = newResource(
		watch((*exchange).projection),
		instruct(http.MethodDelete, mayOps, (*exchange).deleteProjection),
	)
	projectionStatisticsResource = newResource(watch((*exchange).projectionStatistics))
	projectionStateResource      = newResource(watch((*exchange).projectionState))
	projectionResultResource     = newResource(watch((*exchange).projectionResult))
	projectionQueryResource      = newResource(fetchQuery(), script(http.MethodPut, mayUser, (*exchange).updateProjection))
	projectionConfigResource     = newResource(
		operation{
			method: http.MethodGet, offer: projectionsOffer, may: mayOps, redirected: true, serve: projecting((*exchange).projectionConfig),
		},
		document(http.MethodPut, mayOps, (*exchange).configureProjection),
	)
	enableProjectionResource  = newResource(instruct(http.MethodPost, mayUser, projectionCommand(projection.Enable)))
	disableProjectionResource = newResource(instruct(http.MethodPost, mayUser, projectionCommand(projection.Disable)))
	resetProjectionResource   = newResource(instruct(http.MethodPost, mayUser, projectionCommand(projection.Reset)))
	abortProjectionResource   = newResource(instruct(http.MethodPost, mayUser, projectionCommand(projection.Abort)))
)

// projectionPatterns are the forms of path of projections.
var projectionPatterns = []struct {
	path string
	res  *resource
}{
	{projectionsPath, &projectionsResource},
	{projectionsPrefix + segAny, &anyResource},
	{projectionsPrefix + segNonTransient, &nonTransientResource},
	{projectionsPrefix + segTransient, &transientResource},
	{projectionsPrefix + segOneTime, &oneTimeResource},
	{projectionsPrefix + segContinuous, &continuousResource},
	{projectionsPrefix + segReadEvents, &readEventsResource},
	{projectionsPrefix + segRestart, &restartProjectionsResource},
	{projectionPrefix + "{name}", &projectionResource},
	{projectionPrefix + "{name}/" + segStatistics, &projectionStatisticsResource},
	{projectionPrefix + "{name}/" + segState, &projectionStateResource},
	{projectionPrefix + "{name}/" + segResult, &projectionResultResource},
	{projectionPrefix + "{name}/" + segQuery, &projectionQueryResource},
	{projectionPrefix + "{name}/" + segConfig, &projectionConfigResource},
	{projectionPrefix + "{name}" + commandPath + "enable", &enableProjectionResource},
	{projectionPrefix + "{name}" + commandPath + "disable", &disableProjectionResource},
	{projectionPrefix + "{name}" + commandPath + "reset", &resetProjectionResource},
	{projectionPrefix + "{name}" + commandPath + "abort", &abortProjectionResource},
}

func (s *Server) servesProjections() bool { return s.opts.Projections != nil }

func (s *Server) serveProjections(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
	res, kind := resolveProjections(r.URL)
	s.serve(w, r, res, route{argument: kind})
}

func (s *Server) serveProjection(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
	res, name := resolveProjection(r.URL)
	s.serve(w, r, res, route{argument: name})
}

// resolveProjections reads the path of a URL of all projections: which of them it
// is about stands in its last segment. The resource is nil when there is none.
func resolveProjections(u *url.URL) (res *resource, kind string) {
	var seg [1]string
	switch segments(u, projectionsPrefix, seg[:]) {
	case 0:
		return &projectionsResource, ""
	case 1:
	default:
		return nil, ""
	}
	for i := range projectionPatterns {
		if projectionPatterns[i].path == projectionsPrefix+seg[0] {
			return projectionPatterns[i].res, seg[0]
		}
	}
	return nil, ""
}

// resolveProjection reads the path of a URL of one projection. Its name is decoded
// once, and may hold any character.
func resolveProjection(u *url.URL) (res *resource, name string) {
	var seg [maxProjectionSegments]string
	n := segments(u, projectionPrefix, seg[:])
	if n < 1 || seg[0] == "" {
		return nil, ""
	}
	switch {
	case n == 1:
		res = &projectionResource
	case n == 2:
		switch seg[1] {
		case segStatistics:
			res = &projectionStatisticsResource
		case segState:
			res = &projectionStateResource
		case segResult:
			res = &projectionResultResource
		case segQuery:
			res = &projectionQueryResource
		case segConfig:
			res = &projectionConfigResource
		}
	case seg[1] == segCommand:
		switch seg[2] {
		case "enable":
			res = &enableProjectionResource
		case "disable":
			res = &disableProjectionResource
		case "reset":
			res = &resetProjectionResource
		case "abort":
			res = &abortProjectionResource
		}
	}
	return res, seg[0]
}
