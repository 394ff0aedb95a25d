package pipeline

import (
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/stats"
)

// Options of a pipeline. What is zero gets a default.
type Options struct {
	Logger hclog.Logger    // default: none
	Stats  *stats.Registry // where the metrics are registered; default: nowhere

	QueueRequests int           // not yet answered; default 8192
	QueueBytes    int64         // of their data; default 64 MiB
	DrainTimeout  time.Duration // Close waits so long for the entry under way; default 5 s
}

func (o *Options) ensureDefaults() {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.QueueRequests == 0 {
		o.QueueRequests = 8192
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = 64 << 20
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = 5 * time.Second
	}
}
