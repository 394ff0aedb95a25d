package grpcapi

import (
	"context"
	"errors"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/subscription"
)

// persistentService is groups of competing consumers, of a stream or of the log.
type persistentService struct {
	persistent.UnimplementedPersistentSubscriptionsServer
	s *Server
}

// Create makes a group.
func (p *persistentService) Create(ctx context.Context, r *persistent.CreateReq) (*persistent.CreateResp, error) {
	k, settings, err := createdGroup(r.GetOptions())
	switch {
	case err != nil:
		return nil, ofGroup(k, err)
	case len(event.MetaStreamOf(k.CheckpointStream())) > event.MaxNameBytes:
		return nil, invalid("the names of the stream and the group are too long for the streams of the group")
	}
	if err := p.s.opts.Subscriptions.Create(ctx, k, settings, callOf(ctx).who().Login); err != nil {
		return nil, ofGroup(k, err)
	}
	return &persistent.CreateResp{}, nil
}

// Update replaces the settings of a group, but for its filter and those without a field.
func (p *persistentService) Update(ctx context.Context, r *persistent.UpdateReq) (*persistent.UpdateResp, error) {
	k, settings, err := updatedGroup(r.GetOptions())
	if err == nil {
		err = p.keepOthers(ctx, k, &settings)
	}
	if err == nil {
		err = p.s.opts.Subscriptions.Update(ctx, k, settings, callOf(ctx).who().Login)
	}
	if err != nil {
		return nil, ofGroup(k, err)
	}
	return &persistent.UpdateResp{}, nil
}

// keepOthers leaves the settings that updates have no field for, and a strategy that they have no
// number for, where they say the one with the number 0. Whether there is the group is judged later.
func (p *persistentService) keepOthers(ctx context.Context, k subscription.Key, s *subscription.Settings) error {
	info, err := p.s.opts.Subscriptions.Info(ctx, k)
	if err != nil {
		if errors.Is(err, subscription.ErrNotFound) {
			return nil
		}
		return err
	}
	is := &info.Settings
	s.RetryDelay, s.RetryBackoff, s.CheckpointAtLeastEvery = is.RetryDelay, is.RetryBackoff, is.CheckpointAtLeastEvery
	if s.Strategy == subscription.DispatchToSingle && is.Strategy == subscription.PinnedByCorrelation {
		s.Strategy = subscription.PinnedByCorrelation
	}
	return nil
}

// Delete ends a group.
func (p *persistentService) Delete(ctx context.Context, r *persistent.DeleteReq) (*persistent.DeleteResp, error) {
	o := r.GetOptions()
	k, err := keyOf(o.GetStreamIdentifier(), o.GetAll() != nil, o.GetGroupName())
	if err == nil {
		err = p.s.opts.Subscriptions.Delete(ctx, k, callOf(ctx).who().Login)
	}
	if err != nil {
		return nil, ofGroup(k, err)
	}
	return &persistent.DeleteResp{}, nil
}

// ReplayParked hands parked messages out again.
func (p *persistentService) ReplayParked(ctx context.Context, r *persistent.ReplayParkedReq) (*persistent.ReplayParkedResp, error) {
	o := r.GetOptions()
	k, err := keyOf(o.GetStreamIdentifier(), o.GetAll() != nil, o.GetGroupName())
	stopAt := int64(-1)
	switch o.GetStopAtOption().(type) {
	case *persistent.ReplayParkedReq_Options_StopAt:
		if stopAt = o.GetStopAt(); stopAt < 0 {
			err = invalid("stop_at is %d, it must not be negative", stopAt)
		}
	case *persistent.ReplayParkedReq_Options_NoLimit:
	default:
		err = invalid("the number of parked messages to replay is missing")
	}
	if err == nil {
		err = p.s.opts.Subscriptions.Replay(ctx, k, stopAt, 0)
	}
	if err != nil {
		return nil, ofGroup(k, err)
	}
	return &persistent.ReplayParkedResp{}, nil
}

// RestartSubsystem loads all groups again.
func (p *persistentService) RestartSubsystem(ctx context.Context, _ *shared.Empty) (*shared.Empty, error) {
	switch err := p.s.opts.Subscriptions.Restart(ctx); {
	case errors.Is(err, event.ErrNotReady):
		return nil, failedGroup(subscription.Key{}, "Persistent Subscriptions cannot be restarted as it is in the wrong state.")
	case err != nil:
		return nil, err
	}
	return &shared.Empty{}, nil
}

// keyOf reads which group is meant.
func keyOf(stream *shared.StreamIdentifier, all bool, group string) (k subscription.Key, err error) {
	if group == "" {
		return k, invalid("the name of the group is missing")
	}
	k = subscription.Key{Stream: event.AllStream, Group: group}
	if !all {
		k.Stream, err = nameOf(stream)
	}
	return k, err
}

// ofGroup gives an error, which may be nil, what its answer tells of the group.
func ofGroup(k subscription.Key, err error) error {
	if settings, ok := errors.AsType[*subscription.SettingsError](err); ok {
		return failedGroup(k, settings.Text)
	}
	return onGroup(k, err)
}
