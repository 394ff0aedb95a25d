package torture

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// Plan is a round against a cluster of the caller's own, which may live in virtual time.
type Plan struct {
	Seed   uint64
	Length time.Duration // of the time in which faults strike
	// Slow is how many times as long the pauses of clients are as usual, and Pauses those between
	// faults; 0: as Slow.
	Slow, Pauses float64
	// Another is how likely one more fault strikes while others are active; 0: as usual.
	Another float64
	// Clients work and faults strike for Busy, then all of them rest for Quiet, and so on. Without
	// Quiet they never rest.
	Busy, Quiet time.Duration
	// Age is how old events of some streams may get; 0: two seconds.
	Age time.Duration

	Timeout time.Duration // of requests
	// Heal is how long the cluster may take to heal when the faults are over.
	Heal   time.Duration
	Faults []string // nil: all that the cluster can have

	// how many clients there are of each kind, as the flags of the command have them
	Writers, Erasers, Shedders, Transfers, Deciders, Indexers, Visitors, Subscribers, Consumers, Guests int
	Scavenges, Projections, Backups, Redactions                                                         bool

	// Scheduled says that nodes also start scavenges by themselves.
	Scheduled bool

	// Rate is how many operations writers do in a second, together.
	Rate float64
	// Dial connects clients to nodes.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Create makes the cluster. It calls ended, on any goroutine, when a node ends that was not
	// asked to.
	Create func(ended func(node, code int, tail string)) (Cluster, error)
	Dir    string // for evidence of violations
	// Progress gets a line every ten minutes; nil: no one wants it.
	Progress io.Writer
}

// planOperations bounds the history of a plan.
const planOperations = 50_000_000

// Run runs the round. An error means that it could not be run; violations are in the summary.
func (p *Plan) Run(ctx context.Context) (*Summary, error) {
	o := &options{
		slow: p.Slow, pauses: p.Pauses, another: p.Another, spells: spells{p.Busy, p.Quiet}, age: p.Age, timeout: p.Timeout, heal: p.Heal, rate: p.Rate, every: 10 * time.Minute, seconds: p.Length.Seconds(), operations: planOperations,
		writers: p.Writers, erasers: p.Erasers, shedders: p.Shedders, transfers: p.Transfers, deciders: p.Deciders, indexers: p.Indexers,
		visitors: p.Visitors, subscribers: p.Subscribers, consumers: p.Consumers, guests: p.Guests,
		scavenges: p.Scavenges, projections: p.Projections, backups: p.Backups, redactions: p.Redactions, scheduled: p.Scheduled, dial: p.Dial, create: p.Create,
	}
	faults, err := chooseFaults(p.Faults)
	if err != nil {
		return nil, err
	}
	if p.Progress == nil {
		p.Progress = io.Discard
	}
	return newRound(o, p.Seed, faults, p.Dir, p.Progress, nil).run(ctx)
}

// Failed says in one text what was violated, nothing when all is in order.
func (s *Summary) Failed() (text string) {
	for _, v := range s.Violations {
		text += fmt.Sprintf("%s, found at %.3fs: %s\n", v.Kind, v.AtSeconds, v.Text)
	}
	return text
}
