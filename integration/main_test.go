package integration_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

func TestMain(m *testing.M) {
	if err := testkit.Crowd(4); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testkit.Main(m)
}

// seed returns the seed of a random test and prints it.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := uint64(time.Now().UnixNano())
	if text := os.Getenv("ANNALS_SEED"); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("ANNALS_SEED: %v", err)
		}
	}
	t.Logf("repeat with ANNALS_SEED=%d", s)
	return s
}

// settleLimit bounds the wait for what must happen. It is generous: who reaches it
// has found something that hangs. How quick things are is not demanded here, where other
// tests take the processors: annals torture and annals bench measure it.
const settleLimit = 3 * time.Minute

// within bounds a part of a test and ends it with a clear text.
func within(t *testing.T, limit time.Duration, what string, done <-chan struct{}) {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		t.Fatalf("not within %s: %s", limit, what)
	}
}

// verifyClean runs the offline check on the folder of a node that has ended.
func verifyClean(t *testing.T, dir string) {
	t.Helper()
	p, code := testkit.Run(t, testkit.Command{Args: []string{"verify", "--db", dir}, Quiet: true})
	if code != 0 {
		t.Fatalf("annals verify --db %s: exit code %d\n%s", dir, code, p.Output())
	}
}

// must sends a request, and ends the test unless the answer has the status.
func must(t *testing.T, to interface {
	Do(context.Context, testkit.Request) (testkit.Response, error)
}, r testkit.Request, status int) testkit.Response {
	t.Helper()
	answer, err := to.Do(t.Context(), r)
	if err != nil || answer.Status != status {
		t.Fatalf("%s %s: %s, %v, want %d", r.Method, r.Path, answer, err, status)
	}
	return answer
}
