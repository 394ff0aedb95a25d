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

// operator does what the faults want of an operator, who takes care of certificates and members.
type operator struct{ *nemesis }

const (
	// removeLimit bounds how long it may take to remove a voter while all others follow.
	removeLimit = time.Minute
	// orderLimit bounds how long the operator waits for one answer.
	orderLimit  = 5 * time.Second
	membersPath = "/admin/cluster/members"
)

// settled says whether every voter follows and no disk is damaged.
func (n operator) settled(ctx context.Context) bool {
	if !n.rebuilt(ctx) || n.rot != nil {
		return false
	}
	for i := range n.c.Voters() {
		if !n.c.Running(i) || !n.awaitCaughtUp(ctx, i, 5*time.Second) {
			return false
		}
	}
	return true
}

// forget empties the disk of the node after the voters.
func (n operator) forget(node int) error {
	n.outcast = false
	n.wiped[node] = n.line.now()
	n.watch.renewed(node)
	return n.c.Wipe(node, false)
}

// start starts a node, whether the round was interrupted or not.
func (n operator) start(node int) error { return n.c.Start(context.WithoutCancel(n.life), node) }

// found adds a violation, unless the round was interrupted: then some waits were too short.
func (n operator) found(kind, format string, args ...any) {
	if n.life.Err() == nil {
		n.find.add(kind, format, args...)
	}
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
	a, err := exchange(ctx, w.http, leader, client.Request{
		Method: http.MethodGet, Path: membersPath, Header: map[string]string{"Accept": client.MediaJSON},
	}, 2*time.Second)
	if err != nil {
		return nil, err
	}
	if err := a.Err(); err != nil {
		return nil, err
	}
	return list, a.Decode(&list)
}

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
	removal := client.Request{Method: http.MethodDelete, Path: membersPath + "/" + url.PathEscape(id)}
	return w.order(ctx, nodes, node, removal, func() bool {
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
	})
}

// add makes a node a member with a vote, whichever node leads.
func (w *watch) add(ctx context.Context, nodes []Target, node Target) error {
	return w.order(ctx, nodes, node.Index, addition(node), func() bool {
		return w.votes(ctx, nodes, node) == nil
	})
}

// addition is the request for it.
func addition(node Target) client.Request {
	path := membersPath + "?node=" + url.QueryEscape(node.Peer)
	return client.Request{Method: http.MethodPost, Path: path}
}

// order asks the nodes except one for a change of the members, until an answer says that it is
// done, or done does.
func (w *watch) order(
	ctx context.Context, nodes []Target, except int, r client.Request, done func() bool,
) error {
	r.Header, r.Timeout = map[string]string{"Accept": client.MediaJSON}, orderLimit
	last := errNotYet
	for {
		for _, t := range nodes {
			if t.Index == except {
				continue // The others must know of it.
			}
			r.Node, r.Login = t.Base, t.Login
			resp, err := w.http.Do(ctx, r)
			if err == nil {
				err = resp.Err()
			}
			if err == nil || done() {
				return nil
			}
			last = err
		}
		if clock.Sleep(ctx, 200*time.Millisecond) != nil {
			return fmt.Errorf("%w: %w", ctx.Err(), last)
		}
	}
}

// votes returns nil when the leader's list says that a node votes.
func (w *watch) votes(ctx context.Context, nodes []Target, node Target) error {
	_, err := w.memberID(ctx, nodes, node.Index)
	if err == errNotYet {
		return fmt.Errorf("the list of members has %s without a vote, or not at all", node.Name)
	}
	return err
}
