package bench

import (
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	got, err := parseStat([]byte("42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 123 77 0 0 20 0 1 0"))
	if err != nil || got != 2*time.Second {
		t.Errorf("got %s, %v", got, err)
	}
	for _, bad := range []string{"", "1 (a) S 1 2", "1 (a) S 1 2 3 4 5 6 7 8 9 10 x 77", "1 (a) S 1 2 3 4 5 6 7 8 9 10 1 x"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
	if _, err := processCPU(os.Getpid()); err != nil {
		t.Error(err)
	}
	if got := startUsage([]int{-1}).stop(1, 1); got.ServersNotMeasured == "" || got.ServerSecondsByPid != nil {
		t.Errorf("%+v", got)
	}
}
