package grpcapi

import (
	"context"
	"errors"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
)

// Delete hides the events of a stream until something is appended again.
func (v *streamsService) Delete(ctx context.Context, r *streams.DeleteReq) (*streams.DeleteResp, error) {
	o := r.GetOptions()
	expected, err := expectedOf(o.GetExpectedStreamRevision() != nil, o.GetRevision(), o.GetNoStream(), o.GetAny(), o.GetStreamExists())
	at, err := v.remove(ctx, event.SoftDelete, "Delete", o.GetStreamIdentifier(), expected, err)
	if err != nil {
		return nil, err
	}
	return &streams.DeleteResp{PositionOption: &streams.DeleteResp_Position_{
		Position: &streams.DeleteResp_Position{CommitPosition: at, PreparePosition: at},
	}}, nil
}

// Tombstone deletes a stream for good.
func (v *streamsService) Tombstone(ctx context.Context, r *streams.TombstoneReq) (*streams.TombstoneResp, error) {
	o := r.GetOptions()
	expected, err := expectedOf(o.GetExpectedStreamRevision() != nil, o.GetRevision(), o.GetNoStream(), o.GetAny(), o.GetStreamExists())
	at, err := v.remove(ctx, event.HardDelete, "HardDelete", o.GetStreamIdentifier(), expected, err)
	if err != nil {
		return nil, err
	}
	return &streams.TombstoneResp{PositionOption: &streams.TombstoneResp_Position_{
		Position: &streams.TombstoneResp_Position{CommitPosition: at, PreparePosition: at},
	}}, nil
}

// remove deletes a stream in one of the two ways, and returns the position of what says so in the
// log.
func (v *streamsService) remove(ctx context.Context, kind event.WriteKind, doing string, stream *shared.StreamIdentifier, expected int64, err error) (uint64, error) {
	var a appending
	a.Kind = kind
	if err := a.target(string(stream.GetStreamName()), expected, err); err != nil {
		return 0, err
	}
	if err := v.s.authorize(ctx, a.Stream, access.DeleteRight); err != nil {
		return 0, err
	}
	written, err := v.s.write(ctx, &a.Write)
	if err != nil {
		if n, ok := errors.AsType[*named](err); ok {
			n.doing = doing
		}
		return 0, err
	}
	return uint64(max(written.Position, 0)), nil // A client cannot do without one.
}
