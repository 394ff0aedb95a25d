package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// spy counts what raft sends and what of it was cut off.
type spy struct {
	*Raft
	largest          atomic.Int64 // bytes of entries in a message with several of them
	cut, cutInPipe   atomic.Int64 // messages that were shortened
	sent, sentInPipe atomic.Int64 // messages with entries
}

func (s *spy) note(args *raft.AppendEntriesRequest, before int, sent, cut *atomic.Int64) {
	if before == 0 {
		return
	}
	sent.Add(1)
	if len(args.Entries) < before {
		cut.Add(1)
	}
	if len(args.Entries) > 1 {
		size := int64(0)
		for _, e := range args.Entries {
			size += int64(len(e.Data))
		}
		for {
			old := s.largest.Load()
			if size <= old || s.largest.CompareAndSwap(old, size) {
				return
			}
		}
	}
}

func (s *spy) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	before := len(args.Entries)
	err := s.Raft.AppendEntries(id, target, args, resp)
	s.note(args, before, &s.sent, &s.cut)
	return err
}

func (s *spy) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := s.Raft.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return &spyPipeline{inner, s}, nil
}

type spyPipeline struct {
	raft.AppendPipeline
	spy *spy
}

func (p *spyPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	before := len(args.Entries)
	f, err := p.AppendPipeline.AppendEntries(args, resp)
	p.spy.note(args, before, &p.spy.sentInPipe, &p.spy.cutInPipe)
	return f, err
}

// The transport shortens messages, and raft continues after the last entry left in them: with
// pipelines and without, all entries arrive once and in order.
func TestLargeEntriesAreCutIntoMessages(t *testing.T) {
	const limit = 64 << 10
	for name, inFlight := range map[string]int{"pipeline": 16, "one by one": 1} {
		t.Run(name, func(t *testing.T) {
			spies := map[*Raft]*spy{}
			c := newCluster(t, 3, 0, setup{
				transport: func(_ int, o *RaftOptions) { o.MaxRPCBytes, o.MaxInFlight = limit, inFlight },
				wrap: func(r *Raft) raft.Transport {
					spies[r] = &spy{Raft: r}
					return spies[r]
				},
			})
			l := c.leader()
			var futures []raft.ApplyFuture
			for i := range 400 {
				size := 20 << 10
				if i%50 == 7 {
					size = 3 * limit // alone in a message
				}
				futures = append(futures, l.raft.Apply(bytes.Repeat(fmt.Appendf(nil, "%7d|", i), size/8), 0))
			}
			for i, f := range futures {
				check.Must(t, f.Error(), "entry", i)
			}
			c.converge(l, c.peers[0], c.peers[1], c.peers[2])
			applied := l.fsm.state()
			check.Equal(t, len(applied), len(futures), "entries applied")
			for i, data := range applied {
				if !bytes.HasPrefix(data, fmt.Appendf(nil, "%7d|", i)) {
					t.Fatalf("entry %d is %.8q", i, data)
				}
			}
			s := spies[l.trans]
			if s.largest.Load() > limit {
				t.Errorf("several entries of together %d bytes in one message", s.largest.Load())
			}
			if inFlight > 1 && s.cutInPipe.Load() == 0 || inFlight == 1 && s.cut.Load() == 0 {
				t.Errorf("nothing was cut: %d of %d messages, %d of %d in pipelines", s.cut.Load(), s.sent.Load(), s.cutInPipe.Load(), s.sentInPipe.Load())
			}
		})
	}
}

