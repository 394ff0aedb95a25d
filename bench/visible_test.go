package bench_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// lagging shows what a node has, but each event only when it has been asked for so many times.
type lagging struct {
	node *fakeNode
	lag  int

	mu    sync.Mutex // guards asked
	asked map[string]int
}

func (l *lagging) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		l.node.ServeHTTP(w, r)
		return
	}
	l.mu.Lock()
	l.asked[r.URL.Path]++
	hidden := l.asked[r.URL.Path] <= l.lag
	l.mu.Unlock()
	if r.Header.Get("ES-LongPoll") == "" {
		http.Error(w, "no long poll", http.StatusBadRequest)
		return
	}
	if hidden {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	l.node.ServeHTTP(w, r)
}

func TestVisible(t *testing.T) {
	leader := newFakeNode()
	follower := &lagging{node: leader, lag: 5, asked: map[string]int{}}
	server := httptest.NewServer(follower)
	defer server.Close()
	base := serve(t, leader) + "," + server.URL
	doc := measure(t, base, "visible", "--count", "20", "--duration", "5m", "--warmup", "0", "--pause", "0")
	if doc.Operations != 20 || doc.ErrorTotal != 0 || len(doc.Parts) != 0 || doc.LatencyMs.P50 <= 0 {
		t.Errorf("%+v", doc)
	}
	check.Equal(t, len(follower.asked), 20, "the follower was asked for ... events")
	for path, times := range follower.asked {
		if times <= 5 {
			t.Errorf("%s was asked for %d times only", path, times)
		}
	}

	doc = measure(t, base, "visible", "--count", "60", "--duration", "5m", "--warmup", "0", "--pause", "0", "--workers", "2")
	if len(doc.Parts) != 1 || doc.Parts[0].Name != "append" || doc.Operations+doc.Parts[0].Operations != 60 || doc.Events != doc.Operations {
		t.Errorf("%+v", doc)
	}
}

func TestNeverVisible(t *testing.T) {
	t.Parallel()
	leader := newFakeNode()
	server := httptest.NewServer(&lagging{node: leader, lag: 1 << 30, asked: map[string]int{}})
	defer server.Close()
	_, _, err := execute(t, t.Context(), "visible", "--node", serve(t, leader)+","+server.URL, "--count", "1", "--warmup", "0", "--timeout", "3s", "--quiet")
	check.Says(t, err, "acknowledged, but not visible at "+strings.TrimPrefix(server.URL, "http://"))
}
