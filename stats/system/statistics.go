package system

import (
	"fmt"
	"runtime"
	"time"

	"github.com/annalsdb/annals/stats/tree"
)

var (
	aboutMemory = &tree.About{Category: "Process", Title: "Process: memory", DrawChart: true}
	aboutCPU    = &tree.About{Category: "Process", Title: "Process: CPU", DrawChart: true}
)

// Statistics returns the groups proc and sys of the statistics.
func (s Sample) Statistics() tree.Statistics {
	all := make(tree.Statistics, 0, 56)
	group := func(path ...string) func(key string, value any) {
		path = path[:len(path):len(path)]
		return func(key string, value any) { all = append(all, tree.Statistic{Path: append(path, key), Value: value}) }
	}
	proc := group("proc")
	proc("startTime", s.began.UTC().Format("2006-01-02T15:04:05.0000000Z"))
	proc("id", s.pid)
	all = append(all, tree.Statistic{Path: []string{"proc", "mem"}, Value: int64(s.memory), About: aboutMemory})
	all = append(all, tree.Statistic{Path: []string{"proc", "cpu"}, Value: s.cpu, About: aboutCPU})
	proc("cpuScaled", s.cpu/float64(runtime.NumCPU()))
	proc("threadsCount", int64(s.runtime.threads))
	proc("contentionsRate", s.waiting)
	proc("thrownExceptionsRate", 0.0)

	gc := group("proc", "gc")
	gc("allocationSpeed", s.allocating)
	gc("fragmentation", s.runtime.fragmentation())
	for _, generation := range []string{"gen0ItemsCount", "gen1ItemsCount", "gen2ItemsCount"} {
		gc(generation, int64(s.runtime.cycles))
	}
	gc("gen0Size", int64(s.runtime.young()))
	gc("gen1Size", int64(0))
	gc("gen2Size", int64(s.runtime.live))
	gc("largeHeapSize", int64(0))
	gc("timeInGc", s.timeInGC)
	gc("totalBytesInHeaps", int64(s.runtime.objects))

	if s.io != nil {
		io := group("proc", "diskIo")
		io("readBytes", int64(s.io.ReadBytes))
		io("writtenBytes", int64(s.io.WriteBytes))
		io("readOps", int64(s.io.SyscR))
		io("writeOps", int64(s.io.SyscW))
	}

	tcp := group("proc", "tcp")
	tcp("connections", s.network.Connections)
	tcp("receivingSpeed", s.receivingSpeed)
	tcp("sendingSpeed", s.sendingSpeed)
	tcp("inSend", int64(0))
	tcp("measureTime", measureTime(s.elapsed))
	tcp("pendingReceived", s.network.PendingReceived)
	tcp("pendingSend", s.network.PendingSend)
	tcp("receivedBytesSinceLastRun", int64(s.receivedSince))
	tcp("receivedBytesTotal", int64(s.network.Received))
	tcp("sentBytesSinceLastRun", int64(s.sentSince))
	tcp("sentBytesTotal", int64(s.network.Sent))

	sys := group("sys")
	sys("cpu", s.machineCPU)
	sys("freeMem", int64(s.freeMemory))
	sys("totalMem", int64(s.totalMemory))
	if s.load != nil {
		average := group("sys", "loadavg")
		average("1m", s.load.Load1)
		average("5m", s.load.Load5)
		average("15m", s.load.Load15)
	}
	if s.mount != "" {
		volume := group("sys", "drive", s.mount)
		volume("availableBytes", int64(s.drive.available))
		volume("totalBytes", int64(s.drive.total))
		volume("usage", fmt.Sprintf("%.0f%%", s.drive.percent))
		volume("usedBytes", int64(s.drive.used))
	}
	return all
}

// measureTime returns a time as hh:mm:ss.fffffff.
func measureTime(d time.Duration) string {
	d = max(0, d)
	return fmt.Sprintf("%02d:%02d:%02d.%07d", d/time.Hour, d/time.Minute%60, d/time.Second%60, d%time.Second/100)
}
