package system

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

func TestProcessors(t *testing.T) {
	for _, c := range []struct {
		line        string
		busy, total float64
		ok          bool
	}{
		{"cpu  100 200 300 4000 5000 600 700 800 90 10\n", 27, 117, true},
		{"cpu  100 200 300 4000 5000 600 700 800 90 10 11 12\n", 27, 117, true},
		{"cpu  100 200 300 4000 5000 600 700\n", 19, 109, true}, // before there was steal
		{"cpu  100 200 300 4000 5000 600\n", 0, 0, false},
		{"cpu0 100 200 300 4000 5000 600 700 800 90 10\n", 0, 0, false},
		{"cpu  100 200 300 x 5000 600 700 800 90 10\n", 0, 0, false},
		{"\n", 0, 0, false},
	} {
		if busy, total, ok := parseProcessors(c.line); busy != c.busy || total != c.total || ok != c.ok {
			t.Errorf("%q: %v of %v, %t; want %v of %v, %t", c.line, busy, total, ok, c.busy, c.total, c.ok)
		}
	}
}

func TestMounts(t *testing.T) {
	got := parseMounts("/dev/vda / ext4 rw,discard 0 0\nproc /proc proc rw 0 0\n" +
		`/dev/sdb /srv/my\040data\011\134x"\043 xfs rw 0 0` + "\n" +
		" /unnamed tmpfs rw 0 0\n\nodd\n")
	check.Slice(t, got, []string{"/", "/proc", "/srv/my data\t\\x\"#", "/unnamed"})
	if !slices.Contains(mountPoints(), "/") {
		t.Errorf("mounted are %q", mountPoints())
	}
}

func TestMemoryThatTheKernelDoesNotEstimate(t *testing.T) {
	for text, want := range map[string][2]uint64{
		"MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 700 kB\nCached: 300 kB\n": {700 << 10, 1000 << 10},
		"MemTotal: 1000 kB\nMemFree: 100 kB\nCached: 300 kB\nSReclaimable: 50 kB\n":  {450 << 10, 1000 << 10},
		"MemTotal: 1000 kB\nMemFree: 100 kB\n":                                       {100 << 10, 1000 << 10},
		"MemFree: 100 kB\n":                                                          {0, 0},
		"MemTotal: much kB\n":                                                        {0, 0},
	} {
		dir := t.TempDir()
		check.Must(t, os.WriteFile(filepath.Join(dir, "meminfo"), []byte(text), 0o600))
		t.Setenv("HOST_PROC", dir)
		if free, total := ram(overall()); free != want[0] || total != want[1] {
			t.Errorf("%q: %d of %d, want %d of %d", text, free, total, want[0], want[1])
		}
		check.Equal(t, TotalMemory(), int64(want[1]), text, "in all")
	}
}

// The process began before this, and after the tool that started it.
func TestBegan(t *testing.T) {
	m := newMachine()
	parent, err := m.own.Proc(os.Getppid())
	if err != nil {
		t.Skip(err)
	}
	of := machine{own: m.own, self: &parent}
	if began := m.began(); began.Before(of.began()) || began.After(time.Now()) || of.began().IsZero() {
		t.Errorf("began at %v, its parent at %v", began, of.began())
	}
}
