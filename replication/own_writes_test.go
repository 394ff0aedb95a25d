package replication_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/wire"
)

// appending is a write of one event with an id of its own.
func appending(stream string, expected int64) *event.Write {
	return &event.Write{Stream: stream, ExpectedVersion: expected, Events: []event.Proposed{{ID: event.ID(uuid.New()), Type: "t"}}}
}

// own does a write of the node's own.
func (n *node) own(w *event.Write) (event.Written, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return n.cluster.Load().Writes.Write(ctx, w)
}

// startMixed starts three voters and a replica that never votes.
func startMixed(t *testing.T) (h *house, nodes map[string]*node) {
	t.Helper()
	h = startHouse(t, 3, inMemory)
	replica := h.add(inMemory, func(o *replication.ClusterOptions) { o.ReadOnly = true })
	replica.start()
	eventually(t, "the replica is admitted", func() bool { return replica.state() == event.StateReadOnlyReplica })
	leader := h.leader()
	return h, map[string]*node{"leader": leader, "follower": h.others(leader)[0], "replica": replica}
}

// The answers are the same wherever the write comes from.
func TestOwnWritesFromEveryRole(t *testing.T) {
	t.Parallel()
	h, nodes := startMixed(t)
	for role, n := range nodes {
		stream := "of-" + role
		first := appending(stream, event.NoStream)
		for _, c := range []struct {
			name  string
			write *event.Write
			want  event.Written
			err   error
		}{
			{"first", first, event.Written{Position: toyPlace(0)}, nil},
			{"again", first, event.Written{Idempotent: true, Position: toyPlace(0)}, nil},
			{"second", appending(stream, 0), event.Written{First: 1, Last: 1, Position: toyPlace(1)}, nil},
			{"any version", appending(stream, event.AnyVersion), event.Written{First: 2, Last: 2, Position: toyPlace(2)}, nil},
			{"wrong version", appending(stream, 7), event.Written{}, &event.WrongExpectedVersion{Stream: stream, Expected: 7, Current: 2}},
			{"deleted", appending(deletedStream, event.AnyVersion), event.Written{}, event.ErrStreamDeleted},
			{"too large", &event.Write{Stream: stream, Events: []event.Proposed{{Data: make([]byte, 17<<20)}}}, event.Written{}, event.ErrTooLarge},
			{"too large as a request", tiny(stream), event.Written{}, event.ErrTooLarge},
		} {
			if role != "replica" && c.name == "too large as a request" {
				continue // A leader makes none, and the others may come to lead.
			}
			written, err := n.own(c.write)
			if !c.want.Idempotent {
				// The leader may have changed, and the write may have been repeated.
				written.Idempotent = false
			}
			if !reflect.DeepEqual(written, c.want) || fmt.Sprint(err) != fmt.Sprint(c.err) {
				t.Errorf("%s, %s: %+v, %v; expected %+v, %v", role, c.name, written, err, c.want, c.err)
			}
			var version *event.WrongExpectedVersion
			if _, typed := c.err.(*event.WrongExpectedVersion); typed && !errors.As(err, &version) || !typed && c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("%s, %s: %T is not the error of a local write", role, c.name, err)
			}
		}
	}
	h.alike()
	for role, n := range nodes {
		n.holds("of-"+role, 3)
	}
}

// tiny is a write of many small events, which takes far more room as a request than as an entry.
func tiny(stream string) *event.Write {
	w := &event.Write{Stream: stream, ExpectedVersion: event.AnyVersion, Events: make([]event.Proposed, 1_000_000)}
	for i := range w.Events {
		w.Events[i] = event.Proposed{ID: event.ID{1}, Type: "t"}
	}
	return w
}

// A node that refuses writes of clients for want of disk space has its own done elsewhere.
func TestOwnWritesOfANodeWithoutSpace(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	n := h.others(h.leader())[0]
	n.cluster.Load().SetReadOnly(event.ErrDiskFull)
	first := appending("s", event.NoStream)
	err := h.atLeader(func(*node) error {
		eventually(t, "another one leads", func() bool { return h.leader() != n })
		_, err := n.own(first)
		return err
	})
	check.NoError(t, err)
	leader := h.leader()
	for _, other := range h.others(leader) {
		other.cluster.Load().SetReadOnly(event.ErrDiskFull)
	}
	leader.cluster.Load().SetReadOnly(event.ErrDiskFull)
	if _, err := n.own(appending("s", 0)); !errors.Is(err, event.ErrDiskFull) {
		t.Errorf("%v, expected that the disk is full", err)
	}
}

// All nodes write while the leader changes, is stopped and comes back: each write is done, and
// once.
func TestRule06OwnWritesDuringElections(t *testing.T) {
	t.Parallel()
	const each = 30
	h := startHouse(t, 3, onDisk)
	h.write("s", 0)
	writers := h.running()
	var wg sync.WaitGroup
	for _, n := range writers {
		c := n.cluster.Load()
		wg.Go(func() {
			for range each {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				_, err := c.Writes.Write(ctx, appending("from-"+n.name, event.AnyVersion))
				cancel()
				check.NoError(t, err, "node", n.name)
			}
		})
	}
	for range 3 {
		isolated := h.leader()
		h.isolate(isolated)
		eventually(t, "another leader", func() bool {
			for _, n := range h.others(isolated) {
				if l, _ := n.cluster.Load().Leadership(); l.Leading {
					return true
				}
			}
			return false
		})
		h.rejoin(isolated)
		h.leader()
	}
	wg.Wait()
	h.alike()
	for _, n := range writers {
		for _, at := range writers {
			at.holds("from-"+n.name, each)
		}
	}
}

