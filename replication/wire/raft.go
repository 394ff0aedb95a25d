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

// RaftOptions are those of a Raft. The zero value works.
type RaftOptions struct {
	// Address returns the host:port of a node as it is known at this moment;
	// default, and for nodes not known: the address in raft's configuration.
	Address func(id raft.ServerID) (string, bool)

	Timeout time.Duration // for a message and its answer; default 10 s
	// for the answer to a heartbeat or a vote, and half of what connecting may take; default:
	// Timeout
	Patience time.Duration
	// messages of a pipeline that wait for their answers; default 16, 1: no pipelines
	MaxInFlight int
	MaxRPCBytes int // of entries in one message, or a single larger entry; default 16 MiB

	// Append is called with every message of entries before raft is, and may change
	// it. It must not block. Default: nothing is done.
	Append func(*raft.AppendEntriesRequest)

	// InTerm runs a function if this node's term, as raft stored it, is the given one, and has raft
	// come to no other meanwhile. It reports whether it did. Default: it never does.
	InTerm func(term uint64, do func()) bool

	// Silent returns why this node must neither send messages nor answer any; nil while it
	// need not be silent. Other nodes get the reason. Default: it never must.
	Silent func() error

	// Candidate says whether a node that stands for election may be one, at the address that it
	// says it is reached at. It must not block. Default: all may.
	Candidate func(node, address string) error

	// Prepare is called with every snapshot that another node wants to install, before raft is
	// asked. The snapshot is handed to raft when it returns nil; else the other node gets the error
	// and raft never hears of it. It must return when its context is over: when a newer snapshot
	// came, the time is up, or Raft is closed. It is never called twice at a time, must not change
	// its bytes, and holds up nothing else. Default: everything is handed to raft at once.
	Prepare        func(ctx context.Context, index, term uint64, content []byte) error
	PrepareTimeout time.Duration // default 8 s
	MaxSnapshot    int64         // in bytes; default 64 MiB

	// Holds is asked when raft has refused a snapshot, and reports whether this node has all
	// entries that the snapshot covers. The answer says then that it was installed: the other node
	// would send the same one for ever, if the answers to what it sent before were lost and it has
	// removed the entries since. Default: it does not.
	Holds func(index, term uint64) bool

	Logger hclog.Logger // default: the port's
}

// EnsureDefaults replaces zero values by defaults.
func (o *RaftOptions) EnsureDefaults() {
	if o.Address == nil {
		o.Address = func(raft.ServerID) (string, bool) { return "", false }
	}
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.Patience = cmp.Or(o.Patience, o.Timeout)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 16)
	o.MaxRPCBytes = cmp.Or(o.MaxRPCBytes, 16<<20)
	o.PrepareTimeout = cmp.Or(o.PrepareTimeout, 8*time.Second)
	o.MaxSnapshot = cmp.Or(o.MaxSnapshot, 64<<20)
	if o.InTerm == nil {
		o.InTerm = func(uint64, func()) bool { return false }
	}
	if o.Silent == nil {
		o.Silent = func() error { return nil }
	}
	if o.Holds == nil {
		o.Holds = func(uint64, uint64) bool { return false }
	}
	if o.Prepare == nil {
		o.Prepare = func(context.Context, uint64, uint64, []byte) error { return nil }
	}
}

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

// pump hands messages to raft. There is a channel between for snapshots, which
// come from elsewhere.
func (r *Raft) pump() {
	in, done := r.in.Consumer(), r.ctx.Done()
	for {
		select {
		case rpc := <-in:
			if _, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok {
				// It could only be refused with its bytes unread, which would then
				// be taken for messages: no answer can be made of this, and the connection ends.
				rpc.Respond(noAnswer{}, errors.New("snapshots have connections of their own"))
				continue
			}
			if err := r.opts.Silent(); err != nil {
				rpc.Respond(struct{}{}, err)
				continue
			}
			if r.turnedDown(rpc) { // It judges messages as they were sent.
				continue
			}
			if req, ok := rpc.Command.(*raft.AppendEntriesRequest); ok && r.opts.Append != nil {
				r.opts.Append(req)
			}
			byID(rpc.Command)
			select {
			case r.consumer <- rpc:
			case <-done:
				return
			}
		case <-done:
			return
		}
	}
}

