package grpcapi

import "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"

// streamsService reads and writes streams.
type streamsService struct {
	streams.UnimplementedStreamsServer
	s *Server
}
