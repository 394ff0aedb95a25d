package torture

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

// growth is a voter that the operator adds beyond the size of the cluster, and removes again.
type growth struct {
	operator
	node  Target
	what  string
	voter bool // it was added
	whole bool // it follows with a vote
}

// span is a time of the run.
type span struct{ from, to int64 }

// powerlessFor is the least time without a majority, and half of it what comes on top by chance.
const powerlessFor = 12 * time.Second

// strikeGrow adds a voter: a node with an empty disk, the read-only replica, or a member that was
// removed and has its data still. While it votes, faults strike it as they do others. The cure
// removes it, dead or alive.
func strikeGrow(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
	g := &growth{operator: operator{n}}
	if !g.settled(ctx) {
		return "", nil, errNotNow
	}
	// From here on nothing is given up half way, and only an interruption ends what waits to judge.
	ctx = n.life
	if err := g.begin(ctx); err != nil {
		return g.what, nil, err
	}
	err := g.admit(ctx)
	if err == nil && g.whole && n.c.Voters()%2 == 0 && n.rng.IntN(2) == 0 {
		err = g.halve(ctx)
	}
	return g.what, func(context.Context) error { return g.end(n.life) }, err
}

// begin starts the node as one that may vote.
func (g *growth) begin(ctx context.Context) error {
	node, certainly := g.c.Voters(), context.WithoutCancel(ctx)
	replica := g.c.Running(node)
	if !replica && g.rng.IntN(3) == 0 {
		if _, _, err := strikeReplica(certainly, g.nemesis); err != nil {
			return err
		}
		g.changed()
		g.awaitCaughtUp(ctx, node, g.patience)
		replica = true
	}
	switch {
	case replica:
		g.what = "the read-only replica"
		if err := g.c.Terminate(certainly, node); err != nil {
			return err
		}
	case g.outcast:
		g.what = "a member that was removed"
	default:
		g.what = "a node that did not run"
	}
	if g.rng.IntN(3) == 0 {
		g.what += " without its data"
		if err := g.forget(node); err != nil {
			return err
		}
	}
	g.c.Grow(true)
	if err := g.start(node); err != nil {
		return err
	}
	g.changed()
	g.node = g.c.Targets()[node]
	return nil
}

// admit gives the node its vote. Half of the time the operator does not wait for the first answer,
// and something happens to the leader or to the node.
func (g *growth) admit(ctx context.Context) error {
	if leader, ok := g.watch.leads(g.c.Targets()); ok && g.rng.IntN(2) == 0 {
		// The answers do not matter.
		limit := time.Duration(20+g.rng.IntN(3000)) * time.Millisecond
		_, _ = exchange(ctx, g.watch.http, leader, addition(g.node), limit)
		switch g.rng.IntN(3) {
		case 0:
			g.what += ", while the leader resigned,"
			resign := client.Request{Method: http.MethodPost, Path: "/admin/node/resign"}
			_, _ = exchange(ctx, g.watch.http, leader, resign, orderLimit)
		case 1:
			g.what += ", while the leader was killed,"
			if err := g.again(leader.Index); err != nil {
				return err
			}
		default:
			g.what += ", which was killed meanwhile,"
			if err := g.again(g.node.Index); err != nil {
				return err
			}
		}
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.patience)
	defer cancel()
	if err := g.watch.add(limited, g.c.Targets(), g.node); err != nil {
		g.found(kindHeal, "%s does not vote %s after it was to: %v", g.what, g.patience, err)
		g.what += " could not be added"
		return nil
	}
	g.what += " was added"
	g.voter = true
	if err := g.await(ctx, func() error {
		nodes := g.c.Targets()
		return errors.Join(g.watch.votes(ctx, nodes, g.node),
			g.watch.caughtUp(ctx, nodes, g.node.Index))
	}); err != nil {
		g.found(kindHeal, "%s as a voter, and %s later it is none, or lacks data: %v",
			g.what, g.patience, err)
		return nil
	}
	g.whole = true
	g.watch.settled(g.node.Index)
	return nil
}

// again kills a node and starts it.
func (g *growth) again(node int) error {
	return errors.Join(g.c.Kill(node), g.start(node))
}

