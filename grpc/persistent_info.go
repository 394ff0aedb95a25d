package grpcapi

import (
	"context"
	"math"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/subscription"
)

// anonymous is the user name of a consumer without credentials.
const anonymous = "anonymous"

// GetInfo answers with all that is known of a group.
func (p *persistentService) GetInfo(ctx context.Context, r *persistent.GetInfoReq) (*persistent.GetInfoResp, error) {
	o := r.GetOptions()
	k, err := keyOf(o.GetStreamIdentifier(), o.GetAll() != nil, o.GetGroupName())
	if err != nil {
		return nil, err
	}
	if err := p.s.await(ctx, p.s.opts.OfGroup(k)); err != nil {
		return nil, onGroup(k, err)
	}
	info, err := p.s.opts.Subscriptions.Info(ctx, k)
	if err != nil {
		return nil, onGroup(k, err)
	}
	return &persistent.GetInfoResp{SubscriptionInfo: infoOf(&info)}, nil
}

// List answers with all groups, or those of one stream, of which there must be one then.
func (p *persistentService) List(ctx context.Context, r *persistent.ListReq) (*persistent.ListResp, error) {
	stream := ""
	switch o := r.GetOptions(); o.GetListOption().(type) {
	case *persistent.ListReq_Options_ListAllSubscriptions:
	case *persistent.ListReq_Options_ListForStream:
		stream = event.AllStream
		if o.GetListForStream().GetAll() == nil {
			var err error
			if stream, err = nameOf(o.GetListForStream().GetStream()); err != nil {
				return nil, err
			}
		}
	default:
		return nil, invalid("the groups to list are missing")
	}
	list, err := p.s.opts.Subscriptions.List(ctx, stream)
	if err == nil && len(list) == 0 && stream != "" {
		err = subscription.ErrNotFound
	}
	if err != nil {
		return nil, onGroup(subscription.Key{Stream: stream}, err)
	}
	answer := &persistent.ListResp{Subscriptions: make([]*persistent.SubscriptionInfo, len(list))}
	for i := range list {
		answer.Subscriptions[i] = infoOf(&list[i])
	}
	return answer, nil
}

// infoOf is the information about a group in its wire form.
func infoOf(i *subscription.Info) *persistent.SubscriptionInfo {
	position := func(n int64) string {
		if n < 0 {
			return ""
		}
		return i.Position(n)
	}
	s := &i.Settings
	info := &persistent.SubscriptionInfo{
		EventSource: i.Stream, GroupName: i.Group, Status: i.Status,
		AveragePerSecond: rounded(i.PerSecond), TotalItems: i.Total, CountSinceLastMeasurement: i.SinceLast,
		LastCheckpointedEventPosition: position(i.Checkpoint), LastKnownEventPosition: position(i.LastKnown),
		ResolveLinkTos: s.ResolveLinks, StartFrom: i.Position(s.StartFrom), MessageTimeoutMilliseconds: int32(s.MessageTimeout.Milliseconds()),
		ExtraStatistics: s.ExtraStatistics, MaxRetryCount: int32(s.MaxRetryCount), LiveBufferSize: int32(s.LiveBufferSize),
		BufferSize: int32(s.BufferSize), ReadBatchSize: int32(s.ReadBatchSize), CheckPointAfterMilliseconds: int32(s.CheckpointAfter.Milliseconds()),
		MinCheckPointCount: int32(s.MinCheckpointCount), MaxCheckPointCount: int32(s.MaxCheckpointCount),
		ReadBufferCount: int32(i.ReadBuffer), LiveBufferCount: int64(i.LiveBuffer), RetryBufferCount: int32(i.RetryBuffer),
		TotalInFlightMessages: int32(i.Outstanding), OutstandingMessagesCount: int32(i.Outstanding),
		NamedConsumerStrategy: string(s.Strategy), MaxSubscriberCount: int32(s.MaxSubscriberCount), ParkedMessageCount: i.Parked,
	}
	for j := range i.Connections {
		info.Connections = append(info.Connections, consumerOf(&i.Connections[j]))
	}
	return info
}

func consumerOf(c *subscription.ConnectionInfo) *persistent.SubscriptionInfo_ConnectionInfo {
	info := &persistent.SubscriptionInfo_ConnectionInfo{
		From: c.From, Username: c.User, AverageItemsPerSecond: rounded(c.PerSecond), TotalItems: c.Total, CountSinceLastMeasurement: c.SinceLast,
		AvailableSlots: int32(c.AvailableSlots), InFlightMessages: int32(c.InFlight), ConnectionName: c.Name,
	}
	for _, l := range c.Latencies {
		info.ObservedMeasurements = append(info.ObservedMeasurements, &persistent.SubscriptionInfo_Measurement{Key: l.Name, Value: int64(math.Round(l.Value))})
	}
	return info
}

// rounded is a rate as an integer.
func rounded(rate float64) int32 { return int32(math.Round(min(rate, math.MaxInt32))) }
