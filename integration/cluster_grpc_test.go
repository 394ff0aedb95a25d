package integration_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestClientsOfTheReference: while leaders are killed, the official client and calls of BatchAppend
// find the next leader by themselves. Each acknowledged event is there once and in order, and a
// subscription over all of it sees each once.
func TestClientsOfTheReference(t *testing.T) {
	const writers, kills = 4, 2
	c := startCluster(t, clusterOptions{})
	client, onFollower := c.official(t, "leader"), c.official(t, "follower")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()

	var stopping atomic.Bool
	var acknowledged [writers + 1]atomic.Int64 // events of each writer's stream
	for w := range writers {
		through := client
		if w%2 == 1 {
			through = onFollower // It passes writes on.
		}
		write := []appender{appendOne, appendOne, appendSession, appendRecords}[w]
		wg.Go(func() { appendAlone(ctx, t, through, write, rpcStream(w), &acknowledged[w], &stopping) })
	}
	wg.Go(func() { c.appendBatched(ctx, t, rpcStream(writers), &acknowledged[writers], &stopping) })
	follower := &rpcFollower{client: client, next: map[string]int64{}}
	var following sync.WaitGroup
	following.Go(func() { follower.run(ctx, t) })

	for range kills {
		c.advances(t, acknowledged[:])
		leader := c.leader()
		leader.kill()
		c.advances(t, acknowledged[:])
		leader.start()
		c.settled()
	}
	stopping.Store(true)
	wg.Wait()

	for w := range acknowledged {
		stream, want := rpcStream(w), acknowledged[w].Load()
		read, err := client.ReadStream(t.Context(), stream, kurrentdb.ReadStreamOptions{}, uint64(want)+1000)
		check.Must(t, err)
		for n := int64(0); ; n++ {
			e, err := read.Recv()
			if errors.Is(err, io.EOF) {
				check.Equal(t, n, want, "stream", stream, "has ... events ... were acknowledged")
				break
			}
			check.Must(t, err)
			if got := string(e.Event.Data); got != strconv.FormatInt(n, 10) {
				t.Errorf("stream %s: event %d holds %s", stream, n, got)
				break
			}
		}
		read.Close()
		testkit.Eventually(t, settleLimit, func() error { return follower.saw(stream, want) })
	}
	cancel()
	following.Wait()
	c.finish()
}

func rpcStream(w int) string { return fmt.Sprintf("rpc-%d", w) }

// official returns EventStoreDB's own client of the cluster, which prefers nodes in a state.
func (c *cluster) official(t *testing.T, preference string) *kurrentdb.Client {
	t.Helper()
	var hosts []string
	for _, m := range c.members {
		hosts = append(hosts, m.Host())
	}
	config, err := kurrentdb.ParseConnectionString("esdb://" + strings.Join(hosts, ",") + "?tls=false&nodePreference=" + preference)
	check.Must(t, err)
	config.Logger = kurrentdb.NoopLogging()
	client, err := kurrentdb.NewClient(config)
	check.Must(t, err)
	t.Cleanup(func() { check.NoError(t, client.Close()) })
	return client
}

// advances returns when every writer has got somewhere.
func (c *cluster) advances(t *testing.T, acknowledged []atomic.Int64) {
	t.Helper()
	begun := make([]int64, len(acknowledged))
	for w := range acknowledged {
		begun[w] = acknowledged[w].Load()
	}
	testkit.Eventually(t, settleLimit, func() error {
		for w := range acknowledged {
			if n := acknowledged[w].Load(); n < begun[w]+50 {
				return fmt.Errorf("writer %d got from %d to %d", w, begun[w], n)
			}
		}
		return nil
	})
}

// appender appends an event to a stream with the official client, and perhaps to another one at
// once. It returns the number of the event.
type appender func(ctx context.Context, client *kurrentdb.Client, stream string, e kurrentdb.EventData) (number int64, err error)

func appendOne(ctx context.Context, client *kurrentdb.Client, stream string, e kurrentdb.EventData) (int64, error) {
	written, err := client.AppendToStream(ctx, stream, kurrentdb.AppendToStreamOptions{StreamState: kurrentdb.Any{}}, e)
	if err != nil {
		return 0, err
	}
	return int64(written.NextExpectedVersion), nil
}

func appendSession(ctx context.Context, client *kurrentdb.Client, stream string, e kurrentdb.EventData) (int64, error) {
	events := slices.Values([]kurrentdb.EventData{e})
	written, err := client.MultiStreamAppend(ctx, slices.Values([]kurrentdb.AppendStreamRequest{
		{StreamName: stream, Events: events, ExpectedStreamState: kurrentdb.Any{}}, {StreamName: "other-" + stream, Events: events, ExpectedStreamState: kurrentdb.Any{}},
	}))
	if err != nil {
		return 0, err
	}
	return written.Responses[0].StreamRevision, nil
}

func appendRecords(ctx context.Context, client *kurrentdb.Client, stream string, e kurrentdb.EventData) (int64, error) {
	written, err := client.AppendRecords(ctx, []kurrentdb.AppendRecord{{Stream: stream, Record: e}, {Stream: "other-" + stream, Record: e}},
		kurrentdb.StreamStateCheck{Stream: "none-" + stream, ExpectedState: kurrentdb.NoStream{}})
	if err != nil {
		return 0, err
	}
	return written.Responses[0].StreamRevision, nil
}

