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
	own := []int{os.Getpid()}
	before, after := usageOf(own), usageOf(nil)
	check.Must(t, errors.Join(before.err, after.err))
	used := time.Duration(before.servers[own[0]] * float64(time.Second))
	if used < before.driver-2*tick || used > after.driver+tick {
		t.Errorf("used %v, between %v and %v", used, before.driver, after.driver)
	}
	if got := usageOf([]int{-1}).since(before, 1, 1); got.ServersNotMeasured == "" || got.ServerSecondsByPid != nil {
		t.Errorf("%+v", got)
	}
}
