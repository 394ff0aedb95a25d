package httpapi

import (
	"github.com/annalsdb/annals/internal/xmljson"
	"github.com/annalsdb/annals/subscription"
)

// messageFeed computes the feed of messages that a group handed out, in the order
// in which they are to be processed.
func (x *exchange) messageFeed(messages []subscription.Message, count int) feedDocument {
	x.root = appendGroupURI(append(x.root[:0], x.origin()...), x.key())
	d := feedDocument{
		x: x, level: embedOf(x), isGroup: true, stream: x.route.stream, count: count, root: x.root,
		messages: messages, forward: true,
	}
	if len(messages) > 0 {
		d.add(link{rel: "ackAll", form: linkAckAll})
		d.add(link{rel: "nackAll", form: linkNackAll})
	}
	d.add(link{rel: "previous", form: linkCount})
	d.add(link{rel: "self"})
	return d
}

// appendIDs appends the ids by which the messages are answered, in the order of delivery.
func (d *feedDocument) appendIDs(b []byte) []byte {
	for i := range d.messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = d.messages[i].ID.AppendTo(b)
	}
	return b
}

// appendGroupTitle appends the title of a feed of messages.
func (d *feedDocument) appendGroupTitle(b []byte) []byte {
	b = append(b, "Messages for '"...)
	b = append(b, d.x.names.text...)
	b = append(b, '/')
	if d.isXML {
		b = xmljson.AppendText(b, d.x.route.group)
	} else {
		b = appendInner(b, d.x.route.group)
	}
	return append(b, '\'')
}

// appendAnswers appends the links by which a message is answered, each between
// what stands before an address and what stands behind it. The feed that the
// message is in has put the group's address into x.root.
func (x *exchange) appendAnswers(b []byte, m *subscription.Message, before, ack, nack string) []byte {
	b = append(b, before...)
	b = append(b, x.root...)
	b = append(b, ackPath...)
	from := len(b)
	b = m.ID.AppendTo(b)
	to := len(b)
	b = append(b, ack...)
	b = append(b, before...)
	b = append(b, x.root...)
	b = append(b, nackPath...)
	b = append(b, b[from:to]...)
	return append(b, nack...)
}

// How messages are answered, behind the address of their group. Clients append to it.
const (
	ackPath  = "/" + segAck + "/"
	nackPath = "/" + segNack + "/"
)
