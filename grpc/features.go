package grpcapi

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/serverfeatures"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
)

// featuresService tells clients what there is, before anything else.
type featuresService struct {
	serverfeatures.UnimplementedServerFeaturesServer
	s *Server
}

// features are what methods can do beyond their first version, by service and method in lower case.
var features = map[string][]string{
	"event_store.client.streams.streams/read":                                              {"position", "events"},
	"event_store.client.streams.streams/batchappend":                                       {"deadline_duration"},
	"event_store.client.projections.projections/create":                                    {"track_emitted_streams"},
	"event_store.client.persistent_subscriptions.persistentsubscriptions/create":           {"stream", "all"},
	"event_store.client.persistent_subscriptions.persistentsubscriptions/update":           {"stream", "all"},
	"event_store.client.persistent_subscriptions.persistentsubscriptions/delete":           {"stream", "all"},
	"event_store.client.persistent_subscriptions.persistentsubscriptions/read":             {"stream", "all"},
	"event_store.client.persistent_subscriptions.persistentsubscriptions/getinfo":          {"stream", "all"},
	"event_store.client.persistent_subscriptions.persistentsubscriptions/replayparked":     {"stream", "all"},
	"event_store.client.persistent_subscriptions.persistentsubscriptions/list":             {"stream", "all"},
	"event_store.client.persistent_subscriptions.persistentsubscriptions/restartsubsystem": {"stream", "all"},
}

// GetSupportedMethods lists every method of every service that is served.
func (f *featuresService) GetSupportedMethods(context.Context, *shared.Empty) (*serverfeatures.SupportedMethods, error) {
	answer := &serverfeatures.SupportedMethods{EventStoreServerVersion: f.s.opts.Version}
	for _, path := range slices.Sorted(maps.Keys(f.s.methods)) {
		service, method, _ := strings.Cut(strings.ToLower(path[1:]), "/")
		answer.Methods = append(answer.Methods, &serverfeatures.SupportedMethod{
			MethodName: method, ServiceName: service, Features: features[service+"/"+method],
		})
	}
	return answer, nil
}
