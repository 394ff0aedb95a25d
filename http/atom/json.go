package atom

import (
	"strconv"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/subscription"
)

// AppendJSON appends the feed as JSON. The tag of its version names the type.
func (d *Feed) AppendJSON(b []byte, level Level, tag string) (_ []byte, err error) {
	b = d.appendTitle(append(b, `{"title":"`...))
	b = jsontext.Raw(b, `","id":"`, d.w.root)
	b = d.appendUpdated(append(b, `","updated":"`...))
	if !d.isAll && !d.isGroup {
		b = jsontext.Raw(b, `","streamId":"`, d.w.names.text)
	}
	b = jsontext.Bool(b, `","author":{"name":"EventStore"},"headOfStream":`, d.head)
	if d.selfURL {
		b = jsontext.Raw(b, `,"selfUrl":"`, d.w.root)
		b = append(b, '"')
	}
	if d.tagged { // The tag is that of one type, also if another is answered.
		b = jsontext.Int(b, `,"eTag":"`, d.version)
		b = append(b, ';')
		b = append(b, tag...)
		b = append(b, '"')
	}
	b = append(b, `,"links":[`...)
	for i := range d.links[:d.numLinks] {
		if i > 0 {
			b = append(b, ',')
		}
		l := &d.links[i]
		b = d.appendLink(append(b, `{"uri":"`...), l)
		b = jsontext.Raw(b, `","relation":"`, l.rel)
		b = append(b, `"}`...)
	}
	b = append(b, `],"entries":[`...)
	isFirst := true
	for i := range d.size() {
		e, m := d.entry(i)
		if e, err = d.whole(e, level); err != nil {
			return b, err
		} else if e == nil {
			continue
		}
		if !isFirst {
			b = append(b, ',')
		}
		isFirst = false
		b = d.w.appendEntryJSON(b, e, m, level, level == Content)
		if b, err = d.part(b); err != nil {
			return b, err
		}
	}
	return append(b, `]}`...), nil
}

// AppendEntryJSON appends an entry alone, with its content.
func (w *Writer) AppendEntryJSON(b []byte, e *event.Resolved, level Level) []byte {
	return w.appendEntryJSON(b, e, nil, level, true)
}

// appendEntryJSON appends an entry. The message is that which the event was handed
// out as, nil where it is read.
func (w *Writer) appendEntryJSON(b []byte, e *event.Resolved, m *subscription.Message, level Level, content bool) []byte {
	number, stream := shown(e)
	w.name(stream, false)
	b = append(b, `{"title":"`...)
	from := len(b)
	b = strconv.AppendInt(b, number, 10)
	digits := b[from:]
	b = append(b, '@')
	b = append(b, w.names.text...)
	b = append(b, `","id":"`...)
	from = len(b)
	b = append(b, w.names.home...)
	b = append(b, digits...)
	to := len(b)
	b = w.appendTime(append(b, `","updated":"`...), e.Time)
	b = jsontext.Text(b, `","author":{"name":"EventStore"},"summary":`, e.Type)
	if m != nil {
		b = jsontext.Int(b, `,"retryCount":`, int64(m.Retries))
	}
	if level >= Rich && e.Link != event.LinkDead {
		rich := e
		if w.MaxData >= 0 {
			rich = cut(e, w.MaxData)
		}
		b = w.appendRich(b, rich, level)
		if w.MaxData >= 0 && level >= Body {
			b = jsontext.Int(b, `,"dataBytes":`, int64(len(e.Event().Data)))
		}
	}
	if content && e.Link == event.NotLink && shownJSON(e) {
		b = AppendEventJSON(append(b, `,"content":`...), e)
	}
	b = jsontext.Raw(b, `,"links":[{"uri":"`, b[from:to])
	b = jsontext.Raw(b, `","relation":"edit"},{"uri":"`, b[from:to])
	b = append(b, `","relation":"alternate"}`...)
	if m != nil {
		b = w.appendAnswers(b, `,{"uri":"`, `","relation":"ack"}`, `","relation":"nack"}`)
	}
	return append(b, `]}`...)
}

