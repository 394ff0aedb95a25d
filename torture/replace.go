package torture

import (
	"context"
	"time"
)

// strikeReplace removes a voter, dead or alive, and lets another machine take its place, at another
// address and with an empty disk. What ran on the old machine continues, or comes back for a while:
// it has no say any more.
func strikeReplace(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
	if !(operator{n}).settled(ctx) {
		return "", nil, errNotNow
	}
	node := n.anyVoter()
	id, err := n.watch.memberID(ctx, n.c.Targets(), node)
	if err != nil {
		return "", nil, errNotNow
	}
	// From here on nothing is given up half way.
	ctx = context.WithoutCancel(ctx)
	what, dead := n.role(node)+", which ran,", n.rng.IntN(2) == 0
	if dead {
		what = n.role(node) + ", which was dead,"
		if err := n.c.Kill(node); err != nil {
			return what, nil, err
		}
	}
	n.rebuilding, n.wiped[node] = node, n.line.now()
	n.watch.renewed(node)
	if err := n.watch.remove(ctx, n.c.Targets(), node, id); err != nil {
		n.find.add(kindHeal, "%s, and all others follow, but it cannot be removed within %s: %v", what, removeLimit, err)
		return what + " could not be removed", func(ctx context.Context) error { return n.c.Start(ctx, node) }, nil
	}
	if err := n.c.Move(node); err != nil {
		return what, nil, err
	}
	n.changed()
	if n.c.Certificates() != nil {
		if _, err := n.c.Certify(node, n.trust); err != nil {
			return what, nil, err
		}
	}
	if err := n.c.Start(ctx, node); err != nil {
		return what, nil, err
	}
	what += " was removed, and replaced by another machine"
	if dead && n.rng.IntN(2) == 0 {
		what += "; it came back"
		if err := n.c.Start(ctx, Former); err != nil {
			return what, nil, err
		}
	}
	return what, func(ctx context.Context) error {
		if n.awaitCaughtUp(ctx, node, 30*time.Second) {
			n.rebuilt(ctx)
		}
		return n.c.Kill(Former)
	}, nil
}
