package simulation

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/annalsdb/annals/torture"
)

// Options say what to simulate.
type Options struct {
	Seed   uint64
	Nodes  int           // 0: as the seed says
	Length time.Duration // of the time in which faults strike
	Faults []string      // kinds of them; nil: as the seed says
	// Progress gets a line every ten virtual minutes; nil: no one wants it.
	Progress io.Writer
}

// Result is what came of one seed.
type Result struct {
	Plan    string
	Summary *torture.Summary
	Virtual time.Duration // how long the cluster lived
	Took    time.Duration
	Crashes int64 // power cuts
	// Failed says what was violated, with the last events of all hosts; empty when all is in order.
	Failed string
}

// String is the result for people.
func (r Result) String() string {
	text := r.Failed
	if text == "" {
		text = r.Summary.Text()
	}
	return fmt.Sprintf("%s%s: lived %s within %s, %d power cuts", text, r.Plan, r.Virtual.Round(time.Second), r.Took.Round(time.Second), r.Crashes)
}

// lastCalls is how long what nodes have asked for at last may take after their end.
const lastCalls = 2 * time.Minute

// Run simulates one cluster. An error means that it could not be run.
func Run(o Options) (r Result, err error) {
	began := time.Now()
	ended, ever := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- inBubble(func() {
			var lost bool
			if r, lost, err = live(newPlan(o)); lost {
				// This is not a channel of the bubble: its time stands still.
				ended <- nil
				<-ever
			}
			<-time.After(lastCalls)
		})
	}()
	if inside := <-ended; inside != nil {
		return r, inside
	}
	r.Took = time.Since(began)
	return r, err
}

// live lets a cluster live, in a bubble. It reports whether goroutines are left that never end.
func live(p *plan) (Result, bool, error) {
	c, err := newCluster(p)
	if err != nil {
		return Result{}, false, err
	}
	p.Dial = c.dial
	p.Create = func(ended func(node, code int, tail string)) (torture.Cluster, error) {
		c.ended = ended
		return c, nil
	}
	s, err := p.Run(context.Background())
	r := Result{Plan: p.String(), Summary: s, Virtual: time.Since(c.trace.start), Crashes: c.crashes.Load()}
	if err != nil {
		return r, c.lost(), fmt.Errorf("%s: %w\n%s", p, err, c.trace)
	}
	failed := s.Failed() + c.won.failed()
	if gap := time.Duration(s.LongestGap * float64(time.Second)); gap > p.liveness() {
		failed += fmt.Sprintf("no write succeeded for %s, %s are allowed\n", gap, p.liveness())
	}
	if failed != "" {
		r.Failed = strings.Join([]string{failed, s.Text(), c.trace.String(), failed}, "\n")
	}
	return r, c.lost(), nil
}
