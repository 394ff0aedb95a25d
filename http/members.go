package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/annalsdb/annals/event"
)

var (
	errPriority = badRequest("nodePriority must be an integer.")
	errNoNode   = badRequest("node must be the id of a node or its host:port for replication.")
)

// resignLeadership hands leadership over if this node has it.
func (c *clusterHandlers) resignLeadership(ctx context.Context, x *exchange) error {
	ctx = x.reads()
	if err := c.membership.Resign(ctx); err != nil {
		return err
	}
	return sendAccepted(x)
}

// setPriority changes how much this node wants to lead.
func (c *clusterHandlers) setPriority(_ context.Context, x *exchange) error {
	n, err := strconv.ParseInt(x.route.argument, 10, 32)
	if err != nil {
		return errPriority
	}
	if err := c.membership.SetPriority(int(n)); err != nil {
		return err
	}
	return sendAccepted(x)
}

// sendAccepted answers an order that gives nothing back.
func sendAccepted(x *exchange) error {
	x.w.Header()[keyContentType] = typeText.contentType
	x.send(http.StatusOK, nil)
	return nil
}

// sendID answers with an id, which XML alone gives its name.
func sendID(x *exchange, root string, id field) error {
	o := newOutline(x)
	switch {
	case x.media.form == formText:
		o.b = append(x.out[:0], id.value...)
	case o.isXML:
		o.root(root, func() { o.leaves(id) })
	default:
		o.value(id)
	}
	x.out = o.b
	x.ok()
	return nil
}

// addMember makes a node a member. Only the leader can do it.
func (c *clusterHandlers) addMember(ctx context.Context, x *exchange) error {
	node := strings.TrimSpace(queryValue(x.r.URL.RawQuery, "node"))
	if node == "" {
		return errNoNode
	}
	ctx = x.reads()
	if err := c.membership.AddMember(ctx, node); err != nil {
		return err
	}
	return c.listMembers(ctx, x)
}

// removeMember makes a node no member. Only the leader can do it.
func (c *clusterHandlers) removeMember(ctx context.Context, x *exchange) error {
	node := strings.TrimSpace(x.route.argument)
	if node == "" {
		return errNoNode
	}
	ctx = x.reads()
	if err := c.membership.RemoveMember(ctx, node); err != nil {
		return err
	}
	return c.listMembers(ctx, x)
}

// listMembers answers with the facts about each node that operators need.
func (c *clusterHandlers) listMembers(_ context.Context, x *exchange) error {
	view := c.membership.View()
	if x.media.form == formText {
		return sendOut(x, append(x.out[:0], memberTable(view.Members)...))
	}
	o := newOutline(x)
	o.rootList("members", "member", len(view.Members), func(i int) { o.leaves(memberFields(&view.Members[i])...) })
	return sendOut(x, o.b)
}

func memberFields(m *event.Member) []field {
	return []field{
		textField("nodeId", m.Node.String()),
		textField("state", string(m.State)),
		boolField("isAlive", m.Alive),
		boolField("voter", m.Voter),
		boolField("readOnly", m.ReadOnly),
		intField("priority", int64(m.Priority)),
		textField("replicationAddress", joinAddress(m.ReplicationHost, m.ReplicationPort)),
		textField("httpAddress", joinAddress(m.HTTPHost, m.HTTPPort)),
		intField("writerCheckpoint", m.Writer),
		intField("epochNumber", m.EpochNumber),
		textField("version", m.Version),
	}
}

// memberTable is the list for people: one line per node below a line of titles,
// in columns. What holds a blank or nothing would be taken for other columns.
func memberTable(members []event.Member) []byte {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	row := func(m *event.Member, cell func(field) string) {
		var cells []string
		for _, f := range memberFields(m) {
			cells = append(cells, cell(f))
		}
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) // Into memory: nothing fails.
	}
	row(&event.Member{}, func(f field) string { return titled(f.name) })
	for i := range members {
		row(&members[i], func(f field) string { return cmp.Or(strings.Join(strings.Fields(f.value), "_"), "-") })
	}
	_ = w.Flush()
	return table.Bytes()
}
