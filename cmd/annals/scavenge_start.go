package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/annalsdb/annals/client"
)

// alreadyScavenging is the answer of a node to the start of a second run.
const alreadyScavenging = "Scavenge is already running"

// scavengeStart is annals scavenge start.
type scavengeStart struct {
	*scavengeFlags
	stdout, stderr io.Writer

	threads, throttle     int
	threshold             int32
	syncOnly, all, detach bool
	query                 url.Values // what of these was given
}

// check finds mistakes that a node would refuse, before the first of several is asked.
func (s *scavengeStart) check() error {
	switch {
	case s.threads < 1:
		return cannot(errors.New("--threads must be 1 or above"))
	case s.throttle < 1 || s.throttle > 100:
		return cannot(errors.New("--throttle must be between 1 and 100"))
	case s.throttle != 100 && s.threads > 1:
		return cannot(errors.New("--throttle must be 100 with more than one thread"))
	case s.all && s.detach:
		return cannot(errors.New("--all and --detach exclude each other: the next node begins when the one before has ended"))
	}
	return s.checkFollowing()
}

func (s *scavengeStart) run(ctx context.Context, c *scavengeClient) error {
	if s.all {
		return s.runAll(ctx, c)
	}
	return s.runOn(ctx, c)
}

// runOn scavenges one node.
func (s *scavengeStart) runOn(ctx context.Context, c *scavengeClient) error {
	id, err := c.start(ctx, s.query)
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == http.StatusBadRequest && strings.Contains(refused.Text, alreadyScavenging) {
		return fmt.Errorf("a scavenge is running on %s: follow it with annals scavenge status --watch%s", c.host, c.nodeFlag())
	}
	if err != nil {
		return c.uncertain(ctx, err, "whether one was started")
	}
	if s.detach {
		return namedScavenge{Node: c.host, ID: id}.print(s.stdout, s.json)
	}
	follower := c.follower(s.stderr)
	follower.say("scavenge %s started on %s", visible(id), c.host)
	return follower.toEnd(ctx, s.stdout, id)
}

// runAll scavenges the nodes of a cluster, one after the other. It asks
// for the leader before each: leadership may have moved in the hours that a node takes.
func (s *scavengeStart) runAll(ctx context.Context, c *scavengeClient) error {
	view, err := c.nodes(ctx)
	if err != nil {
		return c.uncertain(ctx, err, "")
	}
	// Rather than scavenge half of a cluster, nothing is begun.
	if err := c.allAnswer(ctx, view, s.stderr); err != nil {
		return fmt.Errorf("%w; nothing was started", err)
	}
	done := map[string]bool{}
	for {
		next, left := nextNode(view, done)
		if next == nil {
			return nil
		}
		done[next.Address()] = true
		one, err := c.member(next)
		if err != nil {
			return err
		}
		err = s.runOn(ctx, &scavengeClient{one, s.scavengeFlags})
		one.Close()
		if err != nil {
			return s.unfinished(err, left-1)
		}
		// If the node does not answer now, its earlier view is good enough.
		if newer, err := c.nodes(ctx); err == nil {
			view = newer
		}
	}
}

// unfinished adds to the error of one node how many were not begun.
func (s *scavengeStart) unfinished(err error, left int) error {
	if left > 0 {
		complain(s.stderr, errors.New("not scavenged: "+counted(left, "more node")))
	}
	return err
}
