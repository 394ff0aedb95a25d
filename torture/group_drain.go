package torture

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

const (
	// groupsDrain is how long groups may take in the end. One that still gets on has
	// some times longer.
	groupsDrain       = 20 * time.Second
	groupsDrainAtMost = 3
	// progressIs is how long a group may take to finish when nothing more can come.
	progressIs = 5 * time.Second
	// tickSlack is added to a timeout before a message must have come back: servers look once a
	// second.
	tickSlack = 1500 * time.Millisecond
)

// drainGroups empties the groups before anything is read back: they write as they hand out.
func (r *round) drainGroups(ctx context.Context) {
	begun := r.line.now()
	if r.subs.drain(ctx) {
		r.line.add(happenedPhase, "consumers have drained all groups after %s", seconds(r.line.now()-begun))
	}
	if !r.c.Can().Processes { // A given cluster is not left with groups of ours.
		r.subs.remove(ctx)
	}
}

// drain reads all groups and acknowledges everything until nothing comes any more for longer than
// any timeout and each group says itself that it has finished.
func (s *subscriptions) drain(ctx context.Context) (finished bool) {
	longest := time.Duration(0)
	for _, g := range s.groups {
		longest = max(longest, g.settings.patience())
		s.insistOnResume(ctx, g)
	}
	left := make([]string, len(s.groups))
	var draining sync.WaitGroup
	for i := range s.groups {
		c := newConsumer(s, len(s.consumers), s.groups[i])
		s.consumers = append(s.consumers, c)
		draining.Go(func() { left[i] = c.drain(ctx, longest+tickSlack, s.drainTime) })
	}
	draining.Wait()
	finished = true
	for i, why := range left {
		if why != "" {
			finished = false
			s.find.add(kindDrain, "%s has not handed out everything %s after all was calm: %s", s.groups[i], s.drainTime, why)
		}
	}
	if !finished {
		// What is still outstanding may be parked yet; then nothing is written any more.
		_ = clock.Sleep(ctx, longest+tickSlack)
	}
	return finished
}

// insistOnResume ends the pause of a group, in which it would hand out nothing.
func (s *subscriptions) insistOnResume(ctx context.Context, g *group) {
	for begun := time.Now(); time.Since(begun) < s.drainTime; {
		switch o, err := s.resume(ctx, g); {
		case err != nil:
			s.find.add(kindAnswer, "%v", err)
			return
		case o == done || clock.Sleep(ctx, 100*time.Millisecond) != nil:
			return
		}
	}
}

// drain empties one group. When the time is over it returns the work that is left.
func (c *consumer) drain(ctx context.Context, idle, limit time.Duration) string {
	begun := time.Now()
	last := begun // delivery
	for why := "nothing was tried"; ; {
		h := c.take(ctx, drainedRead, c.timeout)
		now := time.Now()
		switch {
		case h != nil && len(h.messages) > 0:
			c.send(ctx, actionAck, nil, h.ackAll, ids(h.messages))
			why, last = "messages still come", now
		case h == nil:
			why = "it cannot be read"
		case now.Sub(last) > idle:
			if why = c.unfinished(ctx); why == "" {
				return ""
			}
		}
		if isStuck(now.Sub(begun), now.Sub(last), idle, limit) {
			return why
		}
		if h == nil || len(h.messages) == 0 {
			_ = clock.Sleep(ctx, 50*time.Millisecond)
		}
		if err := ctx.Err(); err != nil {
			return err.Error()
		}
	}
}

// isStuck says whether a group that has been drained for so long, and gave nothing for the time
// silent, is not waited for any more. For the time idle a message may still come.
func isStuck(drained, silent, idle, limit time.Duration) bool {
	return drained > groupsDrainAtMost*limit || drained > limit && silent > idle+progressIs
}

// unfinished asks the group and its stream for the work that is left.
func (c *consumer) unfinished(ctx context.Context) string {
	last := int64(-1)
	// Not resolved: the end of a stream of links is a link.
	req := read(streamHead(c.group.stream, 1), true, 0)
	req.Header[client.HeaderResolveLinks] = "false"
	a, err := c.do(ctx, c.choose(), req)
	switch {
	case err != nil:
		return err.Error()
	case a.Status == http.StatusOK:
		p, err := client.ParsePage(a.Body)
		if err != nil || len(p.Entries) != 1 {
			return fmt.Sprintf("the last event of %s: %s", c.group.stream, a)
		}
		last = p.Entries[0].Number
	case a.Status != http.StatusNotFound:
		return a.String()
	}
	i, err := c.info(ctx)
	if err != nil {
		return err.Error()
	}
	return i.unfinished(&c.group.settings, last)
}
