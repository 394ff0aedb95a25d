package grpcapi

import (
	"context"
	"errors"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"google.golang.org/grpc/codes"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/grpc/operations"
	"github.com/annalsdb/annals/internal/logkey"
)

// operationsService acts on this node.
type operationsService struct {
	operations.UnimplementedOperationsServer
	s *Server
}

const keyScavengeID = "scavenge-id"

// fullThrottle is all of the time, in percent.
const fullThrottle = 100

// StartScavenge starts a run. If one is already running, it answers with the id of that run.
func (o *operationsService) StartScavenge(ctx context.Context, req *operations.StartScavengeReq) (*operations.ScavengeResp, error) {
	threads := req.GetOptions().GetThreadCount()
	switch {
	case threads == 0: // It was not given.
		threads = 1
	case threads < 0:
		return nil, invalid("threads must be a 1 or above")
	}
	// Where to start is checked and has no meaning: a run knows what is left to do.
	if req.GetOptions().GetStartFromChunk() < 0 {
		return nil, invalid("startFromChunk must be a positive integer")
	}
	id, err := o.s.opts.Scavenges.Start(scavenge.Request{Threads: int(threads), ThrottlePercent: fullThrottle})
	switch {
	case errors.Is(err, scavenge.ErrRunning):
		// It may have ended since: the caller learns of the one that was in the way.
		return &operations.ScavengeResp{ScavengeId: o.s.opts.Scavenges.Last().ID.String(), ScavengeResult: operations.ScavengeResp_InProgress}, nil
	case errors.Is(err, scavenge.ErrInMemory):
		return nil, plain(codes.FailedPrecondition, "Scavenge is not supported on in-memory databases")
	case errors.Is(err, event.ErrChunksLocked):
		return nil, plain(codes.FailedPrecondition, "Failed to acquire the chunk switch lock")
	case err != nil:
		return nil, err
	}
	o.told(ctx, "scavenge asked for", logkey.Scavenge, id.String())
	return &operations.ScavengeResp{ScavengeId: id.String(), ScavengeResult: operations.ScavengeResp_Started}, nil
}

// StopScavenge stops a run and answers when it has ended.
func (o *operationsService) StopScavenge(ctx context.Context, req *operations.StopScavengeReq) (*operations.ScavengeResp, error) {
	text := req.GetOptions().GetScavengeId()
	unknown := &problem{codes.NotFound, "Scavenge id was invalid.", "scavenge-not-found", []string{keyScavengeID, text}}
	id, err := event.ParseID(text)
	if err != nil || id.IsZero() { // The zero id would stop whichever runs.
		return nil, unknown
	}
	_, err = o.s.opts.Scavenges.Stop(ctx, id)
	switch {
	case errors.Is(err, scavenge.ErrNoSuchRun):
		return nil, unknown
	case err != nil:
		return nil, err
	}
	o.told(ctx, "scavenge stopped on demand", logkey.Scavenge, id.String())
	return &operations.ScavengeResp{ScavengeId: id.String(), ScavengeResult: operations.ScavengeResp_Stopped}, nil
}

// told tells the log who asked for what.
func (o *operationsService) told(ctx context.Context, what string, more ...any) {
	c := callOf(ctx)
	o.s.opts.Told(what, c.who(), c.from, more...)
}

// Shutdown stops the node, which answers calls in flight first, this one included.
func (o *operationsService) Shutdown(ctx context.Context, _ *shared.Empty) (*shared.Empty, error) {
	o.told(ctx, "shutdown asked for")
	o.s.opts.Operations.Shutdown()
	return &shared.Empty{}, nil
}

// MergeIndexes begins to merge the tables of the index, and answers at once.
func (o *operationsService) MergeIndexes(context.Context, *shared.Empty) (*shared.Empty, error) {
	_, err := o.s.opts.Operations.MergeIndexes()
	return &shared.Empty{}, err
}

// ResignNode hands leadership over if this node has it.
func (o *operationsService) ResignNode(ctx context.Context, _ *shared.Empty) (*shared.Empty, error) {
	return &shared.Empty{}, o.s.opts.Membership.Resign(ctx)
}

// SetNodePriority changes how much this node wants to lead.
func (o *operationsService) SetNodePriority(_ context.Context, req *operations.SetNodePriorityReq) (*shared.Empty, error) {
	return &shared.Empty{}, o.s.opts.Membership.SetPriority(int(req.GetPriority()))
}

// RestartPersistentSubscriptions loads all groups again. Where none runs nothing is to be done.
func (o *operationsService) RestartPersistentSubscriptions(ctx context.Context, _ *shared.Empty) (*shared.Empty, error) {
	if err := o.s.opts.Subscriptions.Restart(ctx); !errors.Is(err, event.ErrNotReady) {
		return &shared.Empty{}, err
	}
	return &shared.Empty{}, nil
}
