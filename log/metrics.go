package eventlog

import "sync/atomic"

// Metrics counts what the log did since it was opened.
type Metrics struct {
	Records        atomic.Uint64 // records committed
	Bytes          atomic.Uint64 // bytes written to chunks, without headers and footers
	Commits        atomic.Uint64 // batches committed
	Syncs          atomic.Uint64 // times the log was made durable
	HashCollisions atomic.Uint64 // index hits that belonged to another stream
}

// Metrics returns the counters; they go on counting.
func (l *Log) Metrics() *Metrics { return &l.metrics }
