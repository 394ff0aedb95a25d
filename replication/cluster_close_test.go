package replication_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication"
)

// Close returns whenever it is called: a node that is stopped while it starts must not hang.
func TestCloseWhileStarting(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 3)
	n := h.nodes[0]
	n.stop()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 30 {
		c := check.Value(replication.OpenCluster(n.options())).Must(t)
		<-time.After(time.Duration(random.IntN(10_000)) * time.Microsecond) // anywhere in its start
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		select {
		case err := <-closed:
			check.Must(t, err)
		case <-time.After(patience):
			t.Fatal("Close does not return")
		}
	}
	n.start()
	h.settled()
	h.write("s", 3)
}

// Close returns even when the disk hangs, and says so.
func TestCloseWhileADiskHangs(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1, 1, inMemory, func(o *replication.ClusterOptions) {
		o.Replica.DrainTimeout, o.Replica.CloseTimeout = 50*time.Millisecond, 200*time.Millisecond
	})
	n := h.nodes[0]
	c := check.Value(replication.OpenCluster(n.options())).Must(t)
	eventually(t, "it leads", func() bool { l, _ := c.Leadership(); return l.Leading })
	hanging, release := make(chan struct{}), make(chan struct{})
	n.data.mu.Lock()
	n.data.sabotage = func(records []byte) []byte {
		close(hanging)
		<-release
		return records
	}
	n.data.mu.Unlock()
	r := c.Replica()
	written := make(chan error, 1)
	go func() {
		_, err := c.Writes.Submit(t.Context(), &event.Write{Stream: "s", ExpectedVersion: event.AnyVersion})
		written <- err
	}()
	<-hanging
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	select {
	case err := <-closed:
		check.Fails(t, err, "Close does not tell that something hangs")
	case <-time.After(patience):
		t.Error("Close does not return")
	}
	check.Is(t, <-written, event.ErrOutcomeUnknown, "the write in flight")
	close(release)
	eventually(t, "it ends after all", func() bool { return r.Close() == nil })
}
