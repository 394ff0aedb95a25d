package httpapi

import (
	"strconv"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/subscription"
)

// feedDocument is a feed before it is written in one of its formats.
type feedDocument struct {
	x      *exchange
	level  embed
	stream string // empty for the log
	isAll  bool
	// isGroup is set for messages that the group of the request was handed.
	isGroup bool
	root    []byte // its address, which all its links begin with
	count   int    // of the page's links
	isXML   bool

	head    bool  // the extension field headOfStream
	selfURL bool  // the extension field selfUrl is there
	tagged  bool  // the extension field eTag is there
	version int64 // its number

	isPartSent bool // what is written goes out piece by piece

	links    [6]link
	numLinks int
	events   []event.Resolved       // in the order read
	messages []subscription.Message // instead of events, in the order handed out
	forward  bool                   // the order is oldest first
}

// link is a link of a feed.
type link struct {
	rel     string
	form    linkForm
	at      int64
	forward bool
}

type linkForm uint8

const (
	linkSelf linkForm = iota
	linkHead
	linkNumber
	linkPosition
	linkMetadata
	linkCount
	linkAckAll
	linkNackAll
)

// streamFeed computes the feed of a stream's page: fields and links follow from
// where the page began, where the stream begins and ends, and whether more lies
// behind the page.
func (x *exchange) streamFeed(page *event.StreamPage, p *pageRequest) feedDocument {
	d := feedDocument{
		x: x, level: embedOf(x), stream: p.Stream, count: p.Count,
		events: page.Events, forward: !p.Backward,
	}
	x.name(p.Stream, false)
	x.root = appendStreamURI(x.root[:0], x.origin(), x.names.uri)
	d.root = x.root
	d.add(link{rel: "self"})
	d.add(link{rel: "first", form: linkHead})
	count := int64(p.Count)
	if p.Backward {
		d.selfURL = true
		if p.From == fromHead {
			d.head = true
			d.tagged, d.version = true, page.Last
		}
		if !page.End {
			d.add(link{rel: "last", form: linkNumber, forward: true})
			d.add(link{rel: "next", form: linkNumber, at: max(0, page.From-count)})
		}
		previous := min(page.From, page.Last) + 1
		if p.From == fromHead && page.Min > page.Last {
			previous = 0 // All events are hidden: whoever waits begins at the beginning.
		}
		d.add(link{rel: "previous", form: linkNumber, at: previous, forward: true})
	} else {
		d.head = page.End
		if p.From > 0 {
			d.add(link{rel: "last", form: linkNumber, forward: true})
			d.add(link{rel: "next", form: linkNumber, at: p.From - 1})
		}
		if len(page.Events) > 0 || !page.End {
			next := page.Last // min(From+count-1, Last), where the sum may overflow
			if p.From <= page.Last-count {
				next = p.From + count - 1
			}
			d.add(link{rel: "previous", form: linkNumber, at: next + 1, forward: true})
		}
	}
	d.add(link{rel: "metadata", form: linkMetadata})
	return d
}

func (d *feedDocument) add(l link) {
	d.links[d.numLinks] = l
	d.numLinks++
}

// appendLink appends the address of a link.
func (d *feedDocument) appendLink(b []byte, l *link) []byte {
	b = append(b, d.root...)
	switch l.form {
	case linkSelf:
		return b
	case linkMetadata:
		return append(b, "/metadata"...)
	case linkCount:
		return strconv.AppendInt(append(b, '/'), int64(d.count), 10)
	case linkAckAll:
		return d.appendIDs(append(b, "/ack?ids="...))
	case linkNackAll:
		return d.appendIDs(append(b, "/nack?ids="...))
	case linkHead:
		b = append(b, "/head"...)
	case linkNumber:
		b = append(b, '/')
		b = strconv.AppendInt(b, l.at, 10)
	case linkPosition:
		b = append(b, '/')
		b = appendPosition(b, l.at)
	}
	if l.forward {
		b = append(b, "/forward/"...)
	} else {
		b = append(b, "/backward/"...)
	}
	return strconv.AppendInt(b, int64(d.count), 10)
}

// appendUpdated appends the time of the first event read, or of the last message
// handed out.
func (d *feedDocument) appendUpdated(b []byte) []byte {
	if len(d.messages) > 0 {
		return appendTime(b, d.messages[len(d.messages)-1].Event.Time)
	}
	if len(d.events) == 0 || d.events[0].Link == event.LinkDead {
		return append(b, noTime...)
	}
	return appendTime(b, d.events[0].Time)
}

// size is how many entries there are.
func (d *feedDocument) size() int { return len(d.events) + len(d.messages) }

// entry returns the i-th event from the newest, and the message it was handed out as.
func (d *feedDocument) entry(i int) (*event.Resolved, *subscription.Message) {
	if d.forward {
		i = d.size() - 1 - i
	}
	if d.isGroup {
		return d.messages[i].Event, &d.messages[i]
	}
	return &d.events[i], nil
}

// appendTitle appends the title, whose stream name was escaped before.
func (d *feedDocument) appendTitle(b []byte) []byte {
	if d.isAll {
		return append(b, "All events"...)
	}
	d.x.name(d.stream, d.isXML)
	if d.isGroup {
		return d.appendGroupTitle(b)
	}
	b = append(b, "Event stream '"...)
	b = append(b, d.x.names.text...)
	return append(b, '\'')
}

// shown is an entry as it names itself: a link shows its target.
func shown(e *event.Resolved) (number int64, stream string) {
	if e.Link != event.NotLink {
		return e.TargetNumber, e.TargetStream
	}
	return e.Number, e.Stream
}

// shownJSON reports whether the event counts as JSON. A link that was not
// resolved does not, however it was written.
func shownJSON(e *event.Resolved) bool {
	rec := e.Event()
	if !rec.IsJSON() {
		return false
	}
	if e.Link == event.NotLink && rec.Type == event.TypeLink {
		_, _, isLink := event.ParseLink(rec.Data)
		return !isLink
	}
	return true
}