// appendAlone appends event after event with the official client, each with its id until it is
// acknowledged.
func appendAlone(ctx context.Context, t *testing.T, client *kurrentdb.Client, write appender, stream string, acknowledged *atomic.Int64, stopping *atomic.Bool) {
	for !stopping.Load() {
		n := acknowledged.Load()
		e := kurrentdb.EventData{EventID: uuid.New(), EventType: "t", ContentType: kurrentdb.ContentTypeJson, Data: strconv.AppendInt(nil, n, 10)}
		for {
			limited, cancel := context.WithTimeout(ctx, 5*time.Second)
			number, err := write(limited, client, stream, e)
			cancel()
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				if number != n {
					t.Errorf("event %d of stream %s became number %d", n, stream, number)
					return
				}
				break
			}
		}
		acknowledged.Add(1)
	}
}

// appendBatched appends with calls of BatchAppend, each on one node until that is of no use any
// more.
func (c *cluster) appendBatched(ctx context.Context, t *testing.T, stream string, acknowledged *atomic.Int64, stopping *atomic.Bool) {
	var waiting []*streams.BatchAppendReq // sent and not acknowledged, in order
	for attempt := 0; ; attempt++ {
		m := c.members[attempt%len(c.members)]
		conn, err := grpc.NewClient("passthrough:///"+m.Host(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Error(err)
			return
		}
		waiting, err = batchOn(ctx, conn, stream, waiting, acknowledged, stopping)
		check.NoError(t, conn.Close())
		if err == nil || ctx.Err() != nil {
			return
		}
	}
}

// batchOn keeps up to 100 writes in flight on one call, until it fails or all are done. It returns
// those that were not acknowledged.
func batchOn(ctx context.Context, conn *grpc.ClientConn, stream string, waiting []*streams.BatchAppendReq, acknowledged *atomic.Int64, stopping *atomic.Bool) ([]*streams.BatchAppendReq, error) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "requires-leader", "true"), settleLimit)
	defer cancel()
	call, err := streams.NewStreamsClient(conn).BatchAppend(ctx)
	if err != nil {
		return waiting, err
	}
	for _, w := range waiting {
		if err := call.Send(w); err != nil {
			return waiting, err
		}
	}
	for {
		for len(waiting) < 100 && !stopping.Load() {
			w := rpcBatch(stream, acknowledged.Load()+int64(len(waiting)))
			waiting = append(waiting, w)
			if err := call.Send(w); err != nil {
				return waiting, err
			}
		}
		if len(waiting) == 0 {
			return nil, call.CloseSend()
		}
		answer, err := call.Recv()
		if err != nil {
			return waiting, err
		}
		// Writes to one stream are decided in order; answers come in any.
		if answer.GetSuccess() == nil {
			return waiting, fmt.Errorf("refused: %v", answer.GetError())
		}
		for i, w := range waiting {
			if w.CorrelationId.GetString_() == answer.CorrelationId.GetString_() {
				waiting = append(waiting[:i:i], waiting[i+1:]...)
				acknowledged.Add(1)
				break
			}
		}
	}
}

func rpcBatch(stream string, n int64) *streams.BatchAppendReq {
	id := func() *shared.UUID { return &shared.UUID{Value: &shared.UUID_String_{String_: uuid.NewString()}} }
	return &streams.BatchAppendReq{
		CorrelationId: id(), IsFinal: true,
		Options: &streams.BatchAppendReq_Options{
			StreamIdentifier:       &shared.StreamIdentifier{StreamName: []byte(stream)},
			ExpectedStreamPosition: &streams.BatchAppendReq_Options_Any{},
		},
		ProposedMessages: []*streams.BatchAppendReq_ProposedMessage{{
			Id: id(), Data: strconv.AppendInt(nil, n, 10), Metadata: map[string]string{"type": "t", "content-type": "application/json"},
		}},
	}
}

// rpcFollower subscribes to all events, over and over from where it was.
type rpcFollower struct {
	client *kurrentdb.Client
	mu     sync.Mutex
	next   map[string]int64 // of each stream, the number that comes next
}

func (f *rpcFollower) run(ctx context.Context, t *testing.T) {
	var from kurrentdb.AllPosition = kurrentdb.Start{}
	filter := &kurrentdb.SubscriptionFilter{Type: kurrentdb.StreamFilterType, Prefixes: []string{"rpc-"}}
	for ctx.Err() == nil {
		s, err := f.client.SubscribeToAll(ctx, kurrentdb.SubscribeToAllOptions{From: from, Filter: filter, CheckpointInterval: 1})
		if err != nil {
			continue
		}
		for {
			e := s.Recv()
			if e.SubscriptionDropped != nil {
				break
			}
			if e.CheckPointReached != nil {
				from = *e.CheckPointReached
			}
			if e.EventAppeared != nil {
				r := e.EventAppeared.Event
				from = r.Position
				f.took(t, r.StreamID, int64(r.EventNumber))
			}
		}
		_ = s.Close() // It has ended.
	}
}

func (f *rpcFollower) took(t *testing.T, stream string, number int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	check.Equal(t, number, f.next[stream], "the subscription saw event ... of stream", stream, "in the place")
	f.next[stream] = number + 1
}

func (f *rpcFollower) saw(stream string, want int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next[stream] != want {
		return fmt.Errorf("the subscription saw %d of %d events of stream %s", f.next[stream], want, stream)
	}
	return nil
}
