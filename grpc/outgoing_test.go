package grpcapi_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/internal/testkit"
)

// heavyStore has a stream of large events, which are read one by one.
type heavyStore struct {
	endlessStore
	random bool // no compression makes its events smaller
}

const heavy = 500_000

func (s *heavyStore) ReadStream(_ context.Context, r event.StreamRead) (event.StreamPage, error) {
	p := event.StreamPage{Last: 1 << 60}
	for i := range r.Count {
		p.Events = append(p.Events, event.Resolved{Record: event.Record{Stream: "heavy", Type: "t", Number: r.From + int64(i), Bare: true, LeftOut: heavy}})
	}
	p.SetNext(&r)
	return p, nil
}

func (s *heavyStore) ReadPayload(_ context.Context, r *event.Record) error {
	r.Data, r.Bare, r.LeftOut = make([]byte, heavy), false, 0
	if s.random {
		_, _ = rand.Read(r.Data) // It never fails.
	}
	return nil
}

// The messages that a client does not take are claimed until they are on their way or the call has
// ended.
func TestMessagesNotTakenAreClaimed(t *testing.T) {
	t.Run("plain", func(t *testing.T) { messagesNotTaken(t, &heavyStore{}) })
	t.Run("compressed", func(t *testing.T) {
		messagesNotTaken(t, &heavyStore{random: true}, grpc.UseCompressor(gzip.Name))
	})
}

func messagesNotTaken(t *testing.T, store *heavyStore, with ...grpc.CallOption) {
	memory := api.NewMemory(64 * mib)
	conn, _ := serve(t, grpcapi.Options{Node: api.Node{Store: store, Cluster: &changingCluster{leads: true}, Access: allowAll{}, Memory: memory}})
	reads := 5
	if store.random {
		reads = 2 // To compress their messages takes long.
	}
	var all []*reader
	for range reads {
		all = append(all, open(t, conn, "", read(ofStream("heavy", start)), with...))
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if used := memory.Used(); used < int64(reads*heavy) {
			return fmt.Errorf("%d bytes are claimed", used)
		}
		return nil
	})
	for range reads { // A client that takes them gets on.
		if m := all[0].next(); len(m.GetEvent().GetEvent().GetData()) != heavy {
			t.Fatal(m)
		}
	}
	for _, r := range all {
		r.leave()
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if used := memory.Used(); used != 0 {
			return fmt.Errorf("%d bytes are claimed", used)
		}
		return nil
	})
}
