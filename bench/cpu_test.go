package bench

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

func TestProcessorTime(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	// The clock of a process in /proc counts hundredths of a second, and those begun are not in it.
	const tick = 10 * time.Millisecond
	before, err1 := ownCPU()
	used, err2 := processCPU(os.Getpid())
	after, err3 := ownCPU()
	check.Must(t, errors.Join(err1, err2, err3))
	if used < before-2*tick || used > after+tick {
		t.Errorf("used %v, between %v and %v", used, before, after)
	}
	if got := startUsage([]int{-1}).stop(1, 1); got.ServersNotMeasured == "" || got.ServerSecondsByPid != nil {
		t.Errorf("%+v", got)
	}
}
