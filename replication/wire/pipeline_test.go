package wire

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// raft reads no answer behind one that says no success, but may be sending then:
// as many messages as are under way, and one more. It must never have to wait for
// room among answers that nobody takes.
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
	if err != nil {
		t.Fatal(err)
	}
	send := func() error {
		_, err := p.AppendEntries(&raft.AppendEntriesRequest{Entries: []*raft.Log{{Index: 1, Data: []byte("entry")}}}, new(raft.AppendEntriesResponse))
		return err
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Errorf("send: %v", err)
		}
	case <-time.After(patience):
		t.Error("sending waits for ever")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := here.Close(); err != nil {
		t.Error(err)
	}
}
