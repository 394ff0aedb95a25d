package grpcapi

import (
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/gossip"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/projections"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/serverfeatures"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	v2 "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/grpc/monitoring"
	"github.com/annalsdb/annals/grpc/operations"
	"github.com/annalsdb/annals/grpc/query"
	"github.com/annalsdb/annals/grpc/users"
)

// methods have the operation that each method is.
var methods = map[string]*api.Operation{
	streams.Streams_Read_FullMethodName:        &api.ReadStream,
	streams.Streams_Append_FullMethodName:      &api.Append,
	streams.Streams_BatchAppend_FullMethodName: &api.Append,
	streams.Streams_Delete_FullMethodName:      &api.DeleteStream,
	streams.Streams_Tombstone_FullMethodName:   &api.DeleteStream,

	v2.StreamsService_AppendSession_FullMethodName: &api.AppendMany,
	v2.StreamsService_AppendRecords_FullMethodName: &api.AppendMany,

	query.QueryService_Read_FullMethodName:      &api.ReadStream,
	query.QueryService_Subscribe_FullMethodName: &api.ReadStream,
	query.QueryService_Append_FullMethodName:    &api.AppendMany,
	query.QueryService_Head_FullMethodName:      &api.ReadStream,

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
