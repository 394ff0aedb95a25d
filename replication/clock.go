package replication

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/clock"
)

// clockLooks is how many looks in a row must find the same before it counts.
const clockLooks = 3

// Clock judges this node's clock. Readers of data go by the clock of their node, and what a leader
// writes bears its time.
type Clock struct {
	now       func() time.Time // what it says
	tolerance time.Duration    // 0 or less: any clock is right
	alone     bool             // this is the only node of its cluster
	// the clocks of the other members that answered lately
	members func() []looked
	newest  func() (int64, bool) // time of the log's newest event; false without a log
	logger  hclog.Logger

	wrong  reason       // why it is the one that is wrong; nil: it is not
	offset atomic.Int64 // how far it is ahead of the median; negative: it is behind; nanoseconds
	// how far it is behind the newest event of the log; negative: it is ahead; nanoseconds
	behind atomic.Int64
	// agreed is when most members' clocks were found to agree with this one last; its monotonic
	// reading says how long ago that was. It is nil until they did.
	agreed atomic.Pointer[agreed]
	known  chan struct{} // closed when agreed is there

	// What follows belongs to the goroutine that looks.
	state clockState
	next  clockState // what the last looks found, if it is not state
	seen  int        // so often in a row
}

// looked is another node's clock.
type looked struct {
	ahead time.Duration // of this node's
	own   agreed        // this node's, when the other was asked
}

// agreed is a reading of this node's clock, with the monotonic time of the reading.
type agreed struct{ clock, at time.Time }

type clockState int8

const (
	clockRight   clockState = iota
	clockOdd                // most members' clocks agree, and this node's is another
	clockDiffers            // there are others, and no majority of clocks that agree
	clockBehind             // of a lone node: its clock is behind the log's newest event
	// the log's newest event is later than this clock and those of most members
	logAhead
)

// agreement is how far most clocks, this node's among them, are ahead of this node's. odd: this
// node's is not among those that agree within the tolerance, which are more than half. split: no
// such majority is there. ahead are the others' clocks less this node's.
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

// judge compares this node's clock with those of the members that answered of
// late, and with the log. A clock that is wrong is said once, and once when it is right again.
func (k *Clock) judge() {
	var ahead []time.Duration
	// What this node's clock said when it was compared first: it may have been set since.
	var found agreed
	for _, m := range k.members() {
		ahead = append(ahead, m.ahead)
		if found.at.IsZero() || m.own.at.Before(found.at) {
			found = m.own
		}
	}
	behind := time.Duration(0)
	if newest, ok := k.newest(); ok {
		behind = time.Duration(newest - k.now().UnixNano())
	}
	k.behind.Store(int64(behind))
	middle := append([]time.Duration{0}, ahead...)
	slices.Sort(middle)
	k.offset.Store(-int64(middle[len(middle)/2]))
	tolerance := k.tolerance
	if tolerance <= 0 {
		return
	}
	if k.state != clockRight {
		tolerance -= tolerance / 4 // Right again is what is so by more than a little.
	}
	state, most := judgeClocks(ahead, behind, tolerance, k.alone)
	if len(ahead) > 0 && (state == clockRight || state == logAhead) {
		if k.agreed.Swap(&found) == nil {
			close(k.known)
		}
	}
	if state == k.state {
		k.seen = 0
		return
	}
	if k.seen == 0 || state != k.next {
		k.next, k.seen = state, 0
	}
	if k.seen++; k.seen < clockLooks {
		return
	}
	k.state, k.seen = state, 0
	k.say(state, -most, behind, len(ahead)+1)
}

// say logs and publishes the state of this node's clock.
func (k *Clock) say(state clockState, ahead, behind time.Duration, members int) {
	var wrong error
	switch state {
	case clockRight:
		k.logger.Info("this node's clock is right again: it agrees with those of most members and with the log")
	case clockOdd:
		where := "ahead of"
		if ahead < 0 {
			where = "behind"
		}
		wrong = fmt.Errorf("this node's clock is %v %s the clocks of most of the %d members that answer: set the clock", ahead.Abs().Round(time.Second), where, members)
	case clockBehind:
		wrong = fmt.Errorf("this node's clock is behind the newest event of its log by %v: set the clock. If it is right now, it was wrong when that event was written: "+
			"start with ClockToleranceSec 0 to accept that. New events then have the time of the newest event until the clock has reached it", behind.Round(time.Second))
	case clockDiffers:
		k.logger.Error("the clocks of the members differ, and no majority of them agrees: set the clocks", "members", members, "tolerance", k.tolerance)
	case logAhead:
		k.logger.Error("the newest event of the log is later than the clocks of most members: a clock was wrong when it was written. New events have its time until the clocks have reached it", "by", behind.Round(time.Second))
	}
	if k.wrong.set(wrong); wrong == nil {
		return
	}
	k.logger.Error(wrong.Error())
}

// watch looks at the clock of a node that has no others to ask.
func (k *Clock) watch(ctx context.Context) {
	for {
		k.judge()
		if clock.Sleep(ctx, peerPace) != nil {
			return
		}
	}
}

// Wrong returns why this node's clock is the one that is wrong, nil when it is not known to be.
func (k *Clock) Wrong() error { return k.wrong.get() }

// comparable reports whether this node's clock is compared with others'.
func (k *Clock) comparable() bool { return !k.alone && k.tolerance > 0 }

// Now is the time by which ages are judged, and never later than it is: what a scavenge
// removes by its word is gone. On a node on its own it is its clock. In a cluster that counts
// as far as most members agree with it: one that was set forward since counts as if it had not
// been, and until they agree for the first time nothing is of any age.
func (k *Clock) Now() time.Time {
	now := k.now()
	if !k.comparable() {
		return now
	}
	a := k.agreed.Load()
	if a == nil {
		return time.Unix(0, 0)
	}
	if steady := a.clock.Add(time.Since(a.at)); now.Sub(steady) > k.tolerance {
		return steady
	}
	return now
}

// clockWait bounds how long one waits for others to agree: they are asked every second.
const clockWait = 5 * time.Second

// Await returns when this node's clock was compared with others' since its start,
// or when that takes too long. Now tells what is known then.
func (k *Clock) Await(ctx context.Context) error {
	if !k.comparable() {
		return ctx.Err()
	}
	waiting, cancel := context.WithTimeout(ctx, clockWait)
	defer cancel()
	select {
	case <-k.known:
	case <-waiting.Done():
	}
	return ctx.Err()
}

// clockOffset is how far another node's clock is ahead, given its answer and when it was asked. The
// answer may have been made at any moment in between: what that may explain does not count.
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
