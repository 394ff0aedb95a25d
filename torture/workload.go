package torture

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/annalsdb/annals/client"
)

// Workload is clients that append to the nodes of a cluster, and what they know of it. It is what a
// round has besides faults: for bit flips, and for tests that break a cluster themselves.
type Workload struct {
	load    *load
	working sync.WaitGroup
	hang    context.CancelFunc // ends requests in flight
}

// WorkloadOptions say who appends where.
type WorkloadOptions struct {
	// addresses, such as http://127.0.0.1:2113; with a user and a password if need be
	Nodes   []string
	Seed    uint64
	Writers int
	// Transfers is how many clients write to several streams at once.
	Transfers int
	// Deciders is how many clients write under conditions.
	Deciders int
	// Indexers is how many clients read indexes and queries.
	Indexers int
	// Pause is how long a client rests after a write.
	Pause time.Duration
}

// StartWorkload lets clients append until Stop.
func StartWorkload(o WorkloadOptions) (*Workload, error) {
	g, err := newGiven(o.Nodes)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	nodes := &targets{}
	nodes.set(g.Targets())
	const operations = 4_000_000
	l, _ := newRun(o.Seed, newHistory(start, operations), newHTTP(nil), newFindings(start), nodes, 0, false, o.Transfers, o.Deciders)
	l.pace = o.Pause
	for i := range o.Indexers {
		newIndexer(l, i)
	}
	for range o.Writers {
		w := newWriter(l, l.hist.journal())
		l.employ(func(ctx context.Context) time.Duration {
			if !l.hist.reserve() {
				return enough
			}
			w.scatter(ctx)
			return o.Pause
		})
	}
	ctx, hang := context.WithCancel(context.Background())
	w := &Workload{load: l, hang: hang}
	for _, work := range l.work {
		w.working.Go(func() { work(ctx) })
	}
	return w, nil
}

// newRun makes the books of what clients do, and the clients' common part. With links the first
// client is the one whose events are links; then come those that write to several streams, and
// deciders.
func newRun(seed uint64, hist *history, http *client.Client, find *findings, nodes *targets, origin int64, links bool, transfers, deciders int) (*load, *journal) {
	tag := mix(seed ^ uint64(hist.start.UnixNano()))
	ids := identity{tag: tag, prefix: fmt.Sprintf("torture-%08x-", uint32(tag))}
	var linker *journal
	if links {
		linker = hist.journal()
		ids.linker = linker.client
	}
	journals := make([]*journal, transfers+deciders)
	for i := range journals {
		journals[i] = hist.journal()
	}
	if len(journals) > 0 {
		ids.firstTransferer, ids.transferers = journals[0].client, transfers
		ids.firstDecider, ids.deciders = ids.firstTransferer+transfers, deciders
	}
	l := newLoad(seed, http, hist, newBook(ids, find, ids.prefix, origin), nodes)
	for i, j := range journals {
		if i < transfers {
			newTransferer(l, j)
		} else {
			newDecider(l, j)
		}
	}
	return l, linker
}

// Acknowledged is how many events were acknowledged so far.
func (w *Workload) Acknowledged() int64 {
	return w.load.count.of(ofWrites)["eventsAcknowledged"] + w.load.count.of(ofTransfers)["eventsAcknowledged"]
}

// Stop ends the clients, and what hangs for long. Only the first call counts.
func (w *Workload) Stop() {
	if !w.load.stopped() {
		close(w.load.stop)
	}
	timer := time.AfterFunc(clientsEnd, w.hang)
	defer timer.Stop()
	w.working.Wait()
}

// Check reads everything from every node and judges it, after Stop. It returns what is wrong with
// it and with the answers that clients got.
func (w *Workload) Check(ctx context.Context) []string {
	readBack(ctx, w.load, w.load.targets.all())
	readIndexes(ctx, w.load, w.load.targets.all())
	readDecisions(ctx, w.load, w.load.targets.all()[0])
	l := newLedger(w.load.hist, w.load.book)
	l.check()
	if sum := l.linearizable(ctx, linearLimit, nil); sum.Undecided > 0 {
		w.load.find.add(kindLinear, "%d streams are undecided for want of time", sum.Undecided)
	}
	return w.violations()
}

func (w *Workload) violations() (wrong []string) {
	list, counts := w.load.find.list()
	for _, v := range list {
		wrong = append(wrong, fmt.Sprintf("%s (%d): %s", v.Kind, counts[v.Kind], v.Text))
	}
	return wrong
}

// Close gives up connections.
func (w *Workload) Close() {
	w.Stop()
	w.hang()
	w.load.calls.close()
	w.load.http.Close()
}
