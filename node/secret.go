package node

import (
	"errors"
	"fmt"

	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/replication/peersecret"
)

// peerSecret is how other nodes of this machine know that this node's user runs this one. It is
// empty where certificates say more, where no node is asked to prove anything, and in a cluster of
// one.
type peerSecret struct {
	*peersecret.Secret
	remove func() error // nil: it stays
}

// openSecret settles it. Without certificates all nodes are on one machine, and any process of it
// reaches the port between them; by that port a node acts for the system, whatever users and access
// lists say. What only exists in memory, network included, no other process reaches.
func (n *Node) openSecret() error {
	c := n.config
	if c.ClusterSize == 1 || c.Insecure || n.security != nil || n.http == nil || c.MemDb && n.opts.Network != nil {
		return nil
	}
	if !c.MemDb {
		if err := vfs.MkdirAllSync(n.files, c.Db); err != nil {
			return fmt.Errorf("secret between nodes: %w", err)
		}
		s, why, err := peersecret.Settle(n.files, c.Db)
		switch {
		case err == nil && why == nil:
			n.secret.Secret = s
			return nil
		case err == nil:
			n.logger.Warn("the secret by which nodes of one machine know each other was not usable, a new one was made: copy it to the data folders of "+
				"the nodes that had a copy, while they are stopped", logkey.File, s.File(), logkey.Reason, why)
			n.secret.Secret = s
			return nil
		case !errors.Is(err, vfs.ErrShared):
			return fmt.Errorf("secret between nodes: %w", err)
		}
		// Some volumes have permissions of their own for all files.
		n.logger.Warn("other users can read files on the volume of the data folder, so the secret by which nodes of one machine know each other "+
			"is kept elsewhere and is new after each start", logkey.Folder, c.Db, logkey.Error, err)
	}
	s, remove, err := peersecret.Temporary()
	if err != nil {
		return fmt.Errorf("secret between nodes: %w", err)
	}
	n.secret = peerSecret{s, remove}
	return nil
}

func (s *peerSecret) close() error {
	if s.remove == nil {
		return nil
	}
	return s.remove()
}
