package replication_test

import (
	"math/rand/v2"
	"testing"
	"time"

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
		c, err := replication.OpenCluster(n.options())
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(random.IntN(10_000)) * time.Microsecond) // anywhere in its start
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		select {
		case err := <-closed:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(patience):
			t.Fatal("Close does not return")
		}
	}
	n.start()
	h.settled()
	h.write("s", 3)
}
