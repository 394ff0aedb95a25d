// Package grpcapi serves the gRPC interface of EventStoreDB, so that its clients work with a node
// unchanged: streams, persistent subscriptions, projections, users, operations, gossip.
//
// It translates as package httpapi does, and decides nothing about data: a request becomes
// a call of the interfaces of package api, a result or an error becomes messages and a status
// with trailers. errors.go is the one table of errors.
//
// One port serves all. A connection of HTTP/2 whose first request is a call is served by grpc-go's
// own transport, over bytes that conn looks along; package http1 decides which it is. The messages
// of five services are those of EventStoreDB's Go client; users, operations and monitoring have
// files of their own below proto.
//
// DESIGN.md has the decisions and their reasons.
package grpcapi
