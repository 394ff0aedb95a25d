package tree

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// AppendFlatJSON appends one object with the statistics under their paths joined by
// "-", letters as they are. With metadata, a statistic that has a description
// becomes an object of its value and the description. If two have the same key,
// the later one counts.
func (f Statistics) AppendFlatJSON(dst []byte, metadata bool) []byte {
	flat := &Node{isObject: true}
	at := make(map[string]*Node, len(f))
	for _, figure := range f {
		key := strings.Join(figure.Path, "-")
		if at[key] == nil {
			at[key] = &Node{key: key}
			flat.children = append(flat.children, at[key])
		}
		at[key].figure = figure
	}
	return flat.AppendJSON(dst, metadata)
}

// Flat returns the statistics as texts under their paths joined by "-", letters as they are. An
// unknown value is an empty text. With metadata, a statistic that has a description is a text for
// its value and for each part of the description.
func (f Statistics) Flat(metadata bool) map[string]string {
	flat := make(map[string]string, len(f))
	for _, figure := range f {
		key := strings.Join(figure.Path, "-")
		parts := (&Node{figure: figure}).shown(metadata)
		if parts == nil {
			flat[key] = text(figure.Value)
		}
		for _, n := range parts {
			flat[key+"-"+n.key] = text(n.figure.Value)
		}
	}
	return flat
}

// AppendJSON appends the node as JSON, indented by two spaces. With metadata, a
// statistic that has a description becomes an object of its value and the
// description.
func (n *Node) AppendJSON(dst []byte, metadata bool) []byte { return n.appendJSON(dst, metadata, 0) }

func (n *Node) appendJSON(dst []byte, metadata bool, depth int) []byte {
	children := n.shown(metadata)
	switch {
	case children == nil && !n.isObject:
		return appendJSONValue(dst, n.figure.Value)
	case len(children) == 0:
		return append(dst, "{}"...)
	}
	dst = append(dst, '{')
	for i, c := range children {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(appendLine(dst, depth+1), c.key)
		dst = c.appendJSON(append(dst, ": "...), metadata, depth+1)
	}
	return append(appendLine(dst, depth), '}')
}

// shown returns what is below a node in JSON and XML alike. With metadata there
// is something below a statistic, too.
func (n *Node) shown(metadata bool) []*Node {
	about := n.figure.About
	if n.isObject || !metadata || about == nil {
		return n.children
	}
	leaf := func(key string, value any) *Node { return &Node{key: key, figure: Statistic{Value: value}} }
	return []*Node{
		leaf("value", n.figure.Value), leaf("category", about.Category), leaf("title", about.Title), leaf("drawChart", about.DrawChart),
	}
}

func appendLine(dst []byte, depth int) []byte {
	dst = append(dst, '\n')
	for range depth {
		dst = append(dst, "  "...)
	}
	return dst
}

func appendJSONValue(dst []byte, value any) []byte {
	if s, ok := value.(string); ok {
		return appendString(dst, s)
	}
	if value == nil {
		return append(dst, "null"...)
	}
	return append(dst, text(value)...)
}

// text returns the plain form of a value, which is the same in JSON and XML but
// for strings and nil. JSON knows no infinities: they become 0.
func text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case int, uint64, bool:
		return fmt.Sprint(v)
	case float64:
		size := math.Abs(v)
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0) || v == 0:
			return "0"
		case size < 1e-6 || size >= 1e21:
			return strconv.FormatFloat(v, 'e', -1, 64)
		}
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	panic(fmt.Sprintf("tree: a figure of type %T", value))
}

// appendString appends a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < 0x20:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

// AppendXML appends the node as an XML document with the root element Stats,
// for any key of the node. Elements are named like the keys in JSON;
// characters that the name of an element may not hold are replaced by "_", a
// digit in front gets one before it, and such an element has the key in the
// attribute name. A statistic without a value is an empty element.
func (n *Node) AppendXML(dst []byte, metadata bool) []byte {
	w := bytes.NewBuffer(dst)
	w.WriteString(`<?xml version="1.0" encoding="utf-8"?><Stats>`)
	n.writeXML(w, metadata)
	w.WriteString("</Stats>")
	return w.Bytes()
}

// writeXML writes what is inside the node's element.
func (n *Node) writeXML(w *bytes.Buffer, metadata bool) {
	children := n.shown(metadata)
	if len(children) == 0 {
		escape(w, text(n.figure.Value))
	}
	for _, c := range children {
		name := elementName(c.key)
		w.WriteString("<" + name)
		if name != c.key {
			w.WriteString(` name="`)
			escape(w, c.key)
			w.WriteByte('"')
		}
		w.WriteByte('>')
		c.writeXML(w, metadata)
		w.WriteString("</" + name + ">")
	}
}

// A buffer takes everything.
func escape(w *bytes.Buffer, s string) { _ = xml.EscapeText(w, []byte(s)) }

// elementName turns a key into a name. A colon would need a namespace declaration, so it is
// replaced as well.
func elementName(key string) string {
	var name []rune
	for i, r := range key {
		inner := '0' <= r && r <= '9' || r == '-' || r == '.'
		switch {
		case i == 0 && '0' <= r && r <= '9':
			name = append(name, '_', r)
		case r == '_' || unicode.Is(letters, r) || i > 0 && inner:
			name = append(name, r)
		default:
			name = append(name, '_')
		}
	}
	if name == nil {
		return "_"
	}
	return string(name)
}

// letters are those that a name may begin with by every edition of XML 1.0. The
// first four allow fewer than the fifth, and many readers know those alone.
var letters = &unicode.RangeTable{
	R16: []unicode.Range16{
		{'A', 'Z', 1}, {'a', 'z', 1}, {0xC0, 0xD6, 1}, {0xD8, 0xF6, 1}, {0xF8, 0x131, 1}, {0x134, 0x13E, 1}, {0x141, 0x148, 1},
		{0x14A, 0x17E, 1}, {0x388, 0x38A, 1}, {0x38E, 0x3A1, 1}, {0x3A3, 0x3CE, 1}, {0x401, 0x40C, 1}, {0x40E, 0x44F, 1},
		{0x451, 0x45C, 1}, {0x5D0, 0x5EA, 1}, {0x621, 0x63A, 1}, {0x3041, 0x3094, 1}, {0x30A1, 0x30FA, 1}, {0x4E00, 0x9FA5, 1},
		{0xAC00, 0xD7A3, 1},
	},
	LatinOffset: 4,
}
