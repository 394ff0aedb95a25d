package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
)

const (
	// maxPool is how many idle connections are kept to each node: one for heartbeats, one
	// for entries, one for votes.
	maxPool = 3
	// entryOverhead is the most that an entry takes on the wire in addition to its data.
	entryOverhead = 64
)

// Raft is the transport of raft for one life of it.
//
// A message for a node goes only to that node: a connection on which another node answers is not
// used. Otherwise a node that lost its votes and came back at the same address under a new id would
// be taken for the one that voted.
//
// Its messages are made and read by raft.NetworkTransport, of which it has one
// for what comes in, one for what goes out, exchanged when connections are due,
// and one for each pipeline. So the pool of connections and each pipeline can be
// let go of by itself.
type Raft struct {
	port     *Port
	opts     RaftOptions
	logger   hclog.Logger
	in       *raft.NetworkTransport
	out      atomic.Pointer[raft.NetworkTransport]
	consumer chan raft.RPC
	installs installs
	commits  *commits
	reach    reach

	ctx      context.Context // over when this Raft closes
	cancel   context.CancelCauseFunc
	tasks    sync.WaitGroup // its own goroutines
	handlers sync.WaitGroup // goroutines of in, one for each connection

	mu      sync.Mutex // guards what follows; nests no other lock
	closing bool
	conns   map[*conn]struct{} // not closed

	pipelines map[*pipeline]struct{} // not closed

	closeOnce sync.Once
	closeErr  error // valid after closeOnce
}

var (
	_ raft.Transport   = (*Raft)(nil)
	_ raft.WithPreVote = (*Raft)(nil)
	_ raft.WithClose   = (*Raft)(nil)
)

// Raft returns a transport. There is one at a time: the previous one must be
// closed before, which raft's Shutdown does. Another order is a mistake of the program and panics.
func (p *Port) Raft(o RaftOptions) *Raft {
	o.EnsureDefaults()
	o.Logger = cmp.Or(o.Logger, p.logger)
	r := &Raft{
		port: p, opts: o, logger: o.Logger.Named("raft"), consumer: make(chan raft.RPC),
		conns: map[*conn]struct{}{}, pipelines: map[*pipeline]struct{}{},
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.commits = newCommits(r.own, r.unlessSilent, r.ctx.Done())
	r.reach = reach{done: r.ctx.Done(), answers: map[raft.ServerID]chan struct{}{}}
	messages, snapshots := p.Listener(KindRaft), p.Listener(kindInstall)
	r.in = r.network(&inbound{Listener: messages, raft: r})
	r.out.Store(r.network(newOutbound(r)))
	r.tasks.Go(r.pump)
	r.tasks.Go(r.renew)
	r.tasks.Go(func() { r.acceptInstalls(snapshots.(*listener)) })

	p.mu.Lock()
	closing := p.closing
	if !closing {
		p.rafts[r] = struct{}{}
	}
	p.mu.Unlock()
	if closing {
		_ = r.Close() // it has nothing yet that could fail to close
	}
	return r
}

// network makes a transport over a stream layer.
func (r *Raft) network(stream raft.StreamLayer) *raft.NetworkTransport {
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Logger: r.logger, Stream: stream, MaxPool: maxPool, MaxRPCsInFlight: r.opts.MaxInFlight,
		Timeout: r.opts.Timeout, MsgpackUseNewTimeFormat: true,
	})
}

// Close stops everything and waits for it. Idempotent. raft's Shutdown calls it
// when raft's own goroutines are done; called before, it makes raft's messages
// fail at once, so that raft need not wait for a node that does not answer.
func (r *Raft) Close() error {
	r.closeOnce.Do(func() {
		r.cancel(raft.ErrTransportShutdown)
		r.mu.Lock()
		r.closing = true
		for c := range r.conns {
			c.abort()
		}
		r.mu.Unlock()
		inErr := r.in.Close()
		r.tasks.Wait()
		out := r.out.Load() // not exchanged any more
		r.closeErr = errors.Join(inErr, out.Close())
		out.CloseStreams()
		r.handlers.Wait()
		r.port.mu.Lock()
		delete(r.port.rafts, r)
		r.port.mu.Unlock()
	})
	return r.closeErr
}

