package atom

import (
	"strings"
	"time"

	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/internal/xmljson"
)

// noTime is the time of a feed that has none.
const noTime = "0001-01-01T00:00:00Z"

// AppendTime appends a time in nanoseconds since 1970 as UTC with six fractional digits.
func AppendTime(b []byte, ns int64) []byte {
	t := time.Unix(0, ns).UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	var d [len(dateText) + len(microsText)]byte
	put2(d[0:], year/100) // Nanoseconds in 64 bits end in 2262.
	put2(d[2:], year%100)
	d[4] = '-'
	put2(d[5:], int(month))
	d[7] = '-'
	put2(d[8:], day)
	d[10] = 'T'
	put2(d[11:], hour)
	d[13] = ':'
	put2(d[14:], minute)
	d[16] = ':'
	put2(d[17:], second)
	putMicros(d[len(dateText):], t.Nanosecond())
	return append(b, d[:]...)
}

// The two parts of a time: the events of a page often have the first one in common.
const (
	dateText   = "2006-01-02T15:04:05"
	microsText = ".000000Z"
)

// putMicros writes the end of a time from its nanoseconds.
func putMicros(b []byte, ns int) {
	micros := ns / 1000
	b[0] = '.'
	put2(b[1:], micros/10000)
	put2(b[3:], micros/100%100)
	put2(b[5:], micros%100)
	b[7] = 'Z'
}

// appendTime is AppendTime.
func (w *Writer) appendTime(b []byte, ns int64) []byte {
	second := ns / 1e9
	if w.second != second || ns < 1e9 {
		b = AppendTime(b, ns)
		w.second = second
		copy(w.date[:], b[len(b)-len(dateText)-len(microsText):])
		return b
	}
	var d [len(microsText)]byte
	putMicros(d[:], int(ns%1e9))
	return append(append(b, w.date[:]...), d[:]...)
}

// put2 writes a number below 100 as two digits.
func put2(b []byte, n int) {
	b[1] = byte('0' + n%10)
	b[0] = byte('0' + n/10)
}

// names keeps the escaped forms of the stream name written last: a page mostly
// holds events of one stream.
type names struct {
	name  string
	known bool
	isXML bool
	uri   []byte // percent-encoded
	text  []byte // escaped for the document's format, without quotes
	home  []byte // address of the stream, ending with a slash
}

// reset forgets the name, so that no request sees another's in a shared string,
// and keeps the buffers.
func (n *names) reset() { *n = names{uri: n.uri[:0], text: n.text[:0], home: n.home[:0]} }

// name makes w.names those of a stream.
func (w *Writer) name(name string, isXML bool) {
	n := &w.names
	if n.known && n.isXML == isXML && n.name == name {
		return
	}
	n.name, n.known, n.isXML = name, true, isXML
	n.uri = AppendEscaped(n.uri[:0], name)
	n.home = append(appendStreamURI(n.home[:0], w.Origin, n.uri), '/')
	if isXML {
		n.text = xmljson.AppendText(n.text[:0], name)
		return
	}
	n.text = AppendInner(n.text[:0], name)
}

// AppendInner appends s escaped for the inside of a JSON string.
func AppendInner(b []byte, s string) []byte {
	start := len(b)
	b = jsontext.AppendString(b, s)
	copy(b[start:], b[start+1:])
	return b[:len(b)-2]
}

// appendStreamURI appends the address of a stream.
func appendStreamURI(b, origin, name []byte) []byte {
	b = append(b, origin...)
	b = append(b, StreamsPath...)
	return append(b, name...)
}

// Level is how much of an event an entry shows.
type Level uint8

const (
	None Level = iota
	Content
	Rich
	Body
	Pretty
	TryHarder
)

// ParseLevel reads a level; one that is not known shows nothing more.
func ParseLevel(v string) Level {
	switch {
	case v == "":
	case strings.EqualFold(v, "content"):
		return Content
	case strings.EqualFold(v, "rich"):
		return Rich
	case strings.EqualFold(v, "body"):
		return Body
	case strings.EqualFold(v, "pretty"), strings.EqualFold(v, "prettybody"):
		return Pretty
	case strings.EqualFold(v, "tryharder"):
		return TryHarder
	}
	return None
}
