package postings_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/log/postings"
)

// BenchmarkScavengeNames scavenges the postings of a million categories, of which each tenth is
// gone, and reports how long the names take and how long a page of names waits meanwhile.
func BenchmarkScavengeNames(b *testing.B) {
	const categories, each = 1_000_000, 500
	var end int64
	x := check.Value(postings.Open(postings.Options{
		Index: index.Options{FS: vfs.OS, Dir: b.TempDir(), Packed: true, Name: "postings", BeforeFlush: func() {},
			ExistenceFilterMax: -1, Belongs: func(int64, event.Chain) (bool, error) { return true, nil }},
		Tail:   func() event.Tail { return event.Tail{End: end} },
		Read:   func(int64, int64, postings.Add) error { return nil },
		Logger: hclog.NewNullLogger(),
	})).Must(b)
	var batch postings.Batch
	for i := int64(0); i < categories; i += each {
		batch.Reset(x)
		for j := range int64(each) {
			batch.Add([]label.Label{{Kind: label.Category, Key: fmt.Sprintf("orders%08d", i+j)}}, (i+j)*100)
		}
		from := end
		end = (i + each) * 100
		check.Must(b, x.Post(&batch, from, end, event.Chain{}))
		if i%10_000 == 0 {
			_, _, err := x.Names(b.Context(), label.Category, "", "", 1)
			check.Must(b, err)
		}
	}
	check.Must(b, x.Flush(-1))
	for round := int64(0); b.Loop(); round++ {
		ctx, stop := context.WithCancel(b.Context())
		longest := make(chan time.Duration)
		go func() {
			var most time.Duration
			for ctx.Err() == nil {
				began := time.Now()
				_, _, err := x.Names(b.Context(), label.Category, "orders005", "", 10)
				check.NoError(b, err)
				most = max(most, time.Since(began))
			}
			longest <- most
		}()
		var looked time.Time
		check.Must(b, x.Scavenge(b.Context(), index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) {
			looked = time.Now()
			return e.Position/100%10 > round, nil
		}}))
		names := time.Since(looked)
		stop()
		b.ReportMetric((<-longest).Seconds()*1000, "ms-wait")
		b.ReportMetric(names.Seconds()*1000, "ms-names")
	}
	check.Must(b, x.Close())
}
