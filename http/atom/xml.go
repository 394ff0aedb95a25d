package atom

import (
	"slices"
	"strconv"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/internal/xmljson"
	"github.com/annalsdb/annals/subscription"
)

// Prolog begins every document of XML.
const Prolog = `<?xml version="1.0" encoding="utf-8"?>`

// AppendXML appends the feed as an Atom document. The levels from rich on change
// nothing in it.
func (d *Feed) AppendXML(b []byte, level Level) (_ []byte, err error) {
	d.isXML = true
	b = append(b, Prolog+`<feed xmlns="http://www.w3.org/2005/Atom"><title>`...)
	b = d.appendTitle(b)
	b = append(b, `</title><id>`...)
	b = append(b, d.w.root...)
	b = append(b, `</id><updated>`...)
	b = d.appendUpdated(b)
	b = append(b, `</updated><author><name>EventStore</name></author>`...)
	for i := range d.links[:d.numLinks] {
		l := &d.links[i]
		b = append(b, `<link href="`...)
		b = d.appendLink(b, l)
		b = append(b, `" rel="`...)
		b = append(b, l.rel...)
		b = append(b, `" />`...)
	}
	for i := range d.size() {
		e, m := d.entry(i)
		if e, err = d.whole(e, level); err != nil {
			return b, err
		} else if e == nil {
			continue
		}
		b = d.w.appendEntryXML(b, e, m, &feedEntry, level == Content)
		if b, err = d.part(b); err != nil {
			return b, err
		}
	}
	return append(b, `</feed>`...), nil
}

// atomTags are the tags of an entry: in a feed its namespace is the default one,
// alone it has a prefix so that the content's children are in none.
type atomTags struct {
	open, title, titleID, idUpdated, updatedSummary, summary, link, linkMiddle, linkEnd string
	content, contentEnd, close                                                          string
	// children of content must leave the default namespace
	bare bool
}

var (
	feedEntry   = newAtomTags("", `<entry>`, true)
	singleEntry = newAtomTags("atom:", Prolog+`<atom:entry xmlns:atom="http://www.w3.org/2005/Atom">`, false)
)

func newAtomTags(p, open string, bare bool) atomTags {
	author := `<` + p + `author><` + p + `name>EventStore</` + p + `name></` + p + `author>`
	return atomTags{
		open:           open,
		title:          `<` + p + `title>`,
		titleID:        `</` + p + `title><` + p + `id>`,
		idUpdated:      `</` + p + `id><` + p + `updated>`,
		updatedSummary: `</` + p + `updated>` + author + `<` + p + `summary>`,
		summary:        `</` + p + `summary>`,
		link:           `<` + p + `link href="`,
		linkMiddle:     `" rel="edit" /><` + p + `link href="`,
		linkEnd:        `" rel="alternate" />`,
		content:        `<` + p + `content type="application/xml">`,
		contentEnd:     `</` + p + `content>`,
		close:          `</` + p + `entry>`,
		bare:           bare,
	}
}

// AppendEntryXML appends an entry alone, with its content.
func (w *Writer) AppendEntryXML(b []byte, e *event.Resolved) []byte {
	return w.appendEntryXML(b, e, nil, &singleEntry, true)
}

// appendEntryXML appends an entry, as appendEntryJSON does.
func (w *Writer) appendEntryXML(b []byte, e *event.Resolved, m *subscription.Message, t *atomTags, content bool) []byte {
	number, stream := shown(e)
	w.name(stream, true)
	b = append(b, t.open...)
	b = append(b, t.title...)
	b = strconv.AppendInt(b, number, 10)
	b = append(b, '@')
	b = append(b, w.names.text...)
	b = append(b, t.titleID...)
	from := len(b)
	b = append(b, w.names.home...)
	b = strconv.AppendInt(b, number, 10)
	to := len(b)
	b = append(b, t.idUpdated...)
	b = w.appendTime(b, e.Time)
	b = append(b, t.updatedSummary...)
	b = xmljson.AppendText(b, e.Type)
	b = append(b, t.summary...)
	if m != nil {
		b = append(b, `<retryCount>`...)
		b = strconv.AppendInt(b, int64(m.Retries), 10)
		b = append(b, `</retryCount>`...)
	}
	b = append(b, t.link...)
	b = append(b, b[from:to]...)
	b = append(b, t.linkMiddle...)
	b = append(b, b[from:to]...)
	b = append(b, t.linkEnd...)
	if m != nil {
		b = w.appendAnswers(b, t.link, `" rel="ack" />`, `" rel="nack" />`)
	}
	if content && e.Link == event.NotLink && shownJSON(e) {
		b = append(b, t.content...)
		b = appendEventXML(b, e, t.bare)
		b = append(b, t.contentEnd...)
	}
	return append(b, t.close...)
}

// AppendEventXML appends an event as a document.
func AppendEventXML(b []byte, e *event.Resolved) []byte {
	b = append(b, `<event>`...)
	b = appendEventXML(b, e, false)
	return append(b, `</event>`...)
}

// AppendDataXML appends stored bytes as a document.
func AppendDataXML(b, data []byte) []byte {
	if len(data) == 0 {
		return append(b, `<data />`...)
	}
	return appendElement(b, "data", data, false)
}

// appendEventXML appends the elements of an event. With bare each of them leaves
// the default namespace around it.
func appendEventXML(b []byte, e *event.Resolved, bare bool) []byte {
	rec := e.Event()
	b = appendStart(b, "eventStreamId", bare)
	b = xmljson.AppendText(b, rec.Stream)
	b = append(b, `</eventStreamId>`...)
	b = appendStart(b, "eventNumber", bare)
	b = strconv.AppendInt(b, rec.Number, 10)
	b = append(b, `</eventNumber>`...)
	b = appendStart(b, "eventType", bare)
	b = xmljson.AppendText(b, rec.Type)
	b = append(b, `</eventType>`...)
	b = appendStart(b, "eventId", bare)
	b = rec.ID.AppendTo(b)
	b = append(b, `</eventId>`...)
	b = appendElement(b, "data", rec.Data, bare)
	return appendElement(b, "metadata", rec.Metadata, bare)
}

const leaveNamespace = ` xmlns=""`

func appendStart(b []byte, name string, bare bool) []byte {
	b = append(b, '<')
	b = append(b, name...)
	if bare {
		b = append(b, leaveNamespace...)
	}
	return append(b, '>')
}

// appendElement appends stored bytes as an element: a JSON object as its
// members, anything else as text.
func appendElement(b []byte, name string, data []byte, bare bool) []byte {
	if !jsontext.IsObject(data) {
		b = appendStart(b, name, bare)
		b = xmljson.AppendText(b, data)
		b = append(b, `</`...)
		b = append(b, name...)
		return append(b, '>')
	}
	start := len(b)
	b = xmljson.AppendXML(b, name, data)
	if bare {
		b = slices.Insert(b, start+1+len(name), []byte(leaveNamespace)...)
	}
	return b
}
