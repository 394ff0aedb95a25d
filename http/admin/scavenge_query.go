package admin

import (
	"math"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/problem"
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
			err = problem.Bad(wrong)
		}
	}
	integer := func(name string, absent, least, most int, wrong string) int {
		n, ok := args.Int(raw, name, absent, least, most)
		judge(ok, name+" must be "+wrong)
		return n
	}
	boolean := func(name string) bool {
		value, ok := args.Bool(raw, name)
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
