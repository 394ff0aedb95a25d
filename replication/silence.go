package replication

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/logkey"
)

// silence has a follower stand for election as soon as its leader has been silent for long enough.
// By itself raft looks at random moments, of which the first that can tell comes up to three times
// as late.
//
// Silence is counted in looks that find nothing new: a node that stood still, perhaps with its
// whole machine, has not looked meanwhile, and does not take its own silence for the leader's.
type silence struct {
	replica *Replica
	quit    chan struct{}
	ended   sync.Once
	wg      sync.WaitGroup
}

// silentLooks is how often a follower looks during half of the election timeout.
const silentLooks = 24

func (s *silence) start() { s.wg.Go(s.run) }

func (s *silence) stop() {
	s.ended.Do(func() { close(s.quit) })
	s.wg.Wait()
}

func (s *silence) run() {
	r := s.replica
	ticker := time.NewTicker(r.opts.ElectionTimeout / 2 / silentLooks)
	defer ticker.Stop()
	var l listener
	for {
		select {
		case <-ticker.C:
		case <-s.quit:
			return
		}
		if r.raft.State() != raft.Follower {
			l = listener{}
		} else if l.silent(r.raft.LastContact(), time.Now(), r.turn) {
			if err := r.lookNow(); err != nil {
				r.logger.Warn("raft's timeouts could not be set to have it look for its leader", logkey.Error, err)
			}
		}
	}
}

// listener counts looks that find nothing new.
type listener struct {
	heard time.Time
	looks int
}

// silent reports whether nothing was heard for as long as patience says, and that was seen often
// enough. It then starts over.
func (l *listener) silent(heard, now time.Time, patience func() time.Duration) bool {
	if heard != l.heard {
		*l = listener{heard: heard}
		return false
	}
	if l.looks++; l.looks < silentLooks || now.Sub(heard) < patience() {
		return false
	}
	l.looks = 0
	return true
}

// turn is how long the leader may be silent before this node stands for election.
func (r *Replica) turn() time.Duration {
	_, leader := r.raft.LeaderWithID()
	var servers []raft.Server
	if c, _, err := r.Configuration(); err == nil {
		servers = c.Servers
	}
	return turn(servers, leader, raft.ServerID(r.state.ID.Node.String()), r.opts.Outranked(), r.opts.ElectionTimeout)
}

// turn is how long the leader may be silent before self stands for election. Another node refuses
// its vote until that one misses the leader too: the first to stand has to wait and the last one
// wins, so that a node which is outranked by another voter stands first. Those that stand together
// have half of the votes each, so that each has a turn of its own.
func turn(servers []raft.Server, leader, self raft.ServerID, outranked bool, timeout time.Duration) time.Duration {
	wait := timeout * 725 / 1000
	if outranked {
		wait = timeout * 650 / 1000
	}
	for _, server := range servers {
		if server.Suffrage == raft.Voter && server.ID != leader && server.ID < self {
			wait += timeout / 20
		}
	}
	return wait
}
