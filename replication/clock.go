package replication

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// clockLooks is how many looks in a row must find the same before it counts.
const clockLooks = 3

// clocks is what is known of this node's clock. Readers of data go by the clock of
// their node, and what a leader writes bears its time.
type clocks struct {
	wrong  atomic.Pointer[error] // why it is the one that is wrong; nil: it is not
	offset atomic.Int64          // how far it is ahead of the middle one, below 0: behind; nanoseconds
	behind atomic.Int64          // how far it is behind the newest event of the log, below 0: it is not; nanoseconds
	// agreed is when most members' clocks were found to agree with this one last; its monotonic
	// reading says how long ago that was. It is nil until they did.
	agreed atomic.Pointer[agreed]
	known  chan struct{} // closed when agreed is there

	// What follows belongs to the goroutine that looks.
	now  clockState
	next clockState // what the last looks found, if it is not now
	seen int        // so often in a row
}

// agreed is what this node's clock said, and when by a clock that nobody sets.
type agreed struct{ clock, at time.Time }

type clockState int8

const (
	clockRight   clockState = iota
	clockOdd                // most members' clocks agree, and this node's is another
	clockDiffers            // there are others, and no majority of clocks that agree
	clockBehind             // of a lone node: behind the log's newest event
	logAhead                // the log's newest event is later than this clock and those of most members
)

// agreement is how far most clocks, this node's among them, are ahead of this node's. odd: this
// node's is not among those that agree within the tolerance, which are more than half. split: no such majority is there.
// ahead are the others' clocks less this node's.
func agreement(ahead []time.Duration, tolerance time.Duration) (most time.Duration, odd, split bool) {
	all := append([]time.Duration{0}, ahead...)
	slices.Sort(all)
	split = true
	for i, first := range all {
		n := 0
		for i+n < len(all) && all[i+n]-first <= tolerance {
			n++
		}
		if 2*n <= len(all) {
			continue
		}
		if first <= 0 && all[i+n-1] >= 0 {
			return all[i+n/2], false, false
		}
		most, odd, split = all[i+n/2], true, false
	}
	return most, odd, split
}

// judgeClocks says how this node's clock is to be seen. alone: it is the only node of its cluster.
func judgeClocks(ahead []time.Duration, behind, tolerance time.Duration, alone bool) (state clockState, most time.Duration) {
	most, odd, split := agreement(ahead, tolerance)
	switch {
	case alone && behind > tolerance:
		return clockBehind, 0
	case len(ahead) == 0:
		return clockRight, 0
	case odd:
		return clockOdd, most
	case split:
		return clockDiffers, 0
	case behind > tolerance:
		return logAhead, 0
	}
	return clockRight, 0
}

// judgeClock compares this node's clock with those of the members that answered of
// late, and with the log. A clock that is wrong is said once, and once when it is right again.
func (c *Cluster) judgeClock() {
	k := &c.clocks
	var ahead []time.Duration
	// What this node's clock said when it was compared first: it may have been set since.
	var found agreed
	members := c.self.members()
	for _, m := range c.peers.others() {
		if p, ok := c.peers.get(m.Node); ok && p.status.Clock != 0 && members[m.Node.String()] && time.Since(p.at) < 2*peerTimeout {
			ahead = append(ahead, p.ahead)
			if found.at.IsZero() || p.clock.at.Before(found.at) {
				found = p.clock
			}
		}
	}
	behind := time.Duration(0)
	if m := c.self.materials.Load(); m != nil {
		behind = time.Duration(m.Log.Tail().Time - c.self.opts.Now().UnixNano())
	}
	k.behind.Store(int64(behind))
	middle := append([]time.Duration{0}, ahead...)
	slices.Sort(middle)
	k.offset.Store(-int64(middle[len(middle)/2]))
	tolerance := c.self.opts.ClockTolerance
	if tolerance <= 0 {
		return
	}
	if k.now != clockRight {
		tolerance -= tolerance / 4 // Right again is what is so by more than a little.
	}
	state, most := judgeClocks(ahead, behind, tolerance, c.self.opts.Size == 1)
	if len(ahead) > 0 && (state == clockRight || state == logAhead) {
		if k.agreed.Swap(&found) == nil {
			close(k.known)
		}
	}
	if state == k.now {
		k.seen = 0
		return
	}
	if k.seen == 0 || state != k.next {
		k.next, k.seen = state, 0
	}
	if k.seen++; k.seen < clockLooks {
		return
	}
	k.now, k.seen = state, 0
	c.sayClock(state, -most, behind, len(ahead)+1)
}

