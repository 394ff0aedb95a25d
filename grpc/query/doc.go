// Package query has the messages and stubs of the gRPC service of queries and of appends with
// conditions, made of proto/query.proto.
package query