// own starts a goroutine that Close waits for, unless this Raft is closing. It must mind r.ctx.
func (r *Raft) own(run func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closing {
		r.tasks.Go(run)
	}
	return !r.closing
}

// renew exchanges the pool of connections when they are due. Messages in flight in the old one
// finish: raft.NetworkTransport then closes their connections, because it is shut down.
func (r *Raft) renew() {
	for clock.Sleep(r.ctx, jittered(r.port.opts.Renew)) == nil {
		old := r.out.Swap(r.network(newOutbound(r)))
		if err := old.Close(); err != nil {
			r.logger.Warn("close the transport that was replaced", logkey.Error, err)
		}
		old.CloseStreams() // those that are idle
	}
}

// target names a node and its address: raft.NetworkTransport keeps a pool of
// connections for each target and hands it to outbound.Dial.
func (r *Raft) target(id raft.ServerID, address raft.ServerAddress) raft.ServerAddress {
	return raft.ServerAddress(id) + "@" + r.address(id, address)
}

func (r *Raft) address(id raft.ServerID, address raft.ServerAddress) raft.ServerAddress {
	if known, ok := r.opts.Address(id); ok {
		return raft.ServerAddress(known)
	}
	return address
}

// Consumer returns the messages for raft.
func (r *Raft) Consumer() <-chan raft.RPC { return r.consumer }

// LocalAddr is where other nodes reach this one.
func (r *Raft) LocalAddr() raft.ServerAddress { return raft.ServerAddress(r.port.Advertised()) }

// EncodePeer returns the address of a node for messages.
func (r *Raft) EncodePeer(id raft.ServerID, address raft.ServerAddress) []byte {
	if string(id) == r.port.opts.Node.String() {
		return []byte(r.port.Advertised())
	}
	return []byte(r.address(id, address))
}

// DecodePeer returns what raft knows a sender by: its id, since byID.
func (r *Raft) DecodePeer(address []byte) raft.ServerAddress { return raft.ServerAddress(address) }

// cut shortens entries to what one message may hold, but to no less than one. raft looks at the
// request again afterwards and continues after the last entry in it: see replicateTo, pipelineSend
// and updateLastAppended there.
//
// The message then reports a commit up to its last entry at most. raft reports the newest commit,
// which may be beyond that, and its follower takes the entries that it has there as committed,
// although they were not compared: another leader may have left them.
func (r *Raft) cut(args *raft.AppendEntriesRequest) {
	size := 0
	for i, entry := range args.Entries {
		size += len(entry.Data) + len(entry.Extensions) + entryOverhead
		if size > r.opts.MaxRPCBytes && i > 0 {
			args.Entries = args.Entries[:i]
			break
		}
	}
	args.LeaderCommitIndex = min(args.LeaderCommitIndex, args.PrevLogEntry+uint64(len(args.Entries)))
}

// AppendEntries sends entries or a heartbeat. It may shorten args.Entries. Entries fail only when
// the node answers again, or after a while.
func (r *Raft) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := r.opts.Silent(); err != nil {
		return err
	}
	r.cut(args)
	target = r.target(id, target)
	r.commits.sent(id, target, args)
	if heartbeat(args) {
		defer r.watch(id).Stop()
	}
	err := r.exchange(id, target, args, resp)
	r.commits.answered(id, args, resp)
	if err == nil {
		r.reach.answered(id)
	} else if !heartbeat(args) {
		r.reach.wait(id)
	}
	return err
}

// heartbeat reports whether a message is one, or asks for where logs agree when nothing was
// committed yet.
func heartbeat(args *raft.AppendEntriesRequest) bool {
	return args.LeaderCommitIndex == 0 && len(args.Entries) == 0
}

func (r *Raft) exchange(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	return r.out.Load().AppendEntries(id, target, args, resp)
}

func (r *Raft) unlessSilent(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := r.opts.Silent(); err != nil {
		return err
	}
	return r.exchange(id, target, args, resp)
}

// Committed says that an entry is committed. The followers of this node learn of it at
// once if it is of the present term; of others they learn from raft. It does not block.
func (r *Raft) Committed(index, term uint64) { r.commits.newest(index, term) }

