// Package users has the messages and stubs of the gRPC service that manages users, made of
// proto/users.proto.
package users
