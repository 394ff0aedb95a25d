package bench_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// limitedNode is a fake node whose streams can be limited and deleted.
type limitedNode struct {
	*fakeNode

	mu       sync.Mutex // guards the fields below
	metadata map[string]string
	deleted  map[string]bool // for good?
}

func (n *limitedNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	stream := strings.TrimSuffix(strings.TrimPrefix(path, "/streams/"), "/metadata")
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/metadata"):
		body, _ := io.ReadAll(r.Body)
		n.mu.Lock()
		n.metadata[stream] = string(body)
		n.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodDelete:
		n.mu.Lock()
		_, again := n.deleted[stream]
		n.deleted[stream] = r.Header.Get("ES-HardDelete") == "true"
		n.mu.Unlock()
		w.WriteHeader(map[bool]int{false: http.StatusNoContent, true: http.StatusGone}[again])
	default:
		n.fakeNode.ServeHTTP(w, r)
	}
}

func TestLimit(t *testing.T) {
	// by an earlier run
	n := &limitedNode{fakeNode: newFakeNode(), metadata: map[string]string{}, deleted: map[string]bool{"bench-000002": true}}
	server := httptest.NewServer(n)
	defer server.Close()
	doc := measure(t, server.URL, strings.Fields("limit --events 1005 --streams 100 --limited-streams 50 --deleted 4 --workers 3")...)
	if doc.Operations != 50 || doc.ErrorTotal != 0 || len(n.metadata) != 46 || len(n.deleted) != 4 || len(n.bad) != 0 {
		t.Errorf("%+v; %d streams limited, %d deleted, %q", doc, len(n.metadata), len(n.deleted), n.bad)
	}
	for i := 1; i <= 100; i++ {
		name := fmt.Sprintf("bench-%06d", i)
		hard, deleted := n.deleted[name]
		if deleted != (i <= 4) || hard != (i == 2 || i == 4) {
			t.Errorf("%s: deleted %t, hard %t", name, deleted, hard)
		}
		if got, limited := n.metadata[name]; limited != (i > 4 && i <= 50) || limited && (!json.Valid([]byte(got)) || !strings.Contains(got, `"data":{"$maxCount":5}`)) {
			t.Errorf("%s: metadata %q", name, got)
		}
	}
}

func TestLimitRefuses(t *testing.T) {
	for name, args := range map[string]string{
		"few events":   "--events 5 --streams 6",
		"many limited": "--limited-streams 100001",
		"all deleted":  "--deleted 100",
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"limit"}, strings.Fields(args)...)
			if _, _, err := execute(t, context.Background(), args...); err == nil || !strings.HasPrefix(err.Error(), "--") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLimitHelp(t *testing.T) {
	stdout, stderr, err := execute(t, context.Background(), "limit", "--help")
	if err != nil || stderr != "" {
		t.Fatalf("%v, %s", err, stderr)
	}
	got := "$ annals bench limit --help\n" + stdout + "\n"
	file := filepath.Join("testdata", "limit_help.golden")
	if *update {
		check.Must(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	check.Must(t, err)
	check.Equal(t, got, string(want), file, "differs (rewrite it with -update and review the diff)")
}