// ask sends a message that a follower sends, once only. Followers seldom do: their connections may
// be of a life of the other node that is over. Where one was lost, the message goes out again, on a
// new one.
func (r *Raft) ask(id raft.ServerID, send func(*raft.NetworkTransport) error) error {
	if err := r.opts.Silent(); err != nil {
		return err
	}
	defer r.watch(id).Stop()
	out := r.out.Load()
	err := send(out)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		out.CloseStreams() // those that are idle
		err = send(out)
	}
	return err
}

// watch closes a node's connections if an answer that should come at once takes longer than
// Patience. A network that is cut loses packets, and TCP resends them at growing intervals: after a
// cut, old connections would recover only after up to the same time again, and new ones work at
// once.
func (r *Raft) watch(id raft.ServerID) *time.Timer {
	return time.AfterFunc(r.opts.Patience, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for c := range r.conns {
			if !c.accepted && c.kind == KindRaft && c.peer.Node.String() == string(id) {
				c.abort()
			}
		}
	})
}

// RequestVote asks for a vote.
func (r *Raft) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return r.ask(id, func(out *raft.NetworkTransport) error { return out.RequestVote(id, r.target(id, target), args, resp) })
}

// RequestPreVote asks whether a vote would be given.
func (r *Raft) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return r.ask(id, func(out *raft.NetworkTransport) error {
		return out.RequestPreVote(id, r.target(id, target), args, resp)
	})
}

// TimeoutNow has a node stand for election at once.
func (r *Raft) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	if err := r.opts.Silent(); err != nil {
		return err
	}
	return r.out.Load().TimeoutNow(id, r.target(id, target), args, resp)
}

// dial connects to a target and makes sure that it is the node that is meant.
func (r *Raft) dial(k Kind, target raft.ServerAddress, timeout time.Duration) (*conn, error) {
	ctx, stop := context.WithTimeout(r.ctx, min(timeout, 2*r.opts.Patience))
	defer stop()
	node, address := split(target)
	c, err := r.port.dialHost(ctx, k, address, "")
	if err != nil {
		if r.ctx.Err() != nil {
			err = raft.ErrTransportShutdown
		}
		return nil, err
	}
	if peer := c.peer.Node.String(); node != "" && peer != node {
		_ = c.Close()
		return nil, fmt.Errorf("connect to node %s at %s: node %s answers there", node, address, peer)
	}
	if err := r.track(c, nil); err != nil {
		return nil, err
	}
	return c, nil
}

// split is the reverse of Raft.target.
func split(target raft.ServerAddress) (node, address string) {
	if node, address, ok := strings.Cut(string(target), "@"); ok {
		return node, address
	}
	return "", string(target)
}

// track has a connection end together with this Raft. It counts in the group
// until its user closes it; the group may be nil.
func (r *Raft) track(c *conn, group *sync.WaitGroup) error {
	r.mu.Lock()
	closing := r.closing
	if !closing {
		r.conns[c] = struct{}{}
		if group != nil {
			group.Add(1) // before closing is set, and so before any goroutine waits
		}
		c.onClose = func() {
			r.mu.Lock()
			delete(r.conns, c)
			r.mu.Unlock()
			if group != nil {
				group.Done()
			}
		}
	}
	r.mu.Unlock()
	if closing {
		_ = c.Close()
		return raft.ErrTransportShutdown
	}
	return nil
}

// outbound is the stream layer of outgoing connections.
type outbound struct {
	raft    *Raft
	dialled func(*conn) // may be nil
	closed  chan struct{}
	once    sync.Once
}

func newOutbound(r *Raft) *outbound { return &outbound{raft: r, closed: make(chan struct{})} }

// Dial connects to a target. It still works after Close: a message may have chosen this transport
// just before it was replaced.
func (s *outbound) Dial(target raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	c, err := s.raft.dial(KindRaft, target, timeout)
	if err != nil {
		return nil, err
	}
	if s.dialled != nil {
		s.dialled(c)
	}
	return c, nil
}

// Accept waits for Close: nothing comes in here.
func (s *outbound) Accept() (net.Conn, error) {
	<-s.closed
	return nil, io.EOF
}

// Close ends Accept. Idempotent.
func (s *outbound) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// Addr is where other nodes reach this one.
func (s *outbound) Addr() net.Addr { return advertised(s.raft.port.Advertised()) }
