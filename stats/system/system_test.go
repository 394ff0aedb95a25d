package system_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
	"github.com/annalsdb/annals/stats/system"
	"github.com/annalsdb/annals/stats/tree"
)

// shown returns the statistics by their flat keys.
func shown(f tree.Statistics) map[string]any {
	all := map[string]any{}
	for _, figure := range f {
		all[strings.Join(figure.Path, "-")] = figure.Value
	}
	return all
}

// drive returns the mount point that is shown.
func drive(t *testing.T, f tree.Statistics) string {
	t.Helper()
	for _, figure := range f {
		if len(figure.Path) == 4 && figure.Path[1] == "drive" {
			return figure.Path[2]
		}
	}
	t.Fatal("no drive is shown")
	return ""
}

func TestEveryFigureIsShown(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have fewer metrics")
	}
	c := newClock()
	sampler := system.New(system.Options{DataDir: t.TempDir(), Now: c.now})
	f := sampler.Sample().Statistics()
	at := "sys-drive-" + drive(t, f)
	want := map[string]string{
		"proc-startTime": "string", "proc-id": "int64", "proc-mem": "int64", "proc-cpu": "float64", "proc-cpuScaled": "float64",
		"proc-threadsCount": "int64", "proc-contentionsRate": "float64", "proc-thrownExceptionsRate": "float64",
		"proc-gc-allocationSpeed": "float64", "proc-gc-fragmentation": "float64",
		"proc-gc-gen0ItemsCount": "int64", "proc-gc-gen1ItemsCount": "int64", "proc-gc-gen2ItemsCount": "int64",
		"proc-gc-gen0Size": "int64", "proc-gc-gen1Size": "int64", "proc-gc-gen2Size": "int64",
		"proc-gc-largeHeapSize": "int64", "proc-gc-timeInGc": "float64", "proc-gc-totalBytesInHeaps": "int64",
		"proc-diskIo-readBytes": "int64", "proc-diskIo-writtenBytes": "int64", "proc-diskIo-readOps": "int64", "proc-diskIo-writeOps": "int64",
		"proc-tcp-connections": "int64", "proc-tcp-receivingSpeed": "float64", "proc-tcp-sendingSpeed": "float64", "proc-tcp-inSend": "int64",
		"proc-tcp-measureTime": "string", "proc-tcp-pendingReceived": "int64", "proc-tcp-pendingSend": "int64",
		"proc-tcp-receivedBytesSinceLastRun": "int64", "proc-tcp-receivedBytesTotal": "int64",
		"proc-tcp-sentBytesSinceLastRun": "int64", "proc-tcp-sentBytesTotal": "int64",
		"sys-cpu": "float64", "sys-freeMem": "int64", "sys-totalMem": "int64",
		"sys-loadavg-1m": "float64", "sys-loadavg-5m": "float64", "sys-loadavg-15m": "float64",
		at + "-availableBytes": "int64", at + "-totalBytes": "int64", at + "-usage": "string", at + "-usedBytes": "int64",
	}
	got := map[string]string{}
	values := shown(f)
	for key, value := range values {
		got[key] = fmt.Sprintf("%T", value)
	}
	if !maps.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	for _, key := range []string{"proc-mem", "proc-threadsCount", "proc-gc-totalBytesInHeaps", "sys-freeMem", "sys-totalMem"} {
		if values[key].(int64) <= 0 {
			t.Errorf("%s is %v", key, values[key])
		}
	}
	for key, form := range map[string]string{
		"proc-startTime":       `^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z$`,
		"proc-tcp-measureTime": `^\d\d:\d\d:\d\d\.\d{7}$`,
		at + "-usage":          `^\d{1,3}%$`,
	} {
		if !regexp.MustCompile(form).MatchString(values[key].(string)) {
			t.Errorf("%s is %q", key, values[key])
		}
	}
	if values["proc-id"] != int64(os.Getpid()) || values["sys-cpu"] != -1.0 {
		t.Errorf("id %v, cpu of the machine %v", values["proc-id"], values["sys-cpu"])
	}
	if got := f.AppendFlatJSON(nil, true); !json.Valid(got) || strings.Count(string(got), `"drawChart": true`) != 2 {
		t.Errorf("got %s", got)
	}
	// On a busy machine the drive's answer comes too late for the first samples.
	for shown(sampler.Sample().Statistics())[at+"-totalBytes"].(int64) <= 0 {
		c.move(time.Second)
	}
}

