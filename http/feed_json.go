package httpapi

import (
	"strconv"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/subscription"
)

// appendJSON appends the feed as JSON.
func (d *feedDocument) appendJSON(b []byte) (_ []byte, err error) {
	b = append(b, `{"title":"`...)
	b = d.appendTitle(b)
	b = append(b, `","id":"`...)
	b = append(b, d.root...)
	b = append(b, `","updated":"`...)
	b = d.appendUpdated(b)
	if !d.isAll && !d.isGroup {
		b = append(b, `","streamId":"`...)
		b = append(b, d.x.names.text...)
	}
	b = append(b, `","author":{"name":"EventStore"},"headOfStream":`...)
	b = strconv.AppendBool(b, d.head)
	if d.selfURL {
		b = append(b, `,"selfUrl":"`...)
		b = append(b, d.root...)
		b = append(b, '"')
	}
	if d.tagged { // Whatever type is answered, the tag is that of one type.
		b = append(b, `,"eTag":"`...)
		b = appendETag(b, d.version, typeAtomJSON)
		b = append(b, '"')
	}
	b = append(b, `,"links":[`...)
	for i := range d.links[:d.numLinks] {
		if i > 0 {
			b = append(b, ',')
		}
		l := &d.links[i]
		b = append(b, `{"uri":"`...)
		b = d.appendLink(b, l)
		b = append(b, `","relation":"`...)
		b = append(b, l.rel...)
		b = append(b, `"}`...)
	}
	b = append(b, `],"entries":[`...)
	for i := range d.size() {
		if i > 0 {
			b = append(b, ',')
		}
		e, m := d.entry(i)
		if e, err = d.whole(e); err != nil {
			return b, err
		}
		b = d.x.appendEntryJSON(b, e, m, d.level, d.level == embedContent)
		if b, err = d.sendPart(b); err != nil {
			return b, err
		}
	}
	return append(b, `]}`...), nil
}

// appendEntryJSON appends an entry. The message is that which the event was handed
// out as, nil where it is read.
func (x *exchange) appendEntryJSON(b []byte, e *event.Resolved, m *subscription.Message, level embed, content bool) []byte {
	number, stream := shown(e)
	x.name(stream, false)
	b = append(b, `{"title":"`...)
	b = strconv.AppendInt(b, number, 10)
	b = append(b, '@')
	b = append(b, x.names.text...)
	b = append(b, `","id":"`...)
	from := len(b)
	b = append(b, x.names.home...)
	b = strconv.AppendInt(b, number, 10)
	to := len(b)
	b = append(b, `","updated":"`...)
	b = appendTime(b, e.Time)
	b = append(b, `","author":{"name":"EventStore"},"summary":`...)
	b = jsontext.AppendString(b, e.Type)
	if m != nil {
		b = append(b, `,"retryCount":`...)
		b = strconv.AppendInt(b, int64(m.Retries), 10)
	}
	if level >= embedRich && e.Link != event.LinkDead {
		b = x.appendRich(b, e, level)
	}
	if content && e.Link == event.NotLink && shownJSON(e) {
		b = append(b, `,"content":`...)
		b = x.appendEventJSON(b, e)
	}
	b = append(b, `,"links":[{"uri":"`...)
	b = append(b, b[from:to]...)
	b = append(b, `","relation":"edit"},{"uri":"`...)
	b = append(b, b[from:to]...)
	b = append(b, `","relation":"alternate"}`...)
	if m != nil {
		b = x.appendAnswers(b, m, `,{"uri":"`, `","relation":"ack"}`, `","relation":"nack"}`)
	}
	return append(b, `]}`...)
}