// await tries until it succeeds, as long as a whole cluster may take to heal.
func (g *growth) await(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	for {
		err := try()
		if err == nil || clock.Sleep(ctx, 200*time.Millisecond) != nil {
			return err
		}
	}
}

// halve leaves no majority of the voters with the new one among them, though there is one of the
// others: it cuts the voters into halves, or kills one half.
func (g *growth) halve(ctx context.Context) error {
	order := g.rng.Perm(g.c.Voters())
	one, other := order[:len(order)/2], order[len(order)/2:]
	what := fmt.Sprintf("nodes %v and %v could not reach each other", one, other)
	undo := g.c.HealNetwork
	var err error
	if g.c.Can().Network && g.rng.IntN(2) == 0 {
		err = each(one, func(i int) error { return g.shapeAll(between(i, other...), Shape{Cut: true}) })
	} else {
		what = fmt.Sprintf("nodes %v were dead", one)
		undo = func() error { return each(one, g.start) }
		err = each(one, g.c.Kill)
	}
	g.what += "; " + what
	if err != nil {
		return errors.Join(err, undo())
	}
	alone := span{from: g.line.now()}
	length := powerlessFor + time.Duration(g.rng.Int64N(int64(powerlessFor/2)))
	if clock.Sleep(ctx, length) != nil {
		return undo()
	}
	for _, t := range g.c.Targets() {
		if _, err := logEnd(ctx, g.watch.http, t, true); err == nil {
			g.find.add(kindMinority, "%s answers as the leader, though %s, of %d voters",
				t.Name, what, len(order))
		}
	}
	alone.to = g.line.now()
	g.powerless = append(g.powerless, alone)
	err = undo()
	g.together(ctx)
	return err
}

// end removes the voter, and looks whether the others do without it.
func (g *growth) end(ctx context.Context) (err error) {
	node := g.node.Index
	left := false
	leave := func() {
		if !left {
			g.c.Grow(false)
		}
		left = true
		g.changed()
	}
	defer func() {
		leave()
		err = errors.Join(err, g.c.Kill(node))
		g.watch.isOut(node, false)
		if g.outcast = true; g.rng.IntN(2) == 0 {
			err = errors.Join(err, g.forget(node))
		}
		g.changed()
	}()
	if !g.voter {
		return nil
	}
	g.together(ctx)
	var id string
	if err := g.await(ctx, func() (err error) {
		id, err = g.watch.memberID(ctx, g.c.Targets(), node)
		return err
	}); err != nil {
		g.found(kindHeal, "%s, and has no vote when it shall go: %v", g.what, err)
		return nil
	}
	if g.rng.IntN(2) == 0 {
		if err := g.c.Kill(node); err != nil {
			return err
		}
	}
	certainly := context.WithoutCancel(ctx)
	if err := g.watch.remove(certainly, g.c.Targets(), node, id); err != nil {
		g.found(kindHeal, "%s, and cannot be removed within %s: %v", g.what, removeLimit, err)
		return nil
	}
	leave()
	g.watch.isOut(node, true)
	return g.without(ctx)
}

// without has as many voters die as the cluster bears, which is one more than it would bear if the
// removed one still counted.
func (g *growth) without(ctx context.Context) error {
	voters := g.c.Voters()
	order := g.rng.Perm(voters)
	if leader, _ := g.watch.leading(); leader >= 0 && leader < voters && g.rng.IntN(2) == 0 {
		at := slices.Index(order, leader)
		order[0], order[at] = order[at], order[0]
	}
	dead, rest := order[:(voters-1)/2], order[(voters-1)/2:]
	if g.rng.IntN(2) == 0 {
		dead = append(slices.Clone(dead), g.node.Index)
	}
	if err := each(dead, g.c.Kill); err != nil {
		return err
	}
	if err := g.await(ctx, func() error {
		return each(rest, func(i int) error { return g.watch.caughtUp(ctx, g.c.Targets(), i) })
	}); err != nil {
		g.found(kindHeal, "node %d was removed, nodes %v are dead, and %s later the majority of %d "+
			"voters does not serve: %v", g.node.Index, dead, g.patience, voters, err)
	}
	return each(order, g.start)
}
