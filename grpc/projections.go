package grpcapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/projections"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection"
)

// projectionsService runs projections on the leader.
type projectionsService struct {
	projections.UnimplementedProjectionsServer
	s *Server
}

// Clients compare these texts: do not change.
const (
	textProjectionTaken   = "Envelope callback expected Updated, received Conflict instead"
	textProjectionRefused = "Envelope callback expected Updated, received OperationFailed instead"
)

// projectionFailed is the answer to an error, which may be nil, of what was done with a projection.
func projectionFailed(name string, err error) error {
	_, taken := errors.AsType[*projection.Exists](err)
	_, refused := errors.AsType[*projection.Refused](err)
	_, conflict := errors.AsType[*projection.Conflict](err)
	bad, isBad := errors.AsType[*projection.BadInput](err)
	switch {
	case errors.Is(err, projection.ErrNotFound):
		return plain(codes.NotFound, fmt.Sprintf("Projection '%s' not found", name))
	case taken:
		return plain(codes.Unknown, textProjectionTaken)
	case refused, conflict, errors.Is(err, projection.ErrAborted):
		return plain(codes.Unknown, textProjectionRefused)
	case isBad:
		return invalid("%s", bad.Text)
	case errors.Is(err, event.ErrTooLarge):
		return invalid("the query or the name is too large")
	}
	return err
}

// identityOf is the caller as projections see it.
func identityOf(ctx context.Context) projection.Identity {
	who := callOf(ctx).who()
	return projection.Identity{Name: who.Login, Roles: who.Groups, Operator: who.IsOps()}
}

// maxProjectionProperties bounds the properties of a projection as JSON, in bytes.
const maxProjectionProperties = 64 << 10

// propertiesOf are the properties of a projection as they are stored; nil: there are none. Names
// that begin with $ are not for clients.
func propertiesOf(sent map[string]*structpb.Value) ([]byte, error) {
	if len(sent) == 0 {
		return nil, nil
	}
	for name := range sent {
		if name == "" || name[0] == '$' {
			return nil, invalid("the name %q of a property is empty or begins with $", name)
		}
	}
	b, err := appendProperties(nil, sent)
	if err == nil && len(b) > maxProjectionProperties {
		err = invalid("the properties have %d bytes as JSON, at most %d are possible", len(b), maxProjectionProperties)
	}
	return b, err
}

// Create makes a projection and starts it.
func (p *projectionsService) Create(ctx context.Context, req *projections.CreateReq) (*projections.CreateResp, error) {
	if err := onlyKnown(req.ProtoReflect()); err != nil {
		return nil, err
	}
	c := projection.Creation{
		Query: req.GetOptions().GetQuery(), Enabled: true, EngineVersion: strconv.Itoa(int(req.GetOptions().GetEngineVersion())), By: identityOf(ctx),
	}
	switch m := req.GetOptions().GetMode().(type) {
	case *projections.CreateReq_Options_OneTime:
		c.Mode = projection.OneTime
	case *projections.CreateReq_Options_Transient_:
		c.Mode, c.Name = projection.Transient, m.Transient.GetName()
	case *projections.CreateReq_Options_Continuous_:
		c.Mode, c.Name = projection.Continuous, m.Continuous.GetName()
		c.Emit, c.TrackEmittedStreams = m.Continuous.GetEmitEnabled(), m.Continuous.GetTrackEmittedStreams()
	default:
		return nil, invalid("the mode of the projection is missing")
	}
	switch {
	case c.Mode != projection.OneTime && strings.TrimSpace(c.Name) == "":
		return nil, invalid("Projection name is required")
	case c.TrackEmittedStreams && !c.Emit:
		return nil, invalid("only a projection that may emit can track emitted streams")
	}
	var err error
	if c.Properties, err = propertiesOf(req.GetOptions().GetProperties()); err != nil {
		return nil, err
	}
	if c.Mode == projection.Transient {
		if c.Gone, err = p.s.take(ctx, api.Query); err != nil {
			return nil, err
		}
	}
	_, err = p.s.opts.Projections.Create(ctx, c)
	return &projections.CreateResp{}, projectionFailed(c.Name, err)
}

// Update replaces the text of a projection.
func (p *projectionsService) Update(ctx context.Context, req *projections.UpdateReq) (*projections.UpdateResp, error) {
	if err := onlyKnown(req.ProtoReflect()); err != nil {
		return nil, err
	}
	o := req.GetOptions()
	u := projection.Update{Query: o.GetQuery()}
	if e, ok := o.GetEmitOption().(*projections.UpdateReq_Options_EmitEnabled); ok {
		u.Emit = &e.EmitEnabled
	}
	var err error
	if u.Properties, err = propertiesOf(o.GetProperties()); err != nil {
		return nil, err
	}
	return &projections.UpdateResp{}, projectionFailed(o.GetName(),
		p.s.opts.Projections.UpdateQuery(ctx, o.GetName(), u, identityOf(ctx)))
}

// Delete removes a projection.
func (p *projectionsService) Delete(ctx context.Context, req *projections.DeleteReq) (*projections.DeleteResp, error) {
	o := req.GetOptions()
	with := projection.DeleteOptions{
		StateStream: o.GetDeleteStateStream(), CheckpointStream: o.GetDeleteCheckpointStream(), EmittedStreams: o.GetDeleteEmittedStreams(),
	}
	return &projections.DeleteResp{}, projectionFailed(o.GetName(), p.s.opts.Projections.Delete(ctx, o.GetName(), with, identityOf(ctx)))
}

