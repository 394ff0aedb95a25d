package access

import (
	"fmt"
	"testing"

	"github.com/annalsdb/annals/stats"
)

// BenchmarkCachePut measures what a login that is not in the full cache pays for getting there.
func BenchmarkCachePut(b *testing.B) {
	c := cache{size: new(stats.Gauge)}
	logins := make([]string, 2*cacheSize)
	for i := range logins {
		logins[i] = fmt.Sprint("user", i)
		c.put(logins[i], &cached{})
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		c.put(logins[i%len(logins)], &cached{})
		i++
	}
}
