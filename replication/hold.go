package replication

import (
	"context"
	"time"

	"github.com/annalsdb/annals/internal/clock"
)

// awaitOthers waits until no other node that is catching up needs entries up to
// an index, at most HoldTime.
func (p *peers) awaitOthers(ctx context.Context, index uint64) {
	hold := p.self.opts.Replica.HoldTime
	if p.gossip == nil || hold <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, hold)
	defer cancel()
	for {
		p.askAll(ctx)
		need := p.awaited()
		if need == 0 || need > index || clock.Sleep(ctx, erasePace) != nil {
			return
		}
	}
}

// awaited is the index of the first entry that a member which is catching up needs: one
// that was heard of late, and got on within HoldTime. Nodes for which the Raft
// log reaches back no more need a manifest instead, and nothing of what is older.
func (p *peers) awaited() (need uint64) {
	r := p.self.replica.Load()
	if r == nil || p.gossip == nil {
		return 0
	}
	first, err := r.state.Logs.FirstIndex()
	if err != nil || first == 0 {
		return 0
	}
	last, members := r.raft.LastIndex(), p.self.members()
	now := time.Now()
	for _, m := range p.others() {
		said, ok := p.get(m.Node)
		next := said.status.Last + 1
		if !ok || !said.status.Running || !members[m.Node.String()] || now.Sub(said.at) > heardFor || now.Sub(said.moved) > p.self.opts.Replica.HoldTime {
			continue
		}
		if next >= first && next <= last && (need == 0 || next < need) {
			need = next
		}
	}
	return need
}