// sayClock makes what was found of this node's clock known.
func (c *Cluster) sayClock(state clockState, ahead, behind time.Duration, members int) {
	var wrong error
	switch state {
	case clockRight:
		c.self.logger.Info("this node's clock is right again: it agrees with those of most members and with the log")
	case clockOdd:
		where := "ahead of"
		if ahead < 0 {
			where = "behind"
		}
		wrong = fmt.Errorf("this node's clock is %v %s those of most of the %d members that answer: set it right", ahead.Abs().Round(time.Second), where, members)
	case clockBehind:
		wrong = fmt.Errorf("this node's clock is %v behind the newest event of its log: set it right; if it is right, it was wrong when that event was written, "+
			"and ClockToleranceSec 0 has that accepted: events bear the time of the newest until the clock has reached it", behind.Round(time.Second))
	case clockDiffers:
		c.self.logger.Error("the clocks of the members differ, and there is no majority that agrees: set them right", "members", members, "tolerance", c.self.opts.ClockTolerance)
	case logAhead:
		c.self.logger.Error("the newest event of the log is later than the clocks of most members: a clock was wrong when it was written. Events bear its time until the clocks have reached it", "by", behind.Round(time.Second))
	}
	if wrong == nil {
		c.clocks.wrong.Store(nil)
		return
	}
	c.clocks.wrong.Store(&wrong)
	c.self.logger.Error(wrong.Error())
}

// watchClock looks at the clock of a node that has no others to ask.
func (c *Cluster) watchClock(ctx context.Context) {
	for {
		c.judgeClock()
		if waitSome(ctx, peerPace, nil) != nil {
			return
		}
	}
}

// ClockWrong returns why this node's clock is the one that is wrong, nil when it is not known to be.
func (c *Cluster) ClockWrong() error {
	if wrong := c.clocks.wrong.Load(); wrong != nil {
		return *wrong
	}
	return nil
}

// comparable reports whether this node's clock is compared with others'.
func (c *Cluster) comparable() bool { return c.self.opts.Size > 1 && c.self.opts.ClockTolerance > 0 }

// Now is the time by which ages are judged, and never later than it is: what a scavenge
// removes by its word is gone. On a node on its own it is its clock. In a cluster that counts
// as far as most members agree with it: one that was set forward since counts as if it had not
// been, and until they agree for the first time nothing is of any age.
func (c *Cluster) Now() time.Time {
	now := c.self.opts.Now()
	if !c.comparable() {
		return now
	}
	a := c.clocks.agreed.Load()
	if a == nil {
		return time.Unix(0, 0)
	}
	if steady := a.clock.Add(time.Since(a.at)); now.Sub(steady) > c.self.opts.ClockTolerance {
		return steady
	}
	return now
}

// clockWait bounds how long one waits for others to agree: they are asked every second.
const clockWait = 5 * time.Second

// AwaitClock returns when this node's clock was compared with others' since its start,
// or when that takes too long. Now tells what is known then.
func (c *Cluster) AwaitClock(ctx context.Context) error {
	if !c.comparable() {
		return ctx.Err()
	}
	return waitSome(ctx, clockWait, c.clocks.known)
}

// clockOffset is how far another node's clock is ahead, given its answer and when it was
// asked. The answer may have been made at any moment in between: what that may explain does not count.
func clockOffset(theirs int64, asked time.Time, took time.Duration) time.Duration {
	between := time.Duration(theirs - asked.Add(took/2).UnixNano())
	switch slack := took / 2; {
	case between > slack:
		return between - slack
	case between < -slack:
		return between + slack
	}
	return 0
}
