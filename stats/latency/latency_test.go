package latency_test

import (
	"context"
	"flag"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats/latency"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var kinds = map[latency.Kind]string{
	latency.WriterFlush: "writer-flush", latency.ChaserWait: "chaser-wait", latency.ChaserFlush: "chaser-flush",
	latency.ReaderReadEvent: "reader-readevent", latency.ReaderStreamRange: "reader-streamrange",
	latency.ReaderAllRange: "reader-allrange", latency.RequestManager: "request-manager", latency.TCPSend: "tcp-send",
	latency.HTTPSend: "http-send", latency.Jitter: "jitter",
}

func text(t *testing.T, s *latency.Set, name string) string {
	t.Helper()
	got, ok := s.AppendText([]byte("before\n"), name)
	if !ok {
		t.Fatalf("there is no %s", name)
	}
	return strings.TrimPrefix(string(got), "before\n")
}

func TestTable(t *testing.T) {
	s := latency.NewSet()
	for i := range 10000 {
		s.Record(latency.ReaderReadEvent, time.Duration(i)*time.Microsecond)
	}
	s.Record(latency.HTTPSend, -time.Second)
	s.Record(latency.HTTPSend, 24*time.Hour)
	for file, name := range map[string]string{"many.golden": "reader-readevent", "out_of_range.golden": "http-send", "empty.golden": "jitter"} {
		t.Run(file, func(t *testing.T) {
			got := text(t, s, name)
			if *update {
				check.Must(t, os.WriteFile("testdata/"+file, []byte(got), 0o644))
			}
			want := check.Value(os.ReadFile("testdata/" + file)).Must(t)
			check.Equal(t, got, string(want))
		})
	}
}

func TestNames(t *testing.T) {
	s := latency.NewSet()
	for k, name := range kinds {
		check.Equal(t, k.String(), name, "is called")
		s.Record(k, time.Millisecond)
		check.Contains(t, text(t, s, name), "Total count    =            1]", name, "has")
	}
	for _, name := range []string{"", "none", "Jitter"} {
		if _, ok := s.AppendText(nil, name); ok {
			t.Errorf("there is %q", name)
		}
	}
}

func TestNil(t *testing.T) {
	var s *latency.Set
	s.Record(latency.Jitter, time.Second)
	s.RunJitter(t.Context())
	if got, ok := s.AppendText([]byte("x"), "jitter"); ok || string(got) != "x" {
		t.Errorf("got %q %v", got, ok)
	}
}

func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := latency.NewSet()
		ctx, cancel := context.WithCancel(t.Context())
		var owned sync.WaitGroup
		owned.Go(func() { s.RunJitter(ctx) })
		time.Sleep(time.Second + time.Millisecond)
		cancel()
		owned.Wait()
		check.Contains(t, text(t, s, "jitter"), "#[Max     =        0.000, Total count    =           10]")
	})
}

func TestConcurrentUse(t *testing.T) {
	s := latency.NewSet()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				s.Record(latency.TCPSend, time.Duration(i)*time.Millisecond)
				if i%50 == 0 {
					s.AppendText(nil, "tcp-send")
				}
			}
		})
	}
	wg.Wait()
	check.Contains(t, text(t, s, "tcp-send"), "Total count    =         1600]")
}

func BenchmarkRecord(b *testing.B) {
	s := latency.NewSet()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s.Record(latency.HTTPSend, 3*time.Millisecond)
		}
	})
}

func BenchmarkRecordNil(b *testing.B) {
	var s *latency.Set
	for b.Loop() {
		s.Record(latency.HTTPSend, 3*time.Millisecond)
	}
}
