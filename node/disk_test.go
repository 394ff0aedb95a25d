package node

import (
	"bytes"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
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
				refuse: func(err error) { reason = err }, full: func(reason error) { full = reason != nil },
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
			// Files that are kept for other nodes go first, and writes continue if that is enough.
			kept = 1 << 20
			expect(1<<20-1, "", false)
			kept = 1<<20 - 2
			expect(1<<20-1, "disk is nearly full: read-only: 1048574 bytes free for "+short+", 1048576 are kept in reserve", false)
		})
	}
}

// TestFullDiskIsSaidEachMinute: a node that takes no entries says so, with the folder and what is
// kept.
func TestFullDiskIsSaidEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		disk := &volumes{free: map[string]int64{"db": 1<<19 - 1, "index": 10 << 30}}
		said := func() string {
			disk.mu.Lock()
			defer disk.mu.Unlock()
			return lines.String()
		}
		var reason error
		g := &diskGuard{
			fs: disk, dirs: []string{"db", "index"}, reserve: 1 << 20, logger: hclog.New(&hclog.LoggerOptions{Output: &lines, Mutex: &disk.mu}),
			refuse: func(error) {}, full: func(why error) { reason = why }, release: func() bool { return false },
		}
		go g.run(t.Context())
		for minute := range 3 {
			time.Sleep(diskFullEvery)
			synctest.Wait()
			if n := strings.Count(said(), "takes no entries from the leader"); n < minute+1 || n > minute+2 {
				t.Errorf("said %d times in %d minutes", n, minute+1)
			}
		}
		check.Contains(t, said(), "folder=db free=524287 reserve=1048576")
		if want := "the disk of this node is full and it takes no entries from the leader: 524287 bytes are free for db, half of the reserve of 1048576 is needed"; reason == nil || reason.Error() != want {
			t.Errorf("%v", reason)
		}
		disk.set("db", 1<<20)
		time.Sleep(2 * diskCheckFar)
		synctest.Wait()
		before := said()
		time.Sleep(2 * diskFullEvery)
		synctest.Wait()
		check.Must(t, reason, "with space again")
		check.Equal(t, said(), before, "with space again")
	})
}
