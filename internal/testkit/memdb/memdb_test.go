package memdb_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/memdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A database runs on the time of a bubble, whose goroutines all wait when it has nothing to do.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memdb.Open(t, memdb.Options{})
		time.AfterFunc(time.Second, func() { db.Append("s", "t", "a", "") })
		check.Must(t, db.WaitStream(t.Context(), "s", -1))
		db.Append("s", "t", "b", "")
		synctest.Wait()
		check.Slice(t, db.Data("s"), []string{"a", "b"})
	})
}

// What a scavenge removes is gone for readers, and All still knows it. A second scavenge merges.
func TestScavenge(t *testing.T) {
	db := memdb.Open(t, memdb.Options{})
	for _, data := range []string{"a", "b", "c"} {
		db.Append("s", "t", data, "")
	}
	for number, left := range []string{"bc", "c"} {
		db.Scavenge(func(r *event.Record) bool { return r.Stream == "s" && r.Number == int64(number) })
		check.Equal(t, len(db.Data("s")), len(left))
		check.Equal(t, len(db.All("s")), 3)
	}
	r := db.All("s")[0]
	check.Is(t, db.ReadPayload(context.Background(), &r), event.ErrEventNotFound)
}
