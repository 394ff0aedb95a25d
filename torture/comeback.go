package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

// How nodes come back to a cluster that changed while they were away.

// randomly sleeps for a time between two bounds, or until the context ends.
func randomly(ctx context.Context, rng *rand.Rand, shortest, longest time.Duration) {
	_ = clock.Sleep(ctx, shortest+time.Duration(rng.Int64N(int64(longest-shortest))))
}

// strikeStraggler takes a follower away for some time, in which the others may drop entries that it
// lacks, and asks the leader to resign meanwhile. It is cut off or dead. Its links come back one
// after the other, so that it may hear of the old leader first, or at once. Mostly it is killed
// just after something has happened to it: what it had taken by then must be whole.
func strikeStraggler(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
	leader, ok := n.watch.leads(n.c.Targets())
	node := n.follower()
	if !ok || leader.Index >= n.c.Voters() || node == leader.Index {
		return "", nil, errNotNow
	}
	// Raft waits longer for a node each time that it does not answer. A leader that was replaced
	// meanwhile still does next what it was waiting for.
	longest, away := 3*time.Second, "is cut off"
	if n.rng.IntN(4) > 0 {
		longest = 40 * time.Second
	}
	others := n.others(node)
	err := n.shapeAll(between(node, others...), Shape{Cut: true})
	dead := n.rng.IntN(2) == 0
	if dead {
		away = "is dead"
		err = errors.Join(err, n.c.Kill(node))
	}
	what := fmt.Sprintf("%s %s, %s was asked to resign", nodeName(node), away, n.role(leader.Index))
	back := func(ctx context.Context) error { return errors.Join(n.c.HealNetwork(), n.c.Start(ctx, node)) }
	if err != nil {
		return what, back, err
	}
	randomly(ctx, n.rng, 100*time.Millisecond, longest)
	// Without an answer it is as good: it may lead or not.
	_, _ = exchange(ctx, n.watch.http, leader, client.Request{Method: http.MethodPost, Path: "/admin/node/resign"}, 2*time.Second)
	if n.rng.IntN(4) > 0 {
		// How many it needs changes nothing of what comes after.
		ids := rand.New(rand.NewPCG(n.rng.Uint64(), 0))
		n.watch.hurry(ctx, n.c.Targets(), ids, 20+n.rng.IntN(300))
	} else {
		randomly(ctx, n.rng, time.Second, 20*time.Second)
	}
	if n.rng.IntN(4) > 0 {
		// The old leader is who it hears of first.
		others = append([]int{leader.Index}, slices.DeleteFunc(others, func(i int) bool { return i == leader.Index })...)
	} else {
		n.rng.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	}
	lives, how := 0, "one by one"
	if n.rng.IntN(2) == 0 {
		how = "at once"
		// It fetches from all: what it lacks arrives the sooner if all answer.
		err = n.shapeAll(between(node, others...), Shape{})
	}
	for _, i := range others {
		if err = errors.Join(err, n.shapeAll(between(node, i), Shape{})); err != nil || ctx.Err() != nil {
			break
		}
		for left := n.rng.IntN(20); left > 0 && err == nil && ctx.Err() == nil; left-- {
			lives++
			// No step is given up half way.
			if err = n.c.Start(context.WithoutCancel(ctx), node); err == nil {
				// Most lives are too short to ask for votes, and so to hear of another term.
				life := 200*time.Millisecond + time.Duration(n.rng.Int64N(int64(time.Second)))
				awaitHappening(ctx, n.c, n.rng, node, n.rng.IntN(12), life)
				err = n.c.Kill(node)
			}
		}
		if err == nil {
			err = n.c.Start(context.WithoutCancel(ctx), node)
		}
		if err != nil {
			break
		}
		randomly(ctx, n.rng, 100*time.Millisecond, 2*time.Second)
	}
	what += fmt.Sprintf("; its links come back %s, it is killed %d times", how, lives)
	return what, back, err
}

// hurry appends so many events, one by one, to a stream that no one reads, so that Raft logs are
// cut. It ends early when that takes long.
func (w *watch) hurry(ctx context.Context, nodes []Target, rng *rand.Rand, events int) {
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	for events > 0 {
		if leader, ok := w.leads(nodes); ok {
			a, err := exchange(ctx, w.http, leader, client.Request{
				Method: http.MethodPost, Path: "/streams/hurry", Body: []byte("{}"),
				Header: map[string]string{"Content-Type": client.MediaJSON, "ES-EventType": "hurry", "ES-EventId": newID(rng)},
			}, 2*time.Second)
			if err == nil && a.Err() == nil {
				events--
				continue
			}
		}
		if clock.Sleep(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
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
