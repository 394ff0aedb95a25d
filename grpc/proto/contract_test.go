// Package proto holds the .proto files of the gRPC services for which there are
// no stubs to import. make generate writes the Go files of them.
package proto

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	_ "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/gossip"
	_ "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	_ "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/projections"
	_ "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/serverfeatures"
	_ "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	_ "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/annalsdb/annals/grpc/monitoring"
	"github.com/annalsdb/annals/grpc/operations"
	"github.com/annalsdb/annals/grpc/query"
	"github.com/annalsdb/annals/grpc/users"
)

// services are all that a node serves, ours and the imported, as clients call them.
var services = map[string]string{
	"event_store.client.streams.Streams":                                  "Read Append Delete Tombstone BatchAppend",
	"event_store.client.persistent_subscriptions.PersistentSubscriptions": "Create Update Delete Read GetInfo ReplayParked List RestartSubsystem",
	"event_store.client.projections.Projections":                          "Create Update Delete Statistics Disable Enable Reset State Result RestartSubsystem",
	"event_store.client.gossip.Gossip":                                    "Read",
	"event_store.client.server_features.ServerFeatures":                   "GetSupportedMethods",
	"event_store.client.users.Users":                                      "Create Update Delete Disable Enable Details ChangePassword ResetPassword",
	"event_store.client.operations.Operations":                            "StartScavenge StopScavenge Shutdown MergeIndexes ResignNode SetNodePriority RestartPersistentSubscriptions",
	"event_store.client.monitoring.Monitoring":                            "Stats",
	"kurrentdb.protocol.v2.streams.StreamsService":                        "AppendSession AppendRecords",
	"annals.query.v1.QueryService":                                        "Read Subscribe Append Head",
}

const (
	login   = "1 login_name string"
	noField = ""
	empty   = "event_store.client.Empty"
)

// calls are what our services take and return: each method in turn.
var calls = map[string]string{
	"Users.Create":                              "CreateReq CreateResp",
	"Users.Update":                              "UpdateReq UpdateResp",
	"Users.Delete":                              "DeleteReq DeleteResp",
	"Users.Disable":                             "DisableReq DisableResp",
	"Users.Enable":                              "EnableReq EnableResp",
	"Users.Details":                             "DetailsReq stream DetailsResp",
	"Users.ChangePassword":                      "ChangePasswordReq ChangePasswordResp",
	"Users.ResetPassword":                       "ResetPasswordReq ResetPasswordResp",
	"Operations.StartScavenge":                  "StartScavengeReq ScavengeResp",
	"Operations.StopScavenge":                   "StopScavengeReq ScavengeResp",
	"Operations.Shutdown":                       empty + " " + empty,
	"Operations.MergeIndexes":                   empty + " " + empty,
	"Operations.ResignNode":                     empty + " " + empty,
	"Operations.SetNodePriority":                "SetNodePriorityReq " + empty,
	"Operations.RestartPersistentSubscriptions": empty + " " + empty,
	"Monitoring.Stats":                          "StatsReq stream StatsResp",
	"QueryService.Read":                         "ReadReq stream ReadResp",
	"QueryService.Subscribe":                    "SubscribeReq stream SubscribeResp",
	"QueryService.Append":                       "AppendReq AppendResp",
	"QueryService.Head":                         "HeadReq HeadResp",
}

