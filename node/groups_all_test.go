package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/subscription"
)

// A group on $all resumes after its checkpoint after a scavenge removed the event there, and those
// around it.
func TestGroupOfTheLogAfterScavenge(t *testing.T) {
	n := openReady(t)
	write := func(stream string, events ...event.Proposed) {
		t.Helper()
		check.Must(t, check.Err(n.store.Write(t.Context(), &event.Write{Stream: stream, ExpectedVersion: event.AnyVersion, Events: events})))
	}
	for range 20 {
		write("a", event.Proposed{ID: event.ID(uuid.New()), Type: "t"})
	}
	k := subscription.Key{Stream: event.AllStream, Group: "g"}
	set := subscription.DefaultSettings()
	set.MinCheckpointCount, set.MaxCheckpointCount, set.BufferSize, set.ReadBatchSize = 1, 1, 6, 5
	set.Filter = &subscription.Filter{OfStream: true, Regex: "^a$"}
	testkit.Eventually(t, 30*time.Second, func() error { return n.groups.Create(t.Context(), k, set, "") })
	take := func(want ...int64) []event.ID {
		t.Helper()
		var got []int64
		var ids []event.ID
		testkit.Eventually(t, 30*time.Second, func() error {
			all, err := n.groups.Read(t.Context(), k, len(want)-len(got), event.EveryLink)
			for _, m := range all {
				got, ids = append(got, m.Event.Number), append(ids, m.ID)
			}
			if len(got) < len(want) {
				return fmt.Errorf("%v, %w", got, err)
			}
			return nil
		})
		check.MustSlice(t, got, want)
		return ids
	}
	check.Must(t, n.groups.Ack(t.Context(), k, take(0, 1, 2, 3, 4)))
	last, err := n.store.ReadEvent(t.Context(), "a", 4, nil)
	check.Must(t, err)
	testkit.Eventually(t, 30*time.Second, func() error {
		if i, err := n.groups.Info(t.Context(), k); i.Checkpoint != last.Position {
			return fmt.Errorf("the checkpoint is %d, %w", i.Checkpoint, err)
		}
		return nil
	})

	write(event.MetaStreamOf("a"), event.Proposed{ID: event.ID(uuid.New()), Type: event.TypeMetadata, Flags: event.FlagJSON, Data: []byte(`{"$tb":10}`)})
	id, err := n.scavenge.runs.Start(scavenge.Request{})
	check.Must(t, err)
	check.Must(t, check.Err(n.scavenge.runs.Wait(t.Context(), id)))
	page, err := n.store.ReadAll(t.Context(), event.AllRead{From: last.Position, Count: 1, MaxScan: 1})
	if err != nil || page.Last == last.Position {
		t.Fatalf("the event at the checkpoint was not scavenged: %d, %v", page.Last, err)
	}
	check.Must(t, n.groups.Restart(t.Context()))
	take(10, 11, 12, 13, 14, 15, 16, 17, 18, 19)
}
