package torture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/annalsdb/annals/internal/clock"
)

const (
	stormShortest = 3 * time.Second
	stormLongest  = 40 * time.Second
	// The mean pause between two steps of a storm: from much less than an election takes to more.
	stormQuickest = 50 * time.Millisecond
	stormSlowest  = 3 * time.Second
)

// observed is a cluster that tells when something happens to a node, such as an election: that is
// when the next thing must not happen.
type observed interface {
	// Happens waits until it does, at most so long, and returns the node, -1 if there is none.
	Happens(ctx context.Context, limit time.Duration) (node int, err error)
}

// gusts are the kinds of steps of a storm. Each takes a node, or gives back what it took.
var gusts = [...]struct {
	name string
	can  func(Abilities) bool
	step func(ctx context.Context, n *nemesis, node int) error
}{
	{"links", func(can Abilities) bool { return can.Network }, gustOfLinks},
	{"processes", func(can Abilities) bool { return can.Processes }, gustOfProcesses},
	{"disks", func(can Abilities) bool { return can.Disk }, gustOfDisks},
}

// strikeStorm changes some of the links, processes and disks of a cluster again and again, before
// it has answered to the change before. So what takes several coincidences is met: an election
// while another has just ended, a node that starts between two leaders, a leader that is replaced
// while its disk is full.
func strikeStorm(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
	// In most storms one kind of steps is much more frequent than others.
	var shares [len(gusts)]float64
	var names []string
	sum, disks := 0.0, false
	for i, g := range gusts {
		if g.can(n.c.Can()) && n.rng.IntN(5) > 0 {
			shares[i] = math.Pow(n.rng.Float64(), 3)
			sum, names, disks = sum+shares[i], append(names, g.name), disks || g.name == "disks"
		}
	}
	if len(names) == 0 {
		return "", nil, errNotNow
	}
	mean := float64(stormQuickest) * math.Exp(n.rng.Float64()*math.Log(float64(stormSlowest/stormQuickest)))
	ends := n.line.now() + int64(stormShortest) + n.rng.Int64N(int64(stormLongest-stormShortest))
	if disks {
		n.excused.Add(1)
	}
	steps := 0
	var err error
	for err == nil && n.line.now() < ends && ctx.Err() == nil {
		node := -1
		pause := time.Duration(mean * n.rng.ExpFloat64())
		if o, ok := n.c.(observed); ok && n.rng.IntN(2) == 0 {
			if node, err = o.Happens(ctx, pause); err != nil {
				break
			}
			pause = time.Duration(n.rng.Int64N(int64(stormQuickest) / 10))
		}
		if clock.Sleep(ctx, pause) != nil {
			break
		}
		if node < 0 || n.rng.IntN(2) == 0 {
			node = n.anyVoter()
		}
		steps++
		// No step is given up half way.
		kind, dice := 0, n.rng.Float64()*sum
		for dice -= shares[0]; dice >= 0 && kind < len(gusts)-1; dice -= shares[kind] {
			kind++
		}
		err = gusts[kind].step(context.WithoutCancel(ctx), n, node)
	}
	what := fmt.Sprintf("%d changes of %s, one every %s", steps, strings.Join(names, ", "), time.Duration(mean).Round(time.Millisecond))
	return what, func(ctx context.Context) error {
		if disks {
			defer n.excused.Add(-1)
		}
		err := n.c.HealNetwork()
		for i := range n.c.Voters() {
			if n.c.Can().Disk {
				err = errors.Join(err, n.c.FreeDisk(i))
			}
			err = errors.Join(err, n.c.Start(ctx, i))
		}
		return err
	}, err
}

// gustOfLinks cuts all or some of a node's links, in one direction or both, or makes all whole.
func gustOfLinks(_ context.Context, n *nemesis, node int) error {
	if n.rng.IntN(3) == 0 {
		return n.c.HealNetwork()
	}
	var links []cut
	all := n.rng.IntN(2) == 0
	for _, other := range n.others(node) {
		if all || n.rng.IntN(2) == 0 {
			links = append(links, between(node, other)...)
		}
	}
	if n.rng.IntN(4) == 0 && len(links) > 0 {
		links = links[:1]
	}
	return n.shapeAll(links, Shape{Cut: true})
}

// gustOfProcesses starts a node, or kills it and mostly starts it at once.
func gustOfProcesses(ctx context.Context, n *nemesis, node int) error {
	if !n.c.Running(node) {
		return n.c.Start(ctx, node)
	}
	if err := n.c.Kill(node); err != nil || n.rng.IntN(3) == 0 {
		return err
	}
	return n.c.Start(ctx, node)
}

// gustOfDisks fills the disk of a node or frees it.
func gustOfDisks(_ context.Context, n *nemesis, node int) error {
	if n.rng.IntN(2) == 0 {
		return n.c.FreeDisk(node)
	}
	return n.c.FillDisk(node, leftOnDisk[n.rng.IntN(len(leftOnDisk))])
}
