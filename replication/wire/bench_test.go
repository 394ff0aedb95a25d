package wire

import (
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
)

// One entry of 300 bytes there and the answer back, on this transport and on
// raft's own over TCP, each as single messages and in a pipeline of one at a time.
func BenchmarkAppendEntries(b *testing.B) {
	ca := newAuthority(b)
	ours := func(secured bool) func(*testing.B) (raft.Transport, raft.Transport) {
		return func(b *testing.B) (raft.Transport, raft.Transport) {
			to := Options{Node: node(1), Cluster: member(clusterA)}
			from := Options{Node: node(2), Cluster: member(clusterA)}
			if secured {
				to.Security, from.Security = ca.security(1), ca.security(2)
			}
			return open(b, to).Raft(RaftOptions{}), open(b, from).Raft(RaftOptions{})
		}
	}
	theirs := func(b *testing.B) (raft.Transport, raft.Transport) {
		one := func() *raft.NetworkTransport {
			t, err := raft.NewTCPTransportWithLogger("127.0.0.1:0", nil, 3, 10*time.Second, hclog.NewNullLogger())
			check.Must(b, err)
			b.Cleanup(func() { _ = t.Close(); t.CloseStreams() })
			return t
		}
		return one(), one()
	}
	for _, c := range []struct {
		name string
		open func(*testing.B) (raft.Transport, raft.Transport)
	}{{"wire", ours(false)}, {"raft", theirs}, {"wire-TLS", ours(true)}} {
		b.Run(c.name+"/single", func(b *testing.B) { benchmarkSingle(b, c.open) })
		b.Run(c.name+"/pipeline", func(b *testing.B) { benchmarkPipeline(b, c.open) })
	}
}

// answering answers every message that raft would get.
func answering(b testing.TB, t raft.Transport) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case rpc := <-t.Consumer():
				rpc.Respond(&raft.AppendEntriesResponse{Term: 1, Success: true}, nil)
			case <-done:
				return
			}
		}
	}()
	b.Cleanup(func() { close(done); <-ended })
}

func message() *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte(node(2).String()), Addr: []byte("127.0.0.1:1112")},
		Term:      1, PrevLogEntry: 7, PrevLogTerm: 1, LeaderCommitIndex: 7,
		Entries: []*raft.Log{{Index: 8, Term: 1, Data: make([]byte, 300)}},
	}
}

func benchmarkSingle(b *testing.B, open func(*testing.B) (raft.Transport, raft.Transport)) {
	to, from := open(b)
	answering(b, to)
	args := message()
	for b.Loop() {
		var resp raft.AppendEntriesResponse
		check.Must(b, from.AppendEntries(raft.ServerID(node(1).String()), to.LocalAddr(), args, &resp))
	}
}

func benchmarkPipeline(b *testing.B, open func(*testing.B) (raft.Transport, raft.Transport)) {
	to, from := open(b)
	answering(b, to)
	p, err := from.AppendEntriesPipeline(raft.ServerID(node(1).String()), to.LocalAddr())
	check.Must(b, err)
	args := message()
	for b.Loop() {
		check.Must(b, check.Err(p.AppendEntries(args, &raft.AppendEntriesResponse{})))
		check.Must(b, (<-p.Consumer()).Error())
	}
	check.NoError(b, p.Close())
}
