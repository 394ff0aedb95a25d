package grpcapi

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/gossip"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/projections"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/serverfeatures"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/annalsdb/annals/admin/activity"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/grpc/monitoring"
	"github.com/annalsdb/annals/grpc/operations"
	"github.com/annalsdb/annals/grpc/users"
)

// methods have the operation that each method is.
var methods = map[string]*api.Operation{
	streams.Streams_Read_FullMethodName:        &api.ReadStream,
	streams.Streams_Append_FullMethodName:      &api.Append,
	streams.Streams_BatchAppend_FullMethodName: &api.Append,
	streams.Streams_Delete_FullMethodName:      &api.DeleteStream,
	streams.Streams_Tombstone_FullMethodName:   &api.DeleteStream,

	persistent.PersistentSubscriptions_List_FullMethodName:             &api.ListGroups,
	persistent.PersistentSubscriptions_GetInfo_FullMethodName:          &api.ListGroups,
	persistent.PersistentSubscriptions_Read_FullMethodName:             &api.Consume,
	persistent.PersistentSubscriptions_Create_FullMethodName:           &api.CreateGroup,
	persistent.PersistentSubscriptions_Update_FullMethodName:           &api.UpdateGroup,
	persistent.PersistentSubscriptions_Delete_FullMethodName:           &api.DeleteGroup,
	persistent.PersistentSubscriptions_ReplayParked_FullMethodName:     &api.ReplayParked,
	persistent.PersistentSubscriptions_RestartSubsystem_FullMethodName: &api.RestartGroups,

	projections.Projections_Statistics_FullMethodName:       &api.ReadProjections,
	projections.Projections_State_FullMethodName:            &api.ReadProjections,
	projections.Projections_Result_FullMethodName:           &api.ReadProjections,
	projections.Projections_Create_FullMethodName:           &api.CreateProjection,
	projections.Projections_Update_FullMethodName:           &api.UpdateProjection,
	projections.Projections_Delete_FullMethodName:           &api.DeleteProjection,
	projections.Projections_Enable_FullMethodName:           &api.CommandProjection,
	projections.Projections_Disable_FullMethodName:          &api.CommandProjection,
	projections.Projections_Reset_FullMethodName:            &api.CommandProjection,
	projections.Projections_RestartSubsystem_FullMethodName: &api.RestartProjections,

	users.Users_Details_FullMethodName:        &api.ReadUser,
	users.Users_Create_FullMethodName:         &api.ManageUser,
	users.Users_Update_FullMethodName:         &api.ManageUser,
	users.Users_Delete_FullMethodName:         &api.ManageUser,
	users.Users_Enable_FullMethodName:         &api.ManageUser,
	users.Users_Disable_FullMethodName:        &api.ManageUser,
	users.Users_ResetPassword_FullMethodName:  &api.ManageUser,
	users.Users_ChangePassword_FullMethodName: &api.ChangePassword,

	operations.Operations_StartScavenge_FullMethodName:                  &api.Operate,
	operations.Operations_StopScavenge_FullMethodName:                   &api.Operate,
	operations.Operations_Shutdown_FullMethodName:                       &api.Operate,
	operations.Operations_MergeIndexes_FullMethodName:                   &api.Operate,
	operations.Operations_ResignNode_FullMethodName:                     &api.Operate,
	operations.Operations_SetNodePriority_FullMethodName:                &api.Operate,
	operations.Operations_RestartPersistentSubscriptions_FullMethodName: &api.Operate,

	monitoring.Monitoring_Stats_FullMethodName:                       &api.ReadStatistics,
	gossip.Gossip_Read_FullMethodName:                                &api.ReadGossip,
	serverfeatures.ServerFeatures_GetSupportedMethods_FullMethodName: {May: api.MayEverybody},
}

// unknown is the operation of a method that is not served.
var unknown api.Operation

// operation is the operation that a call asks for.
func (c *call) operation() *api.Operation {
	if op := methods[c.path]; op != nil {
		return op
	}
	return &unknown
}

// telling are the fields of requests that name the changed object.
var telling = map[protoreflect.Name]bool{
	"name": true, "login_name": true, "stream_name": true, "group_name": true, "scavenge_id": true, "priority": true,
}

// note has a call recorded if it asked for a change, as a request of HTTP would be: its
// path is the method, its query what the request is about. The node that led the client
// elsewhere decided nothing and records nothing. The request is nil when its caller was
// not authenticated, the problem when all went well.
func (s *Server) note(login, from, method string, req any, p *problem) {
	if op := methods[method]; op != nil && op.Recorded {
		s.record(login, from, method, req, p)
	}
}

// noteAppend has an append recorded if it changes who may do what.
func (s *Server) noteAppend(c *call, method string, a *appending, err error) {
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
		p = s.problemOf(method, err)
	}
	s.record(c.who().Login, c.from, method, streamOf(a.Stream), p)
}

func (s *Server) record(login, from, method string, req any, p *problem) {
	if s.opts.Activity == nil || p != nil && p.exception == exceptionNotLeader {
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
	s.opts.Activity.Note(activity.Operation{
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
