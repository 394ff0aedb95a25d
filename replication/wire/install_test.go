package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// pair is two transports, one of which installs snapshots at the other.
type pair struct {
	t           *testing.T
	here, there *Raft
}

func newPair(t *testing.T, o RaftOptions) *pair {
	to := open(t, Options{Node: node(1), Cluster: member(clusterA)})
	from := open(t, Options{Node: node(2), Cluster: member(clusterA)})
	return &pair{t: t, there: to.Raft(o), here: from.Raft(RaftOptions{})}
}

func (p *pair) install(term, index uint64, size int64, data io.Reader) (raft.InstallSnapshotResponse, error) {
	return p.installOf(term-1, term, index, size, data)
}

// installOf installs a snapshot whose last entry is of another term than its leader.
func (p *pair) installOf(last, term, index uint64, size int64, data io.Reader) (raft.InstallSnapshotResponse, error) {
	var resp raft.InstallSnapshotResponse
	req := raft.InstallSnapshotRequest{
		RPCHeader:       raft.RPCHeader{ProtocolVersion: 3, ID: []byte("leader"), Addr: []byte("10.0.0.1:1112")},
		SnapshotVersion: 1, Term: term, Leader: []byte("10.0.0.1:1112"), LastLogIndex: index, LastLogTerm: last,
		Configuration: []byte{1, 2, 0xff}, ConfigurationIndex: 3, Size: size,
	}
	err := p.here.InstallSnapshot(raft.ServerID(node(1).String()), raft.ServerAddress(p.there.LocalAddr()), &req, &resp, data)
	return resp, err
}

func (p *pair) vote() error {
	var resp raft.RequestPreVoteResponse
	return p.here.RequestPreVote(raft.ServerID(node(1).String()), p.there.LocalAddr(), &raft.RequestPreVoteRequest{Term: 1}, &resp)
}

// consume answers what raft would get, until the test ends, and returns the snapshots.
func (p *pair) consume() <-chan raft.RPC {
	snapshots := make(chan raft.RPC, 16)
	done := make(chan struct{})
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			select {
			case rpc := <-p.there.Consumer():
				if _, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok {
					snapshots <- rpc
					continue
				}
				rpc.Respond(&raft.RequestPreVoteResponse{}, nil)
			case <-done:
				return
			}
		}
	})
	p.t.Cleanup(func() { close(done); tasks.Wait() })
	return snapshots
}

