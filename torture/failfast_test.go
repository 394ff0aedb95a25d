package torture

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

// TestFailFast shows that the first violation is announced, and that no later one is taken.
func TestFailFast(t *testing.T) {
	f := newFindings(time.Now())
	told := 0
	f.first = func() { told++ }
	for range 3 {
		f.add(kindLost, "an event")
	}
	if told != 1 || f.total() != 1 {
		t.Errorf("told %d times, %d violations taken, want 1 and 1", told, f.total())
	}
}

// stillborn is a cluster whose nodes end as soon as they are started.
type stillborn struct {
	*fakeCluster
	ended func(node, code int, tail string)
}

var errClose = errors.New("a folder is in use")

func (s *stillborn) Close() error { return errClose }

func (s *stillborn) Start(_ context.Context, i int) error {
	s.ended(i, 1, "panic: something")
	return nil
}

// TestFailFastBeforeClients: a violation while the cluster starts is in the summary, and what else
// went wrong is said.
func TestFailFastBeforeClients(t *testing.T) {
	var out strings.Builder
	o := options{failFast: true, nodes: 1}
	o.dial = func(context.Context, string, string) (net.Conn, error) { return nil, errNotNow }
	o.create = func(ended func(node, code int, tail string)) (Cluster, error) {
		return &stillborn{newFake(1), ended}, nil
	}
	r := newRound(&o, 1, nil, t.TempDir(), &out, nil)
	s, err := r.run(t.Context())
	check.Must(t, err)
	if len(s.Violations) != 1 || s.Violations[0].Kind != kindDied || s.Verdict == noViolation || !strings.Contains(s.Text(), "panic: something") {
		t.Errorf("%+v", s)
	}
	if !strings.Contains(out.String(), errClose.Error()) {
		t.Errorf("said: %q", &out)
	}
	check.Must(t, r.keepEvidence(s))
	check.NoError(t, check.Err(os.Stat(filepath.Join(r.dir, "summary.json"))))
}
