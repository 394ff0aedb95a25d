package node_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/node"
)

// anywhere does a client's write at a node.
func anywhere(t *testing.T, n *node.Node, w *event.Write) (event.Written, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return node.WriteAnywhere(ctx, n, w)
}

func proposed(id byte) event.Proposed {
	return event.Proposed{ID: event.ID{id, 15: 1}, Type: "t", Flags: event.FlagJSON, Data: []byte("{}"), Metadata: []byte("m")}
}

// TestWriteAnywhere: a follower answers a client's write as the leader does, position included, and
// a read-only replica names the leader. Without a leader both fail and say so.
func TestWriteAnywhere(t *testing.T) {
	nodes := openCluster(t, 4, func(i int, o *node.Options) {
		o.Config.ClusterSize, o.Config.ReadOnlyReplica = 3, i == 3
	})
	replica, voters := nodes[3], nodes[:3]
	testkit.Eventually(t, time.Minute, func() error {
		for _, n := range nodes {
			if _, ok := node.LeaderOf(n); ok == node.Leads(n) {
				return errors.New("not everybody knows who leads")
			}
		}
		return nil
	})
	at := slices.IndexFunc(voters, node.Leads)
	if at < 0 {
		t.Fatal("nobody leads")
	}
	leader, follower := voters[at], voters[(at+1)%3]

	var positions []int64
	for i, n := range []*node.Node{leader, follower} {
		s := fmt.Sprint("s\xff", i)
		var got []event.Written
		for _, c := range []struct {
			name  string
			write event.Write
			want  event.Written // but for the position
			err   error
		}{
			{"first", event.Write{Stream: s, ExpectedVersion: event.NoStream, Events: []event.Proposed{proposed(1), proposed(2)}}, event.Written{Last: 1}, nil},
			{"again", event.Write{Stream: s, ExpectedVersion: event.NoStream, Events: []event.Proposed{proposed(1), proposed(2)}}, event.Written{Last: 1, Idempotent: true}, nil},
			{"nothing", event.Write{Stream: s, ExpectedVersion: 1}, event.Written{First: 2, Last: 1, Idempotent: true}, nil},
			{"version", event.Write{Stream: s, ExpectedVersion: 7, Events: []event.Proposed{proposed(3)}}, event.Written{}, &event.WrongExpectedVersion{Stream: s, Expected: 7, Current: 1}},
			{"too large", event.Write{Stream: s, ExpectedVersion: event.AnyVersion, Events: []event.Proposed{{ID: event.ID{4}, Type: "t", Data: make([]byte, 17<<20)}}}, event.Written{}, event.ErrTooLarge},
			{"no right", event.Write{Kind: event.HardDelete, Stream: "$$" + s, ExpectedVersion: event.AnyVersion}, event.Written{}, event.ErrNotAuthorized},
			{"hidden", event.Write{Kind: event.SoftDelete, Stream: s, ExpectedVersion: 1}, event.Written{First: 1, Last: 1}, nil},
			{"hidden again", event.Write{Kind: event.SoftDelete, Stream: s, ExpectedVersion: event.AnyVersion}, event.Written{First: 1, Last: 1, Idempotent: true}, nil},
			{"gone", event.Write{Kind: event.HardDelete, Stream: s, ExpectedVersion: event.AnyVersion}, event.Written{First: event.TombstoneNumber, Last: event.TombstoneNumber}, nil},
			{"deleted", event.Write{Stream: s, ExpectedVersion: event.AnyVersion, Events: []event.Proposed{proposed(5)}}, event.Written{}, event.ErrStreamDeleted},
		} {
			written, err := anywhere(t, n, &c.write)
			got = append(got, written)
			if end := node.LogEnd(n); written.Position >= end {
				t.Errorf("%s, %s: the log of the node that was asked ends at %d, before %d", s, c.name, end, written.Position)
			}
			written.Position = c.want.Position
			if !reflect.DeepEqual(written, c.want) || !errors.Is(err, c.err) && !reflect.DeepEqual(err, c.err) {
				t.Errorf("%s, %s: %+v, %v; want %+v, %v", s, c.name, written, err, c.want, c.err)
			}
		}
		if got[0].Position != got[1].Position || got[2].Position != -1 || got[6].Position <= got[0].Position || got[7].Position != got[6].Position || got[8].Position <= got[6].Position {
			t.Errorf("%s: positions of %+v", s, got)
		}
		positions = append(positions, got[0].Position, got[8].Position)
	}
	if !slices.IsSorted(positions) {
		t.Errorf("positions %v", positions)
	}

	w := &event.Write{Stream: "s", ExpectedVersion: event.AnyVersion, Events: []event.Proposed{proposed(9)}}
	var elsewhere *event.NotLeader
	if _, err := anywhere(t, replica, w); !errors.As(err, &elsewhere) || !elsewhere.ReadOnly || elsewhere.Address != "http://"+leader.Addr() {
		t.Errorf("read-only replica: %v, want that it is at %s", err, leader.Addr())
	}
	if address, ok := node.LeaderOf(follower); !ok || address != "http://"+leader.Addr() {
		t.Errorf("the leader is said to be at %s, %v; it is at %s", address, ok, leader.Addr())
	}
	if address, ok := node.LeaderOf(leader); ok {
		t.Errorf("the leader knows another one at %s", address)
	}

	for _, n := range voters {
		if n != follower {
			check.Must(t, n.Close())
		}
	}
	testkit.Eventually(t, time.Minute, func() error {
		_, ok := node.LeaderOf(follower)
		if _, err := anywhere(t, follower, w); ok || !errors.Is(err, event.ErrNotReady) {
			return fmt.Errorf("%v, a leader is known: %v", err, ok)
		}
		return nil
	})
}