// While no node leads, a write waits, no longer than it may, and is then certainly not done.
func TestOwnWritesWithoutLeader(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	n := h.others(h.leader())[0]
	for _, other := range h.others(n) {
		other.stop()
	}
	eventually(t, "no leader is known", func() bool { return n.state() == event.StateUnknown })
	ctx, cancel := context.WithTimeout(context.Background(), 350*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := n.cluster.Load().Writes.Write(ctx, appending("s", event.AnyVersion)); !errors.Is(err, event.ErrNotReady) {
		t.Errorf("%v, expected not ready", err)
	}
	if took := time.Since(begun); took < 350*time.Millisecond {
		t.Errorf("it took %s", took)
	}
}

// While the leader's disk hangs the outcome is not known when the time is over. The event
// is written once, however often it was sent.
func TestOwnWritesWhileTheLeaderHangs(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	leader := h.leader()
	n := h.others(leader)[0]
	w := appending("s", event.AnyVersion)
	// A paused pipeline keeps the lead, takes writes and decides none.
	resume := replication.Pause(t.Context(), leader.cluster.Load())
	term := leader.raft().CurrentTerm()
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() {
		_, err := n.cluster.Load().Writes.Write(ctx, w)
		gone <- err
	}()
	eventually(t, "the write has come to the leader", func() bool {
		return replication.Queued(leader.cluster.Load()) > 0 || !leader.leads(term)
	})
	cancel()
	if err := <-gone; !errors.Is(err, event.ErrWriteTimeout) && leader.leads(term) {
		t.Errorf("%v, expected a timeout", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := n.own(w)
		done <- err
	}()
	resume()
	check.NoError(t, <-done)
	h.alike()
	n.holds("s", 1)
}

// What may not be repeated is not: a delete whose answer was lost says so.
func TestOwnWritesThatMustNotBeRepeated(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	leader := h.leader()
	n := h.others(leader)[0]
	term := leader.raft().CurrentTerm()
	resume := replication.Pause(t.Context(), leader.cluster.Load())
	defer resume()
	done := make(chan error, 1)
	go func() {
		_, err := n.own(&event.Write{Kind: event.SoftDelete, Stream: "s", ExpectedVersion: event.AnyVersion})
		done <- err
	}()
	// on a machine that is too busy for heartbeats
	deposed := func() bool { return !leader.leads(term) }
	eventually(t, "the write has come to the leader", func() bool { return replication.Queued(leader.cluster.Load()) > 0 || deposed() })
	id := n.cluster.Load().Node()
	h.cut("services", func(from event.ID, to *node, kind wire.Kind) bool {
		return from == id && to == leader && kind == wire.KindService
	})
	if err := <-done; !errors.Is(err, event.ErrOutcomeUnknown) && !deposed() {
		t.Errorf("%v, expected an unknown outcome", err)
	}
	h.lift("services")
}

// Only members of the cluster have writes done for them: not an unknown process, not a node of
// another cluster, not a node that was not admitted.
func TestOwnWritesOfStrangersAreRefused(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	leader := h.leader()
	address := leader.cluster.Load().Port().Advertised()
	for _, c := range []struct {
		name    string
		cluster event.ID
		want    string
	}{
		{"of no cluster", event.ID{}, "403 Forbidden"},
		{"of this cluster, but not admitted", leader.cluster.Load().ID(), "403 Forbidden"},
		{"of another cluster", event.ID(uuid.New()), "belongs to cluster"},
	} {
		port, err := wire.Open(wire.Options{Bind: "127.0.0.1:0", Node: event.ID(uuid.New()), Cluster: func() event.ID { return c.cluster }})
		check.Must(t, err)
		client := &http.Client{Transport: port.HTTPTransport(wire.KindService)}
		for path, body := range map[string]string{"/write": `{"write":{"Stream":"s"}}`, "/write/packed": "\x80", "/ask": "{}"} {
			got := ""
			resp, err := client.Post("http://"+address+path, "application/json", strings.NewReader(body))
			if err != nil {
				got = err.Error()
			} else {
				got = resp.Status
				check.NoError(t, resp.Body.Close())
			}
			check.Contains(t, got, c.want, c.name, path)
		}
		client.CloseIdleConnections()
		check.NoError(t, port.Close())
	}
	// Plain HTTP gets no answer at all.
	conn := check.Value(net.Dial("tcp", leader.cluster.Load().Port().Addr().String())).Must(t)
	check.Must(t, check.Err(io.WriteString(conn, "POST /write HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")))
	if answer, _ := io.ReadAll(conn); len(answer) > 0 && strings.HasPrefix(string(answer), "HTTP/") {
		t.Errorf("answer %q", answer)
	}
	check.NoError(t, conn.Close())
	check.Equal(t, leader.data.count("s"), 0, "records were written")
}
