package node

import (
	"context"
	"fmt"
	"time"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/manager"
	"github.com/annalsdb/annals/admin/backup/s3"
	"github.com/annalsdb/annals/admin/backup/session"
	"github.com/annalsdb/annals/admin/cron"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/clock"
	eventlog "github.com/annalsdb/annals/log"
)

// newBackupSessions returns what holds this node's files still for backups.
func newBackupSessions(n *Node) *session.Service {
	return session.New(session.Options{
		Pin: func() (*eventlog.Pin, error) {
			log, err := n.store.Log()
			if err != nil {
				return nil, err
			}
			return log.Pin()
		},
		Await:    n.awaitAcknowledged,
		NodeID:   func() string { return n.cluster.Node().String() },
		InMemory: n.config.MemDb, Logger: n.logger.Named("backup"), Stats: n.opts.Stats,
	})
}

// awaitAcknowledged returns when this node can read what the leader could when it was asked.
func (n *Node) awaitAcknowledged(ctx context.Context) error {
	log, err := n.store.Log()
	if err != nil {
		return nil // There is nothing to be pinned.
	}
	var why error // of the last try that was not cut short
	for {
		end, err := n.cluster.LeaderEnd(ctx)
		if err == nil {
			return log.Reads.WaitLog(ctx, end-1)
		}
		if why == nil || ctx.Err() == nil {
			why = err
		}
		// The leader may be busy, or about to change.
		if clock.Sleep(ctx, leaderEndPace) != nil {
			return why
		}
	}
}

// leaderEndPace is how long a node waits before it asks again where the leader's log ends.
const leaderEndPace = 100 * time.Millisecond

// endBackups lets go of what backup sessions keep on the disk. It reports whether there were any.
func (n *Node) endBackups() bool { return n.backups.EndAll(backup.EndedByFullDisk) > 0 }

// newBackupManager returns what backs this node up, which is nothing as long as BackupTo is not
// set. The backups lie in a file system of their own: when that hangs the node does not hang.
func newBackupManager(n *Node) (*manager.Manager, error) {
	c := n.config
	o := manager.Options{
		To: c.BackupTo, Keep: c.BackupKeep, InMemory: c.MemDb, FS: n.opts.FS, Dir: c.Db,
		Records: n.store, MaxAge: c.ScavengeHistoryMaxAge, WriteTimeout: c.WriteTimeout,
		Endpoint: n.endpoint, Now: n.opts.Now,
		Logger: n.logger.Named("backup"), Stats: n.opts.Stats,
	}
	var err error
	if o.Schedule, err = cron.Parse(c.BackupSchedule); err != nil {
		return nil, fmt.Errorf("option BackupSchedule: %w", err)
	}
	if c.BackupTo != "" && !c.MemDb {
		if o.Target, err = n.backupTarget(); err != nil {
			return nil, fmt.Errorf("option BackupTo: %w", err)
		}
		o.Create = func(ctx context.Context, id string, progress func(backup.Progress)) (backup.Manifest, error) {
			return backup.Create(ctx, n.backups, o.Target, backup.CreateOptions{
				ID: id, Throttle: int64(c.BackupThrottleMiB) << 20, Verify: c.BackupVerify, Progress: progress, Now: n.opts.Now,
			})
		}
	}
	return manager.New(o)
}

// BackupFolder is the folder into which a node with this configuration backs itself up. It is empty
// if there is none: no backups are made, or an object store keeps them.
func BackupFolder(c *config.Config) string {
	if c.MemDb || s3.IsURL(c.BackupTo) {
		return ""
	}
	return c.BackupTo
}

func (n *Node) backupTarget() (backup.Target, error) {
	if c := n.config; s3.IsURL(c.BackupTo) {
		return s3.New(s3.Options{URL: c.BackupTo, Endpoint: c.BackupS3Endpoint, Network: n.opts.Network, Now: n.opts.Now})
	}
	return backup.NewFolder(n.fs, n.config.BackupTo), nil
}

// backUp makes the backups that are due, once this node has taken its part in the cluster.
func (n *Node) backUp(ctx context.Context) {
	if n.scavenge.awaitStart(ctx) {
		n.backupRuns.Run(ctx)
	}
}
