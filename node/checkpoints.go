package node

import (
	"context"
	"time"

	eventlog "github.com/annalsdb/annals/log"
)

// checkpointEvery bounds how far the durable part of the log lags behind acknowledged writes. The
// log syncs by amount and with every snapshot, which on a quiet node can be days apart; a backup of
// the volume that is restored without the Raft log would lack all those days.
const checkpointEvery = time.Second

// keepCheckpoints makes the log durable, and moves its checkpoints, soon after
// anything was appended. The log itself tells the owner of an error.
func (n *Node) keepCheckpoints(ctx context.Context, log *eventlog.Log) {
	ticker := time.NewTicker(checkpointEvery)
	defer ticker.Stop()
	synced := int64(-1)
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		end := log.Tail().End
		if end == synced {
			continue
		}
		if log.Sync() != nil {
			return
		}
		synced = end
	}
}
