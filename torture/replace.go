package torture

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

// removeLimit bounds how long it may take to remove a voter while all others follow.
const removeLimit = time.Minute

// strikeReplace removes a voter, dead or alive, and lets another machine take its place, at another
// address and with an empty disk. What ran on the old machine continues, or comes back for a while:
// it has no say any more.
func strikeReplace(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
	if !n.rebuilt(ctx) || n.rot != nil {
		return "", nil, errNotNow
	}
	for i := range n.c.Voters() {
		if !n.c.Running(i) || !n.awaitCaughtUp(ctx, i, 5*time.Second) {
			return "", nil, errNotNow
		}
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

// memberRow is a node as the list of members has it.
type memberRow struct {
	NodeID, HTTPAddress string
	IsAlive, Voter      bool
}

// members asks the leader for them.
func (w *watch) members(ctx context.Context, nodes []Target) (list []memberRow, err error) {
	leader, ok := w.leads(nodes)
	if !ok {
		return nil, errNotYet
	}
	a, err := exchange(ctx, w.http, leader, client.Request{Method: http.MethodGet, Path: membersPath, Header: map[string]string{"Accept": client.MediaJSON}}, 2*time.Second)
	if err != nil {
		return nil, err
	}
	if err := a.Err(); err != nil {
		return nil, err
	}
	return list, a.Decode(&list)
}

const membersPath = "/admin/cluster/members"

// memberID is the id of a node that is a voter.
func (w *watch) memberID(ctx context.Context, nodes []Target, node int) (string, error) {
	list, err := w.members(ctx, nodes)
	if err != nil {
		return "", err
	}
	for _, t := range nodes {
		for _, m := range list {
			if t.Index == node && m.Voter && m.IsAlive && strings.HasSuffix(t.Base, "//"+m.HTTPAddress) {
				return m.NodeID, nil
			}
		}
	}
	return "", errNotYet
}

// remove removes a member, whichever node leads.
func (w *watch) remove(ctx context.Context, nodes []Target, node int, id string) error {
	ctx, cancel := context.WithTimeout(ctx, removeLimit)
	defer cancel()
	last := errNotYet
	for {
		for _, t := range nodes {
			if t.Index == node {
				continue // The others must know of it.
			}
			resp, err := w.http.Do(ctx, client.Request{
				Method: http.MethodDelete, Path: membersPath + "/" + url.PathEscape(id), Node: t.Base, Login: t.Login, Timeout: 5 * time.Second,
				Header: map[string]string{"Accept": client.MediaJSON},
			})
			if err == nil {
				err = resp.Err()
			}
			if err == nil || w.isRemoved(ctx, nodes, id) {
				return nil
			}
			last = err
		}
		if clock.Sleep(ctx, 200*time.Millisecond) != nil {
			return fmt.Errorf("%w: %w", ctx.Err(), last)
		}
	}
}

// isRemoved says whether the leader knows that a member has no vote any more.
func (w *watch) isRemoved(ctx context.Context, nodes []Target, id string) bool {
	list, err := w.members(ctx, nodes)
	if err != nil {
		return false
	}
	others := false // A list without voters says nothing.
	for _, m := range list {
		if m.Voter && m.NodeID == id {
			return false
		}
		others = others || m.Voter
	}
	return others
}
