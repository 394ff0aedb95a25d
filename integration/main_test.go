package integration_test

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

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
// has found something that hangs. What must be quick besides is promised.
const settleLimit = 3 * time.Minute

// busyLoad is from how many runnable tasks a processor on nobody can tell what is
// the product's doing: a cluster under load and its clients make hardly two.
const busyLoad = 2.5

// promised demands that something was as quick as it is said to be. On a machine
// that is busy with other things it is only told.
func promised(t *testing.T, what string, took, limit time.Duration) {
	t.Helper()
	if took <= limit {
		return
	}
	onlyWhenCalm(t, "%s: %s, promised are %s", what, took, limit)
}

// onlyWhenCalm is a failure, unless the machine is so busy with other things that
// a leader is late with its heartbeats, or a client with its questions.
func onlyWhenCalm(t *testing.T, format string, args ...any) {
	t.Helper()
	if load := loadOfMachine(); load > busyLoad {
		t.Logf("the machine has %.1f tasks a processor, and "+format, append([]any{load}, args...)...)
		return
	}
	t.Errorf(format, args...)
}

// loadOfMachine is how many tasks a processor wanted to run of late, 0 where the system does not tell.
func loadOfMachine() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load / float64(runtime.NumCPU())
}

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