// deposed returns an error for entries that a leader cannot have in its term. After it was
// replaced, raft may still send what a successor has stored on it meanwhile. The other node would
// stay in the old term, and its next start would find that term below that of its own log.
func deposed(q *raft.AppendEntriesRequest) error {
	last := q.PrevLogTerm
	if n := len(q.Entries); n > 0 {
		last = q.Entries[n-1].Term
	}
	if last > q.Term {
		return fmt.Errorf("entries of term %d from the leader of term %d, which was replaced", last, q.Term)
	}
	return nil
}

// turnedDown answers a candidate that may not be one, or a leader that was replaced.
func (r *Raft) turnedDown(rpc raft.RPC) bool {
	var header raft.RPCHeader
	var answer any
	switch q := rpc.Command.(type) {
	case *raft.RequestVoteRequest:
		header, answer = q.RPCHeader, &raft.RequestVoteResponse{}
	case *raft.RequestPreVoteRequest:
		header, answer = q.RPCHeader, &raft.RequestPreVoteResponse{}
	case *raft.AppendEntriesRequest:
		err := deposed(q)
		if err != nil {
			rpc.Respond(struct{}{}, err)
		}
		return err != nil
	default:
		return false
	}
	if r.opts.Candidate == nil {
		return false
	}
	err := r.opts.Candidate(string(header.ID), string(header.Addr))
	if err != nil {
		rpc.Respond(answer, err)
	}
	return err != nil
}

// noAnswer is an answer that cannot be encoded.
type noAnswer struct{}

func (noAnswer) MarshalBinary() ([]byte, error) { return nil, errors.New("no answer") }

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

// SetHeartbeatHandler has heartbeats handled without the Consumer, so that a disk that is slow does
// not look like a leader that is gone: but only within the term in which raft is. A heartbeat of
// another term may make a leader or a candidate a follower, and raft does that without a lock: its
// own goroutine would continue for a moment, and give an entry that it takes then the term in which
// another node leads (issue 695 of hashicorp/raft). Such a heartbeat goes through the Consumer.
func (r *Raft) SetHeartbeatHandler(handle func(raft.RPC)) {
	r.in.SetHeartbeatHandler(func(rpc raft.RPC) {
		if err := r.opts.Silent(); err != nil {
			rpc.Respond(struct{}{}, err)
			return
		}
		byID(rpc.Command)
		if q, ok := rpc.Command.(*raft.AppendEntriesRequest); ok && r.opts.InTerm(q.Term, func() { handle(rpc) }) {
			return
		}
		select {
		case r.consumer <- rpc:
		case <-r.ctx.Done():
		}
	})
}

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

// inbound is the stream layer of incoming connections.
type inbound struct {
	net.Listener
	raft *Raft
}

// Accept waits for the next connection of another node.
func (s *inbound) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.(*listener).accept()
		if err != nil {
			return nil, err
		}
		r := s.raft
		// The other side renews its connections. One that does not is cut off
		// between two messages, unless it does not even take the answer.
		cutOff := time.Now().Add(r.port.opts.Renew + r.port.opts.Renew/4 + r.opts.Timeout)
		c.hard = true
		if err := errors.Join(c.SetReadDeadline(cutOff), c.SetWriteDeadline(cutOff.Add(r.opts.Timeout))); err != nil {
			_ = c.Close()
			continue
		}
		if r.track(c, &r.handlers) != nil {
			continue // It closes: the listener ends next, which raft expects.
		}
		return c, nil
	}
}

// Dial is never called: this transport sends nothing.
func (s *inbound) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	return nil, errors.ErrUnsupported
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
