package grpcapi

import (
	"errors"
	"net/http"
	"net/url"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/annalsdb/annals/admin/activity"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
)

// telling are the fields of requests that name the changed object.
var telling = map[protoreflect.Name]bool{
	"name": true, "login_name": true, "stream_name": true, "group_name": true, "scavenge_id": true, "priority": true,
}

// recorder has recorded what callers asked for.
type recorder struct {
	to        api.Activity // nil: nothing is recorded
	problemOf func(method string, err error) *problem
}

// note has a call recorded if it asked for a change, as a request of HTTP would be: its
// path is the method, its query what the request is about. The node that led the client
// elsewhere decided nothing and records nothing. The request is nil when its caller was
// not authenticated, the problem when all went well.
func (r *recorder) note(login, from, method string, req any, p *problem) {
	if op := methods[method]; op != nil && op.Recorded {
		r.record(login, from, method, req, p)
	}
}

// noteAppend has an append recorded if it changes who may do what.
func (r *recorder) noteAppend(c *call, method string, a *appending, err error) {
	if !api.RecordsAppend(a.Stream) {
		return
	}
	if a.end != nil {
		defer a.end()
	}
	var p *problem
	switch {
	case errors.Is(err, event.ErrTooLarge):
		p = plain(codes.InvalidArgument, err.Error())
	case err != nil:
		p = r.problemOf(method, err)
	}
	r.record(c.who().Login, c.from, method, streamOf(a.Stream), p)
}

func (r *recorder) record(login, from, method string, req any, p *problem) {
	if r.to == nil || p != nil && p.exception == exceptionNotLeader {
		return
	}
	about := url.Values{}
	if m, ok := req.(proto.Message); ok {
		collect(about, m.ProtoReflect())
	}
	code := codes.OK
	if p != nil {
		code = p.code
	}
	r.to.Note(activity.Operation{
		Who: login, From: from, Method: http.MethodPost, Path: method, Query: about.Encode(), Status: httpStatus(code),
	})
}

// collect adds the telling fields of a message.
func collect(to url.Values, m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList() || f.IsMap():
		case f.Message() != nil:
			collect(to, v.Message())
		case !telling[f.Name()]:
		case f.Kind() == protoreflect.BytesKind:
			to.Set(string(f.Name()), string(v.Bytes()))
		default:
			to.Set(string(f.Name()), v.String())
		}
		return true
	})
}

// httpStatus is the status that stands for a code where operations are recorded.
func httpStatus(code codes.Code) int {
	switch code {
	case codes.OK:
		return http.StatusOK
	case codes.InvalidArgument, codes.FailedPrecondition:
		return http.StatusBadRequest
	case codes.Unauthenticated, codes.PermissionDenied:
		return http.StatusUnauthorized
	case codes.NotFound:
		return http.StatusNotFound
	case codes.AlreadyExists:
		return http.StatusConflict
	case codes.DeadlineExceeded:
		return http.StatusRequestTimeout
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