// Under load connections are renewed again and again: nothing is lost, the leader stays, and
// nothing is logged.
func TestConnectionsAreRenewed(t *testing.T) {
	const renew = 150 * time.Millisecond
	ca := newAuthority(t)
	for name, secured := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 3, 0, setup{
				port: func(i int, o *Options) {
					o.Renew = renew
					if secured {
						o.Security = ca.security(int64(i))
					}
				},
			})
			l := c.leader()
			term := l.raft.CurrentTerm()
			before := len(c.log.with("[ERROR]"))
			n := 0
			// Each pool and each pipeline to two nodes, several times.
			for ; l.port.metrics.dialled.Value() < 30; n++ {
				check.Must(t, l.raft.Apply(fmt.Appendf(nil, "entry %d", n), 0).Error(), "entry", n)
				if err := l.raft.VerifyLeader().Error(); err != nil { // with heartbeats
					t.Fatalf("after entry %d: %v", n, err)
				}
			}
			c.converge(l, c.peers[0], c.peers[1], c.peers[2])
			check.Equal(t, len(l.fsm.state()), n, "entries applied")
			if l.raft.State() != raft.Leader || l.raft.CurrentTerm() != term {
				t.Errorf("leadership was lost: %s in term %d, it was %d", l.raft.State(), l.raft.CurrentTerm(), term)
			}
			if complaints := c.log.with("[ERROR]"); len(complaints) != before {
				t.Errorf("complaints:\n%s", strings.Join(complaints[before:], "\n"))
			}
			// What is there now goes, without any entry and without the side that accepted.
			for _, p := range c.peers {
				p.port.mu.Lock()
				now := maps.Clone(p.port.conns)
				p.port.mu.Unlock()
				testkit.Eventually(t, patience, func() error {
					p.port.mu.Lock()
					defer p.port.mu.Unlock()
					for c := range now {
						if _, ok := p.port.conns[c]; ok {
							return fmt.Errorf("a connection of the kind %s, accepted %t, stays", c.kind, c.accepted)
						}
					}
					return nil
				})
			}
		})
	}
}

// A dialler that does not renew its connections is cut off.
func TestOldConnectionsAreCutOff(t *testing.T) {
	to := open(t, Options{Node: node(1), Cluster: member(clusterA), Renew: 100 * time.Millisecond})
	from := open(t, Options{Node: node(2), Cluster: member(clusterA)})
	r := to.Raft(RaftOptions{Timeout: 100 * time.Millisecond})
	begun := time.Now()
	c := check.Value(from.Dial(t.Context(), KindRaft, to.Addr().String())).Must(t)
	defer func() { _ = c.Close() }()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	check.Is(t, check.Err(c.Read(make([]byte, 1))), io.EOF, "read")
	if took := time.Since(begun); took < 200*time.Millisecond {
		t.Errorf("cut off after %s", took)
	}
	check.NoError(t, r.Close())
}

// A node that hears no other node does not raise its term, and so disturbs none when it is heard
// again.
func TestPreVote(t *testing.T) {
	var apart atomic.Pointer[raft.ServerID]
	last := raft.ServerID(node(3).String())
	apart.Store(&last) // so that it is not elected
	c := newCluster(t, 3, 0, setup{
		wrap: func(r *Raft) raft.Transport { return &cable{Raft: r, apart: &apart} },
		config: func(i int, c *raft.Config) {
			if i == 2 {
				c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
			}
		},
	})
	l, lonely := c.leader(), c.peers[2]
	term := l.raft.CurrentTerm()
	follows := func() error {
		_, leader := lonely.raft.LeaderWithID()
		if s := lonely.raft.State(); s != raft.Follower || leader != l.id || lonely.raft.CurrentTerm() != term {
			return fmt.Errorf("the node is %s in term %d, its leader is %q", s, lonely.raft.CurrentTerm(), leader)
		}
		return nil
	}
	apart.Store(nil)
	testkit.Eventually(t, patience, follows)
	apart.Store(&last)
	stood := func() int {
		n := 0
		for _, line := range c.log.with("Election timeout reached") {
			if strings.Contains(line, "node-3") {
				n++
			}
		}
		return n
	}
	before := stood()
	testkit.Eventually(t, patience, func() error {
		if n := stood() - before; n < 5 {
			return fmt.Errorf("the lonely node gave up %d elections", n)
		}
		return nil
	})
	check.Equal(t, lonely.raft.CurrentTerm(), term, "the lonely node went from term ... to")
	apart.Store(nil)
	testkit.Eventually(t, patience, follows)
	if l.raft.State() != raft.Leader || l.raft.CurrentTerm() != term {
		t.Errorf("the leader was disturbed: %s in term %d, it was %d", l.raft.State(), l.raft.CurrentTerm(), term)
	}
}

// cable is a transport that can be pulled out at one node.
type cable struct {
	*Raft
	apart *atomic.Pointer[raft.ServerID]
}

var errPulled = errors.New("the cable is pulled out")

func (c *cable) pulled(to raft.ServerID) bool {
	apart := c.apart.Load()
	return apart != nil && (*apart == to || string(*apart) == c.port.opts.Node.String())
}

func (c *cable) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if c.pulled(id) {
		return errPulled
	}
	return c.Raft.AppendEntries(id, target, args, resp)
}

func (c *cable) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (c *cable) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if c.pulled(id) {
		return errPulled
	}
	return c.Raft.RequestVote(id, target, args, resp)
}