func TestPrepare(t *testing.T) {
	content := bytes.Repeat([]byte("chunk "), 100_000)
	refusal := errors.New("the chunks of position 7 are missing\nhere")
	var prepared, answer atomic.Value
	p := newPair(t, RaftOptions{
		MaxSnapshot: int64(len(content)),
		Prepare: func(_ context.Context, index, term uint64, content []byte) error {
			prepared.Store(fmt.Sprint(index, term, len(content)))
			err, _ := answer.Load().(error)
			return err
		},
	})
	snapshots := p.consume()

	t.Run("taken", func(t *testing.T) {
		go func() {
			rpc := <-snapshots
			got, err := io.ReadAll(rpc.Reader)
			want := raft.InstallSnapshotRequest{
				RPCHeader:       raft.RPCHeader{ProtocolVersion: 3, ID: []byte("leader"), Addr: []byte("leader")},
				SnapshotVersion: 1, Term: 5, Leader: []byte("10.0.0.1:1112"), LastLogIndex: 42, LastLogTerm: 4,
				Configuration: []byte{1, 2, 0xff}, ConfigurationIndex: 3, Size: int64(len(content)),
			}
			if fmt.Sprint(*rpc.Command.(*raft.InstallSnapshotRequest)) != fmt.Sprint(want) {
				err = fmt.Errorf("raft got %+v", rpc.Command)
			}
			if !bytes.Equal(got, content) {
				err = errors.Join(err, fmt.Errorf("raft got %d other bytes", len(got)))
			}
			rpc.Respond(&raft.InstallSnapshotResponse{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("x")}, Term: 6, Success: true}, err)
		}()
		resp, err := p.install(5, 42, int64(len(content)), bytes.NewReader(content))
		if err != nil || resp.Term != 6 || !resp.Success || string(resp.ID) != "x" || prepared.Load() != "42 4 600000" {
			t.Errorf("%+v, %v, prepared %v", resp, err, prepared.Load())
		}
	})
	t.Run("empty", func(t *testing.T) {
		go func() { respond(<-snapshots, &raft.InstallSnapshotResponse{}, nil) }()
		if resp, err := p.install(5, 42, 0, strings.NewReader("")); err != nil || resp.Success {
			t.Errorf("%+v, %v", resp, err)
		}
	})
	t.Run("refused by raft", func(t *testing.T) {
		go func() { respond(<-snapshots, &raft.InstallSnapshotResponse{}, errors.New("raft says no")) }()
		if _, err := p.install(5, 42, 3, strings.NewReader("abc")); err == nil || err.Error() != "raft says no" {
			t.Errorf("error %v", err)
		}
	})
	t.Run("too large", func(t *testing.T) {
		prepared.Store("not")
		sent := &counter{r: bytes.NewReader(content)}
		_, err := p.install(5, 42, int64(len(content))+1, sent)
		if err == nil || err.Error() != "snapshot of 600001 bytes: at most 600000 are taken" || prepared.Load() != "not" || sent.n != 0 {
			t.Errorf("error %v, %v prepared, %d bytes sent", err, prepared.Load(), sent.n)
		}
		if _, err := p.install(5, 42, -1, sent); err == nil || prepared.Load() != "not" || sent.n != 0 {
			t.Errorf("error %v, %v prepared, %d bytes sent", err, prepared.Load(), sent.n)
		}
	})
	t.Run("from a leader that was replaced", func(t *testing.T) {
		prepared.Store("not")
		_, err := p.installOf(4, 2, 42, 3, strings.NewReader("abc"))
		if err == nil || err.Error() != "snapshot of term 4 from the leader of term 2, which was replaced" || prepared.Load() != "not" {
			t.Errorf("error %v, %v prepared", err, prepared.Load())
		}
	})
	t.Run("too short", func(t *testing.T) {
		var resp raft.InstallSnapshotResponse
		c, dialErr := p.here.port.dialHost(t.Context(), kindInstall, string(p.there.LocalAddr()), "")
		check.Must(t, dialErr)
		defer func() { _ = c.Close() }()
		check.Must(t, errors.Join(writeFrame(c, raft.InstallSnapshotRequest{Size: 10}), readInstallAnswer(c, nil)))
		check.Must(t, check.Err(io.WriteString(c, "123")))
		c.retire()
		if err := readInstallAnswer(c, &resp); err == nil || err.Error() != "read the snapshot: 3 of 10 bytes: unexpected EOF" {
			t.Errorf("error %v", err)
		}
	})
	t.Run("refused by Prepare", func(t *testing.T) {
		answer.Store(refusal)
		_, err := p.install(5, 42, 3, strings.NewReader("abc"))
		if err == nil || err.Error() != "the chunks of position 7 are missing?here" {
			t.Errorf("error %v", err)
		}
		select {
		case <-snapshots:
			t.Error("raft got it all the same")
		default:
		}
	})
	t.Run("a frame without end", func(t *testing.T) {
		c, err := p.here.port.dialHost(t.Context(), kindInstall, string(p.there.LocalAddr()), "")
		check.Must(t, err)
		defer func() { _ = c.Close() }()
		check.Must(t, check.Err(c.Write([]byte{0xff, 0xff, 0xff, 0xff})))
		check.Says(t, readInstallAnswer(c, nil), "frame of 4294967295 bytes, more than 1048576", "error")
	})
}

func respond(rpc raft.RPC, resp *raft.InstallSnapshotResponse, err error) { rpc.Respond(resp, err) }

type counter struct {
	r io.Reader
	n int
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += n
	return n, err
}

// hold is a Prepare that runs until it is released or cancelled.
type hold struct {
	begun   chan uint64
	let     chan error
	running atomic.Int32
	stopped atomic.Pointer[error]
	twice   atomic.Bool
}

func newHold() *hold { return &hold{begun: make(chan uint64, 16), let: make(chan error)} }