// clock is a clock that is moved by hand.
type clock struct{ at atomic.Pointer[time.Time] }

func newClock() *clock { c := new(clock); now := time.Now(); c.at.Store(&now); return c }

func (c *clock) now() time.Time        { return *c.at.Load() }
func (c *clock) move(by time.Duration) { to := c.now().Add(by); c.at.Store(&to) }

func TestSamplesLastASecond(t *testing.T) {
	c, asked := newClock(), uint64(0)
	s := system.New(system.Options{Now: c.now, Network: func() system.Network {
		asked++
		return system.Network{Connections: 3, Received: 1000 * asked, Sent: 10 * asked, PendingSend: 4, PendingReceived: 5}
	}})
	s.Sample()
	c.move(999 * time.Millisecond)
	s.Sample()
	check.MustEqual(t, asked, 1, "samples were taken within a second")
	c.move(1001 * time.Millisecond)
	got := shown(s.Sample().Statistics())
	for key, want := range map[string]any{
		"proc-tcp-connections": int64(3), "proc-tcp-pendingSend": int64(4), "proc-tcp-pendingReceived": int64(5), "proc-tcp-inSend": int64(0),
		"proc-tcp-measureTime": "00:00:02.0000000", "proc-tcp-receivedBytesTotal": int64(2000), "proc-tcp-sentBytesTotal": int64(20),
		"proc-tcp-receivedBytesSinceLastRun": int64(1000), "proc-tcp-sentBytesSinceLastRun": int64(10),
		"proc-tcp-receivingSpeed": 500.0, "proc-tcp-sendingSpeed": 5.0,
	} {
		check.Equal(t, got[key], want, key)
	}
	c.move(25*time.Hour + 90*time.Second)
	if got := shown(s.Sample().Statistics()); got["proc-tcp-measureTime"] != "25:01:30.0000000" {
		t.Errorf("measured for %v", got["proc-tcp-measureTime"])
	}
}

func TestOneTakesTheSampleForAll(t *testing.T) {
	var asked atomic.Int64
	begun, goOn := make(chan struct{}), make(chan struct{})
	s := system.New(system.Options{Now: newClock().now, Network: func() system.Network {
		if asked.Add(1) == 1 {
			close(begun)
		}
		<-goOn
		return system.Network{Connections: 7}
	}})
	var wg sync.WaitGroup
	ask := func() {
		if got := shown(s.Sample().Statistics())["proc-tcp-connections"]; got != int64(7) {
			t.Errorf("%v connections", got)
		}
	}
	wg.Go(ask)
	<-begun
	for range 8 {
		wg.Go(ask)
	}
	close(goOn)
	wg.Wait()
	check.Equal(t, asked.Load(), 1, "samples were taken")
}

