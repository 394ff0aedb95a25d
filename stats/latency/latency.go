// Package latency keeps the histograms of how long the parts of a node take,
// which an operator reads as percentile tables.
package latency

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Kind is what one histogram measures.
type Kind uint8

// The histograms.
const (
	WriterFlush       Kind = iota // making written data durable
	ChaserWait                    // from an entry's commit until it is begun to be applied
	ChaserFlush                   // making applied data durable
	ReaderReadEvent               // reading one event
	ReaderStreamRange             // reading a page of a stream
	ReaderAllRange                // reading a page of $all
	RequestManager                // a write, from the request until its outcome is known
	TCPSend                       // sending to another node
	HTTPSend                      // answering a client
	Jitter                        // how late a timer fires
	kinds
)

var names = [kinds]string{
	"writer-flush", "chaser-wait", "chaser-flush", "reader-readevent", "reader-streamrange", "reader-allrange",
	"request-manager", "tcp-send", "http-send", "jitter",
}

// String returns the histogram's name, as operators ask for it.
func (k Kind) String() string {
	if k >= kinds {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return names[k]
}

// What the histograms can tell apart: three digits from a tenth of a microsecond
// up to an hour, which is what longer times count as.
const (
	lowest     = 100 * time.Nanosecond
	highest    = time.Hour
	digits     = 3
	subBuckets = 2048 // what the library makes of that many digits
)

// Set holds one histogram of each kind, from the start of the process. It takes
// about 2.2 MB, and a nil *Set records nothing.
type Set struct {
	histograms [kinds]struct {
		mu sync.Mutex // guards of
		of *hdrhistogram.Histogram
	}
}

// NewSet returns empty histograms.
func NewSet() *Set {
	s := new(Set)
	for i := range s.histograms {
		s.histograms[i].of = hdrhistogram.New(int64(lowest), int64(highest), digits)
	}
	return s
}

// Record counts one duration.
func (s *Set) Record(k Kind, d time.Duration) {
	if s == nil {
		return
	}
	h := &s.histograms[k]
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.of.RecordValue(int64(min(max(d, 0), highest))) // It only refuses what is out of range.
}

// ticksPerHalf is how many lines of a table there are for each halving of what is left to 100%.
const ticksPerHalf = 5

// AppendText appends the table of percentiles, in milliseconds, of the histogram
// with that name; there is none of another name, nor in a nil *Set.
func (s *Set) AppendText(dst []byte, name string) ([]byte, bool) {
	if s == nil {
		return dst, false
	}
	for i := range s.histograms {
		if names[i] == name {
			h := &s.histograms[i]
			h.mu.Lock()
			copied := h.of.Clone() // Formatting takes long enough to hold up recording.
			h.mu.Unlock()
			return appendTable(dst, copied), true
		}
	}
	return dst, false
}

// appendTable writes the form that tools for such histograms read.
func appendTable(dst []byte, h *hdrhistogram.Histogram) []byte {
	w := bytes.NewBuffer(dst)
	fmt.Fprintf(w, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")
	for _, b := range h.CumulativeDistributionWithTicks(ticksPerHalf) {
		fmt.Fprintf(w, "%12.3f %2.12f %10d", milliseconds(float64(b.ValueAt)), b.Quantile/100, b.Count)
		if b.Quantile < 100 {
			fmt.Fprintf(w, " %14.2f", 1/(1-b.Quantile/100))
		}
		w.WriteByte('\n')
	}
	fmt.Fprintf(w, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n", milliseconds(h.Mean()), milliseconds(h.StdDev()))
	fmt.Fprintf(w, "#[Max     = %12.3f, Total count    = %12d]\n", milliseconds(float64(h.Max())), h.TotalCount())
	// The halves of all buckets and of the lowest one once more.
	buckets := len(h.Export().Counts)/(subBuckets/2) - 1
	fmt.Fprintf(w, "#[Buckets = %12d, SubBuckets     = %12d]\n", buckets, subBuckets)
	return w.Bytes()
}

// milliseconds is 0 for the mean of nothing.
func milliseconds(nanoseconds float64) float64 {
	if math.IsNaN(nanoseconds) {
		return 0
	}
	return nanoseconds / float64(time.Millisecond)
}

// jitterPace is short enough for a table to fill within minutes, and long enough
// to cost nothing.
const jitterPace = 100 * time.Millisecond

// RunJitter measures how late timers fire, ten times a second until ctx ends: the
// lateness of a node that has too little CPU time, or pauses. It returns at once
// when s is nil.
func (s *Set) RunJitter(ctx context.Context) {
	if s == nil {
		return
	}
	timer := time.NewTimer(jitterPace)
	defer timer.Stop()
	for due := time.Now().Add(jitterPace); ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := time.Now()
		s.Record(Jitter, now.Sub(due))
		due = now.Add(jitterPace)
		timer.Reset(jitterPace)
	}
}