func (h *hold) prepare(ctx context.Context, index, _ uint64, _ []byte) error {
	if h.running.Add(1) > 1 {
		h.twice.Store(true)
	}
	defer h.running.Add(-1)
	h.begun <- index
	select {
	case err := <-h.let:
		return err
	case <-ctx.Done():
		err := context.Cause(ctx)
		h.stopped.Store(&err)
		return err
	}
}

// A node that has all that a refused snapshot covers says so, and is sent what comes next instead
// of the same snapshot again.
func TestSnapshotThatIsNotNeeded(t *testing.T) {
	p := newPair(t, RaftOptions{InTerm: inTerm(5), Holds: func(index, term uint64) bool { return index <= 38 && term == 4 }})
	snapshots := p.consume()
	for index, held := range map[uint64]bool{38: true, 39: false} {
		go func() {
			rpc := <-snapshots
			_, _ = io.Copy(io.Discard, rpc.Reader)
			rpc.Respond(&raft.InstallSnapshotResponse{}, errors.New("the Raft log goes beyond this snapshot"))
		}()
		resp, err := p.install(5, index, 3, strings.NewReader("abc"))
		if held && (err != nil || !resp.Success || resp.Term != 5) || !held && (err == nil || resp.Success) {
			t.Errorf("snapshot of %d: %+v, %v", index, resp, err)
		}
	}
}

func TestMessagesFlowWhilePreparing(t *testing.T) {
	h := newHold()
	p := newPair(t, RaftOptions{Prepare: h.prepare, InTerm: inTerm(5)})
	snapshots := p.consume()
	var heartbeats atomic.Int32
	p.there.SetHeartbeatHandler(func(rpc raft.RPC) {
		heartbeats.Add(1)
		rpc.Respond(&raft.AppendEntriesResponse{}, nil)
	})
	outcome := make(chan error, 1)
	go func() { _, err := p.install(5, 1, 3, strings.NewReader("abc")); outcome <- err }()
	<-h.begun
	for range 20 {
		check.Must(t, p.vote())
		check.Must(t, p.here.AppendEntries(raft.ServerID(node(1).String()), p.there.LocalAddr(),
			&raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("x")}, Term: 5}, &raft.AppendEntriesResponse{}))
	}
	check.Equal(t, heartbeats.Load(), 20, "heartbeats")
	select {
	case err := <-outcome:
		t.Fatalf("answered before it was prepared: %v", err)
	default:
	}
	h.let <- nil
	respond(<-snapshots, &raft.InstallSnapshotResponse{Success: true}, nil)
	check.NoError(t, <-outcome)
}

func TestNewerSnapshotWins(t *testing.T) {
	h := newHold()
	p := newPair(t, RaftOptions{Prepare: h.prepare})
	snapshots := p.consume()
	outcomes := make([]chan error, 3)
	start := func(i int, term, index uint64) {
		outcomes[i] = make(chan error, 1)
		go func() { _, err := p.install(term, index, 3, strings.NewReader("abc")); outcomes[i] <- err }()
	}
	start(0, 5, 1)
	check.MustEqual(t, <-h.begun, 1, "prepared")
	start(1, 5, 2)
	if err := <-outcomes[0]; err == nil || err.Error() != errSuperseded.Error() {
		t.Errorf("the older one: %v", err)
	}
	check.MustEqual(t, <-h.begun, 2, "prepared")
	start(2, 4, 3) // from a leader that has been replaced
	if err := <-outcomes[2]; err == nil || err.Error() != errOlderTerm.Error() {
		t.Errorf("the one of the older term: %v", err)
	}
	h.let <- nil
	respond(<-snapshots, &raft.InstallSnapshotResponse{Success: true}, nil)
	check.NoError(t, <-outcomes[1])
	if h.twice.Load() {
		t.Error("two were prepared at a time")
	}
}

// A snapshot that stalls on its way gives way to a newer one as well.
func TestNewerSnapshotWhileReading(t *testing.T) {
	p := newPair(t, RaftOptions{})
	snapshots := p.consume()
	stalled, feed := io.Pipe()
	outcome := make(chan error, 1)
	go func() { _, err := p.install(5, 1, 1000, stalled); outcome <- err }()
	check.Must(t, check.Err(feed.Write(make([]byte, 10))))
	go func() { respond(<-snapshots, &raft.InstallSnapshotResponse{Success: true}, nil) }()
	check.NoError(t, check.Err(p.install(5, 2, 3, strings.NewReader("abc"))))
	_ = feed.Close()
	check.Says(t, <-outcome, errSuperseded.Error(), "the stalled one")
}