// Enable starts a projection.
func (p *projectionsService) Enable(ctx context.Context, req *projections.EnableReq) (*projections.EnableResp, error) {
	return &projections.EnableResp{}, p.command(ctx, req.GetOptions().GetName(), projection.Enable)
}

// Disable stops a projection, with or without a last checkpoint.
func (p *projectionsService) Disable(ctx context.Context, req *projections.DisableReq) (*projections.DisableResp, error) {
	stop := projection.Abort
	if req.GetOptions().GetWriteCheckpoint() {
		stop = projection.Disable
	}
	return &projections.DisableResp{}, p.command(ctx, req.GetOptions().GetName(), stop)
}

// Reset starts a projection again from the beginning.
func (p *projectionsService) Reset(ctx context.Context, req *projections.ResetReq) (*projections.ResetResp, error) {
	return &projections.ResetResp{}, p.command(ctx, req.GetOptions().GetName(), projection.Reset)
}

func (p *projectionsService) command(ctx context.Context, name string, c projection.Command) error {
	return projectionFailed(name, p.s.opts.Projections.Command(ctx, name, c, identityOf(ctx)))
}

// Statistics sends the statistics of one projection, or of those of a kind.
func (p *projectionsService) Statistics(req *projections.StatisticsReq, stream grpc.ServerStreamingServer[projections.StatisticsResp]) error {
	var list []projection.Statistics
	var err error
	name := req.GetOptions().GetName()
	switch req.GetOptions().GetMode().(type) {
	case *projections.StatisticsReq_Options_Name:
		list = make([]projection.Statistics, 1)
		if err = p.s.await(stream.Context(), p.s.opts.OfProjection(name)); err == nil {
			list[0], err = p.s.opts.Projections.Statistics(name)
		}
	case *projections.StatisticsReq_Options_All:
		list, err = p.s.opts.Projections.List(projection.AllKinds)
	case *projections.StatisticsReq_Options_Transient:
		list, err = p.s.opts.Projections.List(projection.Transient.Only())
	case *projections.StatisticsReq_Options_Continuous:
		list, err = p.s.opts.Projections.List(projection.Continuous.Only())
	case *projections.StatisticsReq_Options_OneTime:
		list, err = p.s.opts.Projections.List(projection.OneTime.Only())
	default:
		return invalid("the projections to report statistics of are missing")
	}
	if err != nil {
		return projectionFailed(name, err)
	}
	return sendAll(stream, list, detailsOf)
}

// detailsOf are the statistics of a projection as the wire has them.
func detailsOf(s *projection.Statistics) *projections.StatisticsResp {
	return &projections.StatisticsResp{Details: &projections.StatisticsResp_Details{
		CoreProcessingTime: s.ProcessingMs, Version: s.Version, Epoch: s.Epoch, EffectiveName: s.EffectiveName,
		WritesInProgress: int32(s.WritesInProgress), ReadsInProgress: int32(s.ReadsInProgress), PartitionsCached: int32(s.PartitionsCached),
		Status: s.Status, StateReason: s.StateReason, Name: s.Name, Mode: string(s.Mode), Position: s.Position, Progress: float32(s.Progress),
		LastCheckpoint: s.LastCheckpoint, EventsProcessedAfterRestart: s.Processed, CheckpointStatus: s.CheckpointStatus,
		BufferedEvents: int64(s.Buffered), WritePendingEventsBeforeCheckpoint: int32(s.PendingBefore), WritePendingEventsAfterCheckpoint: int32(s.PendingAfter),
	}}
}

// State answers with the state of a partition.
func (p *projectionsService) State(ctx context.Context, req *projections.StateReq) (*projections.StateResp, error) {
	value, err := p.content(ctx, req.GetOptions(), p.s.opts.Projections.State)
	return &projections.StateResp{State: value}, err
}

// Result answers with the result of a partition.
func (p *projectionsService) Result(ctx context.Context, req *projections.ResultReq) (*projections.ResultResp, error) {
	value, err := p.content(ctx, req.GetOptions(), p.s.opts.Projections.Result)
	return &projections.ResultResp{Result: value}, err
}

// content reads the state or the result of a partition.
func (p *projectionsService) content(
	ctx context.Context, o interface {
		GetName() string
		GetPartition() string
	},
	read func(ctx context.Context, name, partition string, by projection.Identity) (projection.Content, error),
) (*structpb.Value, error) {
	err := p.s.await(ctx, p.s.opts.OfProjection(o.GetName()))
	var c projection.Content
	if err == nil {
		c, err = read(ctx, o.GetName(), o.GetPartition(), identityOf(ctx))
	}
	if err != nil {
		return nil, projectionFailed(o.GetName(), err)
	}
	return valueOf(c.Text)
}

// valueOf turns JSON into a message; no text is an empty object. protojson would refuse
// what JSON allows: a name twice, half a surrogate pair.
func valueOf(text []byte) (*structpb.Value, error) {
	if len(text) == 0 {
		return structpb.NewStructValue(&structpb.Struct{}), nil
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("read the JSON of a projection: %w", err)
	}
	return structpb.NewValue(v)
}

// RestartSubsystem loads all projections again.
func (p *projectionsService) RestartSubsystem(ctx context.Context, _ *shared.Empty) (*shared.Empty, error) {
	err := p.s.opts.Projections.Restart(ctx)
	if _, loading := errors.AsType[*projection.BadInput](err); loading {
		return nil, plain(codes.FailedPrecondition, "Projection Subsystem cannot be restarted as it is in the wrong state: Starting")
	}
	return &shared.Empty{}, err
}
