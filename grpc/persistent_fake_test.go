package grpcapi_test

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/subscription"
)

// emptyStore has no events and takes all writes, which leave no trace.
type emptyStore struct{ api.Store }

func (emptyStore) ReadStream(context.Context, event.StreamRead) (event.StreamPage, error) {
	return event.StreamPage{}, event.ErrStreamNotFound
}

func (emptyStore) ReadEvent(context.Context, string, int64, event.LinkReader) (event.Resolved, error) {
	return event.Resolved{}, event.ErrStreamNotFound
}

func (emptyStore) ReadAll(context.Context, event.AllRead) (event.AllPage, error) {
	return event.AllPage{Last: -1}, nil
}

func (emptyStore) StreamInfo(context.Context, string) (event.StreamInfo, error) {
	return event.StreamInfo{Last: -1, MetaLast: -1}, nil
}

func (emptyStore) Write(context.Context, *event.Write) (event.Written, error) {
	return event.Written{}, nil
}

func (emptyStore) LogEnd() int64 { return 0 }

func (emptyStore) WaitStream(ctx context.Context, _ string, _ int64) error {
	<-ctx.Done()
	return ctx.Err()
}

func (emptyStore) WaitLog(ctx context.Context, _ int64) error {
	<-ctx.Done()
	return ctx.Err()
}

// memCluster leads until another leader is set.
type memCluster struct {
	mu     sync.Mutex
	role   string
	leader string
}

func (c *memCluster) set(role, leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.role, c.leader = role, leader
}

func (c *memCluster) Role() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.role
}

func (c *memCluster) Redirect() (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader, c.leader != ""
}

func (*memCluster) Confirm(context.Context) error { return nil }

// everything lets everybody do everything.
type everything struct{ standing }

func (everything) Authenticate(*http.Request) (access.Principal, error) { return access.System, nil }

func (everything) CheckStream(context.Context, access.Principal, string, access.Right) error {
	return nil
}

// fakeNode is the interface alone, with a group g on the stream s.
type fakeNode struct {
	*groups
	cluster *memCluster
	service *subscription.Service
	server  *grpcapi.Server
}

func newFakeNode(t testing.TB) *fakeNode {
	n := &fakeNode{cluster: &memCluster{role: "leader"}, service: subscription.New(subscription.Options{Store: emptyStore{}})}
	n.server = grpcapi.New(grpcapi.Options{Node: api.Node{Store: emptyStore{}, Cluster: n.cluster, Access: everything{}, Subscriptions: n.service}})
	address := listen(t, n.server)
	n.service.Start(t.Context())
	t.Cleanup(n.service.Stop)
	n.groups = &groups{persistent.NewPersistentSubscriptionsClient(dial(t, address)), t, as(t, ""), address}
	n.loaded()
	n.create("s")
	return n
}

// TestPersistentLeader: groups are on the leader, and consumers learn where that is.
func TestPersistentLeader(t *testing.T) {
	notReady := ended{code: codes.Unavailable, text: "Server Is Not Ready"}
	elsewhere := ended{codes.NotFound, "Leader info available", "exception=not-leader;leader-endpoint-host=leader.example;leader-endpoint-port=2113;"}
	list := func(n *fakeNode) ended {
		var trailers metadata.MD
		_, err := n.List(n.ctx, listReq("s"), grpc.Trailer(&trailers))
		return endOf(err, trailers)
	}
	restart := func(n *fakeNode) ended {
		var trailers metadata.MD
		_, err := n.RestartSubsystem(n.ctx, &shared.Empty{}, grpc.Trailer(&trailers))
		return endOf(err, trailers)
	}
	t.Run("lost to another one", func(t *testing.T) {
		n := newFakeNode(t)
		r := n.consumes("s", 1)
		n.cluster.set("follower", "https://leader.example:2113")
		n.service.Stop()
		check.Equal(t, r.end(), elsewhere, "end")
		check.Equal(t, n.reads(n.ctx, "s", 1).end(), elsewhere, "next")
		check.Equal(t, list(n), notReady, "list") // So that no client takes it for an empty list.
		check.Equal(t, restart(n), elsewhere, "restart")
	})
	t.Run("lost to nobody yet", func(t *testing.T) {
		n := newFakeNode(t)
		r := n.consumes("s", 1)
		n.cluster.set("unknown", "")
		n.service.Stop()
		check.Equal(t, r.end(), notReady, "end")
		check.Equal(t, n.reads(n.ctx, "s", 1).end(), notReady, "next")
		check.Equal(t, list(n), notReady, "list")
	})
	t.Run("drained", func(t *testing.T) {
		n := newFakeNode(t)
		r := n.consumes("s", 1)
		n.server.Drain()
		check.Equal(t, r.end(), notReady, "end")
		check.Equal(t, list(n), ended{code: codes.OK}, "list")
	})
	t.Run("not running", func(t *testing.T) {
		n := newFakeNode(t)
		n.service.Stop()
		reason := "Persistent Subscriptions cannot be restarted as it is in the wrong state."
		check.Equal(t, restart(n), ended{codes.Internal, "Subscription group  on stream  failed: '" + reason + "'",
			"exception=persistent-subscription-failed;group-name=;reason=" + reason + ";stream-name=;"}, "restart")
		check.Equal(t, list(n), notReady, "list")
	})
}

