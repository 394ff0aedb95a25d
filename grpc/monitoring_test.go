package grpcapi_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/config"
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/grpc/monitoring"
	"github.com/annalsdb/annals/stats/tree"
)

func TestMonitoring(t *testing.T) {
	conn := startNode(t)
	stats := firstStats(t, conn, &monitoring.StatsReq{}, "admin")
	for key, want := range map[string]bool{"proc-mem": true, "es-queue-MainQueue-queueName": true, "es-writer-lastFlushSize": true, "proc-mem-value": false} {
		if _, got := stats[key]; got != want {
			t.Errorf("%s: %t, want %t", key, got, want)
		}
	}
	if got := stats["es-queue-MainQueue-queueName"]; got != "MainQueue" {
		t.Error(got)
	}
	take(t, conn, []step{{"", "monitoring.Monitoring/Stats", `{}`, denied}})
}

func TestMonitoringOpen(t *testing.T) {
	conn := startNode(t, func(c *config.Config) { c.AllowAnonymousEndpointAccess = true })
	if stats := firstStats(t, conn, &monitoring.StatsReq{UseMetadata: true}, ""); stats["proc-mem-value"] == "" || stats["proc-mem-title"] == "" || stats["proc-mem"] != "" {
		t.Errorf("%q", stats)
	}
}

// firstStats returns the statistics that come at once.
func firstStats(t *testing.T, conn *grpc.ClientConn, req *monitoring.StatsReq, who string) map[string]string {
	t.Helper()
	ctx, cancel := context.WithCancel(by(t.Context(), who))
	defer cancel()
	stream, err := monitoring.NewMonitoringClient(conn).Stats(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return m.GetStats()
}

type statistics = api.Statistics

type fakeStatistics struct {
	statistics
	is tree.Statistics
}

func (f fakeStatistics) Statistics() tree.Statistics { return f.is }
func (fakeStatistics) Answered(time.Duration)        {}

func TestMonitoringStream(t *testing.T) {
	conn, s := serve(t, grpcapi.Options{Node: api.Node{Cluster: leader, Access: anyone{}, Statistics: fakeStatistics{is: tree.Statistics{
		{Path: []string{"proc", "Mem"}, Value: int64(7), About: &tree.About{Category: "Process", Title: "Memory", DrawChart: true}},
		{Path: []string{"a"}, Value: 1.5}, {Path: []string{"b"}, Value: "text"}, {Path: []string{"c"}},
	}},
	}})
	plain := map[string]string{"proc-Mem": "7", "a": "1.5", "b": "text", "c": ""}
	described := map[string]string{
		"proc-Mem-value": "7", "proc-Mem-category": "Process", "proc-Mem-title": "Memory", "proc-Mem-drawChart": "true", "a": "1.5", "b": "text", "c": "",
	}
	if got := firstStats(t, conn, &monitoring.StatsReq{UseMetadata: true, RefreshTimePeriodInMs: 1 << 63}, "jane"); !reflect.DeepEqual(got, described) {
		t.Errorf("%q", got)
	}
	stream, err := monitoring.NewMonitoringClient(conn).Stats(by(t.Context(), "jane"), &monitoring.StatsReq{RefreshTimePeriodInMs: 1})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for range 3 {
		m, err := stream.Recv()
		if err != nil || !reflect.DeepEqual(m.GetStats(), plain) {
			t.Fatalf("%q, %v", m.GetStats(), err)
		}
	}
	if took := time.Since(begun); took < 150*time.Millisecond {
		t.Errorf("three messages after %s", took)
	}
	s.Drain()
	for err == nil {
		_, err = stream.Recv()
	}
	if got := status.Convert(err).Message(); got != "Server Is Not Ready" {
		t.Error(got)
	}
}
