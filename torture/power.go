package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/annalsdb/annals/internal/clock"
)

// Danger is what happens to a node in the midst of changes of its files: just before or after one
// of a kind that was struck seldom before. Zero is none.
type Danger struct {
	Power  bool // the power of the node fails
	Outage bool // and that of all nodes
	Errors bool // the change itself fails, now and then
}

// fragile is a cluster that knows what its nodes do with their files.
type fragile interface {
	Endanger(node int, d Danger)
}

const (
	powerShortest = 3 * time.Second
	powerLongest  = 25 * time.Second
	// powerPause is the longest time without power.
	powerPause = 2 * time.Second
)

// strikePower cuts the power of nodes in the midst of changes of their files, and starts them
// again. A kill at any time hardly ever meets the few milliseconds in which a file has its name and
// not its content yet, or the reverse.
func strikePower(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
	f, ok := n.c.(fragile)
	if !ok {
		return "", nil, errNotNow
	}
	nodes := n.rng.Perm(n.c.Voters())
	if n.rng.IntN(2) == 0 {
		nodes = []int{n.anyVoter()}
	}
	d := Danger{Power: true, Outage: n.rng.IntN(3) == 0, Errors: n.rng.IntN(3) == 0}
	if d.Errors {
		n.excused.Add(1) // A node ends by itself when it cannot store what it must.
	}
	start := func(ctx context.Context) (cuts int, err error) {
		for i := range n.c.Voters() {
			if n.c.Running(i) {
				continue
			}
			cuts++
			err = errors.Join(err, n.c.Start(ctx, i))
		}
		return cuts, err
	}
	for _, i := range nodes {
		f.Endanger(i, d)
	}
	cuts := 0
	var err error
	for ends := n.line.now() + int64(powerShortest) + n.rng.Int64N(int64(powerLongest-powerShortest)); err == nil && n.line.now() < ends; {
		if clock.Sleep(ctx, time.Duration(n.rng.Int64N(int64(powerPause)))) != nil {
			break
		}
		var more int
		more, err = start(context.WithoutCancel(ctx))
		cuts += more
	}
	what := fmt.Sprintf("nodes %v lose their power %d times while they change files; all at once: %t; some changes fail: %t", nodes, cuts, d.Outage, d.Errors)
	return what, func(ctx context.Context) error {
		for _, i := range nodes {
			f.Endanger(i, Danger{})
		}
		if !d.Errors {
			_, err := start(ctx)
			return err
		}
		defer n.excused.Add(-1)
		// What a node believes after an error shows after a power cut, as half of the kills are.
		err := each(nodes, n.c.Kill)
		_, more := start(ctx)
		return errors.Join(err, more)
	}, err
}