// FuzzPersistentCreate: no options are answered as if the node were at fault.
func FuzzPersistentCreate(f *testing.F) {
	n := newFakeNode(f)
	for _, o := range []*persistent.CreateReq_Options{
		nil,
		{GroupName: "h", Settings: plainSettings(), StreamOption: fromStart("s")},
		{GroupName: "h", Settings: plainSettings(), StreamOption: &persistent.CreateReq_Options_All{All: &persistent.CreateReq_AllOptions{
			AllOption: &persistent.CreateReq_AllOptions_Position{Position: &persistent.CreateReq_Position{CommitPosition: 1 << 63, PreparePosition: 5}},
			FilterOption: &persistent.CreateReq_AllOptions_Filter{Filter: &persistent.CreateReq_AllOptions_FilterOptions{
				Filter: &persistent.CreateReq_AllOptions_FilterOptions_EventType{EventType: &persistent.CreateReq_AllOptions_FilterOptions_Expression{Regex: "^(?!x)"}},
			}},
		}}},
	} {
		raw, err := proto.Marshal(&persistent.CreateReq{Options: o})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, u := &persistent.CreateReq{}, &persistent.UpdateReq{}
		if proto.Unmarshal(raw, c) != nil || proto.Unmarshal(raw, u) != nil {
			return
		}
		n := n.on(t)
		var trailers metadata.MD
		_, err := n.Create(n.ctx, c, grpc.Trailer(&trailers))
		blameless(t, endOf(err, trailers))
		_, err = n.Update(n.ctx, u, grpc.Trailer(&trailers))
		blameless(t, endOf(err, trailers))
	})
}

// FuzzPersistentRead: neither are messages of a consumer.
func FuzzPersistentRead(f *testing.F) {
	n := newFakeNode(f)
	first := &persistent.ReadReq{Content: &persistent.ReadReq_Options_{Options: &persistent.ReadReq_Options{
		GroupName: "g", StreamOption: &persistent.ReadReq_Options_StreamIdentifier{StreamIdentifier: named("s")},
	}}}
	for _, m := range []*persistent.ReadReq{first, {}, ackOf("00000000-0000-0000-0000-000000000001"), nackOf(9, "", "x")} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := &persistent.ReadReq{}
		if proto.Unmarshal(raw, m) != nil {
			return
		}
		n := n.on(t)
		for _, messages := range [][]*persistent.ReadReq{{m, {}}, {first, m, {}}} {
			r := n.opens(n.ctx)
			for _, m := range messages {
				if r.Send(m) != nil {
					break // It has ended.
				}
			}
			blameless(t, r.end())
			r.cancel()
		}
	})
}

// blameless fails unless a call ended well, or by what it asked for.
func blameless(t *testing.T, e ended) {
	t.Helper()
	switch e.code {
	case codes.OK, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists:
	default:
		if e.trailers == "" {
			t.Errorf("%#v", e)
		}
	}
}
