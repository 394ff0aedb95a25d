package grpcapi_test

import (
	"context"
	"strings"
	"testing"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/projections"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	grpcapi "github.com/annalsdb/annals/grpc"
)

// Each call that holds something is bounded, and says what by.
func TestCallsHaveShares(t *testing.T) {
	shares := api.NewShares(api.SharesOptions{})
	for k := api.Tail; k <= api.Consumer; k++ {
		for {
			if _, err := shares.Take(k, access.Principal{Login: access.LoginAdmin}, "10.0.0.1:1"); err != nil {
				break
			}
		}
	}
	conn, _ := serve(t, grpcapi.Options{Node: api.Node{
		Store: newWriteStore(nil), Cluster: leader, Access: everything{}, Projections: fakeProjections{}, Subscriptions: restarts{f: &operatedNode{}}, Shares: shares,
	}})
	ask := func(r *streams.ReadReq) func(context.Context, *grpc.ClientConn) error {
		return func(ctx context.Context, conn *grpc.ClientConn) error {
			call, err := streams.NewStreamsClient(conn).Read(ctx, r)
			if err == nil {
				_, err = call.Recv()
			}
			return err
		}
	}
	for name, c := range map[string]struct {
		call func(context.Context, *grpc.ClientConn) error
		text string
	}{
		"subscription":            {ask(read(ofStream("s", start), subscribed)), "Too many live connections: "},
		"subscription to the log": {ask(read(ofAll(start), subscribed)), "Too many live connections: "},
		"filtered subscription":   {ask(read(ofAll(start), subscribed, window(byType("", "x"), 32, 1))), "Too many live connections: "},
		"filtered read":           {ask(read(ofAll(start), window(byType("", "x"), 32, 1))), "Too many filtered reads: "},
		"batch": {func(ctx context.Context, conn *grpc.ClientConn) error {
			call, err := streams.NewStreamsClient(conn).BatchAppend(ctx)
			if err == nil {
				_, err = call.Recv()
			}
			return err
		}, "Too many open batches: "},
		"query": {func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := projections.NewProjectionsClient(conn).Create(ctx, &projections.CreateReq{Options: &projections.CreateReq_Options{
				Query: "Q", Mode: &projections.CreateReq_Options_Transient_{Transient: &projections.CreateReq_Options_Transient{Name: "q"}},
			}})
			return err
		}, "Too many transient queries: "},
		"consumer": {func(ctx context.Context, conn *grpc.ClientConn) error {
			call, err := persistent.NewPersistentSubscriptionsClient(conn).Read(ctx)
			if err != nil {
				return err
			}
			err = call.Send(&persistent.ReadReq{Content: &persistent.ReadReq_Options_{Options: &persistent.ReadReq_Options{
				StreamOption: &persistent.ReadReq_Options_StreamIdentifier{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte("s")}},
				GroupName:    "g", BufferSize: 1,
			}}})
			if err == nil {
				_, err = call.Recv()
			}
			return err
		}, "Too many consumers: "},
	} {
		err := c.call(t.Context(), conn)
		if status.Code(err) != codes.ResourceExhausted || !strings.HasPrefix(status.Convert(err).Message(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
