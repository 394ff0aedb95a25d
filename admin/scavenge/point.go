package scavenge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
)

// pointPatience is how long a run waits until a scavenge point is written, and
// then until it is applied on this node.
const pointPatience = 30 * time.Second

// pointData is the payload of a scavenge point.
type pointData struct {
	Threshold int `json:"threshold"`
}

// pointMetadata are those of a scavenge point: none, unless the log's time ran ahead of the
// leader's clock.
type pointMetadata struct {
	EffectiveNow time.Time `json:"effectiveNow"`
}

// choose returns where the run begins: where a stopped run ended, or at a point that this node has
// not scavenged yet, or at a point that it makes. nil: there is nothing to do.
func (r *run) choose(ctx context.Context) (*checkpoint, error) {
	var c checkpoint
	if ok, err := load(r.db, keyCheckpoint, &c); err != nil {
		return nil, err
	} else if ok {
		r.update(func(s *Status) { s.Resumed = true })
		r.logger.Info("scavenge resumes where the last one stopped", "point", c.Point.Number, logkey.Position, c.Point.Position, "step", c.Step)
		return &c, nil
	}
	newest, err := r.newestPoint(ctx)
	if err != nil {
		return nil, err
	}
	var last completed
	scavenged, err := load(r.db, keyCompleted, &last)
	if err != nil {
		return nil, err
	}
	switch {
	case newest != nil && (!scavenged || newest.Number > last.Point.Number):
		r.logger.Info("scavenge point chosen", "point", newest.Number, logkey.Position, newest.Position, "threshold", newest.Threshold)
	case r.request.SyncOnly:
		r.logger.Info("this node has already scavenged the newest scavenge point")
		return nil, nil
	default:
		if newest, err = r.makePoint(ctx, newest); err != nil {
			return nil, err
		}
	}
	// Readers go by the clocks of their nodes. What the point says may come from a wrong one.
	if now := r.s.opts.Now().UTC(); now.Before(newest.EffectiveNow) {
		r.logger.Info("the scavenge point is later than this node's clock; ages are judged by the clock", "point", newest.Number, "time", newest.EffectiveNow, "clock", now)
		newest.EffectiveNow = now
	}
	c = checkpoint{Point: *newest, Step: stepAccumulate, Chunk: -1}
	return &c, r.save(ctx, &c)
}

// newestPoint returns the last scavenge point of the log, nil when there is none.
// Metadata that hide it from readers make no difference: it is what nodes agree on.
func (r *run) newestPoint(ctx context.Context) (*Point, error) {
	for below := r.log.Tail().End; ; {
		number, err := r.log.Reads.LastBelow(event.ScavengePointsStream, below)
		if err != nil {
			return nil, fmt.Errorf("find the newest scavenge point: %w", err)
		}
		if number < 0 {
			return nil, nil
		}
		position, p, err := r.pointAt(ctx, number)
		if err != nil {
			return nil, fmt.Errorf("read the newest scavenge point: %w", err)
		}
		if p != nil {
			return p, nil
		}
		below = position // Who may write to this stream may write anything.
	}
}

// pointAt reads an event of the stream of the points: where it is, and what it says if it is a
// point.
func (r *run) pointAt(ctx context.Context, number int64) (position int64, p *Point, err error) {
	entries, err := r.log.Index().Get(nil, chunkfile.HashStream(event.ScavengePointsStream), number)
	if err != nil {
		return 0, nil, err
	}
	for _, e := range entries {
		err = r.log.Chunks.Scan(ctx, e.Position, e.Position+1, func(rec *eventlog.Stored) error {
			if string(rec.Stream) != event.ScavengePointsStream {
				return nil // The streams share the hash.
			}
			position = rec.Position
			if string(rec.Type) != event.TypeScavengePoint {
				return nil
			}
			var data pointData
			if err := json.Unmarshal(rec.Data, &data); err != nil {
				r.logger.Warn("the data of a scavenge point cannot be read; its threshold counts as 0", "point", rec.Number, logkey.Error, err)
				data = pointData{}
			}
			p = &Point{Position: rec.Position, Number: rec.Number, EffectiveNow: time.Unix(0, rec.Time).UTC(), Threshold: data.Threshold}
			var clock pointMetadata
			if err := json.Unmarshal(rec.Metadata, &clock); err == nil && !clock.EffectiveNow.IsZero() && clock.EffectiveNow.Before(p.EffectiveNow) {
				p.EffectiveNow = clock.EffectiveNow.UTC()
			}
			return nil
		})
		if err != nil {
			return 0, nil, err
		}
	}
	return position, p, nil
}

// makePoint writes the scavenge point that follows before (nil: the first one)
// and waits until this node has applied it. If another node is faster, its point is used.
func (r *run) makePoint(ctx context.Context, before *Point) (*Point, error) {
	info, err := r.log.Reads.StreamInfo(event.ScavengePointsStream)
	if err != nil {
		return nil, err
	}
	known := int64(-1)
	if before != nil {
		known = before.Number
	}
	data, err := json.Marshal(pointData{r.request.Threshold})
	if err != nil {
		return nil, err
	}
	if err := r.write(ctx, record.Append(event.ScavengePointsStream, info.Last, record.Proposed(event.TypeScavengePoint, data))); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, pointPatience)
	defer cancel()
	for last := info.Last; ; {
		if err := r.log.Reads.WaitStream(waiting, event.ScavengePointsStream, last); err != nil {
			if ctx.Err() == nil && waiting.Err() != nil {
				err = fmt.Errorf("the scavenge point was not applied here within %v: this node is far behind the leader", pointPatience)
			}
			return nil, err
		}
		p, err := r.newestPoint(ctx)
		if err != nil {
			return nil, err
		}
		if p != nil && p.Number > known {
			r.logger.Info("scavenge point made", "point", p.Number, logkey.Position, p.Position, "threshold", p.Threshold)
			return p, nil
		}
		// Something else was written to the stream.
		if info, err = r.log.Reads.StreamInfo(event.ScavengePointsStream); err != nil {
			return nil, err
		}
		last = info.Last
	}
}

// write writes a scavenge point through the leader. One that another node has
// written meanwhile is as good.
func (r *run) write(ctx context.Context, w *event.Write) error {
	writing, cancel := context.WithTimeout(ctx, pointPatience)
	defer cancel()
	_, err := r.s.opts.Write(writing, w)
	var raced *event.WrongExpectedVersion
	switch {
	case err == nil:
	case errors.As(err, &raced):
		r.logger.Info("another node has made a scavenge point meanwhile")
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return fmt.Errorf("write a scavenge point through the leader, within %v: %w", pointPatience, err)
	}
	return nil
}
