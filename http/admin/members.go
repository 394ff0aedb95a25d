package admin

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/outline"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/internal/xmljson"
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

// maxGossip bounds the body of a POST /gossip: the largest cluster fits many times.
const maxGossip = 1 << 20

var (
	errBadGossip       = problem.Bad("Invalid request. The body is not a view of the cluster.")
	problemLargeGossip = problem.New(http.StatusRequestEntityTooLarge, "Too large a view of the cluster. Limit is 1mb")
)

// Gossip answers with the cluster as this node sees it.
func (c *ClusterHandlers) Gossip(_ context.Context, x *request.Request) error {
	view := c.Membership.View()
	if x.Media.Form == media.FormText {
		return x.SendOut(appendGossipText(x.Out[:0], &view))
	}
	o := x.NewOutline()
	// The elements have the names of the types in EventStoreDB 23.10.
	o.Root("clientClusterInfo", func() {
		o.List("members", "clientMemberInfo", len(view.Members), func(i int) { o.Leaves(gossipFields(&view.Members[i])...) })
		o.Leaves(outline.Text("serverIp", view.ServerHost), outline.Int("serverPort", int64(view.ServerPort)))
	})
	return x.SendOut(o.B)
}

// HearGossip answers as gossip does. The body must be a view of the cluster, and
// nothing is taken from it: members are found by other means.
func (c *ClusterHandlers) HearGossip(ctx context.Context, x *request.Request) error {
	body, err := x.Upload.Read(maxGossip, problemLargeGossip, errBadGossip)
	if err != nil {
		return err
	}
	if x.Body.Form == media.FormJSON && !isGossipJSON(body) || x.Body.Form != media.FormJSON && !isGossipXML(body) {
		return errBadGossip
	}
	return c.Gossip(ctx, x)
}

// isGossipJSON reports whether body is an object with a list of objects as members.
func isGossipJSON(body []byte) bool {
	if !jsontext.Valid(body) || !jsontext.IsObject(body) {
		return false
	}
	m := jsontext.ObjectAt(body, jsontext.Space(body, 0))
	for m.Next() {
		if !bytes.EqualFold(jsontext.Unquote(nil, m.Name), []byte("members")) {
			continue
		}
		if m.Kind != jsontext.Array {
			return false
		}
		for e := jsontext.ArrayAt(m.Value, 0); e.Next(); {
			if e.Kind != jsontext.Object {
				return false
			}
		}
		return true
	}
	return false
}

// isGossipXML reports whether body has an element of members below its root.
func isGossipXML(body []byte) bool {
	doc, err := xmljson.Parse(body)
	if err != nil {
		return false
	}
	for e := range doc.Root().Children {
		if strings.EqualFold(string(e.Name()), "members") {
			return true
		}
	}
	return false
}

// gossipFields are the fields of a member in the order of the contract. A node listens for its
// peers at one port, with TLS or without, and alone at none; no client of ours uses TCP, so the
// external ports are 0. The last six are the names that earlier and later releases of EventStoreDB
// use for the HTTP address.
func gossipFields(m *event.Member) []outline.Field {
	var plain, secure int64
	if m.ReplicationSecure {
		secure = int64(m.ReplicationPort)
	} else {
		plain = int64(m.ReplicationPort)
	}
	port := int64(m.HTTPPort)
	return []outline.Field{
		outline.Text("instanceId", m.Node.String()),
		outline.Text("timeStamp", m.Time.UTC().Truncate(100*time.Nanosecond).Format(outline.TickTime)),
		outline.Text("state", string(m.State)),
		outline.Bool("isAlive", m.Alive),
		outline.Text("internalTcpIp", cmp.Or(m.ReplicationHost, m.HTTPHost)),
		outline.Int("internalTcpPort", plain),
		outline.Int("internalSecureTcpPort", secure),
		outline.Text("externalTcpIp", m.HTTPHost),
		outline.Int("externalTcpPort", 0),
		outline.Int("externalSecureTcpPort", 0),
		outline.Text("httpEndPointIp", m.HTTPHost),
		outline.Int("httpEndPointPort", port),
		outline.Int("lastCommitPosition", m.LastCommit),
		outline.Int("writerCheckpoint", m.Writer),
		outline.Int("chaserCheckpoint", m.Chaser),
		outline.Int("epochPosition", m.EpochPosition),
		outline.Int("epochNumber", m.EpochNumber),
		outline.Text("epochId", m.EpochID.String()),
		outline.Int("nodePriority", int64(m.Priority)),
		outline.Bool("isReadOnlyReplica", m.ReadOnly),
		outline.Text("esVersion", CompatibleVersion),
		outline.Text("internalHttpIp", m.HTTPHost),
		outline.Int("internalHttpPort", port),
		outline.Text("externalHttpIp", m.HTTPHost),
		outline.Int("externalHttpPort", port),
		outline.Text("internalHttpEndPointIp", m.HTTPHost),
		outline.Int("internalHttpEndPointPort", port),
	}
}

func appendGossipText(b []byte, v *event.ClusterView) []byte {
	b = append(b, "Server: "+joinAddress(v.ServerHost, v.ServerPort)+", Members: ["...)
	for i := range v.Members {
		if i > 0 {
			b = append(b, ',')
		}
		b = outline.AppendText(b, gossipFields(&v.Members[i])...)
	}
	return append(b, ']')
}

// joinAddress returns host:port, and nothing when there is no host.
func joinAddress(host string, port int) string {
	if host == "" {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// CompatibleRelease is the release of EventStoreDB whose clients and web interface work with this
// server. They read it to find out which features they can use.
const CompatibleRelease = "23.10.0"

// CompatibleVersion is that release as HTTP tells it.
const CompatibleVersion = CompatibleRelease + ".0"
