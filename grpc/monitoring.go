package grpcapi

import (
	"math"
	"time"

	"google.golang.org/grpc"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/grpc/monitoring"
)

// monitoringService tells of the statistics of this node.
type monitoringService struct {
	monitoring.UnimplementedMonitoringServer
	s *Server
}

// minStatsPeriod is the least time between two messages with statistics.
const minStatsPeriod = 100 * time.Millisecond

// Stats sends the statistics at once and then each period, until the call ends.
func (m *monitoringService) Stats(req *monitoring.StatsReq, stream grpc.ServerStreamingServer[monitoring.StatsResp]) error {
	ctx := stream.Context()
	ticker := time.NewTicker(m.period(req.GetRefreshTimePeriodInMs()))
	defer ticker.Stop()
	for {
		message := &monitoring.StatsResp{Stats: m.s.opts.Statistics.Statistics().Flat(req.GetUseMetadata())}
		if err := stream.Send(message); err != nil {
			return unsent(err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-m.s.draining.Done():
			return event.ErrNotReady
		}
	}
}

// period is the time between two messages, given milliseconds; 0 where none was asked for.
func (m *monitoringService) period(ms uint64) time.Duration {
	if ms == 0 {
		return m.s.opts.StatsPeriod
	}
	return max(minStatsPeriod, time.Duration(min(ms, math.MaxInt64/uint64(time.Millisecond)))*time.Millisecond)
}
