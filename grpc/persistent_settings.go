//lint:file-ignore SA1019 Clients send the fields of former versions too.

package grpcapi

import (
	"fmt"
	"math"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"google.golang.org/protobuf/proto"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/match"
	"github.com/annalsdb/annals/subscription"
)

// createdGroup reads which group is to be made, and how. A missing field is 0. The key may be known
// when there is an error.
func createdGroup(o *persistent.CreateReq_Options) (k subscription.Key, s subscription.Settings, err error) {
	in := o.GetSettings()
	s = subscription.Settings{
		ResolveLinks: in.GetResolveLinks(), ExtraStatistics: in.GetExtraStatistics(), MaxRetryCount: int(in.GetMaxRetryCount()),
		LiveBufferSize: int(in.GetLiveBufferSize()), BufferSize: int(in.GetHistoryBufferSize()), ReadBatchSize: int(in.GetReadBatchSize()),
		MinCheckpointCount: int(in.GetMinCheckpointCount()), MaxCheckpointCount: int(in.GetMaxCheckpointCount()),
		MaxSubscriberCount: int(in.GetMaxSubscriberCount()), Strategy: subscription.Strategy(in.GetConsumerStrategy()),
	}
	if s.Strategy == "" {
		s.Strategy = subscription.Strategy(in.GetNamedConsumerStrategy().String())
	}
	// Clients that know only streams set this identifier and no kind of source.
	stream := o.GetStreamIdentifier()
	if o.GetStream() != nil {
		stream = o.GetStream().GetStreamIdentifier()
	}
	if k, err = keyOf(stream, o.GetAll() != nil, o.GetGroupName()); err != nil {
		return k, s, err
	}
	if s.MessageTimeout, err = waitOf(in.GetMessageTimeoutMs(), in.GetMessageTimeoutTicks()); err != nil {
		return k, s, err
	}
	if s.CheckpointAfter, err = waitOf(in.GetCheckpointAfterMs(), in.GetCheckpointAfterTicks()); err != nil {
		return k, s, err
	}
	if s.StartFrom, err = startOf(o); err != nil {
		return k, s, err
	}
	s.Filter, err = groupFilterOf(o.GetAll().GetFilter())
	return k, s, err
}

// updatedGroup is createdGroup of an update. Its message is that of a creation, with the same
// numbers, without the filter and the text of the strategy.
func updatedGroup(o *persistent.UpdateReq_Options) (k subscription.Key, s subscription.Settings, err error) {
	raw, err := proto.Marshal(o)
	if err != nil {
		return k, s, fmt.Errorf("encode the options of an update: %w", err)
	}
	c := &persistent.CreateReq_Options{}
	if err := proto.Unmarshal(raw, c); err != nil {
		return k, s, invalid("the options have unknown fields: %v", err)
	}
	if c.Settings != nil {
		c.Settings.ConsumerStrategy = ""
	}
	if c.GetAll() != nil {
		c.GetAll().FilterOption = nil
	}
	return createdGroup(c)
}

// startOf reads where a group starts, -1 for the end.
func startOf(o *persistent.CreateReq_Options) (int64, error) {
	switch o.GetStreamOption().(type) {
	case *persistent.CreateReq_Options_Stream:
		switch at := o.GetStream().GetRevisionOption().(type) {
		case *persistent.CreateReq_StreamOptions_Start:
			return 0, nil
		case *persistent.CreateReq_StreamOptions_End:
			return event.End, nil
		case *persistent.CreateReq_StreamOptions_Revision:
			return startRevision(at.Revision)
		}
	case *persistent.CreateReq_Options_All:
		switch at := o.GetAll().GetAllOption().(type) {
		case *persistent.CreateReq_AllOptions_Start:
			return 0, nil
		case *persistent.CreateReq_AllOptions_End:
			return event.End, nil
		case *persistent.CreateReq_AllOptions_Position:
			commit, prepare := at.Position.GetCommitPosition(), at.Position.GetPreparePosition()
			if prepare > commit {
				return 0, &subscription.SettingsError{Text: "Invalid Start From position: prepare position must be less than or equal to the commit position."}
			}
			return positionOf(commit, prepare)
		}
	default:
		return startRevision(o.GetSettings().GetRevision())
	}
	return 0, invalid("the start position of the group is missing")
}

func startRevision(revision uint64) (int64, error) {
	if revision == noRevision {
		return event.End, nil
	}
	return revisionOf(revision)
}

// waitOf reads a wait of which one unit is 0, in whole milliseconds, as they are stored.
func waitOf(milliseconds int32, ticks int64) (time.Duration, error) {
	const perMillisecond = 10_000
	all := int64(milliseconds) + ticks/perMillisecond
	if all > math.MaxInt32 || all < math.MinInt32 {
		return 0, invalid("a wait of %d ticks is too long", ticks)
	}
	return time.Duration(all) * time.Millisecond, nil
}

// groupFilterOf reads the filter of a group on the log; nil: it gets everything.
func groupFilterOf(f *persistent.CreateReq_AllOptions_FilterOptions) (filter *subscription.Filter, err error) {
	if f == nil {
		return nil, nil
	}
	names := f.GetStreamIdentifier()
	filter = &subscription.Filter{OfStream: names != nil}
	if names == nil {
		names = f.GetEventType()
	}
	filter.Regex, filter.Prefixes = names.GetRegex(), names.GetPrefix()
	if filter.Regex != "" {
		_, err = match.Expression(filter.Regex)
	} else {
		_, err = match.Prefixes(filter.Prefixes)
	}
	if err != nil {
		return nil, invalid("the filter is not valid: %v", err)
	}
	return filter, nil
}
