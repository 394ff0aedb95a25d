package grpcapi_test

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/internal/check"
)

// restingStore has nothing to read. It signals that a caller waits.
type restingStore struct {
	api.Store
	reads   atomic.Int64
	waiting chan struct{}
}

func (s *restingStore) LogEnd() int64 { return 100 }

func (s *restingStore) StreamInfo(context.Context, string) (event.StreamInfo, error) {
	return event.StreamInfo{Last: -1, MetaLast: -1}, nil
}

func (s *restingStore) ReadStream(context.Context, event.StreamRead) (event.StreamPage, error) {
	s.reads.Add(1)
	return event.StreamPage{}, event.ErrStreamNotFound
}

func (s *restingStore) ReadAll(_ context.Context, r event.AllRead) (event.AllPage, error) {
	s.reads.Add(1)
	return event.AllPage{From: r.From, Next: 100, Last: 90, LogEnd: 100, Looked: 3}, nil
}

func (s *restingStore) WaitStream(ctx context.Context, _ string, _ int64) error {
	return s.WaitLog(ctx, 0)
}

func (s *restingStore) WaitLog(ctx context.Context, _ int64) error {
	s.waiting <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// changingCluster is one whose leader a test sets.
type changingCluster struct {
	mu     sync.Mutex
	leads  bool
	leader string
}

func (c *changingCluster) set(leads bool, leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leads, c.leader = leads, leader
}

func (c *changingCluster) Role() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leads {
		return "leader"
	}
	return "follower"
}

func (c *changingCluster) Redirect() (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader, !c.leads && c.leader != ""
}

func (c *changingCluster) Confirm(context.Context) error { return nil }

// allowAll is the access of a user who may do everything.
type allowAll struct{ standing }

func (allowAll) Authenticate(*http.Request) (access.Principal, error) { return access.Anonymous, nil }

func (allowAll) CheckStream(context.Context, access.Principal, string, access.Right) error {
	return nil
}

// host serves what a test makes up.
func host(t testing.TB, store api.Store, cluster api.Cluster) (*grpcapi.Server, *grpc.ClientConn) {
	t.Helper()
	conn, s := serve(t, grpcapi.Options{Node: api.Node{Store: store, Cluster: cluster, Access: allowAll{}}})
	return s, conn
}

func TestReadWhereTheLeaderIs(t *testing.T) {
	cluster := &changingCluster{leads: true}
	s, conn := host(t, &restingStore{waiting: make(chan struct{}, 9)}, cluster)
	subscribe := func(leader string) *reader {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		t.Cleanup(cancel)
		stream, err := streams.NewStreamsClient(conn).Read(metadata.AppendToOutgoingContext(ctx, "requires-leader", leader), read(ofStream("s", start), subscribed))
		if err != nil {
			t.Fatal(err)
		}
		return &reader{t, stream, cancel}
	}
	moved := ended{codes.NotFound, "Leader info available", "exception=not-leader;leader-endpoint-host=n2;leader-endpoint-port=2113;"}
	unready := ended{code: codes.Unavailable, text: "Server Is Not Ready"}
	ends := func(what string, r *reader, want ended) {
		t.Helper()
		rest, e := r.end()
		if check.Equal(t, e, want, what); len(rest) > 0 {
			t.Errorf("%s: %v", what, rest)
		}
	}

	leader, unknown, any := subscribe("True"), subscribe("true"), subscribe("False")
	for _, r := range []*reader{leader, unknown, any} {
		r.expect("confirmed", "caught-up")
	}
	cluster.set(false, "http://n2:2113")
	s.LostLead()
	ends("the leader left", leader, moved)
	ends("the leader left", unknown, moved)
	ends("on a follower", subscribe("true"), moved)
	cluster.set(false, "")
	ends("without a leader", subscribe("true"), unready)
	cluster.set(true, "")
	again := subscribe("true")
	again.expect("confirmed", "caught-up")
	cluster.set(false, "")
	s.LostLead()
	ends("nobody leads", again, unready)
	subscribe("False").expect("confirmed", "caught-up")

	s.Drain()
	ends("the node stops", any, unready)
}

// At rest a subscription reads nothing.
func TestSubscriptionAtRestReadsNothing(t *testing.T) {
	store := &restingStore{waiting: make(chan struct{})}
	_, conn := host(t, store, &changingCluster{leads: true})
	for _, req := range []*streams.ReadReq{read(ofStream("s", start), subscribed), read(ofAll(start), subscribed, window(byType("x"), 1, 7))} {
		store.reads.Store(0)
		r := open(t, conn, "", req)
		<-store.waiting
		if n := store.reads.Load(); n != 1 {
			t.Errorf("%d reads", n)
		}
		r.expect("confirmed")
		r.leave()
	}
}

// lookingStore tells how many records a page may look at, of which there are none.
type lookingStore struct {
	restingStore
	most chan int
}

func (s *lookingStore) ReadAll(_ context.Context, r event.AllRead) (event.AllPage, error) {
	s.most <- r.MaxScan
	return event.AllPage{From: r.From, Next: r.From, Last: -1, LogEnd: r.From}, nil
}

// Between two pages the server notices that the client has gone. Pages are small where each name
// may take long.
func TestReadSlowFilter(t *testing.T) {
	for expression, slow := range map[string]bool{`(?=x)y`: true, `xy`: false} {
		for what, req := range map[string]*streams.ReadReq{
			"read":         read(ofAll(start), window(byStream(expression), 1000, 1)),
			"subscription": read(ofAll(start), subscribed, window(byStream(expression), 1000, 1000)),
		} {
			store := &lookingStore{restingStore{waiting: make(chan struct{}, 1)}, make(chan int, 1)}
			_, conn := host(t, store, &changingCluster{leads: true})
			r := open(t, conn, "", req)
			if most := <-store.most; most < 1 || slow != (most <= 16) {
				t.Errorf("%s, %s: a page looks at %d records", expression, what, most)
			}
			r.leave()
		}
	}
}

// FuzzReadReq sends whatever it is: the end is a status that says what is wrong, or what was asked
// for.
func FuzzReadReq(f *testing.F) {
	for _, req := range []*streams.ReadReq{
		{}, read(ofStream("s", start), positions), read(ofAll(3), backward, resolved, textIDs), read(ofAll(end), subscribed),
		read(ofAll(start), subscribed, window(byType("^(?!a)"), 1, 1)), read(ofAll(start), count(3), window(byStream("", "a", "b"), 0, 1<<31)),
	} {
		raw, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	conn := dial(f, address)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var req streams.ReadReq
		if proto.Unmarshal(raw, &req) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("admin:changeit")))
		stream, err := streams.NewStreamsClient(conn).Read(ctx, &req)
		if err != nil {
			t.Fatal(err)
		}
		for {
			m, err := stream.Recv()
			if m.GetCaughtUp() != nil {
				return
			}
			if errors.Is(err, io.EOF) {
				return
			} else if err == nil {
				continue
			}
			switch status.Code(err) {
			case codes.InvalidArgument, codes.FailedPrecondition:
				return
			default:
				t.Fatal(err)
			}
		}
	})
}
