// Package operations has the messages and stubs of the gRPC service that operates a node, made of
// proto/operations.proto.
package operations
