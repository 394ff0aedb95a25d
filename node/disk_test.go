package node

import (
	"errors"
	"io/fs"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// volumes is a file system on which each folder is a volume of its own.
type volumes struct {
	vfs.FS
	mu   sync.Mutex // Synthetic time orders goroutines, but not in the race detector's eyes.
	free map[string]int64
}

func (v *volumes) set(dir string, free int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.free[dir] = free
}

func (v *volumes) Free(dir string) (int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	free, ok := v.free[dir]
	if !ok {
		return 0, fs.ErrNotExist
	}
	return free, nil
}

// TestEveryVolumeIsGuarded: whichever is nearly full has writes refused, and is named.
func TestEveryVolumeIsGuarded(t *testing.T) {
	for _, short := range []string{"db", "index"} {
		synctest.Test(t, func(t *testing.T) {
			disk := &volumes{free: map[string]int64{"db": 10 << 30, "index": 10 << 30}}
			var reason error
			var full bool
			var kept int64 // free when what is kept for others is gone
			g := &diskGuard{
				fs: disk, dirs: []string{"missing", "db", "index"}, reserve: 1 << 20, logger: hclog.NewNullLogger(),
				refuse: func(err error) { reason = err }, full: func(is bool) { full = is },
				release: func() bool {
					if kept == 0 {
						return false
					}
					disk.set(short, kept)
					kept = 0
					return true
				},
			}
			go g.run(t.Context())
			expect := func(free int64, want string, wantFull bool) {
				t.Helper()
				disk.set(short, free)
				time.Sleep(2 * diskCheckFar)
				synctest.Wait()
				got := ""
				if reason != nil {
					got = reason.Error()
				}
				if got != want || full != wantFull || reason != nil && !errors.Is(reason, event.ErrDiskFull) {
					t.Errorf("%d bytes free in %s: %q, full %t; want %q, %t", free, short, got, full, want, wantFull)
				}
			}
			expect(1<<30, "", false)
			expect(1<<20-1, "disk is nearly full: read-only: 1048575 bytes free for "+short+", 1048576 are kept in reserve", false)
			expect(1<<19-1, "disk is nearly full: read-only: 1048575 bytes free for "+short+", 1048576 are kept in reserve", true)
			expect(1<<20+1, "disk is nearly full: read-only: 1048575 bytes free for "+short+", 1048576 are kept in reserve", false)
			expect(2<<20, "", false)
			// What is kept for others goes first, and writes go on where that is enough.
			kept = 1 << 20
			expect(1<<20-1, "", false)
			kept = 1<<20 - 2
			expect(1<<20-1, "disk is nearly full: read-only: 1048574 bytes free for "+short+", 1048576 are kept in reserve", false)
		})
	}
}
