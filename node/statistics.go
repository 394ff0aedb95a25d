package node

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/stats"
	"github.com/annalsdb/annals/stats/history"
	"github.com/annalsdb/annals/stats/latency"
	"github.com/annalsdb/annals/stats/prom"
	"github.com/annalsdb/annals/stats/system"
)

// statistics are the metrics of a node: those that its parts count in the registry, and those that
// are read from the machine on request.
type statistics struct {
	n         *Node
	registry  *stats.Registry
	machine   *system.Sampler
	latencies *latency.Set // nil unless histograms are switched on
	exporter  http.Handler
	hour      *history.History
	requests  *stats.Queue
	request   *stats.Work
	questions *stats.Queue // about metrics
	gathering *stats.Work
}

var _ api.Statistics = (*statistics)(nil)

func newStatistics(n *Node) *statistics {
	r := n.opts.Stats
	s := &statistics{n: n, registry: r, exporter: prom.Handler(r, n.config.KurrentMetrics), hour: history.New(r, nil)}
	s.machine = system.New(system.Options{DataDir: n.config.Db, Network: s.network, Registry: r})
	if n.config.EnableHistograms {
		s.latencies = latency.NewSet()
	}
	s.requests = r.Queue("MainQueue", "", runtime.GOMAXPROCS(0))
	s.request = s.requests.Work("HttpRequest")
	s.questions = r.Queue("MonitoringQueue", "", 1)
	s.gathering = s.questions.Work("CollectStats")
	r.GaugeFunc("eventstore_kestrel_connections", "Open connections of clients.", func() float64 { return float64(n.traffic.Connections()) })
	r.CounterFunc("annals_connections_ended_total", "Connections of clients that were ended to make room for others, or for files.", func() float64 { return float64(n.traffic.GaveWay()) })
	r.Status("Node", nodeStates, func() string { return string(n.State()) })
	r.Status("Index", []string{indexOpening, indexMerging, indexScavenging, indexIdle}, s.indexState)
	return s
}

// nodeStates are those that a node of ours can be in.
var nodeStates = []string{
	string(event.StateInitializing), string(event.StateDiscoverLeader), string(event.StateUnknown), string(event.StatePreReplica),
	string(event.StateCatchingUp), string(event.StateClone), string(event.StateFollower), string(event.StatePreLeader), string(event.StateLeader),
	string(event.StateResigningLeader), string(event.StateReadOnlyLeaderless), string(event.StatePreReadOnlyReplica),
	string(event.StateReadOnlyReplica), string(event.StateShuttingDown), string(event.StateShutdown),
}

// States of the index.
const (
	indexOpening    = "Opening"
	indexMerging    = "Merging"
	indexScavenging = "Scavenging"
	indexIdle       = "Idle"
)

func (s *statistics) indexState() string {
	log, err := s.n.store.Log()
	switch {
	case err != nil:
		return indexOpening
	case log.Index().Scavenging():
		return indexScavenging
	case log.Index().Merging():
		return indexMerging
	}
	return indexIdle
}

// counted counts the requests that h answers. Requests that may wait for an event count in the
// length of the queue only, as waiting is not work.
func (s *statistics) counted(h http.Handler) http.Handler {
	longPoll, kurrent := http.CanonicalHeaderKey("ES-LongPoll"), http.CanonicalHeaderKey("Kurrent-LongPoll")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Enter(1)
		if r.Header[longPoll] != nil || r.Header[kurrent] != nil {
			defer s.requests.Leave(1)
			h.ServeHTTP(w, r)
			return
		}
		begun := s.request.Begin(0)
		defer s.request.End(begun, 1)
		h.ServeHTTP(w, r)
	})
}

// network sums up the connections of clients and of nodes.
func (s *statistics) network() system.Network {
	t := system.Network{Connections: s.n.traffic.Connections()}
	t.Received, t.Sent = s.n.traffic.Bytes()
	if port := s.n.cluster.Port(); port != nil {
		nodes := port.Totals()
		t.Connections += int64(nodes.Connections)
		t.Received += nodes.Received
		t.Sent += nodes.Sent
		t.PendingSend, t.PendingReceived = nodes.PendingSend, nodes.PendingReceived
	}
	return t
}

// History has the main statistics of the last minutes.
func (s *statistics) History(minutes int64) history.Series {
	return s.hour.Last(time.Duration(minutes) * time.Minute)
}

// Metrics serves the metrics as text.
func (s *statistics) Metrics() http.Handler { return s.exporter }

// Histogram returns one of the histograms of latencies.
func (s *statistics) Histogram(dst []byte, name string) ([]byte, bool) {
	if s.latencies == nil {
		return dst, false
	}
	return s.latencies.AppendText(dst, name)
}

// Answered counts the time that an answer took.
func (s *statistics) Answered(took time.Duration) { s.latencies.Record(latency.HTTPSend, took) }

// run does the periodic work of the statistics, until ctx ends.
func (s *statistics) run(ctx context.Context) {
	var owned sync.WaitGroup
	defer owned.Wait()
	if s.latencies != nil {
		owned.Go(func() { s.latencies.RunJitter(ctx) })
	}
	owned.Go(func() { s.hour.Run(ctx) })
	if s.n.config.WriteStatsToDb {
		owned.Go(func() { s.write(ctx) })
	}
	for part := s.n.part(); !part.Starting().Started; {
		if clock.Sleep(ctx, startedPace) != nil {
			return
		}
	}
}

// startedPace is how often a starting node checks whether it has started: a later answer must not
// depend on whether a client asked in time.
const startedPace = 100 * time.Millisecond
