package atom

import (
	"github.com/annalsdb/annals/internal/xmljson"
	"github.com/annalsdb/annals/subscription"
)

// Messages computes the feed of messages that a group handed out, in the order
// in which they are to be processed.
func (w *Writer) Messages(messages []subscription.Message, k subscription.Key, count int) Feed {
	w.root = AppendGroupURI(append(w.root[:0], w.Origin...), k)
	w.ids = w.ids[:0]
	for i := range messages {
		w.ids = append(messages[i].ID.AppendTo(w.ids), ',')
	}
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

// idLength is how much of Writer.ids an id takes.
const idLength = len("01234567-89ab-cdef-0123-456789abcdef,")

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

// appendAnswers appends the links by which a message is answered. Each link consists of before, the
// address, and ack or nack. The feed that the message is in has put the group's address into
// w.root, and its id into w.id.
func (w *Writer) appendAnswers(b []byte, before, ack, nack string) []byte {
	b = append(b, before...)
	b = append(b, w.root...)
	b = append(b, ackPath...)
	b = append(b, w.id...)
	b = append(b, ack...)
	b = append(b, before...)
	b = append(b, w.root...)
	b = append(b, nackPath...)
	b = append(b, w.id...)
	return append(b, nack...)
}

// Paths by which messages are answered. They follow the address of the group, and clients append to
// them. Clients append to it.
const (
	ackPath  = "/ack/"
	nackPath = "/nack/"
)
