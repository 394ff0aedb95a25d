package grpcapi

import (
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"

	"github.com/annalsdb/annals/event"
)

// messageOf is an event that a group hands out, as the wire has it.
func messageOf(e *event.Resolved, retries int, texts bool) *persistent.ReadResp_ReadEvent {
	m := &persistent.ReadResp_ReadEvent{
		Position: &persistent.ReadResp_ReadEvent_CommitPosition{CommitPosition: uint64(e.Position)},
		Count:    &persistent.ReadResp_ReadEvent_RetryCount{RetryCount: int32(retries)},
	}
	own := recordedOf(&e.Record, texts)
	switch {
	case e.Link == event.NotLink:
		m.Event = own
	case e.Target == nil:
		m.Link = own
	default:
		m.Event, m.Link = recordedOf(e.Target, texts), own
	}
	return m
}

func recordedOf(r *event.Record, texts bool) *persistent.ReadResp_ReadEvent_RecordedEvent {
	return &persistent.ReadResp_ReadEvent_RecordedEvent{
		Id: uuidOf(r.ID, texts), StreamIdentifier: streamOf(r.Stream), StreamRevision: uint64(r.Number),
		PreparePosition: uint64(r.Position), CommitPosition: uint64(r.Position),
		Metadata: mapOf(r), CustomMetadata: r.Metadata, Data: r.Data,
	}
}

// idsOf reads ids.
func idsOf(all []*shared.UUID) ([]event.ID, error) {
	ids := make([]event.ID, len(all))
	for i := range all {
		var err error
		if ids[i], err = idOf(all[i]); err != nil {
			return nil, err
		}
	}
	return ids, nil
}
