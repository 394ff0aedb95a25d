package node

import (
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

func TestConnectionsOfLimit(t *testing.T) {
	for limit, want := range map[uint64]int{0: 1, 1: 1, 64: 32, 256: 128, 1024: 512, 1600: 1088, 20000: 16384, 1 << 30: 16384, 1<<64 - 1: 16384} {
		check.Equal(t, ofLimit(limit), want, limit, "files ... connections")
	}
	check.Equal(t, maxConnections(7), 7, "an option of 7 means")
}
