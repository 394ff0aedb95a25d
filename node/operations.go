package node

import (
	"context"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
)

// operations are the actions that an operator can start on this node.
type operations struct{ n *Node }

var _ api.Operations = operations{}

// Shutdown asks the owner of the node to close it.
func (o operations) Shutdown() {
	o.n.ending.Do(func() {
		o.n.logger.Info("a client asks the node to shut down")
		close(o.n.done)
	})
}

// Reload has the configuration read again.
func (o operations) Reload() {
	if o.n.opts.Reload == nil {
		o.n.logger.Info("this node has no configuration that it could reload")
		return
	}
	o.n.owned.Go(o.n.opts.Reload)
}

// MergeIndexes begins to merge the tables of the index.
func (o operations) MergeIndexes() (event.ID, error) {
	log, err := o.n.store.Log()
	if err != nil {
		return event.ID{}, err
	}
	return o.n.merges.Start(log.Index().Merge)
}

// IndexStatus tells of the index of what events say of themselves.
func (o operations) IndexStatus() (event.IndexStatus, error) {
	log, err := o.n.store.Log()
	if err != nil {
		return event.IndexStatus{}, err
	}
	return log.Postings().Status(), nil
}

// IndexNames lists the categories or the types of the log.
func (o operations) IndexNames(ctx context.Context, r event.IndexNamesRead) (p event.IndexNamesPage, err error) {
	log, err := o.n.store.Log()
	if err != nil {
		return p, err
	}
	kind := label.Category
	if r.Types {
		kind = label.Type
	}
	p.Names, p.Next, err = log.Postings().Names(ctx, kind, r.Prefix, r.After, r.Count)
	return p, err
}

// RebuildIndex has that index be made again, next to a node that serves.
func (o operations) RebuildIndex() error {
	log, err := o.n.store.Log()
	if err != nil {
		return err
	}
	if err := log.Postings().Rebuild(); err != nil {
		return err
	}
	o.n.logger.Info("the index of postings is built again, as an operator asked for")
	return nil
}
