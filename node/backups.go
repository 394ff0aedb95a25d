package node

import (
	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/session"
	"github.com/annalsdb/annals/event"
	eventlog "github.com/annalsdb/annals/log"
)

// newBackupSessions returns what holds this node's files still for backups.
func newBackupSessions(n *Node) *session.Service {
	return session.New(session.Options{
		Pin: func() (*eventlog.Pin, error) {
			log := n.log.Load()
			if log == nil {
				return nil, event.ErrNotReady
			}
			return log.Pin()
		},
		NodeID: func() string {
			if c := n.cluster.Load(); c != nil {
				return c.Node().String()
			}
			return ""
		},
		InMemory: n.config.MemDb, Logger: n.logger.Named("backup"), Stats: n.opts.Stats,
	})
}

// endBackups lets go of what backup sessions keep on the disk. It reports whether there were any.
func (n *Node) endBackups() bool { return n.backups.EndAll(backup.EndedByFullDisk) > 0 }
