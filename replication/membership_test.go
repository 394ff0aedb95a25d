package replication

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/throttle"
)

// A caller that asks for a change of the cluster hears whether to ask again.
func TestChangeFailed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ of, want error }{
		{raft.ErrNotLeader, event.ErrNotReady},
		{raft.ErrLeadershipTransferInProgress, event.ErrNotReady},
		{raft.ErrEnqueueTimeout, event.ErrNotReady},
		{raft.ErrLeadershipLost, event.ErrOutcomeUnknown},
		{raft.ErrRaftShutdown, event.ErrOutcomeUnknown},
		{io.ErrUnexpectedEOF, io.ErrUnexpectedEOF},
	} {
		err := changeFailed(c.of)
		if !errors.Is(err, c.want) || !errors.Is(err, c.of) {
			t.Errorf("%v became %v, want %v", c.of, err, c.want)
		}
		if c.want == c.of && errors.Is(err, event.ErrNotReady) {
			t.Errorf("%v became %v", c.of, err)
		}
	}
}

// logAt is an event log that ends at a position.
type logAt event.Tail

func (l logAt) Tail() event.Tail { return event.Tail(l) }
func (l logAt) ChainAt(position int64) (event.Chain, bool, error) {
	return l.Chain, position == l.End, nil
}

// A node that asks to be admitted is compared with the leader before the configuration is touched.
func TestJoinerIsCompared(t *testing.T) {
	t.Parallel()
	own := selfOf(1)
	own.fix(event.ID{})
	own.deps.Store(&Dependencies{Log: logAt{End: 100, Chain: event.Chain{1}}})
	p := peersOf(own)
	m := &membership{self: own, peers: p, incarnations: &incarnations{self: own, peers: p}}
	fits := joinRequest{Node: event.ID{2}, Cluster: event.ID{7}, Format: dataFormat, Tail: event.Tail{End: 100, Chain: event.Chain{1}}}
	for _, c := range []struct {
		name    string
		change  func(*joinRequest)
		refused bool // for good
		fails   bool
	}{
		{name: "it fits", change: func(*joinRequest) {}},
		{name: "another cluster", change: func(q *joinRequest) { q.Cluster = event.ID{8} }, refused: true},
		{name: "another format", change: func(q *joinRequest) { q.Format++ }, refused: true},
		{name: "another lineage", change: func(q *joinRequest) { q.Incarnation = &event.ID{5} }, refused: true},
		{name: "another history", change: func(q *joinRequest) { q.Tail.Chain = event.Chain{2} }, refused: true},
		{name: "no frame ends there", change: func(q *joinRequest) { q.Tail.End = 90 }, refused: true},
		{name: "ahead of the leader", change: func(q *joinRequest) { q.Tail.End = 110 }, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := fits
			c.change(&q)
			err := m.checkJoiner(q)
			if _, refused := errors.AsType[*event.MemberError](err); refused != c.refused || (err != nil) != (c.refused || c.fails) {
				t.Errorf("%v", err)
			}
		})
	}
}

// No voter is removed without which there would be no majority.
func TestVoterThatCanBeSpared(t *testing.T) {
	t.Parallel()
	servers := func(voters ...byte) (c raft.Configuration) {
		for _, id := range voters {
			c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(event.ID{id}.String())})
		}
		return c
	}
	for _, c := range []struct {
		name   string
		voters []byte
		alive  []byte // besides this one
		ok     bool
	}{
		{"three, all alive", []byte{1, 2, 3}, []byte{2, 3}, true},
		{"three, the one that goes is dead", []byte{1, 2, 3}, []byte{3}, true},
		{"three, the other one is dead", []byte{1, 2, 3}, []byte{2}, false},
		{"two: one is no majority of three", []byte{1, 2}, []byte{2}, false},
		{"five, two others are dead", []byte{1, 2, 3, 4, 5}, []byte{2, 3}, false},
		{"five, one other is dead", []byte{1, 2, 3, 4, 5}, []byte{3, 4}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			own := selfOf(1)
			var alive []Status
			for _, id := range c.alive {
				alive = append(alive, follower(id, 1, 0))
			}
			m := &membership{self: own, peers: heardOf(own, alive...)}
			configuration := servers(c.voters...)
			if err := m.spare(configuration, configuration.Servers[1]); (err == nil) != c.ok {
				t.Errorf("%v", err)
			}
		})
	}
}

// A node that is refused asks again and again, and its refusal is said once.
func TestRefusalIsSaidOnce(t *testing.T) {
	t.Parallel()
	m := &membership{said: throttle.Lines[refusal]{Every: time.Minute}}
	for i, want := range []bool{true, false, true} {
		why := "one"
		if i == 2 {
			why = "another"
		}
		if _, due := m.said.Due(refusal{event.ID{2}, why}); due != want {
			t.Errorf("%d: said %t", i, !want)
		}
	}
}