// appendRich appends the members that the levels from rich on add to an entry.
func (x *exchange) appendRich(b []byte, e *event.Resolved, level embed) []byte {
	rec := e.Event()
	isJSON := shownJSON(e)
	resolved := e.Link == event.LinkResolved
	b = append(b, `,"eventId":"`...)
	b = rec.ID.AppendTo(b)
	b = append(b, `","eventType":`...)
	b = jsontext.AppendString(b, rec.Type)
	b = append(b, `,"eventNumber":`...)
	b = strconv.AppendInt(b, rec.Number, 10)
	if level >= embedBody {
		if isJSON || level == embedTryHarder {
			isJSON = isJSON || isStructure(rec.Data)
			b = append(b, `,"data":`...)
			b = x.appendBody(b, rec.Data, level)
		}
		if len(rec.Metadata) > 0 {
			b = append(b, `,"metaData":`...)
			b = x.appendBody(b, rec.Metadata, level)
		}
		if resolved {
			b = append(b, `,"linkMetaData":`...)
			b = x.appendBody(b, e.Metadata, level)
		}
	}
	x.name(rec.Stream, false)
	b = append(b, `,"streamId":"`...)
	b = append(b, x.names.text...)
	b = append(b, `","isJson":`...)
	b = strconv.AppendBool(b, isJSON)
	if len(rec.Metadata) == 0 && !resolved && !rec.IsRedacted() { // As most are.
		b = append(b, `,"isMetaData":false,"isLinkMetaData":false,"isRedacted":false,"positionEventNumber":`...)
	} else {
		b = append(b, `,"isMetaData":`...)
		b = strconv.AppendBool(b, level >= embedBody && len(rec.Metadata) > 0)
		b = append(b, `,"isLinkMetaData":`...)
		b = strconv.AppendBool(b, level >= embedBody && resolved && len(e.Metadata) > 0)
		b = append(b, `,"isRedacted":`...)
		b = strconv.AppendBool(b, rec.IsRedacted())
		b = append(b, `,"positionEventNumber":`...)
	}
	b = strconv.AppendInt(b, e.Number, 10)
	b = append(b, `,"positionStreamId":`...)
	if e.Stream == rec.Stream {
		b = append(b, '"')
		b = append(b, x.names.text...)
		return append(b, '"')
	}
	return jsontext.AppendString(b, e.Stream)
}

// appendBody appends stored bytes as a JSON string, indented where the level asks for it.
func (x *exchange) appendBody(b, data []byte, level embed) []byte {
	if level >= embedPretty {
		if indented, ok := jsontext.AppendIndent(x.scratch[:0], data); ok {
			x.scratch = indented
			data = indented
		}
	}
	return jsontext.AppendString(b, data)
}

// appendEventJSON appends an event with its data and metadata as JSON values:
// the content of an entry, and the event itself as a document.
func (x *exchange) appendEventJSON(b []byte, e *event.Resolved) []byte {
	rec := e.Event()
	b = append(b, `{"eventStreamId":`...)
	b = jsontext.AppendString(b, rec.Stream)
	b = append(b, `,"eventNumber":`...)
	b = strconv.AppendInt(b, rec.Number, 10)
	b = append(b, `,"eventType":`...)
	b = jsontext.AppendString(b, rec.Type)
	b = append(b, `,"eventId":"`...)
	b = rec.ID.AppendTo(b)
	b = append(b, `","data":`...)
	b = appendValue(b, rec.Data, rec.IsJSON())
	b = append(b, `,"metadata":`...)
	b = appendValue(b, rec.Metadata, rec.IsJSON())
	return append(b, '}')
}

// appendValue appends stored bytes as a JSON value. What is not JSON is a string
// of its text; so is a number or word that nobody said was JSON.
func appendValue(b, data []byte, isJSON bool) []byte {
	if isJSON && validJSON(data) || !isJSON && isStructure(data) {
		return append(b, data...)
	}
	return jsontext.AppendString(b, data)
}

// isStructure reports whether the bytes are a JSON object or array.
func isStructure(data []byte) bool {
	i := jsontext.Space(data, 0)
	return i < len(data) && (data[i] == '{' || data[i] == '[') && validJSON(data)
}