func TestPrepareTakesTooLong(t *testing.T) {
	h := newHold()
	p := newPair(t, RaftOptions{PrepareTimeout: 50 * time.Millisecond, Prepare: h.prepare})
	p.consume()
	for range 2 {
		if _, err := p.install(5, 1, 3, strings.NewReader("abc")); err == nil || err.Error() != errPrepare.Error() {
			t.Errorf("error %v", err)
		}
	}
	check.NoError(t, p.vote())
}

func TestCloseCallsPrepareOff(t *testing.T) {
	h := newHold()
	p := newPair(t, RaftOptions{Prepare: h.prepare})
	outcome := make(chan error, 1)
	go func() { _, err := p.install(5, 1, 3, strings.NewReader("abc")); outcome <- err }()
	<-h.begun
	check.NoError(t, p.there.Close())
	check.Fails(t, <-outcome, "taken")
	if err := h.stopped.Load(); err == nil || !errors.Is(*err, raft.ErrTransportShutdown) {
		t.Errorf("Prepare was stopped by %v", err)
	}
}

// A node that joins late gets a snapshot, once it is prepared for it, and continues from there.
func TestRaftInstallsSnapshot(t *testing.T) {
	var tries atomic.Int32
	c := newCluster(t, 3, 1, setup{transport: func(i int, o *RaftOptions) {
		if i == 2 {
			o.Prepare = func(context.Context, uint64, uint64, []byte) error {
				if tries.Add(1) < 3 {
					return errors.New("still pulling")
				}
				return nil
			}
		}
	}, config: func(_ int, c *raft.Config) { c.TrailingLogs = 1 }})
	l := c.leader()
	for i := range 50 {
		check.Must(t, l.raft.Apply(fmt.Appendf(nil, "entry %d", i), 0).Error())
	}
	check.Must(t, l.raft.Snapshot().Error())
	late := c.peers[2]
	check.Must(t, l.raft.AddVoter(late.id, raft.ServerAddress(late.port.Advertised()), 0, 0).Error())
	check.Must(t, l.raft.Apply([]byte("after"), 0).Error())
	c.converge(l, late)
	if tries.Load() < 3 || len(late.fsm.state()) != 51 {
		t.Errorf("%d tries, %d entries", tries.Load(), len(late.fsm.state()))
	}
	testkit.Eventually(t, patience, func() error {
		if late.raft.Stats()["last_snapshot_index"] == "0" {
			return errors.New("no snapshot was installed")
		}
		return nil
	})
}

// A snapshot that ends before its announced size is none: neither Prepare nor raft hears of it.
func TestSnapshotThatIsCutShort(t *testing.T) {
	asked := make(chan struct{}, 1)
	p := newPair(t, RaftOptions{Prepare: func(context.Context, uint64, uint64, []byte) error { asked <- struct{}{}; return nil }})
	snapshots := p.consume()
	c, err := p.here.dial(kindInstall, p.here.target(raft.ServerID(node(1).String()), p.there.LocalAddr()), patience)
	check.Must(t, err)
	defer func() { _ = c.Close() }()
	check.Must(t, writeFrame(c, raft.InstallSnapshotRequest{Term: 5, LastLogTerm: 4, LastLogIndex: 7, Size: 10}))
	check.Must(t, readInstallAnswer(c, nil))
	check.Must(t, check.Err(c.Write([]byte("abc"))))
	check.Must(t, c.Conn.(interface{ CloseWrite() error }).CloseWrite())
	outcome := make(chan error, 1)
	go func() { outcome <- readInstallAnswer(c, new(raft.InstallSnapshotResponse)) }()
	select {
	case err := <-outcome:
		check.Says(t, err, "3 of 10 bytes", "the answer")
	case <-asked:
		t.Error("it was prepared")
	case <-snapshots:
		t.Error("raft got it")
	}
}