func (c *cable) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if c.pulled(id) {
		return errPulled
	}
	return c.Raft.RequestPreVote(id, target, args, resp)
}

func TestLeadershipTransfer(t *testing.T) {
	c := newCluster(t, 3, 0, setup{})
	l := c.leader()
	other := c.peers[0]
	if other == l {
		other = c.peers[1]
	}
	check.Must(t, l.raft.Apply([]byte("one"), 0).Error())
	check.Must(t, l.raft.LeadershipTransferToServer(other.id, raft.ServerAddress(other.port.Advertised())).Error())
	if got := c.leader(); got != other {
		t.Errorf("%s leads, want %s", got.id, other.id)
	}
}

// inTerm makes a node's term stand still.
func inTerm(now uint64) func(uint64, func()) bool {
	return func(term uint64, do func()) bool {
		if term == now {
			do()
		}
		return term == now
	}
}

// A heartbeat of another term waits for raft's own goroutine.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	p := newPair(t, RaftOptions{InTerm: inTerm(7)})
	p.there.SetHeartbeatHandler(func(rpc raft.RPC) { rpc.Respond(&raft.AppendEntriesResponse{Term: 7, LastLog: 1}, nil) })
	var served sync.WaitGroup
	served.Go(func() {
		for range 2 {
			rpc := <-p.there.Consumer()
			rpc.Respond(&raft.AppendEntriesResponse{Term: 7, LastLog: 2}, nil)
		}
	})
	for term, want := range map[uint64]uint64{6: 2, 7: 1, 8: 2} {
		var answer raft.AppendEntriesResponse
		heartbeat := raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("x")}, Term: term}
		if err := p.here.AppendEntries(raft.ServerID(node(1).String()), p.there.LocalAddr(), &heartbeat, &answer); err != nil || answer.LastLog != want {
			t.Errorf("term %d: answered by %d, want %d; %v", term, answer.LastLog, want, err)
		}
	}
	served.Wait()
}

// A message for a node that is no longer at its address reaches no node.
func TestAnotherNodeAtTheAddress(t *testing.T) {
	to := open(t, Options{Node: node(1), Cluster: member(clusterA)})
	from := open(t, Options{Node: node(2), Cluster: member(clusterA)})
	var moved atomic.Pointer[string]
	there := to.Raft(RaftOptions{InTerm: inTerm(7)})
	here := from.Raft(RaftOptions{Address: func(id raft.ServerID) (string, bool) {
		if a := moved.Load(); a != nil && string(id) == node(1).String() {
			return *a, true
		}
		return "", false
	}})
	there.SetHeartbeatHandler(func(rpc raft.RPC) { rpc.Respond(&raft.AppendEntriesResponse{Term: 7, Success: true}, nil) })
	heartbeat := func(id raft.ServerID, address string) (raft.AppendEntriesResponse, error) {
		var resp raft.AppendEntriesResponse
		err := here.AppendEntries(id, raft.ServerAddress(address), &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("x")}, Term: 7}, &resp)
		return resp, err
	}
	stranger := raft.ServerID(node(9).String())
	_, err := heartbeat(stranger, to.Advertised())
	if want := fmt.Sprintf("connect to node %s at %s: node %s answers there", stranger, to.Advertised(), node(1)); err == nil || err.Error() != want {
		t.Errorf("error %v\nwant  %s", err, want)
	}
	if _, err := here.AppendEntriesPipeline(stranger, raft.ServerAddress(to.Advertised())); err == nil {
		t.Error("a pipeline to another node")
	}
	address := to.Advertised()
	moved.Store(&address)
	self := raft.ServerID(node(1).String())
	if resp, err := heartbeat(self, "192.0.2.1:1"); err != nil || !resp.Success || resp.Term != 7 {
		t.Errorf("heartbeat to where the node is now: %+v, %v", resp, err)
	}
	check.Equal(t, string(here.EncodePeer(self, "192.0.2.1:1")), address, "encoded")
	if got := string(here.EncodePeer(raft.ServerID(node(2).String()), "192.0.2.1:1")); got != from.Advertised() || here.DecodePeer([]byte(got)) != here.LocalAddr() {
		t.Errorf("encoded this node as %s", got)
	}
	if got := string(here.EncodePeer(stranger, "192.0.2.1:1")); got != "192.0.2.1:1" {
		t.Errorf("encoded a node not known as %s", got)
	}
}

