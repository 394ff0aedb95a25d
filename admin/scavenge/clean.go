package scavenge

import (
	"context"

	"github.com/annalsdb/annals/admin/scavenge/state"
	"github.com/annalsdb/annals/internal/logkey"
)

// clean forgets streams about which nothing more can change, unless chunks were
// left as they are from which their events still have to go.
func (r *run) clean(ctx context.Context, _ *checkpoint) error {
	if err := r.forget(); err != nil {
		return err
	}
	weights, err := r.weights()
	if err != nil {
		return err
	}
	for number, weight := range weights {
		if weight > 0 {
			r.logger.Info("no stream is forgotten yet: some chunks still hold events to remove", logkey.Chunk, number)
			return nil
		}
	}
	return r.db.Update(ctx, func(tx *state.Tx) error {
		streams, err := tx.CleanStreams(ctx)
		r.begin(streams, "streams")
		r.did(streams)
		return err
	})
}
