package pipeline

import (
	"cmp"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/stats"
)

// Options of a pipeline. Zero values get defaults.
type Options struct {
	Logger hclog.Logger    // default: none
	Stats  *stats.Registry // where the metrics are registered; default: nowhere

	QueueRequests int           // not yet answered; default 8192
	QueueBytes    int64         // of their data; default 64 MiB
	DrainTimeout  time.Duration // Close waits so long for the entry in flight; default 5 s
}

func (o *Options) ensureDefaults() {
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
	o.QueueRequests = cmp.Or(o.QueueRequests, 8192)
	o.QueueBytes = cmp.Or(o.QueueBytes, 64<<20)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 5*time.Second)
}
