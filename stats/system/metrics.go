package system

import (
	"strconv"

	"github.com/annalsdb/annals/stats"
)

// register registers the metrics. They read the sample that everybody shares, and
// those that this system does not offer are left out.
func (s *Sampler) register(r *stats.Registry) {
	type read = func(*Sample) float64
	figure := func(f read) func() float64 {
		return func() float64 { sample := s.Sample(); return f(&sample) }
	}
	gauge := func(name, help string, f read, labels ...stats.Label) { r.GaugeFunc(name, help, figure(f), labels...) }
	counter := func(name, help string, f read, labels ...stats.Label) {
		r.CounterFunc(name, help, figure(f), labels...)
	}
	label := func(name, value string) stats.Label { return stats.Label{Name: name, Value: value} }
	if r == nil {
		return
	}
	first := s.Sample()

	counter("eventstore_proc_up_time", "Seconds since the process began.",
		func(n *Sample) float64 { return n.at.Sub(n.began).Seconds() }, label("pid", strconv.FormatInt(first.pid, 10)))
	gauge("eventstore_proc_cpu", "CPU use of the process in percent of one processor.", func(n *Sample) float64 { return n.cpu })
	gauge("eventstore_proc_thread_count", "Threads of the process.", func(n *Sample) float64 { return float64(n.runtime.threads) })
	counter("eventstore_proc_contention_count", "Milliseconds that goroutines waited for locks.",
		func(n *Sample) float64 { return 1000 * n.runtime.lockWait })
	counter("eventstore_proc_exception_count", "Exceptions thrown: there are none in Go.", func(*Sample) float64 { return 0 })
	if first.memory > 0 {
		const memory = "Memory of the process in bytes."
		gauge("eventstore_proc_mem_bytes", memory, func(n *Sample) float64 { return float64(n.memory) }, label("kind", "working-set"))
		gauge("eventstore_proc_mem_bytes", memory, func(n *Sample) float64 { return float64(n.virtual) }, label("kind", "virtual-bytes"))
	}

	gauge("eventstore_gc_heap_size_bytes", "Bytes of objects on the heap.", func(n *Sample) float64 { return float64(n.runtime.objects) })
	counter("eventstore_gc_total_allocated", "Bytes allocated on the heap.", func(n *Sample) float64 { return float64(n.runtime.allocated) })
	for _, generation := range []string{"gen0", "gen1", "gen2"} {
		counter("eventstore_gc_collection_count", "Cycles of the garbage collector, each of which is about all generations.",
			func(n *Sample) float64 { return float64(n.runtime.cycles) }, label("generation", generation))
	}
	r.MaxFunc("eventstore_gc_pause_duration_max_seconds", "Longest pause of a cycle of the garbage collector of late.",
		figure(func(n *Sample) float64 { return n.longestPause.Seconds() }))

	if first.io != nil {
		const bytes, operations = "Bytes that the process had the disk read and write.", "Calls by which the process read and wrote."
		read, written := label("activity", "read"), label("activity", "written")
		counter("eventstore_disk_io_bytes", bytes, func(n *Sample) float64 { return float64(n.io.ReadBytes) }, read)
		counter("eventstore_disk_io_bytes", bytes, func(n *Sample) float64 { return float64(n.io.WriteBytes) }, written)
		counter("eventstore_disk_io_operations", operations, func(n *Sample) float64 { return float64(n.io.SyscR) }, read)
		counter("eventstore_disk_io_operations", operations, func(n *Sample) float64 { return float64(n.io.SyscW) }, written)
	}
	if first.load != nil {
		const help = "Average number of runnable threads of the machine."
		gauge("eventstore_sys_load_avg", help, func(n *Sample) float64 { return n.load.Load1 }, label("period", "1m"))
		gauge("eventstore_sys_load_avg", help, func(n *Sample) float64 { return n.load.Load5 }, label("period", "5m"))
		gauge("eventstore_sys_load_avg", help, func(n *Sample) float64 { return n.load.Load15 }, label("period", "15m"))
	}
	const machine, space = "Memory of the machine in bytes.", "Space of the volume of the database in bytes."
	if first.freeMemory > 0 {
		gauge("eventstore_sys_mem_bytes", machine, func(n *Sample) float64 { return float64(n.freeMemory) }, label("kind", "free"))
	}
	if first.totalMemory > 0 {
		gauge("eventstore_sys_mem_bytes", machine, func(n *Sample) float64 { return float64(n.totalMemory) }, label("kind", "total"))
	}
	if mount := s.drive.mount; mount != "" {
		gauge("eventstore_sys_disk_bytes", space, func(n *Sample) float64 { return float64(n.drive.used) }, label("disk", mount), label("kind", "used"))
		gauge("eventstore_sys_disk_bytes", space, func(n *Sample) float64 { return float64(n.drive.total) }, label("disk", mount), label("kind", "total"))
	}
}
