package bench_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// groupDocument is what the tests look at in the JSON of a subscription.
type groupDocument struct {
	document
	Group struct {
		Stream, Group                                 string
		BufferSize, ReadBatchSize, MaxCheckPointCount int
		StreamEvents, Delivered, Redelivered          int64
		Complete                                      bool
		QuietSeconds                                  float64
	}
}

func subscribe(t *testing.T, ctx context.Context, base string, args ...string) (groupDocument, error) {
	t.Helper()
	args = slices.Concat([]string{"subscription", "--node", base, "--json", "-", "--quiet", "--warmup", "0"}, asAdmin, args)
	stdout, stderr, err := execute(t, ctx, args...)
	var doc groupDocument
	if stdout != "" {
		check.Must(t, json.Unmarshal([]byte(stdout), &doc), "in", stdout, stderr)
	}
	return doc, err
}

func TestSubscription(t *testing.T) {
	cases := []struct {
		name     string
		front    *front
		args     string
		settings string
		empty    int64 // at least
		errors   int64
		again    bool
	}{
		{"one reader", &front{}, "--workers 1", `{"bufferSize":2000,"readBatchSize":100,"maxCheckPointCount":5000}`, 0, 0, false},
		{"readers", &front{}, "--batch 99 --size 32 --buffer-size 9 --read-batch-size 8 --max-checkpoint-count 7", `{"bufferSize":9,"readBatchSize":8,"maxCheckPointCount":7}`, 0, 0, false},
		{"small pages", &front{}, "--page 7 --default-settings --workers 1", `{}`, 0, 0, false},
		{"nothing at first", &front{empty: 5}, "--workers 1 --default-settings", `{}`, 5, 0, false},
		{"retried", &front{again: 2}, "--workers 1 --default-settings", `{}`, 0, 0, true},
		{"acknowledged again", &front{refuse: 3}, "--workers 1 --default-settings", `{}`, 0, 3, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			args := append(strings.Fields(c.args), "--stream-events", "2345", "--duration", "1m")
			doc, err := subscribe(t, context.Background(), serve(t, c.front), args...)
			check.Must(t, err)
			g := doc.Group
			if g.StreamEvents != 2345 || g.Delivered != 2345 || !g.Complete || (g.Redelivered > 0) != c.again || !strings.HasPrefix(g.Stream, "bench-subscription-") {
				t.Errorf("group %+v", g)
			}
			read, empty, ack := doc.Parts[0], doc.Parts[1], doc.Parts[2]
			if acked := 2345 + g.Redelivered; read.Operations < 24 || read.Operations != ack.Operations || ack.Events != acked || read.Events != 0 || doc.Events != acked {
				t.Errorf("read %+v, ack %+v, %d events", read, ack, doc.Events)
			}
			if read.LatencyMs.P50 <= 0 || ack.LatencyMs.P50 <= 0 || read.PayloadBytes == 0 {
				t.Errorf("read %+v, ack %+v", read, ack)
			}
			if empty.Operations < c.empty || doc.ErrorTotal != c.errors || doc.Errors["status 503"].Count != c.errors {
				t.Errorf("empty %d, errors %v", empty.Operations, doc.Errors)
			}
			if len(c.front.settings) != 1 || c.front.settings[0] != c.settings || c.front.deleted != 1 {
				t.Errorf("settings %q, %d deleted", c.front.settings, c.front.deleted)
			}
		})
	}
}

func TestSubscriptionThatEndsBefore(t *testing.T) {
	n := &front{empty: 1 << 30}
	base := serve(t, n)
	doc, err := subscribe(t, context.Background(), base, "--stream-events", "50", "--duration", "100ms", "--default-settings")
	if err != nil || doc.Group.Complete || doc.Group.Delivered != 0 || doc.Group.QuietSeconds < 0.09 || doc.Parts[1].Operations == 0 {
		t.Errorf("nothing delivered: %+v, %v", doc, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n.mu.Lock()
	n.seen = func(f *front) {
		if len(f.settings) == 2 {
			cancel()
		}
	}
	n.mu.Unlock()
	doc, err = subscribe(t, ctx, base, "--stream-events", "50", "--default-settings")
	if err != nil || !doc.Interrupted || doc.ElapsedSeconds > 2 {
		t.Errorf("interrupted: %+v, %v", doc, err)
	}
	check.Equal(t, n.deleted, 2, "groups deleted")
}

func TestSubscriptionConsumedByWarmup(t *testing.T) {
	_, err := subscribe(t, context.Background(), startNode(t), "--stream-events", "500", "--warmup", "20s")
	check.Says(t, err, "--warmup")
}