// A transport has one life, its port several.
func TestLives(t *testing.T) {
	to := open(t, Options{Node: node(1), Cluster: member(clusterA)})
	from := open(t, Options{Node: node(2), Cluster: member(clusterA)})
	here := from.Raft(RaftOptions{})
	vote := func() error {
		var resp raft.RequestVoteResponse
		err := here.RequestVote(raft.ServerID(node(1).String()), raft.ServerAddress(to.Advertised()), &raft.RequestVoteRequest{Term: 1}, &resp)
		if err == nil && !resp.Granted {
			err = errors.New("not granted")
		}
		return err
	}
	for life := range 3 {
		r := to.Raft(RaftOptions{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			rpc := <-r.Consumer()
			rpc.Respond(&raft.RequestVoteResponse{Granted: true}, nil)
		}()
		// The connection of the life before is in the pool. Who stands for election asks once.
		check.Must(t, vote(), "life", life)
		<-done
		for range 2 {
			check.NoError(t, r.Close(), "life", life)
		}
	}
	check.Fails(t, vote(), "a node answers after its end")
	check.NoError(t, from.Close())
	check.Is(t, vote(), raft.ErrTransportShutdown, "vote after the end")
	check.NoError(t, from.Raft(RaftOptions{}).Close(), "of a closed port")
}

// Closing does not wait for a message that is not answered.
func TestCloseEndsMessages(t *testing.T) {
	to := open(t, Options{Node: node(1), Cluster: member(clusterA)})
	from := open(t, Options{Node: node(2), Cluster: member(clusterA)})
	there, here := to.Raft(RaftOptions{Timeout: time.Hour}), from.Raft(RaftOptions{Timeout: time.Hour})
	failed := make(chan error, 2)
	go func() {
		failed <- here.TimeoutNow(raft.ServerID(node(1).String()), raft.ServerAddress(to.Advertised()), &raft.TimeoutNowRequest{}, &raft.TimeoutNowResponse{})
	}()
	<-there.Consumer()
	go func() {
		failed <- here.InstallSnapshot(raft.ServerID(node(1).String()), raft.ServerAddress(to.Advertised()),
			&raft.InstallSnapshotRequest{Size: 3}, &raft.InstallSnapshotResponse{}, strings.NewReader("abc"))
	}()
	<-there.Consumer()
	check.NoError(t, here.Close())
	for range 2 {
		check.Fails(t, <-failed, "a message without an answer was answered")
	}
	check.NoError(t, there.Close())
}

// A snapshot that comes as other messages do is not taken, nor are its bytes for messages.
func TestSnapshotAmongMessages(t *testing.T) {
	var log lines
	to := open(t, Options{Node: node(1), Cluster: member(clusterA), Logger: log.logger(hclog.Error)})
	from := open(t, Options{Node: node(2), Cluster: member(clusterA)})
	there, here := to.Raft(RaftOptions{}), from.Raft(RaftOptions{})
	err := here.out.Load().InstallSnapshot(raft.ServerID(node(1).String()), here.target(raft.ServerID(node(1).String()), raft.ServerAddress(to.Advertised())),
		&raft.InstallSnapshotRequest{Size: 100}, &raft.InstallSnapshotResponse{}, bytes.NewReader(make([]byte, 100)))
	check.Fails(t, err, "taken")
	select {
	case rpc := <-there.Consumer():
		t.Errorf("raft got %+v", rpc.Command)
	case <-contextAfter(t, 50*time.Millisecond).Done():
	}
}

func contextAfter(t *testing.T, d time.Duration) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), d)
	t.Cleanup(stop)
	return ctx
}

// TestRaftClosesDuringAccept: a connection that comes while a Raft closes is dropped, and worth no
// line.
func TestRaftClosesDuringAccept(t *testing.T) {
	var log lines
	to := open(t, Options{Node: node(1), Cluster: member(clusterA), Logger: log.logger(hclog.Info)})
	from := open(t, Options{Node: node(2), Cluster: member(clusterA)})
	r := to.Raft(RaftOptions{})
	setClosing := func(on bool) {
		r.mu.Lock()
		r.closing = on
		r.mu.Unlock()
	}
	setClosing(true) // as Close does first
	for range 2 {    // By the second one what the first came to is logged.
		c := check.Value(from.Dial(t.Context(), KindRaft, to.Addr().String())).Must(t)
		check.Fails(t, check.Err(c.Read(make([]byte, 1))), "the connection lives on")
		check.NoError(t, c.Close())
	}
	setClosing(false)
	check.NoError(t, errors.Join(r.Close(), to.Close()))
	check.Equal(t, log.String(), "", "logged")
}
