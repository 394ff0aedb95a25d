package bench_test

import (
	"context"
	"encoding/json"
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
	args = append([]string{"subscription", "--node", base, "--json", "-", "--quiet", "--warmup", "0"}, args...)
	stdout, stderr, err := execute(t, ctx, args...)
	var doc groupDocument
	if stdout != "" {
		check.Must(t, json.Unmarshal([]byte(stdout), &doc), "in", stdout, stderr)
	}
	return doc, err
}

func TestSubscription(t *testing.T) {
	cases := []struct {
		name        string
		groups      fakeGroups
		args        string
		settings    string
		reads       int64 // -1: not fixed
		empty       int64 // -1: not fixed
		errors      int64
		redelivered int64
		acked       int64
	}{
		{"one reader", fakeGroups{}, "--workers 1", `{"bufferSize":2000,"readBatchSize":100,"maxCheckPointCount":5000}`, 24, 0, 0, 0, 2345},
		{"readers", fakeGroups{}, "--batch 99 --size 32 --buffer-size 9 --read-batch-size 8 --max-checkpoint-count 7", `{"bufferSize":9,"readBatchSize":8,"maxCheckPointCount":7}`, -1, -1, 0, 0, 2345},
		{"small pages", fakeGroups{}, "--page 7 --default-settings --workers 1", `{}`, 335, 0, 0, 0, 2345},
		{"nothing at first", fakeGroups{empty: 5}, "--workers 1 --default-settings", `{}`, 24, 5, 0, 0, 2345},
		{"retried", fakeGroups{again: 150}, "--workers 1 --default-settings", `{}`, 25, 0, 0, 150, 2495},
		{"acknowledged again", fakeGroups{refuse: 3}, "--workers 1 --default-settings", `{}`, 24, 0, 3, 0, 2345},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := newFakeNode()
			n.groups = c.groups
			doc, err := subscribe(t, context.Background(), serve(t, n), append(strings.Fields(c.args), "--stream-events", "2345")...)
			check.Must(t, err)
			g := doc.Group
			if g.StreamEvents != 2345 || g.Delivered != 2345 || !g.Complete || g.Redelivered != c.redelivered || !strings.HasPrefix(g.Stream, "bench-subscription-") {
				t.Errorf("group %+v", g)
			}
			read, empty, ack := doc.Parts[0], doc.Parts[1], doc.Parts[2]
			if c.reads >= 0 && read.Operations != c.reads || read.Operations != ack.Operations || ack.Events != c.acked || read.Events != 0 || doc.Events != c.acked {
				t.Errorf("read %+v, ack %+v, %d events", read, ack, doc.Events)
			}
			if read.LatencyMs.P50 <= 0 || ack.LatencyMs.P50 <= 0 || read.PayloadBytes == 0 {
				t.Errorf("read %+v, ack %+v", read, ack)
			}
			if c.empty >= 0 && empty.Operations != c.empty || doc.ErrorTotal != c.errors || doc.Errors["status 503"].Count != c.errors {
				t.Errorf("empty %d, errors %v", empty.Operations, doc.Errors)
			}
			if len(n.groups.settings) != 1 || n.groups.settings[0] != c.settings || n.groups.deleted != 1 || len(n.groups.groups) != 0 {
				t.Errorf("settings %q, %d deleted", n.groups.settings, n.groups.deleted)
			}
			if len(n.streams) != 1 || len(n.streams[g.Stream]) != 2345 {
				t.Errorf("%d streams, %d events", len(n.streams), len(n.streams[g.Stream]))
			}
		})
	}
}

func TestSubscriptionThatEndsBefore(t *testing.T) {
	n := newFakeNode()
	n.groups.empty = 1 << 30
	base := serve(t, n)
	doc, err := subscribe(t, context.Background(), base, "--stream-events", "50", "--duration", "100ms", "--default-settings")
	if err != nil || doc.Group.Complete || doc.Group.Delivered != 0 || doc.Group.QuietSeconds < 0.09 || doc.Parts[1].Operations == 0 {
		t.Errorf("nothing delivered: %+v, %v", doc, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n.seen = func(int) {
		if len(n.groups.settings) == 2 {
			cancel()
		}
	}
	doc, err = subscribe(t, ctx, base, "--stream-events", "50", "--default-settings")
	if err != nil || !doc.Interrupted || doc.ElapsedSeconds > 2 {
		t.Errorf("interrupted: %+v, %v", doc, err)
	}
	check.Equal(t, n.groups.deleted, 2, "groups deleted")
}

func TestSubscriptionOfAStranger(t *testing.T) {
	n := newFakeNode()
	n.groups.stranger = "00112233-4455-4677-8899-aabbccddeeff"
	_, err := subscribe(t, context.Background(), serve(t, n), "--stream-events", "500")
	check.Says(t, err, "is not an event of")
}

func TestSubscriptionConsumedByWarmup(t *testing.T) {
	n := newFakeNode()
	_, err := subscribe(t, context.Background(), serve(t, n), "--stream-events", "500", "--warmup", "20s")
	check.Says(t, err, "--warmup")
}

func TestSubscriptionCompared(t *testing.T) {
	n := newFakeNode()
	base := serve(t, n)
	stdout, stderr, err := execute(t, context.Background(), "subscription", "--compare", "--node", base, "--json", "-", "--quiet",
		"--rounds", "3", "--duration", "60ms", "--warmup", "1ms", "--stream-events", "20050")
	check.Must(t, err)
	var doc struct {
		Rounds []struct {
			Feed         document
			Subscription groupDocument
			Ratio        float64
		}
		FeedMedians, SubscriptionMedians struct{ EventsPerSecond float64 }
		Ratio                            float64
	}
	check.Must(t, json.Unmarshal([]byte(stdout), &doc))
	if len(doc.Rounds) != 3 || doc.Ratio <= 0 || doc.Ratio != doc.SubscriptionMedians.EventsPerSecond/doc.FeedMedians.EventsPerSecond || !strings.Contains(stderr, "median") {
		t.Fatalf("%+v\n%s", doc, stderr)
	}
	for i, r := range doc.Rounds {
		if r.Feed.Events == 0 || r.Subscription.Events == 0 || r.Feed.ErrorTotal+r.Subscription.ErrorTotal != 0 || r.Ratio <= 0 {
			t.Errorf("round %d: %+v", i, r)
		}
	}
	if len(n.groups.settings) != 3 || n.groups.deleted != 3 || len(n.streams) != 1 {
		t.Errorf("%d groups created, %d deleted, %d streams", len(n.groups.settings), n.groups.deleted, len(n.streams))
	}
}
