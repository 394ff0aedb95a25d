package torture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Kinds of violations. The words are part of the output.
const (
	kindLost        = "lost event"
	kindDuplicate   = "duplicate event"
	kindOrder       = "reordering"
	kindGap         = "gap"
	kindStale       = "stale leader read"
	kindFuture      = "impossible read"
	kindPrefix      = "not a prefix"
	kindDivergence  = "nodes differ"
	kindData        = "wrong data"
	kindTorn        = "write in part"
	kindUnwanted    = "refused and yet there"
	kindUnknown     = "event that no client wrote"
	kindLinear      = "not linearizable"
	kindIdempotence = "retry not idempotent"
	kindAnswer      = "unexpected answer"
	kindIndex       = "stream and log differ"
	kindDied        = "node ended by itself"
	kindStop        = "bad stop"
	kindHeal        = "did not heal"
	kindStuck       = "subscriber stuck"
	kindLeaders     = "two leaders in one term"
	kindRenewed     = "consensus state lost"
	kindMinority    = "done without a majority"
	kindOutcast     = "removed node leads"
	kindVerify      = "verify found damage"
	kindSkipped     = "event never delivered"
	kindForgotten   = "message forgotten"
	kindPhantom     = "message of no event"
	kindMessage     = "wrong message"
	kindTwice       = "message handed out twice"
	kindEarly       = "message handed out early"
	kindPassed      = "message passed another"
	kindPaused      = "message of a paused group"
	kindUnmoved     = "event not given again after a reset"
	kindForwarded   = "message forwarded twice"
	kindRetries     = "retried too often"
	kindAhead       = "checkpoint ahead"
	kindDrain       = "group does not drain"
	kindScavenged   = "limited stream"
	kindDecision    = "wrong decision"
	kindScavenge    = "scavenge failed"
	kindRemains     = "not removed"
	kindRemoved     = "removed too much"
	kindProjected   = "wrong projection"

	kindRedacted        = "redacted data remains"
	kindBackup          = "wrong backup"
	kindFound           = "wrong index"
	kindCondition       = "wrong condition"
	kindSum             = "money appears or vanishes"
	kindUser            = "wrong answer to a user"
	kindCertificate     = "old certificate"
	kindExpired         = "expired certificate"
	kindProjectionStuck = "projection stuck"
)

// violation is one broken promise.
type violation struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
	// AtSeconds is when it was found.
	AtSeconds float64 `json:"atSeconds"`
}

// keptViolations bounds how many are kept of each kind; all are counted.
const keptViolations = 50

// findings collects violations. All its methods may be called from anywhere.
type findings struct {
	start time.Time
	// first is called with the first violation, and no other one is taken. nil takes all.
	first func()

	mu    sync.Mutex
	kept  []violation
	count map[string]int
}

func newFindings(start time.Time) *findings {
	return &findings{start: start, count: map[string]int{}}
}

func (f *findings) add(kind, format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first != nil {
		if len(f.kept) > 0 {
			return
		}
		f.first()
	}
	f.count[kind]++
	if f.count[kind] <= keptViolations {
		f.kept = append(f.kept, violation{kind, fmt.Sprintf(format, args...), time.Since(f.start).Seconds()})
	}
}

// total is the number of violations, kept or not.
func (f *findings) total() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.count {
		n += c
	}
	return n
}

// list returns what is kept in the order of kinds and times, and the counts.
func (f *findings) list() ([]violation, map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(f.kept)
	slices.SortStableFunc(all, func(a, b violation) int { return cmp.Compare(a.Kind, b.Kind) })
	counts := make(map[string]int, len(f.count))
	maps.Copy(counts, f.count)
	return all, counts
}
