package atom

import (
	"github.com/annalsdb/annals/internal/xmljson"
	"github.com/annalsdb/annals/subscription"
)

// Messages computes the feed of messages that a group handed out, in the order
// in which they are to be processed.
func (w *Writer) Messages(messages []subscription.Message, k subscription.Key, count int) Feed {
	w.root = AppendGroupURI(append(w.root[:0], w.Origin...), k)
	d := Feed{
		w: w, isGroup: true, stream: k.Stream, group: k.Group, count: count, messages: messages, forward: true,
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
func (d *Feed) appendIDs(b []byte) []byte {
	for i := range d.messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = d.messages[i].ID.AppendTo(b)
	}
	return b
}

// appendGroupTitle appends the title of a feed of messages.
func (d *Feed) appendGroupTitle(b []byte) []byte {
	b = append(b, "Messages for '"...)
	b = append(b, d.w.names.text...)
	b = append(b, '/')
	if d.isXML {
		b = xmljson.AppendText(b, d.group)
	} else {
		b = AppendInner(b, d.group)
	}
	return append(b, '\'')
}

// appendAnswers appends the links by which a message is answered, each between
// what stands before an address and what stands behind it. The feed that the
// message is in has put the group's address into w.root.
func (w *Writer) appendAnswers(b []byte, m *subscription.Message, before, ack, nack string) []byte {
	b = append(b, before...)
	b = append(b, w.root...)
	b = append(b, ackPath...)
	from := len(b)
	b = m.ID.AppendTo(b)
	to := len(b)
	b = append(b, ack...)
	b = append(b, before...)
	b = append(b, w.root...)
	b = append(b, nackPath...)
	b = append(b, b[from:to]...)
	return append(b, nack...)
}

// How messages are answered, behind the address of their group. Clients append to it.
const (
	ackPath  = "/ack/"
	nackPath = "/nack/"
)
