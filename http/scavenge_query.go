package httpapi

import (
	"math"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/admin/scavenge"
)

const (
	// defaultTop and maxTop are how many streams an estimate names.
	defaultTop = 20
	maxTop     = 1000

	fullThrottle = 100 // percent
)

// scavengeOptions reads the options of a scavenge from the query.
type scavengeOptions struct {
	scavenge.Request
	dryRun bool
	top    int
}

// parseScavenge reads the parameters in the order of the contract. The chunk to
// start from is checked and has no meaning: a run knows what is left to do. Of
// several values of one parameter the first counts; others are not looked at.
func parseScavenge(raw string) (o scavengeOptions, err error) {
	judge := func(ok bool, wrong string) {
		if !ok && err == nil {
			err = badRequest(wrong)
		}
	}
	integer := func(name string, absent, least, most int, wrong string) int {
		n, ok := queryInt(raw, name, absent, least, most)
		judge(ok, name+" must be "+wrong)
		return n
	}
	boolean := func(name string) bool {
		value, ok := queryBool(raw, name)
		judge(ok, name+" must be a boolean")
		return value
	}
	integer("startFromChunk", 0, 0, math.MaxInt32, "a positive integer")
	o.Threads = integer("threads", 1, 1, math.MaxInt32, "a 1 or above")
	o.Threshold = integer("threshold", 0, math.MinInt32, math.MaxInt32, "an integer")
	o.ThrottlePercent = integer("throttlePercent", fullThrottle, 1, fullThrottle, "between 1 and 100 inclusive")
	judge(o.Threads <= 1 || o.ThrottlePercent == fullThrottle, "throttlePercent must be 100 for a multi-threaded scavenge")
	o.SyncOnly, o.dryRun = boolean("syncOnly"), boolean("dryRun")
	o.top = integer("top", defaultTop, 1, maxTop, "between 1 and 1000 inclusive")
	return o, err
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
