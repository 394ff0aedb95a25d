package bench

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Bounds that keep a mistyped flag from exhausting the machine.
const (
	maxWorkers   = 10_000
	maxStreams   = 100_000_000
	maxBatch     = 100_000
	maxEventSize = 64 << 20
	maxPage      = 4096 // what the interface allows

	// maxFill bounds the time that fill may take.
	maxFill = 7 * 24 * time.Hour
)

// options is what the flags of a run say.
type options struct {
	bases          []string
	user, password string
	tlsCA          string
	tlsInsecure    bool
	timeout        time.Duration

	workers  int
	duration time.Duration
	warmup   time.Duration
	count    int64
	rate     float64
	seed     uint64

	prefix          string
	streams         int
	eventsPerStream int64
	size            int
	batch           int // 0: single events
	page            int
	checked         bool // expected versions are sent
	toStreams       int
	condition       bool
	prepare         bool
	stream          string // what tail reads
	streamEvents    int64  // what --prepare gives that stream, or a group has
	repeat          bool
	pause           time.Duration // of visible, between two events
	bufferSize      int           // of a group
	readBatchSize   int           // of a group
	maxCheckpoint   int           // of a group: events that force a checkpoint
	defaultSettings bool          // of a group: the server's
	events          int64         // of fill
	maxCount        int64         // of the streams of fill

	grpc        bool
	connections int // for gRPC, 0: one for each worker

	pids     []int
	jsonPath string
	quiet    bool
}

// UsageError is a wrong value of a flag.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

func (o *options) validate() error {
	between := func(what string, n, low, high int64) error {
		if n < low || n > high {
			return fmt.Errorf("--%s %d is not between %d and %d", what, n, low, high)
		}
		return nil
	}
	bases := o.bases
	o.bases = nil
	for _, b := range bases {
		if b = strings.TrimSpace(b); b != "" {
			o.bases = append(o.bases, b)
		}
	}
	if len(o.bases) == 0 {
		return errors.New("--node names no node")
	}
	if o.duration <= 0 || o.duration > 7*24*time.Hour {
		return fmt.Errorf("--duration %s is not between zero and a week", o.duration)
	}
	if o.warmup < 0 || o.warmup > time.Hour {
		return fmt.Errorf("--warmup %s is not between zero and an hour", o.warmup)
	}
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout %s is not positive", o.timeout)
	}
	if !(o.rate >= 0 && o.rate <= 1e9) {
		return fmt.Errorf("--rate %g is not between 0 and a billion", o.rate)
	}
	if o.prefix == "" || len(o.prefix) > 200 || strings.ContainsAny(o.prefix, "/\x00") {
		return fmt.Errorf("--prefix %q is empty, longer than 200 bytes or holds a slash", o.prefix)
	}
	for _, b := range o.bases {
		if _, path, err := parseBase(b); err == nil && o.grpc && path != "" {
			return fmt.Errorf("--node %q: a path is not possible with --grpc", b)
		}
	}
	return errors.Join(
		between("count", o.count, 0, 1<<62),
		between("connections", int64(o.connections), 0, maxWorkers),
		between("workers", int64(o.workers), 1, maxWorkers),
		between("streams", int64(o.streams), 1, maxStreams),
		between("events-per-stream", o.eventsPerStream, 1, 1<<40),
		between("size", int64(o.size), 2, maxEventSize),
		between("batch", int64(o.batch), 0, maxBatch),
		between("to-streams", int64(o.toStreams), 0, maxBatch),
		between("page", int64(o.page), 1, maxPage),
		between("stream-events", o.streamEvents, 0, 1<<40),
		between("events", o.events, 1, 1<<40),
		between("max-count", o.maxCount, 0, 1<<40),
	)
}

// defaultOptions is what the flags begin with.
func defaultOptions() options {
	return options{
		bases:           []string{"http://127.0.0.1:2113"},
		timeout:         30 * time.Second,
		workers:         32,
		duration:        10 * time.Second,
		warmup:          time.Second,
		seed:            1,
		prefix:          "bench",
		streams:         10_000,
		eventsPerStream: 100,
		size:            256,
		batch:           100,
		page:            20,
		events:          10_000_000,
		pause:           50 * time.Millisecond,
	}
}
