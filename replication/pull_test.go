package replication

import (
	"errors"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// A node that finds no cluster to join says what is to be done.
func TestPullerSaysWhyItIsAlone(t *testing.T) {
	for _, c := range []struct {
		name   string
		end    int64
		others []Status
		why    error
		says   string
	}{
		{name: "restored, and no member answers", end: 100, says: "annals cluster recover on the node with the newest copy"},
		{name: "more than the cluster has", end: 100, others: []Status{said(2, 0, event.StateLeader, 3)}, why: &beyondError{"b:1", 90}, says: "the node at b:1 ends at 90"},
		{name: "new", why: errors.New("no leader is known"), says: "waiting to join cluster 07000000-0000-0000-0000-000000000000: no leader is known"},
		{name: "new, and no node is a member", says: errNoSource.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			own := selfOf(1)
			p := newPuller(&incarnations{self: own, peers: heardOf(own, c.others...)}, nil)
			check.Contains(t, p.alone(c.end, c.why).Error(), c.says)
		})
	}
}

// Who waits for data hears that none will ever come.
func TestPullerThatGaveUp(t *testing.T) {
	own := selfOf(1)
	p := newPuller(&incarnations{self: own, peers: peersOf(own)}, nil)
	gone := errors.New("gone")
	p.err.set(gone)
	if progress, err := p.attempt(t.Context()); progress || err != nil {
		t.Errorf("without a log: %t, %v", progress, err)
	}
	done := make(chan error, 1)
	go func() { done <- p.until(t.Context(), 10) }()
	<-p.wake
	check.NoError(t, check.Err(p.attempt(t.Context())))
	check.Is(t, <-done, gone)
}
