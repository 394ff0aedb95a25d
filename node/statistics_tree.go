package node

import (
	"cmp"
	"time"

	"github.com/annalsdb/annals/api"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/stats/tree"
)

// Statistics returns the values of /stats. Those of process and machine are at most a second old.
func (s *statistics) Statistics() tree.Statistics {
	s.questions.Enter(1)
	defer s.gathering.End(s.gathering.Begin(0), 1)
	all := s.machine.Sample().Statistics()
	var log eventlog.Statistics // Zeros while it is not open.
	var check eventlog.CheckProgress
	damaged := 0
	if l, err := s.n.store.Log(); err == nil {
		log, check, damaged = l.Statistics(), l.Health.CheckProgress(), len(l.Health.Damaged())
	}
	all = es(all, log.Writer, "checksum")
	all = es(all, log.NonFlushed, "checksumNonFlushed")
	for _, q := range s.registry.Queues() {
		all = append(all, tree.Queue(q.Statistics())...)
	}
	flushes := s.n.cluster.Flushes()
	return readIndexStatistics(writerStatistics(checkStatistics(all, check, damaged), &flushes), &log)
}

func es(all tree.Statistics, value any, path ...string) tree.Statistics {
	return append(all, tree.Statistic{Path: append([]string{"es"}, path...), Value: value})
}

// checkStatistics are those of the check of complete chunks.
func checkStatistics(all tree.Statistics, p eventlog.CheckProgress, damaged int) tree.Statistics {
	running, ended := int64(0), ""
	if p.Running {
		running = 1
	}
	if !p.Ended.IsZero() {
		ended = p.Ended.UTC().Format(time.RFC3339)
	}
	all = es(all, running, "chunkCheck", "running")
	all = es(all, p.Done, "chunkCheck", "doneBytes")
	all = es(all, p.Total, "chunkCheck", "totalBytes")
	all = es(all, ended, "chunkCheck", "lastEnd")
	return es(all, int64(damaged), "chunkCheck", "damagedChunks")
}

// writerStatistics are those of the Raft log, for which a write waits.
func writerStatistics(all tree.Statistics, f *raftdisk.Flushes) tree.Statistics {
	add := func(key, title string, value any) {
		all = es(all, value, "writer", key)
		all[len(all)-1].About = &tree.About{Category: "Writer", Title: "Writer: " + title, DrawChart: true}
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	add("lastFlushSize", "size of the last flush", f.LastSize)
	add("lastFlushDelayMs", "time of the last flush", ms(f.LastTime))
	add("meanFlushSize", "mean size of a flush", f.MeanSize)
	add("meanFlushDelayMs", "mean time of a flush", ms(f.MeanTime))
	add("maxFlushSize", "greatest flush", f.MaxSize)
	add("maxFlushDelayMs", "longest flush", ms(f.MaxTime))
	add("queuedFlushMessages", "writes not yet answered", int64(f.Queued))
	return all
}

// readIndexStatistics are those of the log's index and caches. There are no
// transactions that span requests, hence nothing is cached of them.
func readIndexStatistics(all tree.Statistics, f *eventlog.Statistics) tree.Statistics {
	all = es(all, int64(f.CachedRecords), "readIndex", "cachedRecord")
	all = es(all, int64(f.NotCachedRecords), "readIndex", "notCachedRecord")
	all = es(all, int64(f.CachedStreamInfos), "readIndex", "cachedStreamInfo")
	all = es(all, int64(f.NotCachedStreamInfos), "readIndex", "notCachedStreamInfo")
	all = es(all, int64(0), "readIndex", "cachedTransInfo")
	all = es(all, int64(0), "readIndex", "notCachedTransInfo")
	return es(all, int64(f.HashCollisions), "readIndex", "hashCollisions")
}

// Replication returns the nodes that follow this one.
func (s *statistics) Replication() []api.ReplicationConnection {
	var all []api.ReplicationConnection
	for _, one := range s.n.cluster.Connections() {
		all = append(all, api.ReplicationConnection{
			SubscriptionID: one.Node, ConnectionID: cmp.Or(one.Connection, one.Node), Endpoint: one.Endpoint,
			Sent: int64(one.Sent), Received: int64(one.Received),
			PendingSent: one.PendingSend, PendingReceived: one.PendingReceived, Queued: one.SendQueue,
		})
	}
	return all
}
