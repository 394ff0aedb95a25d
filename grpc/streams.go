package grpcapi

import (
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
)

// streamsService reads streams and the log, and writes to streams.
type streamsService struct {
	streams.UnimplementedStreamsServer
	s *Server
}
