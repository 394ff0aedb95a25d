package atom

import (
	"strconv"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/subscription"
)

// Feed is a feed before it is written in one of its formats.
type Feed struct {
	w      *Writer
	stream string // empty for the log
	isAll  bool
	// isGroup is set for messages that were handed to a group, of the name.
	isGroup bool
	group   string
	count   int // of the page's links
	isXML   bool

	head    bool  // the extension field headOfStream
	selfURL bool  // the extension field selfUrl is there
	tagged  bool  // the extension field eTag is there
	version int64 // its number

	links    [6]link
	numLinks int
	events   []event.Resolved       // in the order read
	messages []subscription.Message // instead of events, in the order handed out
	forward  bool                   // the order is oldest first
}

// Stream returns the name of the stream that the feed is of, that of the log too.
func (d *Feed) Stream() string {
	if d.isAll {
		return event.AllStream
	}
	return d.stream
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

// Stream computes the feed of a page of a stream. Its fields and links depend on where the page
// began, where the stream begins and ends, and whether there are events after the page.
func (w *Writer) Stream(page *event.StreamPage, p *event.StreamRead) Feed {
	d := Feed{
		w: w, stream: p.Stream, count: p.Count, events: page.Events, forward: !p.Backward,
	}
	w.name(p.Stream, false)
	w.root = appendStreamURI(w.root[:0], w.Origin, w.names.uri)
	d.add(link{rel: "self"})
	d.add(link{rel: "first", form: linkHead})
	count := int64(p.Count)
	if p.Backward {
		d.selfURL = true
		if p.From == event.Head {
			d.head = true
			d.tagged, d.version = true, page.Last
		}
		if !page.End {
			d.add(link{rel: "last", form: linkNumber, forward: true})
			d.add(link{rel: "next", form: linkNumber, at: max(0, page.From-count)})
		}
		previous := min(page.From, page.Last) + 1
		if p.From == event.Head && page.Min > page.Last {
			previous = 0 // All events are hidden: a caller that waits begins at the beginning.
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

// All computes the feed of a page of the log.
func (w *Writer) All(page *event.AllPage, a *event.AllRead, isFiltered bool) Feed {
	d := Feed{w: w, isAll: true, count: a.Count, events: page.Events, forward: !a.Backward}
	w.name(event.AllStream, false)
	w.root = appendStreamURI(w.root[:0], w.Origin, w.names.uri)
	if isFiltered {
		w.root = append(append(w.root, '/'), "filtered"...)
	}
	d.add(link{rel: "self"})
	d.add(link{rel: "first", form: linkHead})
	if a.Backward {
		from := page.From
		if from < 0 {
			from = page.LogEnd
		}
		if len(page.Events) >= a.Count || page.More {
			d.add(link{rel: "last", form: linkPosition, forward: true})
			d.add(link{rel: "next", form: linkPosition, at: page.Next})
		}
		d.add(link{rel: "previous", form: linkPosition, at: from, forward: true})
	} else {
		if a.From > 0 {
			d.add(link{rel: "last", form: linkPosition, forward: true})
			d.add(link{rel: "next", form: linkPosition, at: a.From})
		}
		if len(page.Events) > 0 || page.More {
			d.add(link{rel: "previous", form: linkPosition, at: page.Next, forward: true})
		}
	}
	if !isFiltered {
		d.add(link{rel: "metadata", form: linkMetadata})
	}
	return d
}

// OfIndex computes the feed of a page of an index, asked for by the positions that are its numbers.
// Next and More of the page say where it ends.
func (w *Writer) OfIndex(page *event.AllPage, p *event.StreamRead) Feed {
	d := Feed{w: w, stream: p.Stream, count: p.Count, events: page.Events, forward: !p.Backward}
	w.Index = p.Stream
	w.name(p.Stream, false)
	w.root = appendStreamURI(w.root[:0], w.Origin, w.names.uri)
	d.add(link{rel: "self"})
	d.add(link{rel: "first", form: linkHead})
	previous, next, n := p.From, p.From-1, len(page.Events)
	isOldest := p.From == 0
	if p.Backward {
		isOldest, next = !page.More, max(0, page.Next-1)
		d.selfURL = true
		if p.From == event.Head {
			d.head = true
			d.tagged, d.version = true, page.LogEnd
			if previous = 0; page.More {
				previous = page.LogEnd
			}
		}
		if n > 0 {
			previous = page.Events[0].Position + 1
		}
	} else {
		d.head = !page.More
		switch {
		case page.More:
			previous = page.Next
		case n > 0:
			previous = page.Events[n-1].Position + 1
		}
		if n > 0 {
			next = page.Events[0].Position - 1
		}
	}
	if !isOldest {
		d.add(link{rel: "last", form: linkNumber, forward: true})
		d.add(link{rel: "next", form: linkNumber, at: next})
	}
	d.add(link{rel: "previous", form: linkNumber, at: previous, forward: true})
	return d
}

func (d *Feed) add(l link) {
	d.links[d.numLinks] = l
	d.numLinks++
}

// appendLink appends the address of a link.
func (d *Feed) appendLink(b []byte, l *link) []byte {
	b = append(b, d.w.root...)
	switch l.form {
	case linkSelf:
		return b
	case linkMetadata:
		return append(b, "/metadata"...)
	case linkCount:
		return strconv.AppendInt(append(b, '/'), int64(d.count), 10)
	case linkAckAll:
		return append(append(b, "/ack?ids="...), d.w.ids[:len(d.w.ids)-1]...)
	case linkNackAll:
		return append(append(b, "/nack?ids="...), d.w.ids[:len(d.w.ids)-1]...)
	case linkHead:
		b = append(b, "/head"...)
	case linkNumber:
		b = append(b, '/')
		b = strconv.AppendInt(b, l.at, 10)
	case linkPosition:
		b = append(b, '/')
		b = AppendPosition(b, l.at)
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
func (d *Feed) appendUpdated(b []byte) []byte {
	if len(d.messages) > 0 {
		return AppendTime(b, d.messages[len(d.messages)-1].Event.Time)
	}
	if len(d.events) == 0 || d.events[0].Link == event.LinkDead {
		return append(b, noTime...)
	}
	return AppendTime(b, d.events[0].Time)
}

// size is how many entries there are.
func (d *Feed) size() int { return len(d.events) + len(d.messages) }

// entry returns the i-th event from the newest, and the message it was handed out as.
func (d *Feed) entry(i int) (*event.Resolved, *subscription.Message) {
	if d.forward {
		i = d.size() - 1 - i
	}
	if d.isGroup {
		d.w.id = d.w.ids[i*idLength:][:idLength-1]
		return d.messages[i].Event, &d.messages[i]
	}
	return &d.events[i], nil
}

// appendTitle appends the title, whose stream name was escaped before.
func (d *Feed) appendTitle(b []byte) []byte {
	if d.isAll {
		return append(b, "All events"...)
	}
	d.w.name(d.stream, d.isXML)
	if d.isGroup {
		return d.appendGroupTitle(b)
	}
	b = append(b, "Event stream '"...)
	b = append(b, d.w.names.text...)
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
