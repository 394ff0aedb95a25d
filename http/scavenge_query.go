package httpapi

import (
	"math"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/admin/scavenge"
)

var (
	errStartFromChunk   = badRequest("startFromChunk must be a positive integer")
	errThreads          = badRequest("threads must be a 1 or above")
	errThreshold        = badRequest("threshold must be an integer")
	errThrottle         = badRequest("throttlePercent must be between 1 and 100 inclusive")
	errThrottledThreads = badRequest("throttlePercent must be 100 for a multi-threaded scavenge")
	errSyncOnly         = badRequest("syncOnly must be a boolean")
	errDryRun           = badRequest("dryRun must be a boolean")
	errTop              = badRequest("top must be between 1 and 1000 inclusive")
)

const (
	// defaultTop and maxTop are how many streams an estimate names.
	defaultTop = 20
	maxTop     = 1000

	fullThrottle = 100 // percent
)

// scavengeOptions are what a scavenge is asked for with.
type scavengeOptions struct {
	scavenge.Request
	dryRun bool
	top    int
}

// EstimateOptions are those of a dry run.
func (o *scavengeOptions) EstimateOptions() scavenge.EstimateOptions {
	return scavenge.EstimateOptions{Threshold: o.Threshold, Top: o.top}
}

// parseScavenge reads the parameters in the order of the contract. The chunk to
// start from is checked and has no meaning: a run knows what is left to do. Of
// several values of one parameter the first counts; others are not looked at.
func parseScavenge(raw string) (o scavengeOptions, err error) {
	var ok bool
	if _, ok = queryInt(raw, "startFromChunk", 0, 0, math.MaxInt32); !ok {
		return o, errStartFromChunk
	}
	if o.Threads, ok = queryInt(raw, "threads", 1, 1, math.MaxInt32); !ok {
		return o, errThreads
	}
	if o.Threshold, ok = queryInt(raw, "threshold", 0, math.MinInt32, math.MaxInt32); !ok {
		return o, errThreshold
	}
	if o.ThrottlePercent, ok = queryInt(raw, "throttlePercent", fullThrottle, 1, fullThrottle); !ok {
		return o, errThrottle
	}
	if o.Threads > 1 && o.ThrottlePercent != fullThrottle {
		return o, errThrottledThreads
	}
	if o.SyncOnly, ok = queryBool(raw, "syncOnly"); !ok {
		return o, errSyncOnly
	}
	if o.dryRun, ok = queryBool(raw, "dryRun"); !ok {
		return o, errDryRun
	}
	if o.top, ok = queryInt(raw, "top", defaultTop, 1, maxTop); !ok {
		return o, errTop
	}
	return o, nil
}

// queryInt reads an integer of a query; it is not ok when it is there and none,
// or out of bounds.
func queryInt(raw, name string, absent, least, most int) (n int, ok bool) {
	text, ok := queryLookup(raw, name)
	if !ok {
		return absent, true
	}
	v, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err != nil || int(v) < least || int(v) > most {
		return 0, false
	}
	return int(v), true
}

// queryBool reads a boolean of a query, false when it is not there; it is not ok
// when it is there and none.
func queryBool(raw, name string) (value, ok bool) {
	text, ok := queryLookup(raw, name)
	if !ok {
		return false, true
	}
	return parseFlag(strings.TrimSpace(text))
}
