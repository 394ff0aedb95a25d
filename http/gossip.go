package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/internal/xmljson"
)

// maxGossip bounds the body of a POST /gossip: the largest cluster fits many times.
const maxGossip = 1 << 20

var (
	errBadGossip       = badRequest("Invalid request. The body is not a view of the cluster.")
	problemLargeGossip = refusal(http.StatusRequestEntityTooLarge, "Too large a view of the cluster. Limit is 1mb")
)

// serveGossip answers with the cluster as this node sees it.
func (c *clusterHandlers) serveGossip(_ context.Context, x *exchange) error {
	view := c.membership.View()
	if x.media.form == formText {
		return sendOut(x, appendGossipText(x.out[:0], &view))
	}
	o := newOutline(x)
	// The elements have the names of the types in EventStoreDB 23.10.
	o.root("clientClusterInfo", func() {
		o.list("members", "clientMemberInfo", len(view.Members), func(i int) { o.leaves(gossipFields(&view.Members[i])...) })
		o.leaves(textField("serverIp", view.ServerHost), intField("serverPort", int64(view.ServerPort)))
	})
	return sendOut(x, o.b)
}

// hearGossip answers as gossip does. The body must be a view of the cluster, and
// nothing is taken from it: members are found by other means.
func (c *clusterHandlers) hearGossip(ctx context.Context, x *exchange) error {
	body, err := x.readBody(maxGossip, problemLargeGossip, errBadGossip)
	if err != nil {
		return err
	}
	if x.body.form == formJSON && !isGossipJSON(body) || x.body.form != formJSON && !isGossipXML(body) {
		return errBadGossip
	}
	return c.serveGossip(ctx, x)
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

// tickTime is the format in which EventStoreDB writes times: UTC in ticks of 100 ns without zeros
// at the end.
const tickTime = "2006-01-02T15:04:05.9999999Z"

// gossipFields are the fields of a member in the order of the contract. A node listens for its
// peers at one port, with TLS or without, and alone at none; no client of ours uses TCP, so the
// external ports are 0. The last six are the names that earlier and later releases of EventStoreDB
// use for the HTTP address.
func gossipFields(m *event.Member) []field {
	var plain, secure int64
	if m.ReplicationSecure {
		secure = int64(m.ReplicationPort)
	} else {
		plain = int64(m.ReplicationPort)
	}
	port := int64(m.HTTPPort)
	return []field{
		textField("instanceId", m.Node.String()),
		textField("timeStamp", m.Time.UTC().Truncate(100*time.Nanosecond).Format(tickTime)),
		textField("state", string(m.State)),
		boolField("isAlive", m.Alive),
		textField("internalTcpIp", cmp.Or(m.ReplicationHost, m.HTTPHost)),
		intField("internalTcpPort", plain),
		intField("internalSecureTcpPort", secure),
		textField("externalTcpIp", m.HTTPHost),
		intField("externalTcpPort", 0),
		intField("externalSecureTcpPort", 0),
		textField("httpEndPointIp", m.HTTPHost),
		intField("httpEndPointPort", port),
		intField("lastCommitPosition", m.LastCommit),
		intField("writerCheckpoint", m.Writer),
		intField("chaserCheckpoint", m.Chaser),
		intField("epochPosition", m.EpochPosition),
		intField("epochNumber", m.EpochNumber),
		textField("epochId", m.EpochID.String()),
		intField("nodePriority", int64(m.Priority)),
		boolField("isReadOnlyReplica", m.ReadOnly),
		textField("esVersion", compatibleVersion),
		textField("internalHttpIp", m.HTTPHost),
		intField("internalHttpPort", port),
		textField("externalHttpIp", m.HTTPHost),
		intField("externalHttpPort", port),
		textField("internalHttpEndPointIp", m.HTTPHost),
		intField("internalHttpEndPointPort", port),
	}
}

func appendGossipText(b []byte, v *event.ClusterView) []byte {
	b = append(b, "Server: "+joinAddress(v.ServerHost, v.ServerPort)+", Members: ["...)
	for i := range v.Members {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendTextFields(b, gossipFields(&v.Members[i])...)
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
