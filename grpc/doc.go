// Package grpcapi serves the gRPC interface of EventStoreDB, so that its clients work with a node
// unchanged: streams, persistent subscriptions, projections, users, operations, gossip.
//
// It translates as package httpapi does, and decides nothing about data: a request becomes
// a call of the small interfaces in service.go, a result or an error becomes messages and a status
// with trailers. errors.go is the one table of errors.
//
// One port serves all. A request of HTTP/2 with the content type application/grpc is handed to
// grpc-go through its ServeHTTP; net/http has the connection, its TLS and its end. The caller is
// authenticated before. The messages of five services are those of EventStoreDB's Go client; users,
// operations and monitoring have files of their own below proto.
//
// DESIGN.md has the decisions and their reasons.
package grpcapi