func TestMetrics(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have fewer metrics")
	}
	r := new(stats.Registry)
	s := system.New(system.Options{DataDir: t.TempDir(), Registry: r})
	runtime.GC()
	disk := drive(t, s.Sample().Statistics())
	want := []string{
		"counter eventstore_disk_io_bytes activity=read", "counter eventstore_disk_io_bytes activity=written",
		"counter eventstore_disk_io_operations activity=read", "counter eventstore_disk_io_operations activity=written",
		"counter eventstore_gc_collection_count generation=gen0", "counter eventstore_gc_collection_count generation=gen1",
		"counter eventstore_gc_collection_count generation=gen2", "gauge eventstore_gc_heap_size_bytes",
		"max eventstore_gc_pause_duration_max_seconds", "counter eventstore_gc_total_allocated",
		"counter eventstore_proc_contention_count", "gauge eventstore_proc_cpu", "counter eventstore_proc_exception_count",
		"gauge eventstore_proc_mem_bytes kind=virtual-bytes", "gauge eventstore_proc_mem_bytes kind=working-set",
		"gauge eventstore_proc_thread_count", fmt.Sprintf("counter eventstore_proc_up_time pid=%d", os.Getpid()),
		"gauge eventstore_sys_disk_bytes disk=" + disk + " kind=total", "gauge eventstore_sys_disk_bytes disk=" + disk + " kind=used",
		"gauge eventstore_sys_load_avg period=15m", "gauge eventstore_sys_load_avg period=1m", "gauge eventstore_sys_load_avg period=5m",
		"gauge eventstore_sys_mem_bytes kind=free", "gauge eventstore_sys_mem_bytes kind=total",
	}
	var got []string
	r.Each(func(sample stats.Sample) {
		line := fmt.Sprint(sample.Kind, " ", sample.Name)
		for _, l := range sample.Labels {
			line += " " + l.Name + "=" + l.Value
		}
		got = append(got, line)
		if strings.HasPrefix(sample.Name, "eventstore_gc_total") && sample.Value <= 0 || sample.Value < 0 {
			t.Errorf("%s is %v", line, sample.Value)
		}
	})
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// In a container HOST_PROC may name the /proc of the machine. The process is still the own one.
func TestStatisticsOfTheMachineBehindAContainer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("stat", "cpu 100 0 0 100 0 0 0 0 0 0\ncpu0 1\n")
	write("meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 700 kB\n")
	write("loadavg", "1.25 2.50 3.75 1/100 4711\n")
	t.Setenv("HOST_PROC", dir)
	c := newClock()
	s := system.New(system.Options{Now: c.now})
	first := shown(s.Sample().Statistics())
	write("stat", "cpu 175 0 0 125 0 0 0 0 0 0\ncpu0 1\n")
	c.move(time.Second)
	got := shown(s.Sample().Statistics())
	for key, want := range map[string]any{
		"sys-cpu": 75.0, "sys-freeMem": int64(700 << 10), "sys-totalMem": int64(1000 << 10),
		"sys-loadavg-1m": 1.25, "sys-loadavg-5m": 2.5, "sys-loadavg-15m": 3.75,
	} {
		check.Equal(t, got[key], want, key)
	}
	if first["sys-cpu"] != -1.0 || got["proc-mem"].(int64) <= 0 || got["proc-diskIo-readOps"].(int64) <= 0 {
		t.Errorf("the processors were busy to %v, the process has %v bytes and read %v times",
			first["sys-cpu"], got["proc-mem"], got["proc-diskIo-readOps"])
	}
}

// Figures that the system does not tell are 0 or left out, and nothing else changes.
func TestSystemThatTellsNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("HOST_PROC does not matter there")
	}
	t.Setenv("HOST_PROC", filepath.Join(t.TempDir(), "missing"))
	r := new(stats.Registry)
	got := shown(system.New(system.Options{Registry: r}).Sample().Statistics())
	if got["sys-cpu"] != -1.0 || got["sys-freeMem"] != int64(0) || got["sys-totalMem"] != int64(0) || system.TotalMemory() != 0 {
		t.Errorf("got %v", got)
	}
	if _, there := got["sys-loadavg-1m"]; there {
		t.Error("there is a load")
	}
	r.Each(func(m stats.Sample) {
		if strings.HasPrefix(m.Name, "eventstore_sys_load") || strings.HasPrefix(m.Name, "eventstore_sys_mem") {
			t.Errorf("there is %s", m.Name)
		}
	})
}

func TestPausesAreSeen(t *testing.T) {
	runtime.GC()
	r := new(stats.Registry)
	system.New(system.Options{Registry: r})
	r.Each(func(s stats.Sample) {
		if s.Name == "eventstore_gc_pause_duration_max_seconds" && s.Value <= 0 {
			t.Errorf("the longest pause is %v", s.Value)
		}
	})
}

func TestDriveThroughALink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/proc", link); err != nil {
		t.Skip(err)
	}
	f := system.New(system.Options{DataDir: link}).Sample().Statistics()
	if got := drive(t, f); runtime.GOOS == "linux" && got != "/proc" {
		t.Errorf("%s lies in %s", link, got)
	}
	f = system.New(system.Options{DataDir: filepath.Join(dir, "not", "there")}).Sample().Statistics()
	if drive(t, f) == "" {
		t.Error("a folder that is not there has no drive")
	}
}

func BenchmarkSample(b *testing.B) {
	c := newClock()
	s := system.New(system.Options{DataDir: b.TempDir(), Now: c.now})
	b.ReportAllocs()
	for b.Loop() {
		c.move(time.Second)
		s.Sample()
	}
}

func BenchmarkSampleAgain(b *testing.B) {
	s := system.New(system.Options{})
	b.ReportAllocs()
	for b.Loop() {
		s.Sample()
	}
}
