package node

import (
	"context"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/manager"
	"github.com/annalsdb/annals/admin/backup/s3"
)

// backupEngine makes backups of this node at BackupTo.
type backupEngine struct {
	n      *Node
	target backup.Target
}

var _ manager.Engine = (*backupEngine)(nil)

func newBackupEngine(n *Node) (*backupEngine, error) {
	c := n.config
	if !s3.IsURL(c.BackupTo) {
		return &backupEngine{n, backup.NewFolder(n.fs, c.BackupTo)}, nil
	}
	target, err := s3.New(s3.Options{URL: c.BackupTo, Endpoint: c.BackupS3Endpoint})
	if err != nil {
		return nil, err
	}
	return &backupEngine{n, target}, nil
}

func (e *backupEngine) Create(ctx context.Context, id string, progress func(backup.Progress)) (backup.Manifest, error) {
	c := e.n.config
	return backup.Create(ctx, e.n.backups, e.target, backup.CreateOptions{
		ID: id, Throttle: int64(c.BackupThrottleMiB) << 20, Verify: c.BackupVerify, Progress: progress, Now: e.n.opts.Now,
	})
}

func (e *backupEngine) List(ctx context.Context) ([]backup.Manifest, error) {
	return e.target.List(ctx)
}

func (e *backupEngine) Prune(ctx context.Context, keep int) ([]string, error) {
	pruned, err := backup.Prune(ctx, e.target, keep, 0, e.n.opts.Now(), false)
	return pruned.Removed, err
}
