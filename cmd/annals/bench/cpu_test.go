package bench

import (
	"os"
	"testing"
)

func TestProcessorTime(t *testing.T) {
	if _, err := processCPU(os.Getpid()); err != nil {
		t.Error(err)
	}
	if got := startUsage([]int{-1}).stop(1, 1); got.ServersNotMeasured == "" || got.ServerSecondsByPid != nil {
		t.Errorf("%+v", got)
	}
}
