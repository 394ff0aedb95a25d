package node

import "testing"

func TestConnectionsOfLimit(t *testing.T) {
	for limit, want := range map[uint64]int{0: 1, 1: 1, 64: 32, 256: 128, 1024: 512, 1600: 1088, 20000: 16384, 1 << 30: 16384, 1<<64 - 1: 16384} {
		if got := ofLimit(limit); got != want {
			t.Errorf("%d files: %d connections, want %d", limit, got, want)
		}
	}
	if got := maxConnections(7); got != 7 {
		t.Errorf("an option of 7 means %d", got)
	}
}
