package admin

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/outline"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
)

// ClusterHandlers answer requests about the cluster.
type ClusterHandlers struct{ Membership api.Membership }

var (
	errPriority = problem.Bad("nodePriority must be an integer.")
	errNoNode   = problem.Bad("node must be the id of a node or its host:port for replication.")
)

// Resign hands leadership over if this node has it.
func (c *ClusterHandlers) Resign(_ context.Context, x *request.Request) error {
	if err := c.Membership.Resign(x.Reads()); err != nil {
		return err
	}
	return sendAccepted(x)
}

// SetPriority changes how much this node wants to lead.
func (c *ClusterHandlers) SetPriority(_ context.Context, x *request.Request) error {
	n, err := strconv.ParseInt(x.Route.Argument, 10, 32)
	if err != nil {
		return errPriority
	}
	if err := c.Membership.SetPriority(int(n)); err != nil {
		return err
	}
	return sendAccepted(x)
}

// sendAccepted answers an order that gives nothing back.
func sendAccepted(x *request.Request) error {
	x.W.Header()[request.KeyContentType] = media.Text.ContentType
	x.Send(http.StatusOK, nil)
	return nil
}

// sendID answers with an id, which XML alone gives its name.
func sendID(x *request.Request, root string, id outline.Field) error {
	o := x.NewOutline()
	switch {
	case x.Media.Form == media.FormText:
		o.B = append(x.Out[:0], id.Value...)
	case o.IsXML:
		o.Root(root, func() { o.Leaves(id) })
	default:
		o.Value(id)
	}
	x.Out = o.B
	x.SendBody()
	return nil
}

// AddMember makes a node a member. Only the leader can do it.
func (c *ClusterHandlers) AddMember(ctx context.Context, x *request.Request) error {
	return c.change(ctx, x, args.Value(x.R.URL.RawQuery, "node"), c.Membership.AddMember)
}

// RemoveMember makes a node no member. Only the leader can do it.
func (c *ClusterHandlers) RemoveMember(ctx context.Context, x *request.Request) error {
	return c.change(ctx, x, x.Route.Argument, c.Membership.RemoveMember)
}

// change does something to the membership of a node, and lists the members.
func (c *ClusterHandlers) change(ctx context.Context, x *request.Request, node string, do func(context.Context, string) error) error {
	if node = strings.TrimSpace(node); node == "" {
		return errNoNode
	}
	if err := do(x.Reads(), node); err != nil {
		return err
	}
	return c.ListMembers(ctx, x)
}

// ListMembers answers with the facts about each node that operators need.
func (c *ClusterHandlers) ListMembers(_ context.Context, x *request.Request) error {
	view := c.Membership.View()
	if x.Media.Form == media.FormText {
		return x.SendOut(append(x.Out[:0], memberTable(view.Members)...))
	}
	o := x.NewOutline()
	o.RootList("members", "member", len(view.Members), func(i int) { o.Leaves(memberFields(&view.Members[i])...) })
	return x.SendOut(o.B)
}

func memberFields(m *event.Member) []outline.Field {
	return []outline.Field{
		outline.Text("nodeId", m.Node.String()),
		outline.Text("state", string(m.State)),
		outline.Bool("isAlive", m.Alive),
		outline.Bool("voter", m.Voter),
		outline.Bool("readOnly", m.ReadOnly),
		outline.Int("priority", int64(m.Priority)),
		outline.Text("replicationAddress", joinAddress(m.ReplicationHost, m.ReplicationPort)),
		outline.Text("httpAddress", joinAddress(m.HTTPHost, m.HTTPPort)),
		outline.Int("writerCheckpoint", m.Writer),
		outline.Int("epochNumber", m.EpochNumber),
		outline.Text("version", m.Version),
	}
}

// memberTable is the list for people: one line per node below a line of titles,
// in columns. What holds a blank or nothing would be taken for other columns.
func memberTable(members []event.Member) []byte {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	row := func(m *event.Member, cell func(outline.Field) string) {
		var cells []string
		for _, f := range memberFields(m) {
			cells = append(cells, cell(f))
		}
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) // Into memory: nothing fails.
	}
	row(&event.Member{}, func(f outline.Field) string { return outline.Titled(f.Name) })
	for i := range members {
		row(&members[i], func(f outline.Field) string { return cmp.Or(strings.Join(strings.Fields(f.Value), "_"), "-") })
	}
	_ = w.Flush()
	return table.Bytes()
}
