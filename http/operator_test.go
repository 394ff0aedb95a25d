package httpapi_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/stats/history"
	"github.com/annalsdb/annals/stats/tree"
)

// operator is a node with everything that an operator looks at or does.
type operator struct {
	*node
	statistics *memStatistics
	operations *memOperations
	scavenges  *memScavenges
	startup    *memStartup
}

func newOperator(t testing.TB, change ...func(*httpapi.Options)) *operator {
	o := &operator{
		statistics: &memStatistics{metrics: someStatistics()},
		operations: &memOperations{},
		scavenges:  &memScavenges{},
		startup:    &memStartup{progress: httpapi.Progress{Started: true}, caughtUp: true},
	}
	set := func(options *httpapi.Options) {
		options.Statistics, options.Operations, options.Startup = o.statistics, o.operations, o.startup
		options.Settings, options.Scavenges, options.Backups = someSettings, o.scavenges, someBackups()
		options.BackupRuns, options.Doctor, options.Index = &memBackupRuns{}, someLines, o.operations
	}
	o.node = newNode(t, append([]func(*httpapi.Options){set}, change...)...)
	return o
}

// memStatistics answers what a test sets and counts how often it is asked.
type memStatistics struct {
	metrics     tree.Statistics
	replication []api.ReplicationConnection
	taken       atomic.Int64 // calls of Statistics
	answered    atomic.Int64 // answers counted
	longest     atomic.Int64 // the longest of them, in nanoseconds
}

func (s *memStatistics) Statistics() tree.Statistics {
	s.taken.Add(1)
	return s.metrics
}

func (s *memStatistics) Replication() []api.ReplicationConnection { return s.replication }

// Metrics answers with what was accepted, as an exporter negotiates by itself.
func (s *memStatistics) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write([]byte("eventstore_proc_up_time 1\naccept " + r.Header.Get("Accept") + "\n"))
	})
}

func (s *memStatistics) History(minutes int64) history.Series {
	return history.Series{
		From: time.Unix(1_700_000_000, 0).UTC(), Names: []string{"minutes", "heapBytes"}, Values: [][]float64{{float64(minutes), math.NaN()}, {1.5, 1e15}},
	}
}

func (s *memStatistics) Histogram(dst []byte, name string) ([]byte, bool) {
	if name != "reader-readevent" {
		return dst, false
	}
	return append(dst, "Value Percentile\n"...), true
}

func (s *memStatistics) Answered(took time.Duration) {
	s.answered.Add(1)
	s.longest.Store(max(s.longest.Load(), int64(took)))
}

// memOperations remembers what it was asked for.
type memOperations struct {
	fail     error
	shutdown func()
	index    event.IndexStatus
	names    event.IndexNamesPage
	calls    []string
	ids      byte
}

func (o *memOperations) Shutdown() {
	o.calls = append(o.calls, "shutdown")
	if o.shutdown != nil {
		o.shutdown()
	}
}

func (o *memOperations) Reload() { o.calls = append(o.calls, "reload") }

func (o *memOperations) MergeIndexes() (event.ID, error) {
	o.calls = append(o.calls, "merge")
	o.ids++
	return event.ID{0xab, 15: o.ids}, o.fail
}

func (o *memOperations) IndexStatus() (event.IndexStatus, error) { return o.index, o.fail }

func (o *memOperations) IndexNames(_ context.Context, r event.IndexNamesRead) (event.IndexNamesPage, error) {
	o.calls = append(o.calls, fmt.Sprintf("names %+v", r))
	return o.names, o.fail
}

func (o *memOperations) RebuildIndex() error {
	o.calls = append(o.calls, "rebuild")
	if o.index.IsBuilding {
		return event.ErrIndexBuilding
	}
	return o.fail
}

// memStartup is as far as a test sets.
type memStartup struct {
	progress httpapi.Progress
	caughtUp bool
}

func (s *memStartup) Starting() httpapi.Progress { return s.progress }

func (s *memStartup) CaughtUp() bool { return s.caughtUp }

// someStatistics are statistics of every kind.
func someStatistics() tree.Statistics {
	at := func(value any, path ...string) tree.Statistic { return tree.Statistic{Path: path, Value: value} }
	return tree.Statistics{
		at("2024-02-03T10:11:12.3456789Z", "proc", "startTime"),
		at(int64(4711), "proc", "id"),
		{Path: []string{"proc", "cpu"}, Value: 12.5, About: &tree.About{Category: "Process", Title: "CPU & <threads>", DrawChart: true}},
		at(int64(100), "proc", "gc", "gen0Size"),
		at(int64(3), "proc", "tcp", "connections"),
		at("69%", "sys", "drive", "/var/lib/a b#c", "usage"),
		at("MainQueue", "es", "queue", "MainQueue", "queueName"),
		at("StorageReaderQueue #1", "es", "queue", "StorageReaderQueue #1", "queueName"),
		at(nil, "es", "queue", "StorageReaderQueue #1", "currentIdleTime"),
		at(int64(7), "replication", "hidden"),
	}
}

func someSettings() []config.Value {
	return []config.Value{
		{Name: "ClusterSize", Description: "How many nodes vote.", Group: "ClusterOptions", Value: "3", Source: "Yaml"},
		{Name: "LogLevel", Description: "What is \"logged\".", Group: "LoggingOptions", Value: "Default", Possible: []string{"Default", "Debug"}, Source: "<DEFAULT>"},
		{Name: "NodePort", Group: "InterfaceOptions", Value: "2113", Source: "Command Line", Deprecation: "HttpPort is deprecated, use NodePort."},
		{Name: "CertificatePassword", Group: "CertificateFileOptions", Value: "********", Source: "Environment Variables"},
	}
}
