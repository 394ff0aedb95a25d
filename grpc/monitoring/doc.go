// Package monitoring has the messages and stubs of the gRPC service that sends statistics, made of
// proto/monitoring.proto.
package monitoring