// appendRich appends the members that the levels from rich on add to an entry.
func (w *Writer) appendRich(b []byte, e *event.Resolved, level Level) []byte {
	rec := e.Event()
	isJSON := shownJSON(e)
	resolved := e.Link == event.LinkResolved
	b = rec.ID.AppendTo(append(b, `,"eventId":"`...))
	b = jsontext.Text(b, `","eventType":`, rec.Type)
	b = append(b, `,"eventNumber":`...)
	from := len(b)
	b = strconv.AppendInt(b, rec.Number, 10)
	digits := b[from:]
	if level >= Body {
		if isJSON || level == TryHarder {
			isJSON = isJSON || isStructure(rec.Data)
			b = w.appendBody(append(b, `,"data":`...), rec.Data, level)
		}
		if len(rec.Metadata) > 0 {
			b = w.appendBody(append(b, `,"metaData":`...), rec.Metadata, level)
		}
		if resolved {
			b = w.appendBody(append(b, `,"linkMetaData":`...), e.Metadata, level)
		}
	}
	w.name(rec.Stream, false)
	b = jsontext.Raw(b, `,"streamId":"`, w.names.text)
	b = jsontext.Bool(b, `","isJson":`, isJSON)
	if len(rec.Metadata) == 0 && !resolved && !rec.IsRedacted() { // As most are.
		b = append(b, `,"isMetaData":false,"isLinkMetaData":false,"isRedacted":false,"positionEventNumber":`...)
	} else {
		b = jsontext.Bool(b, `,"isMetaData":`, level >= Body && len(rec.Metadata) > 0)
		b = jsontext.Bool(b, `,"isLinkMetaData":`, level >= Body && resolved && len(e.Metadata) > 0)
		b = jsontext.Bool(b, `,"isRedacted":`, rec.IsRedacted())
		b = append(b, `,"positionEventNumber":`...)
	}
	number, stream := e.Number, e.Stream
	if w.Index != "" {
		number, stream = e.Position, w.Index
	}
	if number == rec.Number {
		b = append(b, digits...)
	} else {
		b = strconv.AppendInt(b, number, 10)
	}
	b = append(b, `,"positionStreamId":`...)
	if stream == rec.Stream {
		b = append(b, '"')
		b = append(b, w.names.text...)
		return append(b, '"')
	}
	return jsontext.AppendString(b, stream)
}

// appendBody appends stored bytes as a JSON string, indented where the level asks for it.
func (w *Writer) appendBody(b, data []byte, level Level) []byte {
	if level >= Pretty {
		if indented, ok := jsontext.AppendIndent(w.scratch[:0], data); ok {
			w.scratch = indented
			data = indented
		}
	}
	return jsontext.AppendString(b, data)
}

// AppendEventJSON appends an event with its data and metadata as JSON values:
// the content of an entry, and the event itself as a document.
func AppendEventJSON(b []byte, e *event.Resolved) []byte {
	rec := e.Event()
	b = jsontext.Text(b, `{"eventStreamId":`, rec.Stream)
	b = jsontext.Int(b, `,"eventNumber":`, rec.Number)
	b = jsontext.Text(b, `,"eventType":`, rec.Type)
	b = rec.ID.AppendTo(append(b, `,"eventId":"`...))
	b = AppendValue(append(b, `","data":`...), rec.Data, rec.IsJSON())
	b = AppendValue(append(b, `,"metadata":`...), rec.Metadata, rec.IsJSON())
	return append(b, '}')
}

// AppendValue appends stored bytes as a JSON value. Bytes that are not JSON become a JSON string.
// So does a number or a word that the writer did not declare to be JSON.
func AppendValue(b, data []byte, isJSON bool) []byte {
	if isJSON && jsontext.ValidUTF8(data) || !isJSON && isStructure(data) {
		return append(b, data...)
	}
	return jsontext.AppendString(b, data)
}

// isStructure reports whether the bytes are a JSON object or array.
func isStructure(data []byte) bool {
	i := jsontext.Space(data, 0)
	return i < len(data) && (data[i] == '{' || data[i] == '[') && jsontext.ValidUTF8(data)
}
