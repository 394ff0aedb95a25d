package wire

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
)

// leading is a leader's pipeline to a follower whose part the test plays.
type leading struct {
	*pair
	pipe raft.AppendPipeline
}

// newLeading opens a pipeline on which raft has sent all up to entry 7.
func newLeading(t *testing.T, o RaftOptions) *leading {
	l := &leading{pair: newPair(t, o)}
	var err error
	l.pipe, err = l.here.AppendEntriesPipeline(raft.ServerID(node(1).String()), l.there.LocalAddr())
	check.Must(t, err)
	t.Cleanup(func() {
		if err := l.pipe.Close(); err != nil && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
	l.send(7)
	l.gets("7: commit 5", true)
	l.has(true, 7)
	return l
}

// entries are of term 3.
func entries(indexes ...uint64) (logs []*raft.Log) {
	for _, i := range indexes {
		logs = append(logs, &raft.Log{Index: i, Term: 3, Data: []byte("entry")})
	}
	return logs
}

// send is raft sending entries.
func (l *leading) send(prev uint64, indexes ...uint64) {
	l.t.Helper()
	l.sendCommitted(5, prev, indexes...)
}

func (l *leading) sendCommitted(commit, prev uint64, indexes ...uint64) {
	l.t.Helper()
	req := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: prev, PrevLogTerm: 3, LeaderCommitIndex: commit, Entries: entries(indexes...)}
	check.NoError(l.t, check.Err(l.pipe.AppendEntries(req, new(raft.AppendEntriesResponse))))
}

// gets has the follower get a message and answer it.
func (l *leading) gets(want string, success bool) {
	l.t.Helper()
	select {
	case rpc := <-l.there.Consumer():
		req := rpc.Command.(*raft.AppendEntriesRequest)
		got := fmt.Sprintf("%d:", req.PrevLogEntry)
		for _, e := range req.Entries {
			got += fmt.Sprintf(" %d", e.Index)
		}
		if got += fmt.Sprintf(" commit %d", req.LeaderCommitIndex); got != want {
			l.t.Errorf("the follower gets %q, want %q", got, want)
		}
		rpc.Respond(&raft.AppendEntriesResponse{Term: 3, LastLog: req.PrevLogEntry + uint64(len(req.Entries)), Success: success}, nil)
	case <-time.After(patience):
		l.t.Fatalf("the follower gets nothing, want %q", want)
	}
}

// getsNothing waits for a while: a message that is not sent never comes.
func (l *leading) getsNothing() {
	l.t.Helper()
	select {
	case rpc := <-l.there.Consumer():
		l.t.Errorf("the follower gets %+v", rpc.Command)
	case <-time.After(20 * time.Millisecond):
	}
}

// has is raft getting the answer to a message that ends with an entry.
func (l *leading) has(success bool, last uint64) {
	l.t.Helper()
	select {
	case f := <-l.pipe.Consumer():
		req := f.Request()
		if got := req.PrevLogEntry + uint64(len(req.Entries)); got != last || f.Response().Success != success {
			l.t.Errorf("raft has the answer %v to a message up to %d, want %v up to %d", f.Response().Success, got, success, last)
		}
	case <-time.After(patience):
		l.t.Fatalf("raft gets no answer to its message up to %d", last)
	}
}

// hasNothing is for a while.
func (l *leading) hasNothing() {
	l.t.Helper()
	select {
	case f := <-l.pipe.Consumer():
		l.t.Errorf("raft has an answer to what it did not send: %+v", f.Request())
	case <-time.After(20 * time.Millisecond):
	}
}

func TestEntriesAreSentWhileTheyAreStored(t *testing.T) {
	t.Parallel()
	l := newLeading(t, RaftOptions{})
	l.here.Committed(6, 3)
	l.gets("6: commit 6", true) // of commits
	l.here.Storing(entries(8))
	l.gets("7: 8 commit 6", true)
	l.hasNothing() // raft does not count the follower before the leader has it.
	l.send(7, 8)
	l.has(true, 8)
	l.send(8)
	l.gets("8: commit 5", true)
	l.has(true, 8)
}

// Of barriers, which no state machine gets, and of entries of older terms raft alone says that they
// are committed, and as long as it has entries to send it says so with them.
func TestCommitsOfMessagesThatAreTakenOver(t *testing.T) {
	t.Parallel()
	l := newLeading(t, RaftOptions{})
	want := uint64(5)
	for i := uint64(8); i < 14; i++ {
		l.here.Storing(entries(i))
		l.gets(fmt.Sprintf("%d: %d commit %d", i-1, i, want), true)
		want = i - 1
		l.sendCommitted(want, i-1, i)
		l.has(true, i)
	}
}

func TestOneMessageOfWhatWasSentInTwo(t *testing.T) {
	t.Parallel()
	l := newLeading(t, RaftOptions{})
	l.here.Storing(entries(8))
	l.gets("7: 8 commit 5", true)
	l.here.Storing(entries(9, 10))
	l.gets("8: 9 10 commit 5", true)
	l.send(7, 8, 9, 10)
	l.has(true, 10)
	l.getsNothing()
}

// What raft has to send besides goes out as ever, all of it, and what follows is sent ahead again.
func TestRaftSendsMoreThanWasSentAhead(t *testing.T) {
	t.Parallel()
	l := newLeading(t, RaftOptions{})
	l.here.Storing(entries(8))
	l.gets("7: 8 commit 5", true)
	l.send(7, 8, 9)
	l.gets("7: 8 9 commit 5", true)
	l.has(true, 9)
	l.here.Storing(entries(10))
	l.gets("9: 10 commit 5", true)
	l.send(9, 10)
	l.has(true, 10)
}

func TestNothingIsSentAhead(t *testing.T) {
	t.Parallel()
	other := entries(8)
	other[0].Term = 4
	silent := errors.New("silent")
	for name, c := range map[string]struct {
		logs    []*raft.Log
		prepare func(*leading)
	}{
		"of a follower that lags":         {logs: entries(9)},
		"that was sent":                   {logs: entries(7)},
		"of another term":                 {logs: other},
		"that is more than one message":   {logs: entries(8, 9), prepare: func(l *leading) { l.here.opts.MaxRPCBytes = 10 + entryOverhead }},
		"of a node that must be silent":   {logs: entries(8), prepare: func(l *leading) { l.here.opts.Silent = func() error { return silent } }},
		"on a connection that is due":     {logs: entries(8), prepare: func(l *leading) { l.pipe.(*pipeline).conn.due = time.Now().Add(-time.Second) }},
		"on a pipeline raft is done with": {logs: entries(8), prepare: func(l *leading) { _ = l.pipe.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLeading(t, RaftOptions{})
			if c.prepare != nil {
				c.prepare(l)
			}
			l.here.Storing(c.logs)
			l.getsNothing()
		})
	}
}

// A refusal is raft's answer when it sends the entries, and no answer follows it.
func TestRefusalOfWhatWasSentAhead(t *testing.T) {
	t.Parallel()
	l := newLeading(t, RaftOptions{})
	l.here.Storing(entries(8))
	l.gets("7: 8 commit 5", false)
	l.here.Storing(entries(9))
	l.gets("8: 9 commit 5", true)
	l.hasNothing()
	l.send(7, 8, 9)
	l.has(false, 9)
	l.send(9, 10)
	l.gets("9: 10 commit 5", true)
	l.hasNothing()
}

// A follower that does not read holds up neither the leader's disk nor the end of the pipeline.
func TestFollowerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	l := newLeading(t, RaftOptions{})
	large := entries(8)
	large[0].Data = make([]byte, 12<<20)
	l.here.Storing(large) // One message waits for the follower, the next ones for room.
	for i := range uint64(20) {
		l.here.Storing(entries(9 + i))
	}
	closed := make(chan error, 1)
	go func() { closed <- l.pipe.Close() }()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal("the pipeline does not close")
	}
}