// messages are the fields of our messages with their numbers and kinds, and the
// values of our enumerations.
var messages = map[string]string{
	"users.CreateReq":                        "1 options CreateReq.Options",
	"users.CreateReq.Options":                login + ", 2 password string, 3 full_name string, 4 groups repeated string",
	"users.CreateResp":                       noField,
	"users.UpdateReq":                        "1 options UpdateReq.Options",
	"users.UpdateReq.Options":                login + ", 2 password string, 3 full_name string, 4 groups repeated string",
	"users.UpdateResp":                       noField,
	"users.DeleteReq":                        "1 options DeleteReq.Options",
	"users.DeleteReq.Options":                login,
	"users.DeleteResp":                       noField,
	"users.EnableReq":                        "1 options EnableReq.Options",
	"users.EnableReq.Options":                login,
	"users.EnableResp":                       noField,
	"users.DisableReq":                       "1 options DisableReq.Options",
	"users.DisableReq.Options":               login,
	"users.DisableResp":                      noField,
	"users.DetailsReq":                       "1 options DetailsReq.Options",
	"users.DetailsReq.Options":               login,
	"users.DetailsResp":                      "1 user_details DetailsResp.UserDetails",
	"users.DetailsResp.UserDetails":          login + ", 2 full_name string, 3 groups repeated string, 4 last_updated DetailsResp.UserDetails.DateTime, 5 disabled bool",
	"users.DetailsResp.UserDetails.DateTime": "1 ticks_since_epoch int64",
	"users.ChangePasswordReq":                "1 options ChangePasswordReq.Options",
	"users.ChangePasswordReq.Options":        login + ", 2 current_password string, 3 new_password string",
	"users.ChangePasswordResp":               noField,
	"users.ResetPasswordReq":                 "1 options ResetPasswordReq.Options",
	"users.ResetPasswordReq.Options":         login + ", 2 new_password string",
	"users.ResetPasswordResp":                noField,
	"operations.StartScavengeReq":            "1 options StartScavengeReq.Options",
	"operations.StartScavengeReq.Options":    "1 thread_count int32, 2 start_from_chunk int32",
	"operations.StopScavengeReq":             "1 options StopScavengeReq.Options",
	"operations.StopScavengeReq.Options":     "1 scavenge_id string",
	"operations.ScavengeResp":                "1 scavenge_id string, 2 scavenge_result enum 0 Started 1 InProgress 2 Stopped",
	"operations.SetNodePriorityReq":          "1 priority int32",
	"monitoring.StatsReq":                    "1 use_metadata bool, 4 refresh_time_period_in_ms uint64",
	"monitoring.StatsResp":                   "1 stats repeated StatsResp.StatsEntry",
	"monitoring.StatsResp.StatsEntry":        "1 key string, 2 value string",

	"annals.query.v1.Query":                        "1 items repeated Query.Item, 2 all bool",
	"annals.query.v1.Query.Item":                   "1 types repeated string, 2 tags repeated string, 3 categories repeated string, 4 streams repeated string, 5 correlation string",
	"annals.query.v1.Event":                        "1 position int64, 2 stream string, 3 number int64, 4 id string, 5 type string, 6 created int64, 7 is_json bool, 8 data bytes, 9 metadata bytes, 10 tags repeated string, 11 redacted bool",
	"annals.query.v1.ReadReq":                      "1 query Query, 2 after int64, 3 until int64, 4 limit int64, 5 backward bool, 6 no_data bool",
	"annals.query.v1.ReadResp":                     "1 position int64, 2 event Event",
	"annals.query.v1.SubscribeReq":                 "1 query Query, 2 after int64",
	"annals.query.v1.SubscribeResp":                "1 event Event, 2 caught_up SubscribeResp.CaughtUp, 3 checkpoint SubscribeResp.Checkpoint",
	"annals.query.v1.SubscribeResp.CaughtUp":       "1 position int64",
	"annals.query.v1.SubscribeResp.Checkpoint":     "1 position int64",
	"annals.query.v1.AppendReq":                    "1 records repeated AppendRecord, 2 checks repeated AppendReq.StreamCheck, 3 conditions repeated AppendReq.Condition",
	"annals.query.v1.AppendReq.StreamCheck":        "1 stream string, 2 expected_state sint64",
	"annals.query.v1.AppendReq.Condition":          "1 query Query, 2 after int64",
	"annals.query.v1.AppendRecord":                 "1 record_id string, 2 properties repeated AppendRecord.PropertiesEntry, 3 schema AppendRecord.Schema, 4 data bytes, 5 stream string",
	"annals.query.v1.AppendRecord.PropertiesEntry": "1 key string, 2 value google.protobuf.Value",
	"annals.query.v1.AppendRecord.Schema":          "1 format enum 0 FORMAT_UNSPECIFIED 1 FORMAT_JSON 2 FORMAT_PROTOBUF 3 FORMAT_AVRO 4 FORMAT_BYTES, 2 name string, 3 id string",
	"annals.query.v1.AppendResp":                   "1 position int64, 2 streams repeated AppendResp.Span, 3 repeated bool",
	"annals.query.v1.AppendResp.Span":              "1 stream string, 2 first int64, 3 last int64",
	"annals.query.v1.Violation":                    "1 checks repeated Violation.Check, 2 conditions repeated Violation.Conflict, 3 position int64",
	"annals.query.v1.Violation.Check":              "1 index int32, 2 stream string, 3 expected sint64, 4 actual sint64",
	"annals.query.v1.Violation.Conflict":           "1 index int32, 2 position int64, 3 stream string, 4 number int64, 5 id string, 6 type string",
	"annals.query.v1.HeadReq":                      noField,
	"annals.query.v1.HeadResp":                     "1 position int64",
}

