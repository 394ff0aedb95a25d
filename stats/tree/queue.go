package tree

import (
	"fmt"
	"time"

	"github.com/annalsdb/annals/stats"
)

// Queue returns the statistics of a queue, in the group es.queue.<name>.
func Queue(f stats.QueueStatistics) Statistics {
	all := make(Statistics, 0, 13)
	add := func(key string, value any) {
		all = append(all, Statistic{Path: []string{"es", "queue", f.Name, key}, Value: value})
	}
	add("queueName", f.Name)
	add("groupName", f.Group)
	add("length", f.Length)
	add("lengthCurrentTryPeak", f.PeakLength)
	add("lengthLifetimePeak", f.LifetimePeakLength)
	add("totalItemsProcessed", int64(f.Items))
	add("avgItemsPerSecond", f.ItemsPerSecond)
	add("avgProcessingTime", f.ProcessingMs)
	add("idleTimePercent", f.IdlePercent)
	add("currentIdleTime", span(f.Idle))
	add("currentItemProcessingTime", span(f.Processing))
	add("inProgressMessage", orNone(f.Doing))
	add("lastProcessedMessage", orNone(f.Done))
	return all
}

// span returns a time as d:hh:mm:ss.fffffff, and nil for one that is not running.
func span(d time.Duration) any {
	if d < 0 {
		return nil
	}
	seconds := int64(d / time.Second)
	return fmt.Sprintf("%d:%02d:%02d:%02d.%07d", seconds/86400, seconds/3600%24, seconds/60%60, seconds%60, d%time.Second/100)
}

func orNone(name string) string {
	if name == "" {
		return "<none>"
	}
	return name
}
