package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

// How nodes come back to a cluster that changed while they were away.

// randomly sleeps for a time between two bounds, or until the context ends.
func randomly(ctx context.Context, rng *rand.Rand, shortest, longest time.Duration) {
	_ = clock.Sleep(ctx, shortest+time.Duration(rng.Int64N(int64(longest-shortest))))
}

// strikeStraggler cuts a follower off for some time, in which the others may drop entries that it
// lacks, and asks the leader to resign meanwhile. Its links come back one after the other, so that
// it may hear of the old leader first. Mostly it is killed just after something has happened to it,
// and starts again while the other links are still cut: what it had taken by then must be whole.
func strikeStraggler(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
	leader, ok := n.watch.leads(n.c.Targets())
	node := n.follower()
	if !ok || leader.Index >= n.c.Voters() || node == leader.Index {
		return "", nil, errNotNow
	}
	what := fmt.Sprintf("%s is cut off, %s was asked to resign", nodeName(node), n.role(leader.Index))
	others := n.others(node)
	if err := n.shapeAll(between(node, others...), Shape{Cut: true}); err != nil {
		return what, healLinks(n.c), err
	}
	randomly(ctx, n.rng, 100*time.Millisecond, 3*time.Second)
	// Without an answer it is as good: it may lead or not.
	_, _ = exchange(ctx, n.watch.http, leader, client.Request{Method: http.MethodPost, Path: "/admin/node/resign"}, 2*time.Second)
	randomly(ctx, n.rng, time.Second, 20*time.Second)
	kills := 0
	var err error
	for _, i := range n.rng.Perm(len(others)) {
		if err = n.shapeAll(between(node, others[i]), Shape{}); err != nil || ctx.Err() != nil {
			break
		}
		if n.rng.IntN(4) > 0 {
			awaitHappening(ctx, n.c, n.rng, node, n.rng.IntN(4), 2*time.Second)
			kills++
			// No step is given up half way.
			if err = errors.Join(n.c.Kill(node), n.c.Start(context.WithoutCancel(ctx), node)); err != nil {
				break
			}
		}
		randomly(ctx, n.rng, 100*time.Millisecond, 2*time.Second)
	}
	what += fmt.Sprintf("; its links come back one by one, it is killed %d times", kills)
	return what, func(ctx context.Context) error {
		return errors.Join(n.c.HealNetwork(), n.c.Start(ctx, node))
	}, err
}

// awaitHappening waits until something has happened to a node, and so many things more, and a
// moment longer. A cluster that does not tell is left alone for some part of the limit.
func awaitHappening(ctx context.Context, c Cluster, rng *rand.Rand, node, more int, limit time.Duration) {
	o, tells := c.(observed)
	if !tells {
		randomly(ctx, rng, 0, limit)
		return
	}
	until := time.Now().Add(limit)
	for left := limit; left > 0; left = time.Until(until) {
		happened, err := o.Happens(ctx, left)
		if err != nil {
			return
		}
		if happened != node {
			continue
		}
		if more--; more < 0 {
			break
		}
	}
	randomly(ctx, rng, 0, stormQuickest/5)
}

// strikeFullAlone cuts the leader off while clients reach it still. Its disk fills, and it comes
// back to those who have replaced it before there is space.
func strikeFullAlone(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
	leader, ok := n.watch.leads(n.c.Targets())
	if !ok || leader.Index >= n.c.Voters() {
		return "", nil, errNotNow
	}
	node := leader.Index
	left := leftOnDisk[n.rng.IntN(len(leftOnDisk))]
	what := fmt.Sprintf("%s is cut off, its disk is full up to %d bytes, it comes back", n.role(node), left)
	n.excused.Add(1)
	err := n.shapeAll(between(node, n.others(node)...), Shape{Cut: true})
	randomly(ctx, n.rng, 0, time.Second)
	err = errors.Join(err, n.c.FillDisk(node, left))
	randomly(ctx, n.rng, 2*time.Second, 9*time.Second)
	return what, func(ctx context.Context) error {
		defer n.excused.Add(-1)
		return errors.Join(n.c.FreeDisk(node), n.c.Start(ctx, node))
	}, errors.Join(err, n.c.HealNetwork())
}
