package wire

import (
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
)

// raft reads no answer after one without success, but may be sending at that moment: as many
// messages as are in flight, and one more. It must never wait for room among answers that are not
// read.
func TestSendingBehindARefusalDoesNotBlock(t *testing.T) {
	to := open(t, Options{Node: node(1), Cluster: member(clusterA)})
	from := open(t, Options{Node: node(2), Cluster: member(clusterA)})
	there, here := to.Raft(RaftOptions{}), from.Raft(RaftOptions{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			select {
			case rpc := <-there.Consumer():
				rpc.Respond(&raft.AppendEntriesResponse{}, nil)
			case <-there.ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() { <-served })
	t.Cleanup(func() { _ = there.Close() })
	p, err := here.AppendEntriesPipeline(raft.ServerID(node(1).String()), there.LocalAddr())
	check.Must(t, err)
	send := func() error {
		_, err := p.AppendEntries(&raft.AppendEntriesRequest{Entries: []*raft.Log{{Index: 1, Data: []byte("entry")}}}, new(raft.AppendEntriesResponse))
		return err
	}
	check.Must(t, send())
	if first := <-p.Consumer(); first.Response().Success {
		t.Fatal("the first message was not refused")
	}
	sent := make(chan error, 1)
	go func() {
		for range 100 {
			if err := send(); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	select {
	case err := <-sent:
		check.NoError(t, err, "send")
	case <-time.After(patience):
		t.Error("sending waits for ever")
	}
	check.NoError(t, p.Close())
	check.NoError(t, here.Close())
}

// raft names the newest commit, also beyond the last entry of a message: the follower would apply
// the entries that it has there, which a deposed leader may have left.
func TestCommitsEndWithTheMessage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		prev, commit uint64
		entries      int // of which two fit into a message
		want         uint64
	}{
		{"before its end", 7, 6, 2, 6},
		{"nothing is brought", 7, 9, 0, 7},
		{"raft brings less", 7, 9, 1, 8},
		{"the message holds less", 7, 10, 3, 9},
		{"a heartbeat", 0, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, RaftOptions{})
			p.here.opts.MaxRPCBytes = 2 * (10 + entryOverhead)
			request := func() *raft.AppendEntriesRequest {
				q := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: c.prev, PrevLogTerm: 2, LeaderCommitIndex: c.commit}
				for i := range c.entries {
					q.Entries = append(q.Entries, &raft.Log{Index: c.prev + 1 + uint64(i), Term: 3, Data: make([]byte, 10)})
				}
				return q
			}
			id, address := raft.ServerID(node(1).String()), p.there.LocalAddr()
			pipe := check.Value(p.here.AppendEntriesPipeline(id, address)).Must(t)
			var asked sync.WaitGroup
			asked.Go(func() {
				check.NoError(t, p.here.AppendEntries(id, address, request(), new(raft.AppendEntriesResponse)))
			})
			asked.Go(func() {
				if _, err := pipe.AppendEntries(request(), new(raft.AppendEntriesResponse)); err != nil {
					t.Error(err)
				}
			})
			for range 2 {
				rpc := <-p.there.Consumer()
				if got := rpc.Command.(*raft.AppendEntriesRequest).LeaderCommitIndex; got != c.want {
					t.Errorf("the follower is told that %d is committed, want %d", got, c.want)
				}
				rpc.Respond(&raft.AppendEntriesResponse{Term: 3, Success: true}, nil)
			}
			asked.Wait()
			check.NoError(t, pipe.Close())
		})
	}
}