// TestContract: the names and numbers on the wire are those that clients were built with.
func TestContract(t *testing.T) {
	got := map[string]string{}
	for name := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var methods []string
		for i := range d.(protoreflect.ServiceDescriptor).Methods().Len() {
			methods = append(methods, string(d.(protoreflect.ServiceDescriptor).Methods().Get(i).Name()))
		}
		got[name] = strings.Join(methods, " ")
	}
	compare(t, got, services)

	gotCalls, gotMessages := map[string]string{}, map[string]string{}
	for _, f := range []protoreflect.FileDescriptor{
		users.File_grpc_proto_users_proto,
		operations.File_grpc_proto_operations_proto,
		monitoring.File_grpc_proto_monitoring_proto,
		query.File_grpc_proto_query_proto,
	} {
		for i := range f.Services().Len() {
			service := f.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				stream := map[bool]string{true: "stream "}
				gotCalls[string(service.Name()+"."+m.Name())] = stream[m.IsStreamingClient()] + local(f, m.Input()) + " " + stream[m.IsStreamingServer()] + local(f, m.Output())
			}
		}
		describe(f, f.Messages(), gotMessages)
	}
	compare(t, gotCalls, calls)
	compare(t, gotMessages, messages)
}

// describe adds the messages of a file, those inside others too.
func describe(f protoreflect.FileDescriptor, all protoreflect.MessageDescriptors, to map[string]string) {
	for i := range all.Len() {
		m := all.Get(i)
		var fields []string
		for j := range m.Fields().Len() {
			field := m.Fields().Get(j)
			kind := field.Kind().String()
			if field.Message() != nil {
				kind = local(f, field.Message())
			}
			if e := field.Enum(); e != nil {
				for k := range e.Values().Len() {
					kind += fmt.Sprintf(" %d %s", e.Values().Get(k).Number(), e.Values().Get(k).Name())
				}
			}
			if field.Cardinality() == protoreflect.Repeated {
				kind = "repeated " + kind
			}
			fields = append(fields, fmt.Sprintf("%d %s %s", field.Number(), field.Name(), kind))
		}
		to[strings.TrimPrefix(string(m.FullName()), "event_store.client.")] = strings.Join(fields, ", ")
		describe(f, m.Messages(), to)
	}
}

// local is the name of a message without the package of its own file.
func local(f protoreflect.FileDescriptor, m protoreflect.MessageDescriptor) string {
	return strings.TrimPrefix(string(m.FullName()), string(f.Package())+".")
}

func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	names := maps.Clone(got)
	maps.Copy(names, want)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if text, ok := got[name]; text != want[name] || !ok {
			t.Errorf("%s: %q, want %q", name, text, want[name])
		}
	}
}
