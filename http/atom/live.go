package atom

import (
	"strconv"
	"unicode/utf8"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
)

// AppendLive appends an event as a live tail sends it: its entry without author and links, with its
// position. Of data and metadata at most maxData bytes are shown; a value below 0 means all. The
// entry gives the length of the data that it shows. What is shown of the event must not be bare.
func (w *Writer) AppendLive(b []byte, e *event.Resolved, level Level, maxData int) []byte {
	number, stream := shown(e)
	w.name(stream, false)
	b = jsontext.Int(b, `{"title":"`, number)
	b = append(b, '@')
	b = append(b, w.names.text...)
	b = jsontext.Raw(b, `","id":"`, w.names.home)
	b = strconv.AppendInt(b, number, 10)
	b = AppendTime(append(b, `","updated":"`...), e.Time)
	b = jsontext.Text(b, `","summary":`, e.Type)
	if level >= Rich && e.Link != event.LinkDead {
		size := len(e.Event().Data)
		if maxData >= 0 {
			e = cut(e, maxData)
		}
		b = w.appendRich(b, e, level)
		if level >= Body {
			b = jsontext.Int(b, `,"dataBytes":`, int64(size))
		}
		if e.Target != nil {
			b = AppendTime(append(b, `,"eventUpdated":"`...), e.Target.Time)
			b = append(b, '"')
		}
	}
	b = AppendPosition(append(b, `,"position":"`...), e.Position)
	return append(b, `"}`...)
}

// cut returns an event of whose data and metadata there are at most so many bytes.
func cut(e *event.Resolved, most int) *event.Resolved {
	short := *e
	// What a link says is short, and tells whether it is one.
	short.Metadata = cutText(short.Metadata, most)
	if short.Target == nil {
		if short.Type != event.TypeLink {
			short.Data = cutText(short.Data, most)
		}
		return &short
	}
	target := *short.Target
	target.Data, target.Metadata = cutText(target.Data, most), cutText(target.Metadata, most)
	short.Target = &target
	return &short
}

// cutText cuts before the character that would be cut in two.
func cutText(b []byte, most int) []byte {
	if len(b) <= most {
		return b
	}
	for at := most; at > 0 && at > most-utf8.UTFMax; at-- {
		if utf8.RuneStart(b[at]) {
			return b[:at]
		}
	}
	return b[:most]
}
