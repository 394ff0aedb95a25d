package wire

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
)

// teller is a leader's commits, of which it notes what is sent.
type teller struct {
	*commits
	mu   sync.Mutex // guards sent
	sent []raft.AppendEntriesRequest
	hang chan struct{} // unless nil, messages wait for it
}

// newTeller runs commits until the test's bubble ends.
func newTeller(t *testing.T) *teller {
	c := &teller{}
	done := make(chan struct{})
	var tasks sync.WaitGroup
	c.commits = newCommits(func(run func()) bool { tasks.Go(run); return true }, func(_ raft.ServerID, _ raft.ServerAddress, args *raft.AppendEntriesRequest, _ *raft.AppendEntriesResponse) error {
		c.mu.Lock()
		c.sent = append(c.sent, *args)
		c.mu.Unlock()
		if c.hang != nil {
			<-c.hang
		}
		return nil
	}, done)
	t.Cleanup(func() {
		close(done)
		tasks.Wait()
	})
	return c
}

const follows = raft.ServerID("follower")

// stores has raft send the entries from prev to last to the follower, which stores them.
func (c *teller) stores(term, prev, last, commit uint64) {
	args := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ID: []byte("leader")}, Term: term, PrevLogEntry: prev, PrevLogTerm: term, LeaderCommitIndex: commit,
	}
	for i := prev + 1; i <= last; i++ {
		args.Entries = append(args.Entries, &raft.Log{Index: i, Term: term})
	}
	c.commits.sent(follows, "there", args)
	c.answered(follows, args, &raft.AppendEntriesResponse{Term: term, Success: true})
}

// wants waits for what is due and compares the commits that were sent.
func (c *teller) wants(t *testing.T, want ...uint64) {
	t.Helper()
	time.Sleep(commitPace)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var got []uint64
	for _, args := range c.sent {
		got = append(got, args.LeaderCommitIndex)
		if args.PrevLogEntry != args.LeaderCommitIndex || len(args.Entries) != 0 || string(args.ID) != "leader" {
			t.Errorf("sent %+v", args)
		}
	}
	check.Slice(t, got, want, "told of")
}

func TestCommitIsTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(t *testing.T, c *teller)
	}{
		{"the follower has the entry", func(t *testing.T, c *teller) {
			c.stores(3, 10, 11, 10)
			c.newest(11, 3)
			c.wants(t, 11)
			check.Equal(t, c.sent[0].PrevLogTerm, 3, "the entry is of term")
			c.newest(11, 3)
			c.wants(t, 11)
		}},
		{"the follower is slower than the others", func(t *testing.T, c *teller) {
			c.stores(3, 10, 11, 10)
			c.newest(12, 3)
			c.wants(t)
			c.stores(3, 11, 12, 10)
			c.wants(t, 12)
		}},
		{"raft was quicker", func(t *testing.T, c *teller) {
			c.stores(3, 10, 11, 10)
			c.stores(3, 11, 12, 11)
			c.newest(11, 3)
			c.wants(t)
		}},
		{"raft carries it while it waits", func(t *testing.T, c *teller) {
			c.stores(3, 10, 11, 10)
			c.newest(11, 3)
			synctest.Wait() // waits for its pace after commit 10
			c.stores(3, 11, 12, 11)
			c.wants(t)
		}},
		{"raft's message got no answer", func(t *testing.T, c *teller) {
			c.stores(3, 10, 11, 10)
			args := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 11, PrevLogTerm: 3, LeaderCommitIndex: 11}
			c.commits.sent(follows, "there", args)
			c.newest(11, 3)
			c.wants(t)
			c.answered(follows, args, new(raft.AppendEntriesResponse))
			c.stores(3, 10, 11, 10)
			c.wants(t, 11)
		}},
		{"an entry of an earlier term", func(t *testing.T, c *teller) {
			c.stores(4, 10, 11, 10)
			c.newest(11, 3)
			c.wants(t)
		}},
		{"a later leader's entry", func(t *testing.T, c *teller) {
			c.stores(3, 10, 11, 10)
			c.newest(11, 4)
			c.wants(t)
		}},
		{"what was stored in an earlier term does not count", func(t *testing.T, c *teller) {
			c.stores(3, 10, 12, 10)
			c.stores(4, 10, 11, 10)
			c.newest(12, 4)
			c.wants(t)
		}},
		{"answers of an earlier term do not count", func(t *testing.T, c *teller) {
			c.stores(4, 10, 11, 10)
			c.stores(3, 10, 12, 10)
			c.newest(12, 4)
			c.wants(t)
		}},
		{"one at a time, the newest wins", func(t *testing.T, c *teller) {
			c.hang = make(chan struct{})
			c.stores(3, 10, 11, 10)
			c.newest(11, 3)
			c.wants(t, 11)
			for i := uint64(12); i < 20; i++ {
				c.stores(3, i-1, i, 10)
				c.newest(i, 3)
				c.wants(t, 11)
			}
			close(c.hang)
			c.wants(t, 11, 19)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.do(t, newTeller(t)) })
		})
	}
}

// TestFollowersApplyAtOnce: followers apply what is committed though raft itself tells
// them of it no sooner than with the next entry.
func TestFollowersApplyAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 0, setup{config: func(_ int, conf *raft.Config) { conf.CommitTimeout = 24 * time.Hour }})
	leader := c.leader()
	for i := range 50 {
		check.Must(t, leader.raft.Apply([]byte{byte(i)}, 0).Error())
		c.converge(leader, c.peers[0], c.peers[1], c.peers[2])
	}
}
