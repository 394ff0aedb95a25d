package grpcapi

import (
	"sync"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
)

// streamsService reads streams and the log, and writes to streams.
type streamsService struct {
	streams.UnimplementedStreamsServer
	s *Server

	rooms sync.Pool // of *event.Room: memory of pages for the reads that run
}
