package httpapi

import (
	"bytes"
	"cmp"
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
	problemLargeGossip = &problem{http.StatusRequestEntityTooLarge, "Too large a view of the cluster. Limit is 1mb", false}
)

// serveGossip answers with the cluster as this node sees it.
func serveGossip(x *exchange) error {
	view := x.s.opts.Membership.View()
	switch x.media.form {
	case formTextXML, formAppXML:
		x.out = appendGossipXML(x.out[:0], &view)
	case formText:
		x.out = appendGossipText(x.out[:0], &view)
	default:
		x.out = appendGossipJSON(x.out[:0], &view)
	}
	return sendOut(x, x.out)
}

// hearGossip answers as gossip does. The body must be a view of the cluster, and
// nothing is taken from it: members are found by other means.
func hearGossip(x *exchange) error {
	body, err := x.readBody(maxGossip, problemLargeGossip, errBadGossip)
	if err != nil {
		return err
	}
	if x.body.form == formJSON && !isGossipJSON(body) || x.body.form != formJSON && !isGossipXML(body) {
		return errBadGossip
	}
	return serveGossip(x)
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

// field is one field of a document, with its name in JSON and in XML and text.
type field struct {
	json, xml string
	value     string
	bare      bool // a number or a boolean: JSON has it without quotes, and null when it is empty
}

func textField(json, xml, value string) field { return field{json: json, xml: xml, value: value} }

func intField(json, xml string, n int64) field {
	return field{json: json, xml: xml, value: strconv.FormatInt(n, 10), bare: true}
}

func boolField(json, xml string, v bool) field {
	return field{json: json, xml: xml, value: strconv.FormatBool(v), bare: true}
}

func nullField(json, xml string) field { return field{json: json, xml: xml, bare: true} }

// tickTime is how the reference writes times: UTC in ticks of 100 ns without
// zeros at the end.
const tickTime = "2006-01-02T15:04:05.9999999Z"

// gossipFields are the fields of a member in the order of the contract. A node
// listens for its peers at one port, with TLS or without, and alone at none; no
// client of ours uses TCP, so the external ports are 0. The last six are the names
// that earlier and later releases of the reference have for the address of HTTP.
func gossipFields(m *event.Member) []field {
	var plain, secure int64
	if m.ReplicationSecure {
		secure = int64(m.ReplicationPort)
	} else {
		plain = int64(m.ReplicationPort)
	}
	port := int64(m.HTTPPort)
	return []field{
		textField("instanceId", "InstanceId", m.Node.String()),
		textField("timeStamp", "TimeStamp", m.Time.UTC().Truncate(100*time.Nanosecond).Format(tickTime)),
		textField("state", "State", string(m.State)),
		boolField("isAlive", "IsAlive", m.Alive),
		textField("internalTcpIp", "InternalTcpIp", cmp.Or(m.ReplicationHost, m.HTTPHost)),
		intField("internalTcpPort", "InternalTcpPort", plain),
		intField("internalSecureTcpPort", "InternalSecureTcpPort", secure),
		textField("externalTcpIp", "ExternalTcpIp", m.HTTPHost),
		intField("externalTcpPort", "ExternalTcpPort", 0),
		intField("externalSecureTcpPort", "ExternalSecureTcpPort", 0),
		textField("httpEndPointIp", "HttpEndPointIp", m.HTTPHost),
		intField("httpEndPointPort", "HttpEndPointPort", port),
		intField("lastCommitPosition", "LastCommitPosition", m.LastCommit),
		intField("writerCheckpoint", "WriterCheckpoint", m.Writer),
		intField("chaserCheckpoint", "ChaserCheckpoint", m.Chaser),
		intField("epochPosition", "EpochPosition", m.EpochPosition),
		intField("epochNumber", "EpochNumber", m.EpochNumber),
		textField("epochId", "EpochId", m.EpochID.String()),
		intField("nodePriority", "NodePriority", int64(m.Priority)),
		boolField("isReadOnlyReplica", "IsReadOnlyReplica", m.ReadOnly),
		textField("esVersion", "ESVersion", compatibleVersion),
		textField("internalHttpIp", "InternalHttpIp", m.HTTPHost),
		intField("internalHttpPort", "InternalHttpPort", port),
		textField("externalHttpIp", "ExternalHttpIp", m.HTTPHost),
		intField("externalHttpPort", "ExternalHttpPort", port),
		textField("internalHttpEndPointIp", "InternalHttpEndPointIp", m.HTTPHost),
		intField("internalHttpEndPointPort", "InternalHttpEndPointPort", port),
	}
}

func serverFields(v *event.ClusterView) []field {
	return []field{
		textField("serverIp", "ServerIp", v.ServerHost),
		intField("serverPort", "ServerPort", int64(v.ServerPort)),
	}
}

func appendGossipJSON(b []byte, v *event.ClusterView) []byte {
	b = append(b, "{\n  \"members\": "...)
	b = appendObjects(b, "  ", v.Members, gossipFields)
	b = append(b, ",\n"...)
	b = appendMembers(b, "  ", serverFields(v))
	return append(b, "\n}"...)
}

// The elements are called as release 23.10 of the reference calls its types.
func appendGossipXML(b []byte, v *event.ClusterView) []byte {
	b = append(b, xmlProlog+"<ClientClusterInfo>"...)
	b = appendElements(b, "Members", "ClientMemberInfo", v.Members, gossipFields)
	b = appendLeaves(b, serverFields(v))
	return append(b, "</ClientClusterInfo>"...)
}

func appendGossipText(b []byte, v *event.ClusterView) []byte {
	b = append(b, "Server: "...)
	b = append(b, joinAddress(v.ServerHost, v.ServerPort)...)
	b = append(b, ", Members: ["...)
	for i := range v.Members {
		if i > 0 {
			b = append(b, ',')
		}
		for j, f := range gossipFields(&v.Members[i]) {
			if j > 0 {
				b = append(b, ", "...)
			}
			b = append(b, f.xml...)
			b = append(b, ": "...)
			b = append(b, f.value...)
		}
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

// appendObjects appends an array of objects that begins on an indented line.
func appendObjects[T any](b []byte, indent string, items []T, fields func(*T) []field) []byte {
	if len(items) == 0 {
		return append(b, "[]"...)
	}
	b = append(b, '[')
	for i := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n  "+indent+"{\n"...)
		b = appendMembers(b, "    "+indent, fields(&items[i]))
		b = append(b, "\n  "+indent+"}"...)
	}
	return append(b, "\n"+indent+"]"...)
}

// appendMembers appends the members of a JSON object, each on its line.
func appendMembers(b []byte, indent string, fields []field) []byte {
	for i, f := range fields {
		if i > 0 {
			b = append(b, ",\n"...)
		}
		b = append(b, indent+`"`+f.json+`": `...)
		if f.bare {
			b = append(b, cmp.Or(f.value, "null")...)
			continue
		}
		b = jsontext.AppendString(b, f.value)
	}
	return b
}

// appendElements appends an element with one of its own for each item.
func appendElements[T any](b []byte, list, one string, items []T, fields func(*T) []field) []byte {
	b = append(b, "<"+list+">"...)
	for i := range items {
		b = append(b, "<"+one+">"...)
		b = appendLeaves(b, fields(&items[i]))
		b = append(b, "</"+one+">"...)
	}
	return append(b, "</"+list+">"...)
}

// appendLeaves appends an element for each field.
func appendLeaves(b []byte, fields []field) []byte {
	for _, f := range fields {
		if f.value == "" {
			b = append(b, "<"+f.xml+" />"...)
			continue
		}
		b = append(b, "<"+f.xml+">"...)
		b = xmljson.AppendText(b, f.value)
		b = append(b, "</"+f.xml+">"...)
	}
	return b
}
